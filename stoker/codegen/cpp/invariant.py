"""What is the same for every element is computed once, before the loops.

In:  a kernel without inner loops.
Out: the instructions that depend on no loop and are worth it, and the kernel without them.

The C++ compiler would move some of them itself; where a result is written over an operand, it cannot know that it may.
"""

from __future__ import annotations

from dataclasses import replace

from stoker.codegen.cpp.cost import cost
from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number
from stoker.schedule.kernel import Kernel, Line, leading_to
from stoker.shape.expr import Symbol
from stoker.shape.walk import free_symbols

WORTH = 4
"""Additions that an instruction must cost."""


def lift(kernel: Kernel) -> tuple[list[Line], Kernel]:
    """Take what no loop changes out of a kernel of one phase."""
    (phase,) = kernel.phases
    looked_up = [i.name for _, i in phase.lines if isinstance(i, Indirect)]
    moving = frozenset([*(dimension.symbol for dimension in kernel.outer), *looked_up])
    still: dict[int, LoopInstruction] = {}
    for number, i in phase.lines:
        if all(a in still for a in i.arguments) and _is_still(i, kernel, moving):
            still[number] = i
    wanted = [n for n, i in still.items() if isinstance(i, Apply) and cost(i) >= WORTH and _reads(n, still)]
    lifted = leading_to(phase.lines, wanted)
    if not lifted:
        return [], kernel
    rest = replace(phase, lines=tuple(line for line in phase.lines if line[0] not in lifted))
    return [line for line in phase.lines if line[0] in lifted], replace(kernel, phases=(rest,))


def _is_still(i: LoopInstruction, kernel: Kernel, moving: frozenset[Symbol]) -> bool:
    """Is an instruction's value that of any element, if its arguments' are?"""
    match i:
        case Number() | Apply() | Convert():
            return True
        case Index():
            return not free_symbols(i.expr) & moving
        case Load():
            alone = i.buffer[0] == "a" and int(i.buffer[1:]) not in kernel.written | kernel.shared
            return alone and not i.arguments and not free_symbols(i.index) & moving
    return False


def _reads(number: int, still: dict[int, LoopInstruction]) -> bool:
    """Does a value depend on memory? What depends on numbers alone the C++ compiler computes."""
    i = still[number]
    return isinstance(i, Load) or any(_reads(a, still) for a in i.arguments)
