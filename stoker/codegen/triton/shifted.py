"""Sums of e^(v - m), where m is the same for a whole row, with one instruction less for each element.

2^(v c - k), of c = log2 e and k = m c rounded, is a multiplication with an addition and a power of two; e^(v - m) needs a subtraction before. What
rounding k has taken off is the same for a row, and its sum is set right by one factor (`decay_from` and `decay_beyond` in the library).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from stoker.codegen.triton.early import changing
from stoker.loop.instruction import Apply, Reduce
from stoker.schedule.kernel import Kernel, Line


@dataclass(frozen=True, slots=True)
class Shifted:
    """Numbers of values: v and m."""

    value: int
    shift: int


def shifted_decays(kernel: Kernel) -> dict[int, Shifted]:
    """The elements that are so computed, and their sums, by the values' numbers."""
    lines = [line for phase in kernel.phases for line in phase.lines]
    made, along = dict(lines), changing(lines, {d.symbol for d in kernel.inner})
    found: dict[int, Shifted] = {}
    for n, i in lines:
        if not (isinstance(i, Apply) and i.operation == "decay" and i.dtype is torch.float32):
            continue
        less = made[i.arguments[0]]
        sums = _sums(n, lines)
        if isinstance(less, Apply) and less.operation == "sub" and sums:
            shifted = Shifted(*less.arguments)
            if shifted.shift not in along and shifted.value in along:
                found |= dict.fromkeys((n, *sums), shifted)
    return found


def _sums(n: int, lines: Sequence[Line]) -> list[int]:
    """The sums of a value that is used for nothing else."""
    uses = [(m, i) for m, i in lines if n in i.arguments]
    sums = [m for m, i in uses if isinstance(i, Reduce) and i.kind == "sum"]
    return sums if len(sums) == len(uses) else []
