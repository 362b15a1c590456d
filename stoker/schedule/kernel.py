"""A kernel: the final form of a draft, as a code generator reads it.

Outer loops around phases. A phase is straight-line code: run once for each outer point, or inside the inner loops. Values of a
phase that runs once are visible in all later phases; values made inside inner loops only in that phase, except that a `reduce`
exists after it. Names are canonical (loops o0, r0; arguments a0; sizes n0), so that equal kernels are equal objects.

    for o0 < 8                                  # softmax of a row
      across r0 < 64:   v0 = a0[64*o0 + r0]; v1 = max of v0
      across r0 < 64:   v2 = a0[64*o0 + r0]; v3 = sub(v2, v1); v4 = exp(v3); a1[64*o0 + r0] = v4; v5 = sum of v4
      across r0 < 64:   v6 = a1[64*o0 + r0]; v7 = div(v6, v5); a2[64*o0 + r0] = v7
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from stoker.loop.index import Dimension, Dimensions, ranges_of, simplify
from stoker.loop.instruction import (
    Arguments,
    Index,
    Indirect,
    Load,
    LoopInstruction,
    Reduce,
    Scan,
    Store,
    index_expressions,
    with_expressions,
)
from stoker.loop.layout import Layout
from stoker.loop.target import Target
from stoker.loop.text import instruction_text, short
from stoker.schedule.draft import Draft, Member
from stoker.schedule.merge import merge_loops, position_in
from stoker.schedule.product import Product
from stoker.shape.expr import Atom, Expr, Symbol, symbol, text
from stoker.shape.walk import free_symbols, substitute

Line = tuple[int, LoopInstruction]
"""An instruction and the number of its value."""


def leading_to(lines: Sequence[Line], wanted: Iterable[int]) -> set[int]:
    """Values, and all that lines compute them of."""
    found = set(wanted)
    for number, i in reversed(lines):
        if number in found:
            found.update(i.arguments)
    return found


@dataclass(frozen=True, slots=True)
class Phase:
    """Straight-line code: inside the inner loops (`across`), or once per outer point."""

    across: bool
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Kernel:
    """What a code generator gets: what is computed, never how it is walked.

    Scratch (s0, s1, ...) is memory of one outer point: an element for each inner one.
    """

    device: torch.device
    outer: Dimensions
    inner: Dimensions
    phases: tuple[Phase, ...]
    arguments: tuple[torch.dtype, ...]
    written: frozenset[int]
    """Which arguments it writes."""
    scratch: tuple[torch.dtype, ...]
    sizes: int
    """How many size arguments it takes: n0, n1, ..."""
    shared: frozenset[int] = frozenset()
    """Arguments that may be the memory of another one, too. An element there is read only by the iteration that writes it, and
    before it does: each iteration must run once."""
    values: frozenset[int] = frozenset()
    """Arguments that are tensors without dimensions on the processor, read by a kernel of another device: it is given their values, not
    their places."""
    batched: bool = False
    """Is it launched on many rows of buffers at once? Its one loop runs n0 times, which each row tells (`stoker.schedule.batch`)."""
    product: Product | None = None
    """A matrix product that it computes for its loads of "p" (`stoker.schedule.epilogue`). Its loops are then (batch, if that is more than
    one), rows and columns."""


@dataclass(frozen=True, slots=True)
class Call:
    """A kernel with the buffers and sizes it is called on."""

    kernel: Kernel
    buffers: tuple[str, ...]
    sizes: tuple[Symbol, ...]
    origins: tuple[str, ...] = ()


def build(draft: Draft, kept: frozenset[str], layouts: Mapping[str, Layout], target: Target) -> Call:
    """The kernel of a draft. `kept` names buffers that are needed after it."""
    assembly = _Assembly(draft, kept)
    for when, members in _timed(draft):
        assembly.phase(when, members)
    return _canonical(draft, assembly.finish(), kept, layouts, target)


def _timed(draft: Draft) -> list[tuple[int, list[Member]]]:
    """Members by the phase they belong to: even numbers run across the inner loops, odd ones once."""
    writer: dict[str, list[Member]] = {}
    when: dict[Member, int] = {}
    for member in draft.members:
        time = 0 if member.across else 1
        for name in {i.buffer for i in member.node.body if isinstance(i, Load)}:
            for source in writer.get(name, ()):
                time = max(time, _after(when[source], source, member))
        when[member] = time
        for name in member.node.writes:
            writer.setdefault(name, []).append(member)
    times = sorted(set(when.values()))
    return [(t, [m for m in draft.members if when[m] == t]) for t in times]


def _after(time: int, source: Member, member: Member) -> int:
    """The earliest phase in which a member can read what a source wrote at a time."""
    if source.across and not source.reduces:
        return time if member.across else time + 1
    if source.across:
        return time + 2 if member.across else time + 1
    return time + 1 if member.across else time


@dataclass(slots=True)
class _Section:
    """A phase being filled: lines before the inner loops, inside them, and after them. One that runs once has only `before`."""

    across: bool
    before: list[Line] = field(default_factory=list)
    inside: list[Line] = field(default_factory=list)
    after: list[Line] = field(default_factory=list)
    late: set[int] = field(default_factory=set)
    """Values that exist after the inner loops: reductions, and what is made of them."""
    known: dict[LoopInstruction, int] = field(default_factory=dict)
    """Instructions inside, for finding equal ones."""
    names: dict[tuple[Arguments, Expr, str], tuple[int, Symbol]] = field(default_factory=dict)
    """Values that were checked as indices, of what size, and what is raised otherwise: the number and the name."""


class _Assembly:
    """Instructions of all members, renumbered, each once, sorted into phases; loads of what was just stored are values."""

    def __init__(self, draft: Draft, kept: frozenset[str]) -> None:
        self.draft = draft
        self.ranges = ranges_of((*draft.outer, *draft.inner))
        self.sections: list[_Section] = []
        self.count = 0
        self.varies: dict[int, bool] = {}
        """For each value: does it change within the inner loops?"""
        self.known: dict[LoopInstruction, int] = {}
        self.memory: dict[tuple[str, Expr], tuple[int, _Section]] = {}
        """What was stored where: the value, and the phase that made it."""
        self.needed: set[str] = set(kept)
        self.varying: set[Symbol] = {d.symbol for d in draft.inner}

    def phase(self, when: int, members: list[Member]) -> None:
        self.sections.append(_Section(across=when % 2 == 0))
        for member in members:
            place = dict(member.place)
            numbers: list[int] = []
            for instruction in member.node.body:
                arguments = tuple(numbers[a] for a in instruction.arguments)
                numbers.append(self._instruction(instruction, arguments, place))

    def _instruction(self, i: LoopInstruction, arguments: tuple[int, ...], place: dict[Symbol, Expr]) -> int:
        match i:
            case Load():
                return self._load(i, arguments, self._index(i.index, place))
            case Store():
                index = self._index(i.index, place)
                self.memory[i.buffer, index] = (arguments[0], self.sections[-1])
                return self._append(replace(i, arguments=arguments, index=index), index)
            case Index():
                expr = self._index(i.expr, place)
                return self._add(replace(i, expr=expr), expr)
            case Indirect():
                return self._indirect(replace(i, arguments=arguments), place)
            case Scan():
                return self._append(replace(i, arguments=arguments), inside=True)
            case Reduce():
                number = self._append(replace(i, arguments=arguments), inside=True)
                self.varies[number] = False
                self.sections[-1].late.add(number)
                return number
        return self._add(replace(i, arguments=arguments))

    def _indirect(self, i: Indirect, place: dict[Symbol, Expr]) -> int:
        """An index that is checked: one that was checked before has a name already."""
        names = self.sections[-1].names
        key = (i.arguments, i.size, i.family)
        if key not in names:
            name = symbol(f"x{self.count}")
            number = self._append(replace(i, name=name))
            if self.varies[number]:
                self.varying.add(name)
            names[key] = number, name
        number, place[i.name] = names[key]
        return number

    def _index(self, expr: Expr, place: dict[Symbol, Expr]) -> Expr:
        return simplify(substitute(expr, place), self.ranges)

    def _load(self, i: Load, arguments: tuple[int, ...], index: Expr) -> int:
        """From memory, or the value itself if this kernel stored it and it can still be seen."""
        found = self.memory.get((i.buffer, index))
        if found is not None and not arguments:
            value, section = found
            if section is self.sections[-1] or not self.varies[value]:
                return value
        if i.buffer in self.draft.writes:
            self.needed.add(i.buffer)
        return self._add(replace(i, arguments=arguments, index=index), index)

    def _add(self, i: LoopInstruction, index: Expr | None = None) -> int:
        section = self.sections[-1]
        found = self.known.get(i, section.known.get(i))
        if found is not None:
            return found
        number = self._append(i, index)
        (section.known if self.varies[number] else self.known)[i] = number
        return number

    def _append(self, i: LoopInstruction, index: Expr | None = None, *, inside: bool = False) -> int:
        """Into the inner loops, or before or after them if it is the same for all their iterations."""
        number, self.count = self.count, self.count + 1
        section = self.sections[-1]
        varies = inside or any(self.varies[a] for a in i.arguments)
        varies = varies or (index is not None and not self.varying.isdisjoint(free_symbols(index)))
        self.varies[number] = varies
        if varies:
            section.inside.append((number, i))
        elif section.late and not section.late.isdisjoint(i.arguments):
            section.after.append((number, i))
            section.late.add(number)
        else:
            section.before.append((number, i))
        return number

    def finish(self) -> list[Phase]:
        """Phases without stores nobody needs and values nobody uses."""
        parts = [
            (across, lines)
            for s in self.sections
            for across, lines in ((False, s.before), (True, s.inside), (False, s.after))
        ]
        live: set[int] = set()
        phases: list[Phase] = []
        for across, lines in reversed(parts):
            kept = [line for line in reversed(lines) if self._wanted(line, live)]
            if kept and phases and phases[-1].across == across is False:
                phases[-1] = Phase(False, tuple(reversed(kept)) + phases[-1].lines)
            elif kept:
                phases.append(Phase(across, tuple(reversed(kept))))
        return phases[::-1]

    def _wanted(self, line: Line, live: set[int]) -> bool:
        """An index is checked, though what it leads to may be a constant."""
        number, i = line
        wanted = i.buffer in self.needed if isinstance(i, Store) else isinstance(i, Indirect) or number in live
        if wanted:
            live.update(i.arguments)
        return wanted


def _canonical(
    draft: Draft, phases: list[Phase], kept: frozenset[str], layouts: Mapping[str, Layout], target: Target
) -> Call:
    """Merge loops, and give loops, values, buffers and sizes names that depend on structure alone."""
    expressions = [e for p in phases for _, i in p.lines for e in index_expressions(i)]
    outer, change_outer = merge_loops(draft.outer, expressions)
    inner, change_inner = merge_loops(draft.inner, expressions)
    names: dict[Atom, Symbol] = {d.symbol: symbol(f"o{n}") for n, d in enumerate(outer)}
    names |= {d.symbol: symbol(f"r{n}") for n, d in enumerate(inner)}
    merged = {**change_outer, **change_inner}
    sizes: dict[Symbol, Symbol] = {}
    buffers: dict[str, int] = {}
    across = [with_expressions(i, lambda e: substitute(e, merged)) for p in phases if p.across for _, i in p.lines]
    scratch = {b: n for n, b in enumerate(_local(draft, phases, kept))} if inner else {}
    if not target.private(outer, inner, across, sum(layouts[b].dtype.itemsize for b in scratch)):
        scratch = {}
    position = substitute(position_in(inner), names)
    numbers: dict[int, int] = {}

    def expression(expr: Expr) -> Expr:
        expr = substitute(expr, merged)
        for found in sorted(free_symbols(expr), key=lambda s: s.order):
            if found not in names:
                sizes[found] = names[found] = symbol(f"n{len(sizes)}")
        return substitute(expr, names)

    def line(number: int, i: LoopInstruction) -> Line:
        numbers[number] = len(numbers)
        i = with_expressions(i, expression)
        match i:
            case Indirect():
                names[i.name] = symbol(f"x{len(numbers)}")
                i = replace(i, name=names[i.name])
            case Load() | Store() if i.buffer in scratch:
                i = replace(i, buffer=f"s{scratch[i.buffer]}", index=position)
            case Load() | Store():
                i = replace(i, buffer=f"a{buffers.setdefault(i.buffer, len(buffers))}")
        return numbers[number], replace(i, arguments=tuple(numbers[a] for a in i.arguments))

    outer = tuple(Dimension(names[d.symbol], expression(d.size)) for d in outer)
    inner = tuple(Dimension(names[d.symbol], expression(d.size)) for d in inner)
    done = tuple(Phase(p.across, tuple(line(*entry) for entry in p.lines)) for p in phases)
    stores = {i.buffer for p in done for _, i in p.lines if isinstance(i, Store)}
    written = frozenset(int(name[1:]) for name in stores if name[0] == "a")
    kept_types, scratch_types = (tuple(layouts[b].dtype for b in found) for found in (buffers, scratch))
    values = frozenset(n for b, n in buffers.items() if layouts[b].device.type != draft.device.type)
    kernel = Kernel(draft.device, outer, inner, done, kept_types, written, scratch_types, len(sizes), values=values)
    return Call(kernel, tuple(buffers), tuple(sizes), draft.origins)


def _local(draft: Draft, phases: list[Phase], kept: frozenset[str]) -> list[str]:
    """Buffers that one outer point writes and reads again, inside the inner loops, and nobody else."""
    used = dict.fromkeys(i.buffer for p in phases for _, i in p.lines if isinstance(i, (Load, Store)))
    once = {i.buffer for p in phases if not p.across for _, i in p.lines if isinstance(i, (Load, Store))}
    return [b for b in used if b in draft.writes and b not in kept and b not in once]


def kernel_text(kernel: Kernel) -> str:
    """A kernel for people and golden tests."""
    words = ", ".join(f"{text(d.symbol)} < {text(d.size)}" for d in kernel.outer) or "once"
    across = ", ".join(f"{text(d.symbol)} < {text(d.size)}" for d in kernel.inner)
    arguments = ", ".join(f"a{n}: {short(d)}" for n, d in enumerate(kernel.arguments))
    lines = [f"kernel({arguments})", *([f"p = {kernel.product}"] if kernel.product else []), f"for {words}"]
    for phase in kernel.phases:
        lines.append(f"  across {across}:" if phase.across else "  once:")
        lines += [f"    {instruction_text(n, i)}" for n, i in phase.lines]
    return "\n".join(lines)
