"""A draft: loop nests that will be one kernel, expressed in common loops.

A draft has outer loops and, if it reduces, inner loops. A member runs over both (a reduction, or elementwise work on what is
reduced), or over the outer ones alone (work on reduced values). `align` finds common loops for two drafts: it splits loops at
common divisors, and follows the strides of a buffer that one writes and the other reads when their orders differ.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from stoker.loop.index import (
    Dimension,
    Dimensions,
    coefficient,
    count,
    express,
    loops_by_place,
    loops_of,
    ranges_of,
    refine,
    simplify,
)
from stoker.loop.instruction import Load, Scan, Store
from stoker.loop.node import Loops
from stoker.shape.expr import Expr, Symbol, constant
from stoker.shape.walk import substitute

Access = tuple[str, Expr, torch.dtype]
"""A buffer, a place in it, and as what type its bits are taken."""


@dataclass(frozen=True, eq=False)
class Member:
    """A node inside a draft: its loop symbols as expressions of the draft's. Drafts that are joined share it, and what was found out of it."""

    position: int
    """Where the node stands in the program."""
    node: Loops
    place: Mapping[Symbol, Expr]
    across: bool
    """Does it run over the inner loops?"""

    def index(self, expr: Expr) -> Expr:
        """An index of the node in the draft's loops."""
        return substitute(expr, self.place)

    @cached_property
    def loads(self) -> frozenset[Access]:
        return frozenset((i.buffer, self.index(i.index), i.dtype) for i in self.node.body if isinstance(i, Load))

    @cached_property
    def stores(self) -> frozenset[Access]:
        return frozenset((i.buffer, self.index(i.index), i.dtype) for i in self.node.body if isinstance(i, Store))

    @cached_property
    def scans(self) -> bool:
        return any(isinstance(i, Scan) for i in self.node.body)

    @cached_property
    def scatters(self) -> bool:
        return any(isinstance(i, Store) and bool(i.combine) for i in self.node.body)

    @property
    def reduces(self) -> bool:
        return bool(self.node.inner)


@dataclass(frozen=True, eq=False)
class Draft:
    """Members in program order, and their common loops."""

    members: tuple[Member, ...]
    outer: Dimensions
    inner: Dimensions

    @property
    def device(self) -> torch.device:
        return self.members[0].node.device

    @cached_property
    def loads(self) -> frozenset[Access]:
        return frozenset().union(*(m.loads for m in self.members))

    @cached_property
    def stores(self) -> frozenset[Access]:
        return frozenset().union(*(m.stores for m in self.members))

    @cached_property
    def reads(self) -> frozenset[str]:
        return frozenset(name for name, *_ in self.loads)

    @cached_property
    def writes(self) -> frozenset[str]:
        return frozenset(name for name, *_ in self.stores)

    @cached_property
    def length(self) -> int:
        return sum(len(m.node.body) for m in self.members)

    @property
    def scans(self) -> bool:
        return any(m.scans for m in self.members)

    @property
    def scatters(self) -> bool:
        return any(m.scatters for m in self.members)

    @property
    def origins(self) -> tuple[str, ...]:
        """The operators it stands for."""
        return tuple(dict.fromkeys(o for m in self.members for o in m.node.origins))

    @property
    def positions(self) -> tuple[int, ...]:
        return tuple(m.position for m in self.members)


def draft_of(position: int, node: Loops) -> Draft:
    """A node alone, its outer loops in the order of the memory it writes."""
    store = next(i for i in reversed(node.body) if isinstance(i, Store))
    if store.combine:  # places are computed: the order of the values is the one known
        order = [d for d in node.outer if d.size.value != 1]
    else:
        order = _by_stride(node.outer, store.index)
    kept = [d for d in node.inner if d.size.value != 1]
    outer, inner = loops_of("i", [d.size for d in order]), loops_of("r", [d.size for d in kept])
    place = {d.symbol: loop.symbol for d, loop in zip((*order, *kept), (*outer, *inner))}
    return Draft((Member(position, node, place, bool(node.inner)),), outer, inner)


def _by_stride(dimensions: Dimensions, index: Expr) -> list[Dimension]:
    """Without loops that run once, slowest first; the order of loops with unknown strides is kept."""
    kept = [d for d in dimensions if d.size.value != 1]
    strides = [coefficient(index, d.symbol) for d in kept]
    numbers = [typically(s) for s in strides if s is not None]
    if len(numbers) < len(kept):
        return kept
    return [kept[k] for k in sorted(range(len(kept)), key=lambda k: -numbers[k])]


TYPICAL_SIZE = 64


def typically(expr: Expr) -> int:
    """A size or stride, counting symbols as typical sizes."""
    return expr.offset + sum(factor * TYPICAL_SIZE ** len(monomial) for monomial, factor in expr.terms)


def align(first: Draft, second: Draft) -> tuple[Draft, Draft] | None:
    """Both drafts over the same loops, or None if there are none."""
    for follow in (False, True):
        other = _following(first, second) if follow else second
        if other is None:
            return None
        found = _aligned(first, other)
        if found is not None and (follow or agree(*found)):
            return found
    return None


def agree(first: Draft, second: Draft) -> bool:
    """Does each iteration of the second read what the same one of the first has written, and as that type?"""
    shared = first.writes & second.reads
    return all(access in first.stores for access in second.loads if access[0] in shared)


def _following(first: Draft, second: Draft) -> Draft | None:
    """The second with its outer loops in the order of the memory it shares with the first."""
    shared = first.writes & second.reads
    index = next((i for name, i, _ in second.loads if name in shared), None)
    if index is None:
        return None
    order = _by_stride(second.outer, index)
    if tuple(order) == second.outer or len(order) != len(second.outer):
        return None
    outer = loops_of("i", [d.size for d in order])
    return _renamed(second, {d.symbol: n.symbol for d, n in zip(order, outer)}, outer, second.inner)


def _renamed(draft: Draft, names: Mapping[Symbol, Expr], outer: Dimensions, inner: Dimensions) -> Draft:
    members = tuple(replace(m, place={s: substitute(e, names) for s, e in m.place.items()}) for m in draft.members)
    return Draft(members, outer, inner)


def _aligned(first: Draft, second: Draft) -> tuple[Draft, Draft] | None:
    if any(d.size.value == 0 for draft in (first, second) for d in (*draft.outer, *draft.inner)):
        return None  # loops that never run have no product that tells them apart
    if bool(first.inner) is bool(second.inner):
        outer, inner = _refined(first.outer, second.outer), _refined(first.inner, second.inner)
        return None if outer is None or inner is None else (_over(first, outer, inner), _over(second, outer, inner))
    plain, reducing = (second, first) if first.inner else (first, second)
    found = _with_reduction(plain, reducing)
    if found is None:
        return None
    return found if plain is first else (found[1], found[0])


def _with_reduction(plain: Draft, reducing: Draft) -> tuple[Draft, Draft] | None:
    """A draft without inner loops runs over a reduction's outer loops, or over all of them."""
    if count(plain.outer) is count(reducing.outer):
        outer = _refined(plain.outer, reducing.outer)
        if outer is None:
            return None
        return _over(plain, outer, reducing.inner), _over(reducing, outer, reducing.inner)
    if count(plain.outer) is not count(reducing.outer) * count(reducing.inner):
        return None
    sizes = refine([d.size for d in plain.outer], [d.size for d in (*reducing.outer, *reducing.inner)])
    if sizes is None:
        return None
    cut, done = len(sizes), constant(1)
    total = count(reducing.inner)
    while done is not total:
        cut -= 1
        done = done * sizes[cut]
    outer, inner = loops_of("i", sizes[:cut]), loops_of("r", sizes[cut:])
    spread = _renamed(plain, _written(plain.outer, (*outer, *inner)), outer, inner)
    members = tuple(replace(m, across=True) for m in spread.members)
    return Draft(members, outer, inner), _over(reducing, outer, inner)


def align_by_places(first: Draft, second: Draft) -> tuple[Draft, Draft] | None:
    """A draft without inner loops in the order in which a reduction of what it writes reads it: columns, say, of rows that it makes."""
    shared = first.writes & second.reads
    stores, loads = ({i for name, i, _ in accesses if name in shared} for accesses in (first.stores, second.loads))
    if first.inner or not second.inner or len(shared) != 1 or len(stores) != 1 or len(loads) != 1:
        return None
    loops, (written,), (read,) = (*second.outer, *second.inner), stores, loads
    place = loops_by_place(first.outer, written)
    if place is None or loops_by_place(loops, read) is None or count(first.outer) is not count(loops):
        return None
    ranges = ranges_of(loops)
    names = {s: simplify(e, ranges) for s, e in place(read).items()}
    spread = _renamed(first, names, second.outer, second.inner)
    return replace(spread, members=tuple(replace(m, across=True) for m in spread.members)), second


def _refined(first: Dimensions, second: Dimensions) -> Dimensions | None:
    sizes = refine([d.size for d in first], [d.size for d in second])
    prefix = "r" if any(d.symbol.name.startswith("r") for d in (*first, *second)) else "i"
    return None if sizes is None else loops_of(prefix, sizes)


def _over(draft: Draft, outer: Dimensions, inner: Dimensions) -> Draft:
    """The draft with its loops written as products of finer ones."""
    if draft.outer == outer and (draft.inner == inner or not draft.inner):
        return Draft(draft.members, outer, inner) if draft.inner != inner else draft
    names = _written(draft.outer, outer) | (_written(draft.inner, inner) if draft.inner else {})
    return _renamed(draft, names, outer, inner)


def _written(loops: Dimensions, finer: Dimensions) -> dict[Symbol, Expr]:
    """Loops in terms of finer ones."""
    return dict(zip((d.symbol for d in loops), express([d.size for d in loops], finer)))


def joined(first: Draft, second: Draft) -> Draft:
    """One draft of two that run over the same loops."""
    members = sorted((*first.members, *second.members), key=lambda m: m.position)
    return Draft(tuple(members), first.outer, first.inner)
