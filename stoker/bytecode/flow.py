"""Questions about the ways through a list of instructions.

In:  a list of instructions.
Out: one answer for each instruction, in a list of the same length; always about the moment *before* it runs.

The ways through are: to the next instruction, to a jump's target, and from any covered instruction to its handler.
"""

from __future__ import annotations

from collections.abc import Sequence

from .effect import stack_effect
from .instruction import Instruction
from .versions import TERMINAL

_READS_LOCAL = frozenset({"LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"})
_WRITES_LOCAL = frozenset({"STORE_FAST", "LOAD_FAST_AND_CLEAR", "DELETE_FAST"})
_READS_CELL = frozenset(
    {"LOAD_CLOSURE", "LOAD_DEREF", "LOAD_CLASSDEREF", "LOAD_FROM_DICT_OR_DEREF", "STORE_DEREF", "DELETE_DEREF"}
)
_WRITES_CELL = frozenset({"MAKE_CELL"})


def stack_depths(instructions: Sequence[Instruction]) -> list[int | None]:
    """The depth of the stack before each instruction; None where execution never comes.

    Raises ValueError when two ways to one instruction disagree, or when the stack would run below its bottom.
    """
    index = {instruction: place for place, instruction in enumerate(instructions)}
    depths: list[int | None] = [None] * len(instructions)
    pending = [(0, 0)] if instructions else []
    while pending:
        place, depth = pending.pop()
        while True:
            known = depths[place]
            if known is not None:
                if known != depth:
                    raise ValueError(
                        f"{instructions[place].name} is reached with {known} and {depth} values on the stack"
                    )
                break
            depths[place] = depth
            instruction = instructions[place]
            if instruction.handler is not None:
                pending.append((index[instruction.handler.target], instruction.handler.entry_depth))
            if isinstance(instruction.value, Instruction):
                pending.append((index[instruction.value], depth + stack_effect(instruction, jump=True)))
            if instruction.name in TERMINAL:
                break
            depth += stack_effect(instruction)
            if depth < 0:
                raise ValueError(f"{instruction.name} takes a value from an empty stack")
            place += 1
            if place == len(instructions):
                raise ValueError(f"execution runs past the last instruction, {instruction.name}")
    return depths


def stack_depth(instructions: Sequence[Instruction]) -> int:
    """The deepest the stack becomes: `co_stacksize`."""
    deepest = 0
    for instruction, depth in zip(instructions, stack_depths(instructions)):
        if depth is not None:
            deepest = max(deepest, depth, depth + stack_effect(instruction))
    return deepest


def successors(instructions: Sequence[Instruction]) -> list[list[int]]:
    """For each instruction the places where execution may stand next, handlers included."""
    index = {instruction: place for place, instruction in enumerate(instructions)}
    last = len(instructions) - 1
    ways = []
    for place, instruction in enumerate(instructions):
        way = [] if instruction.name in TERMINAL or place == last else [place + 1]
        if isinstance(instruction.value, Instruction):
            way.append(index[instruction.value])
        if instruction.handler is not None:
            way.append(index[instruction.handler.target])
        ways.append(way)
    return ways


def reachable(instructions: Sequence[Instruction]) -> list[bool]:
    """Can execution come here from the first instruction?"""
    ways = successors(instructions)
    reached = [False] * len(instructions)
    pending = [0] if instructions else []
    while pending:
        place = pending.pop()
        if not reached[place]:
            reached[place] = True
            pending += ways[place]
    return reached


def live_locals(instructions: Sequence[Instruction]) -> list[frozenset[str]]:
    """The fast locals that may be read before they are written."""
    return _live(instructions, _READS_LOCAL, _WRITES_LOCAL)


def live_cells(instructions: Sequence[Instruction]) -> list[frozenset[str]]:
    """The cells (closure variables of either kind) that are still used: read, written into, or closed over."""
    return _live(instructions, _READS_CELL, _WRITES_CELL)


def _live(
    instructions: Sequence[Instruction], readers: frozenset[str], writers: frozenset[str]
) -> list[frozenset[str]]:
    """Backward data flow over sets of names kept as the bits of an int, to a fixed point."""
    bit_of: dict[object, int] = {}
    reads, keeps = [], []
    for instruction in instructions:
        read, write = instruction.name in readers, instruction.name in writers
        bit = bit_of.setdefault(instruction.value, 1 << len(bit_of)) if read or write else 0
        reads.append(bit if read else 0)
        keeps.append(~bit if write else -1)

    ways = successors(instructions)
    # An exception may leave before the write happens, so that what a handler reads passes a write unhindered.
    raises = [None if instruction.handler is None else way[-1] for instruction, way in zip(instructions, ways)]
    live = [0] * len(instructions)
    changed = True
    while changed:
        changed = False
        for place in range(len(instructions) - 1, -1, -1):
            after = 0
            for way in ways[place]:
                after |= live[way]
            before = reads[place] | after & keeps[place]
            handler = raises[place]
            if handler is not None:
                before |= live[handler]
            if before != live[place]:
                live[place] = before
                changed = True
    return _names_of(live, bit_of)


def _names_of(masks: list[int], bit_of: dict[object, int]) -> list[frozenset[str]]:
    sets: dict[int, frozenset[str]] = {}
    for mask in masks:
        if mask not in sets:
            sets[mask] = frozenset(str(name) for name, bit in bit_of.items() if mask & bit)
    return [sets[mask] for mask in masks]


def loops(instructions: Sequence[Instruction]) -> list[bool]:
    """Can execution that stands here come here again?

    These are the cycles of the graph: its strongly connected components (Tarjan 1972), found without recursion.
    """
    ways = successors(instructions)
    inside = [place in way for place, way in enumerate(ways)]
    order: dict[int, int] = {}  # when a place was first seen
    lowest: dict[int, int] = {}  # the earliest place of the path that it leads back to
    path: list[int] = []
    on_path: set[int] = set()
    for root in range(len(instructions)):
        work: list[tuple[int, int]] = [] if root in order else [(root, 0)]
        while work:
            place, tried = work.pop()
            if tried == 0:
                order[place] = lowest[place] = len(order)
                path.append(place)
                on_path.add(place)
            elif ways[place][tried - 1] in on_path:
                lowest[place] = min(lowest[place], lowest[ways[place][tried - 1]])
            if tried < len(ways[place]):
                work.append((place, tried + 1))
                if ways[place][tried] not in order:
                    work.append((ways[place][tried], 0))
            elif lowest[place] == order[place]:
                component = _cut(path, place)
                on_path.difference_update(component)
                for member in component:
                    inside[member] |= len(component) > 1
    return inside


def _cut(path: list[int], place: int) -> list[int]:
    """Take the end of the path off, from a place on."""
    component = [path.pop()]
    while component[-1] != place:
        component.append(path.pop())
    return component
