"""Python floats are taken out of a graph: what is computed with them is computed by Python, before the graph runs.

In:  a functional ATen graph, with floats among its inputs or made from sizes (`stoker.shape.recipe`).
Out: the graph in which every float is an input, given as a tensor of one number (`Scalars`); its metadata stays that of a
     symbolic float, which promotes types as a number does. Floats that the graph gives back are filled in behind it. An integer
     made of a float (`int(scale)`) is an input as well.

Arithmetic on floats is Python's own: to the last bit, and with its errors. But for divisions in a backward (`divide_as_c`).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.graph.facts import HOMES, device_of, homes_of
from stoker.graph.insert import copied_input, copied_node
from stoker.graph.walk import ancestors
from stoker.shape.symnode import expr_of

aten = torch.ops.aten
_OF_SHAPE = frozenset({aten.sym_size.int, aten.sym_stride.int})
_NUMBERS = (torch.SymFloat, torch.SymInt, int, float)


class NeedsData(Exception):
    """A float is computed from the data of a tensor."""


@dataclass(frozen=True, slots=True)
class Scalars:
    """Floats around a graph: which inputs are floats, how the others are computed, and which results they are."""

    graph: GraphModule
    given: tuple[int, ...]
    computed: Callable[..., Sequence[float]]
    """Of the inputs: the integers and the floats that the graph takes behind them, then the floats that are results."""
    taken: int
    """How many floats the graph takes behind its inputs and integers."""
    returned: tuple[int, ...]
    device: torch.device

    def around(self, run: Callable[..., Any]) -> Callable[..., Any]:
        """A compiled graph as a function of the original inputs."""
        boxed = bool(getattr(run, "_boxed_call", False))

        def called(inputs: Sequence[Any]) -> Any:
            numbers = self.computed(*inputs)
            behind = len(numbers) - len(self.returned)
            given = [*inputs, *numbers[:behind]]
            for position in (*self.given, *range(len(given) - self.taken, len(given))):
                given[position] = torch.full((), given[position], dtype=torch.float64, device=self.device)
            if boxed:
                inputs.clear()  # type: ignore[attr-defined]  # a list, whose tensors are freed after their last use
            results = run(given) if boxed else run(*given)
            if not self.returned:
                return results
            results = list(results)
            for position, value in zip(self.returned, numbers[behind:]):
                results[position] = value
            return tuple(results)

        if not boxed:
            return lambda *inputs: called(inputs)
        called._boxed_call = True  # type: ignore[attr-defined]  # torch's name for the convention
        return called

    def numbers(self, run: Callable[..., Any], count: int) -> Callable[..., Any]:
        """A function of the graph's inputs with numbers for floats, as one of tensors."""
        floats = frozenset({*self.given, *range(count - self.taken, count)})
        return lambda *inputs: run(*(v.item() if i in floats else v for i, v in enumerate(inputs)))


def divide_as_c(module: GraphModule) -> None:
    """Let divisions by zero give what they give in C++. The numbers of a backward are those of its formulas; where the program itself
    divides by zero, there is no backward."""
    for node in module.graph.nodes:
        if node.target is operator.truediv and isinstance(node.meta.get("val"), torch.SymFloat):
            node.target = quotient


def quotient(a: float, b: float) -> float:
    return a / b if b else math.copysign(math.inf, a) * math.copysign(1.0, b) if a and a == a else math.nan


def take_out(module: GraphModule, *, by_value: bool) -> Scalars | None:
    """The graph without arithmetic on floats, and what stands around it; None if it has no floats. Floats are beside the tensors that
    loops compute, or on the processor where kernels take them by value."""
    nodes = list(module.graph.nodes)
    floats = [n for n in nodes if isinstance(n.meta.get("val"), torch.SymFloat)]
    if not floats:
        return None
    inputs = [n for n in nodes if n.op == "placeholder"]
    output = nodes[-1]
    made = [n for n in floats if n.op != "placeholder"]
    rounded = [n for n in nodes if n.op == "call_function" and _is_rounded(n.meta.get("val"))]
    taken = [n for n in made if any(u not in (*made, *rounded) and u is not output for u in n.users)]
    results = list(output.args[0])
    returned = [i for i, r in enumerate(results) if isinstance(r, Node) and r in floats]
    computed = _host(module, inputs, [*rounded, *taken, *(results[i] for i in returned)])
    device = torch.device("cpu") if by_value else _device(nodes)
    rest, copied = Graph(), dict[Node, Node]()
    for node in (*inputs, *rounded, *taken):
        copied_input(rest, node, copied).meta["device"] = device
    for node in nodes:
        if node.op == "output":
            end = rest.output([None if i in returned else copied.get(r, r) for i, r in enumerate(results)])
            end.meta[HOMES] = homes_of(module.graph)
        elif node not in copied and node not in made:
            copied_node(rest, node, copied)
    graph = torch_private.LazyGraphModule(module, rest)
    graph.meta.update(module.meta)
    given = tuple(i for i, n in enumerate(inputs) if n in floats)
    return Scalars(graph, given, computed, len(taken), tuple(returned), device)


def _is_rounded(value: Any) -> bool:
    """Is it an integer made of a float?"""
    return isinstance(value, torch.SymInt) and expr_of(value) in value.node.env.roundings


def _host(module: GraphModule, inputs: Sequence[Node], wanted: Sequence[Node]) -> Callable[..., Sequence[float]]:
    """A Python function from the inputs to some of the graph's numbers."""
    if not wanted:
        return lambda *inputs: ()
    needed = ancestors(wanted, stop=frozenset(inputs))
    host, copied = Graph(), {}
    for node in inputs:
        copied[node] = host.placeholder(node.name)
    for node in module.graph.nodes:
        if node not in needed or node in copied:
            continue
        if not isinstance(node.meta["val"], _NUMBERS) or _reads_made_tensor(node):
            raise NeedsData(f"the number {node} depends on the data of a tensor")
        copied[node] = host.node_copy(node, copied.__getitem__)
    host.output([copied[n] for n in wanted])
    return torch_private.graph_module(torch.nn.Module(), host).forward


def _reads_made_tensor(node: Node) -> bool:
    """Does it look at a tensor otherwise than for the shape of an input?"""
    tensors = [n for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    return bool(tensors) and (node.target not in _OF_SHAPE or any(t.op != "placeholder" for t in tensors))


def _device(nodes: Sequence[Node]) -> torch.device:
    """Where loops read the numbers: beside the tensors they compute."""
    found = [d for n in nodes if (d := device_of(n)) is not None]
    return next((d for d in found if d.type != "cpu"), torch.device("cpu"))
