"""The program under construction: what lowerings call to make buffers, loops and library calls.

A computed tensor stays a function until something needs it in memory; `store` then writes its loops. So a chain of elementwise
operators becomes one nest without any fusion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch

from stoker import torch_private
from stoker.graph.walk import draws, keeps_state
from stoker.loop.body import LoopValue, Recorder
from stoker.loop.handler import ops, using
from stoker.loop.index import Dimensions, loops_of, ranges_of, simplify
from stoker.loop.instruction import Indirect, index_expressions, with_expressions
from stoker.loop.layout import Layout, Sizes, contiguous, has_longer_rows, is_dense
from stoker.loop.node import Extern, Loops, Program
from stoker.loop.target import Target, Targets
from stoker.loop.view import Computed, Index, Stored, Tensor, cost_of, reads_of
from stoker.lower.pieces import IN_PIECES, Cut, cut, inside
from stoker.lower.registry import Result, Usage
from stoker.nest import map_leaves
from stoker.shape.expr import constant
from stoker.shape.walk import free_symbols

OF_TRUTHS = {"sum": "any", "prod": "all"}
"""How truths are added and multiplied: nothing larger than True is kept of them."""


Names = tuple[str, ...]
Element = Callable[[Index], LoopValue]
"""The value of a tensor at an index."""
Reduced = Callable[[Index, Index], LoopValue]
"""What is reduced: the value at an index of the outer loops, and one of the inner."""


class GeneratorState(NamedTuple):
    """Seed and offset of a device's generator: numbers, each with the address of what is to be added to it, or 0."""

    seed: Stored
    seed_address: Stored
    offset: Stored
    offset_address: Stored


class Builder:
    """Collects nodes."""

    def __init__(self, targets: Targets, free_layout: bool = False, wide: bool = False) -> None:
        self.targets = targets
        self.wide = wide
        """Do half-precision values stay wide inside loops?"""
        self.program = Program()
        self.free_layout = free_layout
        """May tensors between operators have other strides than eager's? In inference, nobody sees them."""
        self.usage = Usage()
        """The operator being lowered, and what is known of its use."""
        self.padded: dict[Tensor, Stored] = {}
        """Operands of products that were written again with padded rows."""
        self._once: dict[int, tuple[Computed, Stored]] = {}
        self._stored: dict[int, tuple[Computed, Stored]] = {}
        self._drawn: tuple[int, torch.device, GeneratorState] | None = None
        """The node that asked a device's generator for its state last, and this."""
        self._count = 0

    def target(self, device: torch.device) -> Target:
        return self.targets[device.type]

    def new_buffer(self, layout: Layout) -> Stored:
        name = f"b{self._count}"
        self._count += 1
        self.program.layouts[name] = layout
        return Stored(name, layout.dtype, layout.device, layout.sizes, layout.strides)

    def blank(self, layout: Layout) -> Stored:
        """A buffer whose content is not promised."""
        stored = self.new_buffer(layout)
        self.program.blank.add(stored.buffer)
        return stored

    def compute(self, out: Result, element: Element, inputs: Sequence[Tensor] = (), cost: int = 1) -> Computed:
        """A tensor by its element function."""
        total = cost + cost_of(*inputs)
        return Computed(
            out.dtype, out.device, out.sizes, out.strides, element, reads_of(*inputs), total, self.usage.origin
        )

    def store(self, tensor: Tensor, *, gaps: bool = False) -> Stored:
        """The tensor in memory, written by loops unless it is there already; `gaps` between its rows are kept if it has them."""
        if isinstance(tensor, Stored):
            return tensor
        known = self._stored.get(id(tensor))
        if known is not None:
            return known[1]
        kept = is_dense(tensor.sizes, tensor.strides) or (gaps and has_longer_rows(tensor.sizes, tensor.strides))
        strides = tensor.strides if kept else contiguous(tensor.sizes)
        stored = self.new_buffer(Layout(tensor.dtype, tensor.device, tensor.sizes, strides))
        self.write(tensor, stored)
        self._stored[id(tensor)] = (tensor, stored)
        return stored

    def store_once(self, tensor: Tensor) -> Stored:
        """The tensor in memory, of which dimensions along which it does not vary hold one element, with a stride of 0; but for the last, along
        which kernels read."""
        if isinstance(tensor, Stored):
            return tensor
        known = self._stored.get(id(tensor)) or self._once.get(id(tensor))
        if known is not None:
            return known[1]
        loops = loops_of("i", tensor.sizes)
        with using(Recorder(self.wide)) as recorder:
            tensor.at(_loop_index(loops))
        seen = {s for i in recorder.instructions for e in index_expressions(i) for s in free_symbols(e)}
        varies = [*(loop.symbol in seen for loop in loops[:-1]), True]
        sizes = tuple(size if v else constant(1) for size, v in zip(tensor.sizes, varies))
        stored = self.store(tensor if all(varies) else replace(tensor, sizes=sizes), gaps=True)
        strides = tuple(stride if v else constant(0) for stride, v in zip(stored.strides, varies))
        shared = replace(stored, sizes=tensor.sizes, strides=strides)
        self._once[id(tensor)] = (tensor, shared)
        return shared

    def write(self, tensor: Tensor, target: Stored, combine: str | None = None) -> None:
        """Loops that write a tensor's elements to a place in memory, or combine them with what an earlier node wrote there."""
        outer = loops_of("i", target.sizes)
        index = _loop_index(outer)
        with using(Recorder(self.wide)) as recorder:
            value = tensor.at(index)
            ops.store(target.buffer, target.place(index), ops.to_dtype(value, target.dtype), combine)
        self._add(recorder, (target.buffer,), outer, (), tuple(recorder.origins))

    def copy(self, tensor: Tensor, out: Result) -> Stored:
        """The tensor in memory of its own, for later nodes to write to."""
        stored = self.new_buffer(out)
        self.write(tensor, stored)
        return stored

    def scatter(
        self, target: Stored, sizes: Sizes, place: Callable[[Index], Index], value: Element, combine: str
    ) -> None:
        """Loops over sizes that write values to computed places of a tensor that was written before."""
        outer = loops_of("i", sizes)
        index = _loop_index(outer)
        with using(Recorder(self.wide)) as recorder:
            made = ops.to_dtype(value(index), target.dtype)
            ops.store(target.buffer, target.place(place(index)), made, combine)
        self._add(recorder, (target.buffer,), outer)

    def scan(self, results: Sequence[Result], dim: int, kinds: Sequence[str], element: Element) -> list[Stored]:
        """Running reductions of one element function along a dimension: a result for each kind, in one nest."""
        sizes = results[0].sizes
        outer = loops_of("i", sizes[:dim] + sizes[dim + 1 :])
        inner = loops_of("r", sizes[dim : dim + 1])
        made = [self.new_buffer(r) for r in results]
        with using(Recorder(self.wide)) as recorder:
            at = _loop_index(outer)
            index = (*at[:dim], *_loop_index(inner), *at[dim:])
            value = element(index)
            for stored, kind in zip(made, kinds, strict=True):
                found = ops.scan(kind, value, torch.int64 if kind.startswith("arg") else value.dtype)
                ops.store(stored.buffer, stored.place(index), ops.to_dtype(found, stored.dtype))
        self._add(recorder, tuple(m.buffer for m in made), outer, inner)
        return made

    def reduce(self, out: Result, kept: Sizes, strides: Sizes, over: Sizes, kind: str, element: Reduced) -> Stored:
        """A reduction: `element(outer, inner)` combined over the inner sizes; of pieces of them first, and then of
        these, where a device would not be busy otherwise. The loops run over the `kept` sizes, which lie in the result
        at these strides."""
        outer, inner = loops_of("i", kept), loops_of("r", over)
        with using(Recorder(self.wide)) as recorder:
            at = _loop_index(outer)
            value = element(at, _loop_index(inner))
        kind = OF_TRUTHS.get(kind, kind) if value.dtype is torch.bool else kind
        made = self._cut(out, outer, inner, recorder)
        if made is not None and kind in IN_PIECES:
            sizes = (*made.counts, *kept)
            part = Result(value.dtype, out.device, sizes, contiguous(sizes))

            def in_piece(outer: Index, inner: Index) -> LoopValue:
                at = made.place(outer[: len(over)], inner)
                return inside(at, over, made, kind, value.dtype, lambda: element(outer[len(over) :], at))

            first = self.reduce(part, sizes, part.strides, made.lengths, kind, in_piece)
            return self.reduce(out, kept, strides, made.counts, kind, lambda o, i: first.at((*i, *o)))
        stored = self.new_buffer(out)
        place = replace(stored, sizes=kept, strides=strides)
        with using(recorder):
            result = ops.reduce(kind, value, torch.int64 if kind.startswith("arg") else value.dtype)
            ops.store(stored.buffer, place.place(at), ops.to_dtype(result, out.dtype))
        self._add(recorder, (stored.buffer,), outer, inner)
        return stored

    def pieces(self, out: Result, kept: Sizes, over: Sizes, element: Reduced) -> Cut | None:
        """Pieces of what a reduction reduces over, if the device would not be busy with fewer."""
        outer, inner = loops_of("i", kept), loops_of("r", over)
        with using(Recorder(self.wide)) as recorder:
            element(_loop_index(outer), _loop_index(inner))
        return self._cut(out, outer, inner, recorder)

    def _cut(self, out: Result, outer: Dimensions, inner: Dimensions, recorder: Recorder) -> Cut | None:
        split = self.target(out.device).split
        if split is None:
            return None
        shown = tuple(d for d in outer if d.size.value != 1), tuple(d for d in inner if d.size.value != 1)
        wanted = split(*shown, recorder.instructions)
        return cut(tuple(d.size for d in inner), wanted) if wanted > 1 else None

    def _add(
        self, recorder: Recorder, writes: Names, outer: Dimensions, inner: Dimensions = (), origins: Names = ()
    ) -> None:
        """A node. It stands for the operator being lowered, and those whose elements it computes, unless told otherwise."""
        ranges = ranges_of((*outer, *inner))
        body = []
        for i in recorder.instructions:
            body.append(i if isinstance(i, Indirect) else with_expressions(i, lambda e: simplify(e, ranges)))
        device = self.program.layouts[writes[0]].device
        origins = origins or (*recorder.origins, self.usage.origin)
        self.program.nodes.append(Loops(writes, outer, inner, tuple(body), device, origins))

    def call(self, operator: Any, arguments: Any, keywords: Any, results: Any, *, aliases: bool = False) -> Any:
        """A library call. `results` is the metadata of what it returns: a Result, or a sequence of Result and None."""
        several = isinstance(results, (list, tuple))
        known = results if several else [results]
        made = [self.new_buffer(r) if isinstance(r, Layout) else None for r in known]
        arguments, keywords = self._in_memory(arguments), self._in_memory(keywords)
        writes = tuple(m.buffer if isinstance(m, Stored) else None for m in made)
        order = _keeps_order(operator)
        self.program.nodes.append(Extern(writes, operator, tuple(arguments), keywords, several, aliases, order))
        return made if several else made[0]

    def draw(self, device: torch.device, increment: int) -> tuple[GeneratorState, int]:
        """The state of a device's generator, and how far past its offset the numbers begin that are drawn now. Those who draw one after
        another, no library call between them, share it."""
        nodes, drawn = self.program.nodes, self._drawn
        last = next((p for p in reversed(range(len(nodes))) if isinstance(n := nodes[p], Extern) and n.ordered), None)
        if drawn is None or drawn[0] != last or drawn[1] != device:
            numbers = self.call(torch.ops.stoker.draw.default, (device, increment), {}, [_NUMBER] * 4)
            state = GeneratorState(*numbers)
            self._drawn = (len(nodes) - 1, device, state)
            return state, 0
        node = nodes[drawn[0]]
        assert isinstance(node, Extern)
        before: int = node.arguments[1]
        nodes[drawn[0]] = replace(node, arguments=(device, before + increment))
        return drawn[2], before

    def _in_memory(self, value: Any) -> Any:
        """Libraries see where rows begin: some take none but aligned ones."""
        return map_leaves(lambda leaf: self.store(leaf, gaps=True) if isinstance(leaf, Computed) else leaf, value)


_NUMBER = Result(torch.int64, torch.device("cpu"), (), ())


def _keeps_order(operator: Any) -> bool:
    """Does a call draw random numbers, or remember earlier ones? A function that is not an operator might."""
    return draws(operator) or keeps_state(operator) or not isinstance(operator, torch_private.OpOverload)


def _loop_index(dimensions: Dimensions) -> Index:
    """The symbols of loops; a loop that runs once is at 0."""
    return tuple(d.symbol if d.size.value != 1 else constant(0) for d in dimensions)
