"""`while` loops whose number of rounds changes from call to call.

In:  a jump that decides by a size that varies whether such a loop goes on.
Out: a break there, as at the head of a `for` loop over such a size (`stoker.capture.values.rounds`): CPython decides, and a round is captured
     as a resume function. What the loop counts by varies there, though it is one number in the first round
     (tests/differential/test_rounds.py).
"""

from __future__ import annotations

from collections.abc import Iterator

import torch

from stoker.bytecode import Instruction
from stoker.capture.frame import DecodedCode, Frame
from stoker.capture.machine import Machine
from stoker.capture.raising import JUMPS, LEAVES
from stoker.capture.values.constant import Constant
from stoker.capture.values.rounds import stop_at_head
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import Era, Lazy, Value


def stop_before_next_round(m: Machine, f: Frame, jump: Instruction, value: Value) -> None:
    """Break, if a size that varies decides here how many rounds a `while` loop has."""
    known = value.forced if type(value) is Lazy else value
    if Era.now or not isinstance(known, SymbolicValue) or not m.sizes.decides_otherwise(known.symbol):
        return
    if loop_left_at(f.program, jump) is not None:
        stop_at_head(f"`while {known.symbol}`")


def loop_left_at(program: DecodedCode, jump: Instruction) -> range | None:
    """The instructions of the innermost `while` loop, if a conditional jump is one of its ways out."""
    place = program.index[id(jump)]
    loops = [loop for loop in _loops(program) if place in loop]
    if not loops:
        return None
    innermost = max(loops, key=lambda loop: loop.start)
    if program.instructions[innermost.start].name == "FOR_ITER":
        return None
    goes_on = {_comes_back(program, innermost, side) for side in (program.index[id(jump.value)], place + 1)}
    return innermost if len(goes_on) == 2 else None


def _comes_back(program: DecodedCode, loop: range, start: int) -> bool:
    """Does a way lead from an instruction to the loop's next round?"""
    pending, seen = [start], set()
    while pending:
        place = pending.pop()
        if place in seen or place not in loop:
            continue
        if place == loop.start:
            return True
        seen.add(place)
        instruction = program.instructions[place]
        if isinstance(instruction.value, Instruction):
            pending.append(program.index[id(instruction.value)])
        if instruction.name not in JUMPS | LEAVES | {"RAISE_VARARGS"}:
            pending.append(place + 1)
    return False


def _loops(program: DecodedCode) -> Iterator[range]:
    """What lies between each jump back and its target; of several jumps to one target, the farthest."""
    ends: dict[int, int] = {}
    for place, instruction in enumerate(program.instructions):
        if isinstance(instruction.value, Instruction) and program.index[id(instruction.value)] <= place:
            ends[program.index[id(instruction.value)]] = place
    return (range(start, end + 1) for start, end in ends.items())


def counters(program: DecodedCode, jump: Instruction, variables: dict[str, Value]) -> Iterator[str]:
    """Variables that the loop assigns, and that are known numbers before its next round."""
    for instruction in map(program.instructions.__getitem__, loop_left_at(program, jump) or ()):
        known = variables.get(instruction.value) if instruction.name == "STORE_FAST" else None
        if isinstance(known, Constant) and known.python_type() is int:
            yield instruction.value


def left_open(m: Machine, condition: Value) -> None:
    """A condition between sizes that varies is computed by the graph, and not decided by a guard, where CPython jumps by it."""
    if isinstance(condition, SymbolicValue) and isinstance(condition.symbol, torch.SymBool):
        m.sizes.compute(m, condition.symbol)
