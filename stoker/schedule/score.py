"""Which drafts to join first: the greedy search for a good grouping.

In:  a lowered program.
Out: groups: drafts and library calls, with reasons for the pairs that were refused.

Pairs come from buffers: who writes one and who reads it, and who reads the same one. They are tried in the order of bytes
saved, then of distance in the program; rounds repeat until nothing joins, because joining opens new pairs.
"""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, field

from stoker.loop.index import count
from stoker.loop.layout import product
from stoker.loop.node import Extern, Loops, Program, reads
from stoker.loop.target import Targets
from stoker.schedule.draft import Draft, draft_of, typically
from stoker.schedule.fuse import Refusal, fuse
from stoker.schedule.precede import Precedence

FARTHEST_READERS = 8
"""Readers of one buffer are paired with this many next ones."""


@dataclass(slots=True)
class Groups:
    """A grouping under construction: each program position belongs to one group, a draft or a call."""

    program: Program
    targets: Targets
    order: Precedence
    drafts: dict[int, Draft | Extern] = field(default_factory=dict)
    group_of: dict[int, int] = field(default_factory=dict)
    refusals: dict[tuple[int, int], Refusal] = field(default_factory=dict)
    refused: dict[int, set[tuple[int, int]]] = field(default_factory=dict)
    """The refused pairs of each group."""


def group(program: Program, targets: Targets) -> Groups:
    """Group a program's nodes."""
    writers: dict[str, list[int]] = {}
    readers: dict[str, list[int]] = {}
    drawn: list[int] = []
    earlier: list[list[int]] = []
    for position, node in enumerate(program.nodes):
        earlier.append([])
        for name in reads(node):
            readers.setdefault(name, []).append(position)
            earlier[position] += writers.get(name, ())
        for written in node.writes:
            # What becomes an input's content is made once that was read (`stoker.schedule.overwrite`).
            earlier[position] += set(readers.get(program.homes.get(written or "", ""), ())) - {position}
        if isinstance(node, Extern) and node.ordered:
            earlier[position] += drawn  # numbers are drawn in the order of the program, and states change in it
            drawn = [position]
        for written in node.writes:
            if written is not None:
                writers.setdefault(written, []).append(position)
    groups = Groups(program, targets, Precedence(earlier))
    for position, node in enumerate(program.nodes):
        groups.drafts[position] = draft_of(position, node) if isinstance(node, Loops) else node
        groups.group_of[position] = position
    candidates = sorted(_candidates(program, writers, readers), reverse=True)
    while _join_round(groups, candidates):
        pass
    while any(t.joins_columns for t in targets.values()) and _join_round(groups, candidates, columns=True):
        pass
    return groups


def _candidates(
    program: Program, writers: dict[str, list[int]], readers: dict[str, list[int]]
) -> Iterator[tuple[int, int, int, int, int]]:
    """(vertical?, bytes saved, -distance, first, second) for pairs that touch the same buffer."""
    for name, reading in readers.items():
        size = estimate_bytes(program, name)
        for first in writers.get(name, ()):
            for second in reading:
                yield 1, size, first - second, first, second
        for place, first in enumerate(reading):
            for second in reading[place + 1 : place + 1 + FARTHEST_READERS]:
                yield 0, size, first - second, first, second


def estimate_bytes(program: Program, name: str) -> int:
    """A buffer's size, counting symbols as typical sizes."""
    layout = program.layouts[name]
    return typically(product(layout.sizes)) * layout.dtype.itemsize


def _join_round(groups: Groups, candidates: list[tuple[int, int, int, int, int]], *, columns: bool = False) -> bool:
    """Try all pairs; with `columns` those that agree only if one changes its order, which comes last: rows are walked faster."""
    joined_any = False
    tried: set[tuple[int, int]] = set()
    for *_, first, second in candidates:
        pair = (groups.group_of[first], groups.group_of[second])
        if pair[0] == pair[1] or pair in tried:
            continue
        tried.add(pair)
        if _try(groups, *pair, columns=columns):
            joined_any = True
    return joined_any


def join_strangers(groups: Groups, apart: Container[int]) -> None:
    """Join small kernels of the same loops that share nothing, where a target says that this pays; but for some groups."""
    alike: dict[object, int] = {}
    for number in sorted(groups.drafts):
        draft = groups.drafts.get(number)
        if draft is None or isinstance(draft, Extern) or number in apart:
            continue
        elements = (count(draft.outer) * count(draft.inner)).value
        if elements is None or elements > groups.targets[draft.device.type].side_by_side:
            continue
        key = (draft.device, *(d.size for d in draft.outer), None, *(d.size for d in draft.inner))
        if key not in alike or not _try(groups, alike[key], number, strangers=True):
            alike[key] = number  # the last one is full, or cannot run at the same time
        elif alike[key] not in groups.drafts:
            alike[key] = number


def _try(groups: Groups, a: int, b: int, *, strangers: bool = False, columns: bool = False) -> bool:
    """Join two groups if that is legal: no third must run between them, and the kernels agree."""
    first, second = groups.drafts[a], groups.drafts[b]
    if isinstance(first, Extern) or isinstance(second, Extern):
        return False
    if groups.order.precedes(b, a):
        a, b, first, second = b, a, second, first
    if groups.order.between(a, b):
        return False
    if (a, b) in groups.refusals and not strangers and not columns:
        return False
    target = groups.targets[first.device.type]
    if columns and (first.inner or not second.inner or not target.joins_columns):
        return False
    result = fuse(first, second, target, strangers=strangers, columns=columns)
    if isinstance(result, Refusal):
        if not strangers and not columns:
            groups.refusals[a, b] = result
            for number in (a, b):
                groups.refused.setdefault(number, set()).add((a, b))
        return False
    _merge(groups, a, b, result)
    return True


def _merge(groups: Groups, a: int, b: int, result: Draft) -> None:
    """Group a takes in group b."""
    groups.drafts[a] = result
    del groups.drafts[b]
    for position in result.positions:
        groups.group_of[position] = a
    groups.order.join(a, b)
    for pair in groups.refused.pop(a, set()) | groups.refused.pop(b, set()):
        groups.refusals.pop(pair, None)
