"""What depends on no input is computed when the graph is compiled.

In:  a functional ATen graph.
Out: the same graph, changed: such values are constants of the module, and how many there are.

Loops compute a mask of comparisons or a filled tensor where it is used, for less than reading it would take: values made of
`IN_LOOPS` alone stay as they are. What a program closed over is no constant, since it may be written to between calls; what it makes of
numbers is. Memory is bounded: a value of more than `LARGEST_BYTES` is left to the plan, and so are the largest that would bring the sum above
`MOST_BYTES`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule, Node

from stoker import torch_private
from stoker.fake import FakeTensor
from stoker.graph.facts import LITERAL
from stoker.graph.walk import ancestors, runs_once
from stoker.passes.simplify import VIEWS, operators

aten = torch.ops.aten
LARGEST_BYTES, MOST_BYTES = 1 << 20, 1 << 23

_OF_TWO = "add sub mul eq ne lt le gt ge bitwise_and bitwise_or bitwise_xor"
IN_LOOPS = VIEWS | operators(
    """
    full full_like clone _to_copy neg abs logical_not bitwise_not eye tril triu maximum minimum logical_and logical_or logical_xor
    arange arange.start arange.start_step where.self
    """
    + " ".join(f"{name}.Tensor {name}.Scalar" for name in _OF_TWO.split())
)
"""Operators whose elements loops compute as fast as they would read them."""
_WITHOUT_CONTENT = operators(
    "empty.memory_format empty_like empty_strided empty_permuted new_empty new_empty_strided _efficientzerotensor"
)


def precompute(module: GraphModule) -> int:
    """Compute in place; how many values became constants."""
    costly = _constants(module)
    if not any(costly.values()):
        return 0
    kept = [n for n, c in costly.items() if c and n.op != "get_attr" and any(u not in costly for u in n.users)]
    values = _evaluated(module, costly, kept)
    total = count = 0
    for node in sorted(values.keys() & set(kept), key=lambda n: (values[n].untyped_storage().nbytes(), n.name)):
        total += values[node].untyped_storage().nbytes()
        if total > MOST_BYTES:
            break
        _replace(module, node, values[node])
        count += 1
    for node in reversed(costly):
        if not node.users:
            module.graph.erase_node(node)
    return count


def _constants(module: GraphModule) -> dict[Node, bool]:
    """The nodes that depend on no input, and whether each is more than loops would compute where it is used."""
    found: dict[Node, bool] = {}
    for node in module.graph.nodes:
        given = node.all_input_nodes
        if node.op == "get_attr" and node.meta.get(LITERAL):
            found[node] = True
        elif node.op == "call_function" and all(n in found for n in given) and _is_plain(node):
            found[node] = node.target not in IN_LOOPS or any(found[n] for n in given)
    return found


def _is_plain(node: Node) -> bool:
    """A value of known size that an operator of ATen always gives."""
    value = node.meta.get("val")
    if not isinstance(node.target, torch_private.OpOverload) or not isinstance(value, FakeTensor):
        return False
    meta = value.meta
    if meta.symbolic or meta.device.type == "meta" or node.target in _WITHOUT_CONTENT or runs_once(node):
        return False
    return value.numel() * meta.dtype.itemsize <= LARGEST_BYTES


def _evaluated(module: GraphModule, constants: dict[Node, bool], kept: list[Node]) -> dict[Node, torch.Tensor]:
    needed = ancestors(kept)
    values: dict[Node, Any] = {}
    with torch.inference_mode(False), torch.no_grad():
        for node in constants:
            if node in needed and node.op == "get_attr":
                values[node] = getattr(module, str(node.target))
            elif node in needed and all(n in values for n in node.all_input_nodes):
                args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
                try:
                    values[node] = node.target(*args, **kwargs)  # type: ignore[operator]  # fx types arguments loosely: here they are nodes
                except (RuntimeError, IndexError, ValueError):
                    continue  # what raises, as 1 // 0, raises when the program gets there
    return values


def _replace(module: GraphModule, node: Node, value: torch.Tensor) -> None:
    """Put a constant in a node's place. Who sees its memory sees a copy."""
    graph, fake = module.graph, node.meta["val"]
    name = f"precomputed_{node.name}"
    setattr(module, name, value)
    with graph.inserting_before(node):
        constant = graph.create_node("get_attr", name)
        constant.meta = dict(node.meta) | {"val": fake.memory.mode.from_real(value)}
    for user in list(node.users):
        if user.op != "output":
            user.replace_input_with(node, constant)
    if node.users:
        node.target, node.args, node.kwargs = aten.clone.default, (constant,), {}
