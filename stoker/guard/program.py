"""Guards to a C++ guard program: one tree, merged by common prefix, cheap checks first.

In:  the guards of one version, the sources whose values the replacement code wants, size relations, the torch state.
Out: a `stoker._C.GuardProgram`; failed guard numbers index the guard list that came in.

Requirements:
  1. Every source's prefix is checked before the source is followed: an accessor never meets an object of another type
     than capture saw, or fails as a guard failure (tests/unit/guard/test_program.py).
  2. The slot of `slots[i]` receives what `follow(slots[i])` finds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from stoker import _C
from stoker.guard.guard import Guard, HasKey, HoldsTogether, NotSameAs, SameAs
from stoker.guard.source import DictItem, Looked, Remembered, Source, looked_through, rounds_of_looking


@dataclass(slots=True)
class _Node:
    source: Source
    checks: list[tuple[int, int, Any]] = field(default_factory=list)  # (rank, guard number, check)
    children: list[_Node] = field(default_factory=list)
    slot: int = -1


@dataclass(frozen=True)
class SizeRelations:
    """The shape engine's guards, as the guard program runs them."""

    bindings: list[tuple[int, int | None]]
    programs: list[list[tuple[str, int]]]
    guards: list[int]


def compile_guards(
    guards: Sequence[Guard],
    slots: Sequence[Source],
    relations: SizeRelations | None,
    state: tuple[Any, int],
) -> Any:
    """Build the program. `state` is the torch state at capture and the number of the guard that stands for it."""
    slot_of = {source: number for number, source in enumerate(slots)}
    forests: defaultdict[int, _Forest] = defaultdict(
        _Forest
    )  # by rounds: a look-up needs the slots of what it looks up in
    late = _Forest()
    for source, number in slot_of.items():
        forests[rounds_of_looking(source)].node(source).slot = number
    followed = _followed(guards, slots)
    for number, guard in enumerate(guards):
        if guard.source is None or guard.check is None:
            continue
        if isinstance(guard.check, HasKey) and DictItem(guard.source, guard.check.key) in followed:
            continue
        forest = late if guard.check.last else forests[rounds_of_looking(guard.source)]
        forest.node(guard.source).checks.append((guard.check.rank, number, guard.check))
    order = [*(forests[rounds] for rounds in sorted(forests)), late]
    roots = [_freeze(node, slot_of) for forest in order for node in forest.roots]
    shapes = None
    if relations is not None and relations.programs:
        programs = [[(_C.SHAPE_OPS[op], argument) for op, argument in program] for program in relations.programs]
        shapes = (relations.bindings, programs, relations.guards)
    return _C.GuardProgram(roots, len(slots), shapes, state)


def _followed(guards: Sequence[Guard], slots: Sequence[Source]) -> set[Source]:
    """Every source that the program follows: following a key already shows that it is there."""
    found: set[Source] = set()
    for start in [*(guard.source for guard in guards), *slots]:
        source = start
        while source is not None and source not in found:
            found.add(source)
            source = source.base
    return found


def slots_needed(guards: Sequence[Guard]) -> list[Source]:
    """The sources that comparing guards, and look-ups, refer to: each must have a slot."""
    needed: dict[Source, None] = {}
    for guard in guards:
        if guard.source is not None:
            needed.update(dict.fromkeys(_beside(guard.source)))
        match guard.check:
            case SameAs(other=other):
                needed[other] = None
            case NotSameAs(others=others) | HoldsTogether(others=others):
                needed.update(dict.fromkeys(others))
    return list(needed)


def _beside(source: Source) -> Iterator[Source]:
    """What the look-ups on the way to a place look at."""
    place = looked_through(source)
    if place is not None:
        for other in (place.base, *place.beside):
            yield from _beside(other)
        yield from place.beside


class _Forest:
    def __init__(self) -> None:
        self.roots: list[_Node] = []
        self._nodes: dict[Source, _Node] = {}

    def node(self, source: Source) -> _Node:
        found = self._nodes.get(source)
        if found is None:
            found = self._nodes[source] = _Node(source)
            siblings = self.roots if source.base is None else self.node(source.base).children
            siblings.append(found)
        return found


def _freeze(node: _Node, slot_of: dict[Source, int]) -> tuple:
    node.checks.sort(key=lambda entry: entry[:2])
    checks = [(_C.CHECKS[check.kind], _argument(check, slot_of), number) for _, number, check in node.checks]
    children = [_freeze(child, slot_of) for child in node.children]
    source = node.source
    argument: Any = (
        (source.question, *(slot_of[other] for other in source.beside))
        if isinstance(source, (Looked, Remembered))
        else source.argument
    )
    return (_C.ACCESSORS[source.accessor], argument, checks, children, node.slot)


def _argument(check: Any, slot_of: dict[Source, int]) -> Any:
    match check:
        case SameAs(other=other):
            return slot_of[other]
        case NotSameAs(others=others):
            return tuple(slot_of[other] for other in others)
        case HoldsTogether(predicate=predicate, others=others):
            return (predicate, *(slot_of[other] for other in others))
    return check.argument
