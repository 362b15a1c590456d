"""A function behind a linear layer that the library computes with the product: bias, product and function are one call.

In:  a functional inference graph, and somebody who says which functions the library of a device has and whether a call is faster.
Out: the same graph, changed: `_addmm_activation` in place of `addmm` and what is computed of it, where that is ReLU or GELU in the form
     of tanh. How many there are.

A function may be written out (GPT-2's GELU is, in eight operators). So it is not looked at by its operators: what is computed of a product alone
is evaluated in float64, and held against the functions that the library has.

What must hold: nobody else reads the product. The library computes the function of numbers that were not rounded to half precision yet, as a
kernel that held them in registers would.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import Graph, GraphModule, Node

from stoker.graph.facts import alike, fake_of
from stoker.graph.walk import is_view
from stoker.passes.simplify import operators

aten = torch.ops.aten
FORMS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "gelu": lambda x: F.gelu(x, approximate="tanh"),
}
Faster = Callable[[Node, str], bool]
"""Is a product, and one of `FORMS` behind it, faster as one call?"""

_HALF = (torch.float16, torch.bfloat16)
_ELEMENTWISE = operators(
    """
    relu gelu tanh sigmoid neg square add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar
    pow.Tensor_Scalar clamp_min
    """
)
MOST_OPERATORS = 12
_SAMPLES = torch.linspace(-12, 12, 4001, dtype=torch.float64)


def join_activations(module: GraphModule, faster: Faster) -> int:
    """Join in place."""
    graph, count = module.graph, 0
    for node in list(graph.nodes):
        if node.target is aten.addmm.default and _is_plain(node):
            found = _activation(node)
            if found is not None and faster(node, found[2]):
                _exchange(graph, node, *found)
                count += 1
    return count


def _is_plain(node: Node) -> bool:
    """A product of a device in half precision, of known sizes, with a bias for each column. One row is left to loops."""
    value, bias = fake_of(node), fake_of(node.args[0])
    if value is None or bias is None or len(node.args) != 3 or node.kwargs:
        return False
    meta = value.meta
    on_device = meta.device.type == "cuda" and meta.dtype in _HALF and not meta.symbolic
    return on_device and meta.sizes[0] != 1 and len(bias.meta.sizes) == 1 and bias.meta.sizes[0] == meta.sizes[1]


def _activation(node: Node) -> tuple[Node, Node, str] | None:
    """The first of the library's functions that is computed of a product alone: what it is computed of, which is the
    product or a view of it; where it ends; and which one it is."""
    seen = node
    while len(seen.users) == 1 and is_view(user := next(iter(seen.users))) and user.args[0] is seen:
        seen = user
    for end, inside in _functions(seen):
        if all(user in inside for n in (seen, *inside) if n is not end for user in n.users):
            computed = _evaluated(seen, inside, end)
            for name, form in FORMS.items():
                if torch.allclose(computed, form(_SAMPLES), rtol=1e-9, atol=1e-9):
                    return seen, end, name
    return None


def _functions(start: Node) -> Iterator[tuple[Node, set[Node]]]:
    """What is computed of a node alone, element by element, each with all that it is made of."""
    made: dict[Node, set[Node]] = {start: set()}
    node = start.next
    while node.op != "root" and len(made) <= MOST_OPERATORS:
        operands = node.all_input_nodes
        if node.target in _ELEMENTWISE and operands and all(n in made for n in operands) and alike(node, start):
            made[node] = {node}.union(*(made[n] for n in operands))
            yield node, made[node]
        node = node.next


def _evaluated(start: Node, inside: set[Node], end: Node) -> torch.Tensor:
    values: dict[Node, Any] = {start: _SAMPLES}
    for node in start.graph.nodes:
        if node in inside:
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            values[node] = node.target(*args, **kwargs)
    return values[end]


def _exchange(graph: Graph, node: Node, seen: Node, end: Node, form: str) -> None:
    with graph.inserting_before(node):
        made = graph.call_function(aten._addmm_activation.default, node.args, {"use_gelu": form == "gelu"})
    made.meta = dict(node.meta)  # the memory is that of the product, which views look at
    node.replace_all_uses_with(made)
    end.replace_all_uses_with(made if seen is node else seen)
    for old in reversed(list(graph.nodes)):
        if old.op == "call_function" and not old.users and (old is node or old.target in _ELEMENTWISE):
            graph.erase_node(old)
