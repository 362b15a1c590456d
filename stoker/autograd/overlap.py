"""Inputs that lie in the same memory, one of them written: the program again, with one input that they are views of.

In:  a captured graph, inputs, and the positions of those that the program writes.
Out: `pattern`: which inputs overlap a written one, and how; `Merged`: a graph whose inputs share no memory, and the
     road from the program's inputs to its own and from its outputs back.

Each group of overlapping inputs has a span: the flat view of their common base (the tensor that autograd calls so) from
their first element to their last. The new graph takes the span and makes the inputs as views of it; so a write through
one is seen by the others, gradients add up as in eager, and afterwards writing to the span is writing to the base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.autograd.refusal import CannotTrace
from stoker.fake import FakeTensor
from stoker.graph.undo import SPAN


@dataclass(frozen=True, slots=True)
class MemoryPlace:
    """Where an input lies: enough to make it again from anything on its memory."""

    index: int
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int
    requires_grad: bool

    @property
    def end(self) -> int:
        return self.offset + 1 + sum((s - 1) * t for s, t in zip(self.sizes, self.strides))


@dataclass(frozen=True, slots=True)
class Group:
    """Inputs that overlap, and the span of memory they cover."""

    places: tuple[MemoryPlace, ...]
    start: int
    end: int
    dtype: torch.dtype
    base_requires_grad: bool
    base_is_leaf: bool
    storages: int
    """How many storages they have: several can lie on one memory, which an array outside owns."""


Pattern = tuple[Group, ...]


class WrittenOverlap(CannotTrace):
    """A write to an input that shares memory with another, or is looked at by place, is more than its own new content."""

    def __init__(self, written: frozenset[int], placed: frozenset[int]) -> None:
        super().__init__("an input is written, and another input shares its memory")
        self.written, self.placed = written, placed


def refuse_written_overlap(inputs: Sequence[Any], written: frozenset[int], placed: frozenset[int]) -> None:
    """Raise if one of the written inputs shares memory with another, or one is looked at by its place in memory."""
    if pattern(inputs, written, placed):
        raise WrittenOverlap(written, placed)


def pattern(inputs: Sequence[Any], written: frozenset[int], placed: frozenset[int]) -> Pattern:
    """The groups of inputs that share memory with a written one; one of `placed` is a group by itself if need be."""
    by_device: dict[torch.device, list[int]] = {}
    for index, value in enumerate(inputs):
        if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and _has_elements(value):
            by_device.setdefault(value.device, []).append(index)
    groups = [g for members in by_device.values() for g in _connected(inputs, members)]
    groups = [g for g in groups if len(g) > 1 or not placed.isdisjoint(g)]
    return tuple(_group(inputs, g) for g in groups if not written.isdisjoint(g))


def _has_elements(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.numel() > 0


def _connected(inputs: Sequence[Any], members: list[int]) -> list[list[int]]:
    """Members on one device, in groups whose spans of bytes reach into each other."""
    spans = sorted((*_bytes(inputs[i]), i) for i in members)
    groups: list[list[int]] = []
    reach = -1
    for low, high, index in spans:
        if low >= reach:
            groups.append([])
        groups[-1].append(index)
        reach = max(reach, high)
    return [sorted(g) for g in groups]


def _bytes(tensor: torch.Tensor) -> tuple[int, int]:
    place, start = _place(0, tensor), tensor.data_ptr()
    return start, start + (place.end - place.offset) * tensor.element_size()


def _place(index: int, tensor: torch.Tensor) -> MemoryPlace:
    return MemoryPlace(index, tuple(tensor.shape), tensor.stride(), int(tensor.storage_offset()), tensor.requires_grad)


def _group(inputs: Sequence[Any], members: list[int]) -> Group:
    places = tuple(_place(i, inputs[i]) for i in members)
    base = _base(inputs, places)
    start, end = min(p.offset for p in places), max(p.end for p in places)
    storages = len({torch_private.storage_identity(inputs[i]) for i in members})
    return Group(places, start, end, inputs[members[0]].dtype, base.requires_grad, base.is_leaf, storages)


def _base(inputs: Sequence[Any], places: Sequence[MemoryPlace]) -> torch.Tensor:
    """The tensor that the others are views of; where there are several, the one that autograd knows most about."""
    bases = [_own_base(inputs[p.index]) for p in places]
    return max(bases, key=lambda b: b.requires_grad)


def _own_base(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


def _span(inputs: Sequence[Any], group: Group) -> torch.Tensor:
    return _base(inputs, group.places).as_strided((group.end - group.start,), (1,), group.start)


def _refuse(inputs: Sequence[Any], group: Group) -> None:
    """What a span cannot stand for."""
    members = [inputs[p.index] for p in group.places]
    if group.storages > 1:
        raise CannotTrace("an input is written, and another input has a storage of its own on the same memory")
    if len(members) == 1 and group.base_requires_grad:
        raise CannotTrace("an input that requires a gradient is written, and looked at by its place in memory")
    bases = {id(b): b for b in map(_own_base, members)}
    if any(m.dtype is not group.dtype for m in members):
        raise CannotTrace("an input is written, and another input of another type shares its memory")
    if sum(b.requires_grad for b in bases.values()) > 1 or len({_version(b) for b in bases.values()}) > 1:
        raise CannotTrace("an input is written, and another input shares its memory without being a view of it")
    if any(m.requires_grad and _is_one_of_several(m) for m in members):
        raise CannotTrace("inputs that were made several at once share memory, and one is written")


def _is_one_of_several(tensor: torch.Tensor) -> bool:
    """Was it made with others by one operator? Autograd lets none of them be written."""
    made = torch_private.creation_of(tensor) if torch_private.is_view(tensor) else None
    return made is torch_private.Creation.ONE_OF_SEVERAL


def _version(tensor: torch.Tensor) -> int:
    """How often it was written; inference tensors do not count."""
    return 0 if tensor.is_inference() else tensor._version


@dataclass(frozen=True)
class Merged:
    """The program on inputs in separate memory: those of the captured one that overlap no other, then the spans."""

    graph_module: GraphModule
    groups: Pattern
    apart: tuple[int, ...]
    returned: tuple[int | None, ...]
    """For each output of the program the input that it is, or None: the next output of the graph."""

    def inputs(self, inputs: Sequence[Any]) -> list[Any]:
        return [*(inputs[i] for i in self.apart), *(_span(inputs, g) for g in self.groups)]

    def wrap(self, call: Callable[..., Sequence[Any]]) -> Callable[..., tuple[Any, ...]]:
        """The call with the program's own inputs and outputs."""

        def merged(*inputs: Any) -> tuple[Any, ...]:
            made = iter(call(*self.inputs(inputs)))
            return tuple(next(made) if i is None else inputs[i] for i in self.returned)

        return merged


def merge(captured: GraphModule, inputs: Sequence[Any], groups: Pattern) -> Merged:
    """The captured program with each group's inputs made from its span."""
    for group in groups:
        _refuse(inputs, group)
    placeholders = [n for n in captured.graph.nodes if n.op == "placeholder"]
    inside = {p.index for g in groups for p in g.places}
    if any(_is_symbolic(placeholders[i]) for i in inside):
        raise CannotTrace("an input of symbolic size is written, and another input shares its memory")
    apart = tuple(i for i in range(len(placeholders)) if i not in inside)
    graph, copied = Graph(), {}
    for index in apart:
        copied[placeholders[index]] = graph.node_copy(placeholders[index])
    spans = [graph.placeholder(f"span_{number}") for number in range(len(groups))]
    views = []
    for group, span in zip(groups, spans):
        span.meta[SPAN] = True
        for place in group.places:
            views.append((place, _view(graph, span, place, group)))
            copied[placeholders[place.index]] = views[-1][1]
    output = next(n for n in captured.graph.nodes if n.op == "output")
    for node in captured.graph.nodes:
        if node.op not in ("placeholder", "output"):
            copied[node] = graph.node_copy(node, copied.__getitem__)
    for place, view in views:
        graph.call_function(unmoved, (view, place.sizes, place.strides, place.requires_grad))
    given = output.args[0] if isinstance(output.args[0], (list, tuple)) else (output.args[0],)
    members = {placeholders[i]: i for i in inside}
    returned = tuple(members.get(v) if isinstance(v, Node) else None for v in given)
    rest = tuple(v for v, i in zip(given, returned) if i is None)
    graph.output(torch.fx.node.map_arg(rest, copied.__getitem__))
    module = torch_private.graph_module(captured, graph)
    module.meta = dict(captured.meta)
    return Merged(module, groups, apart, returned)


def _is_symbolic(node: Node) -> bool:
    known = node.meta.get("example_value")
    return isinstance(known, FakeTensor) and known.meta.symbolic


def _view(graph: Graph, span: Node, place: MemoryPlace, group: Group) -> Node:
    view = graph.call_method("as_strided", (span, place.sizes, place.strides, place.offset))
    if group.base_requires_grad and not place.requires_grad:
        return graph.call_method("detach", (view,))
    return view


def unmoved(view: Any, sizes: tuple[int, ...], strides: tuple[int, ...], requires_grad: bool) -> None:
    """Runs at the end of a traced program: what a program does to the object, not to its content, a span does not
    pass on."""
    if not isinstance(view, FakeTensor):
        return
    if view.meta.sizes != sizes or view.meta.strides != strides:
        raise CannotTrace("an input in shared or strided memory is written and given other sizes")
    if view._base is None and view.requires_grad != requires_grad:
        raise CannotTrace("a gradient is written to an input, and another input that is no view shares its memory")
