"""Leaves of autograd that captured code makes and that code behind the graph may ask for gradients, such as parameters: replacement code makes
them empty, before the graph, and the graph fills them.

A parameter lies in the memory of what it is made of. Two memories are as good as one if nobody else has it, and it is not looked at once the
parameter has changed.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from stoker.capture import engine
from stoker.capture.machine import Machine
from stoker.capture.values.tensor import TensorValue
from stoker.errors import Break, StepBreak
from stoker.guard.source import Fixed
from stoker.nest import leaves


def make_leaf(cls: type, sizes: tuple[int, ...], strides: tuple[int, ...], kind: dict[str, Any]) -> torch.Tensor:
    made = torch.empty_strided(sizes, strides, **kind)
    return torch.nn.Parameter(made) if cls is torch.nn.Parameter else made.requires_grad_()


@dataclass(frozen=True, slots=True)
class Filled:
    """A leaf, what it is made of, and what both held then."""

    leaf: Any
    data: Any
    contents: tuple[Any, Any]
    node: Node
    step: int


def fresh_leaf(m: Machine, data: TensorValue, cls: type) -> TensorValue:
    """A leaf that holds what a tensor holds."""
    fake: Any = data.fake
    inputs = [node.meta["example_value"] for node, _, _ in m.record.inputs]
    if any(isinstance(size, torch.SymInt) for size in (*fake.shape, *fake.stride())):
        raise _refusal("its size is another from call to call")
    if any(isinstance(given, torch.Tensor) and given.memory is fake.memory for given in inputs):  # type: ignore[attr-defined]  # a FakeTensor
        raise _refusal("it lies in memory from outside")
    kind = {"dtype": fake.dtype, "device": fake.device}
    recipe = functools.partial(make_leaf, cls, tuple(fake.shape), tuple(fake.stride()), kind)
    made: Any = m.record.fake_mode.from_real(recipe())
    node = m.record.input(Fixed(recipe, "leaf"), recipe, made)
    m.record.conversions[node] = operator.call
    value = TensorValue(node, made, cls)
    m.record.hold(made, value)
    m.record.call(engine.fill, [value, data], {}, keep=True)
    contents, last = (made.memory.content, fake.memory.content), next(iter(reversed(m.record.graph.nodes)))
    m.record.filled.append(Filled(made.memory, fake.memory, contents, last, m.step))
    return value


def refuse_shared_leaves(m: Machine, outputs: Iterable[Node]) -> None:
    """Break where a leaf was made, if it would be seen that it does not share the memory of what it was made of."""
    given = {id(memory) for node in outputs for memory in _memories(node)}
    order = {node: number for number, node in enumerate(m.record.graph.nodes)}
    for made in m.record.filled:
        written = (made.leaf.content, made.data.content) != made.contents
        later = [node for node, number in order.items() if number > order[made.node]]
        is_read = any(made.data is memory for node in later for n in node.all_input_nodes for memory in _memories(n))
        if id(made.data) in given or (written and is_read):
            reason = _refusal("what it is made of is seen, too")
            m.blame(reason)
            raise StepBreak(made.step, reason)


def _memories(node: Node) -> list[Any]:
    return [t.memory for t in leaves(node.meta.get("example_value")) if isinstance(t, torch.Tensor)]  # type: ignore[attr-defined]  # a FakeTensor


def _refusal(reason: str) -> Break:
    return Break("a leaf of autograd that is made inside", reason, "make it before the compiled function is called")
