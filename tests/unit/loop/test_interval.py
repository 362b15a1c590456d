"""Bounds of whole numbers hold for every value that a body can have."""

from __future__ import annotations

import random

import pytest
import torch

from stoker.loop.instruction import Apply, Convert, Index, Load, LoopInstruction, Number
from stoker.loop.interval import TRUTH, Intervals
from stoker.shape.expr import constant, symbol
from stoker.shape.prove import Interval

I64, F32 = torch.int64, torch.float32
LOOP = symbol("i0")
RANGES = {LOOP: Interval(0, 9)}
COMPARED = {"lt": int.__lt__, "le": int.__le__, "gt": int.__gt__, "ge": int.__ge__}
COMPUTED = {
    "add": int.__add__, "sub": int.__sub__, "mul": int.__mul__, "maximum": max, "minimum": min,
}  # fmt: skip


def body(rng: random.Random, length: int) -> list[LoopInstruction]:
    made: list[LoopInstruction] = [Index((), I64, LOOP * 3 + constant(-5)), Number.of(rng.randint(-9, 9), I64)]
    while len(made) < length:
        whole = [n for n, i in enumerate(made) if i.dtype is I64]
        a, b, c = (rng.choice(whole) for _ in range(3))
        match rng.randrange(4):
            case 0:
                made.append(Number.of(rng.randint(-99, 99), I64))
            case 1:
                made.append(Apply((a, b), torch.bool, rng.choice(list(COMPARED))))
                made.append(Apply((len(made) - 1, b, c), I64, "where"))
            case 2:
                made.append(Apply((a,), I64, "neg"))
            case 3:
                made.append(Apply((a, b), I64, rng.choice(list(COMPUTED))))
    return made


def values(made: list[LoopInstruction], loop: int) -> list[int]:
    found: list[int] = []
    for i in made:
        given = [found[n] for n in i.arguments]
        if isinstance(i, Index):
            found.append(3 * loop - 5)
        elif not isinstance(i, Apply):
            found.append(i.value)  # type: ignore[union-attr]  # the only other kind here is a number
        elif i.operation == "where":
            found.append(given[1] if given[0] else given[2])
        elif i.operation == "neg":
            found.append(-given[0])
        else:
            found.append(int((COMPARED | COMPUTED)[i.operation](*given)))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_every_value_is_inside(seed: int) -> None:
    made = body(random.Random(seed), 14)
    intervals = Intervals(dict(enumerate(made)), RANGES)
    for loop in range(10):
        for number, value in enumerate(values(made, loop)):
            if abs(value) < 2**62:  # larger ones wrap around
                assert intervals.of(number).low <= value <= intervals.of(number).high


def known(*made: LoopInstruction) -> Interval:
    return Intervals(dict(enumerate(made)), RANGES).of(len(made) - 1)


def test_what_is_loaded() -> None:
    load = Load((), I64, "a0", LOOP)
    limits = torch.iinfo(I64)
    assert known(load) == Interval(limits.min, limits.max)
    assert known(load, Number.of(1, I64), Apply((0, 1), I64, "add")) == known(load), "it may wrap around"
    small = Load((), torch.uint8, "a0", LOOP)
    assert known(small, Convert((0,), I64)) == Interval(0, 255)
    assert known(Load((), torch.bool, "a0", LOOP)) == TRUTH
    assert known(load, Convert((0,), torch.int8)) == Interval(-128, 127), "it may wrap around"


def test_what_is_clamped_is_inside() -> None:
    load, low, high = Load((), I64, "a0", LOOP), Number.of(0, I64), Number.of(511, I64)
    clamp = (load, low, high, Apply((0, 1), I64, "maximum"), Apply((3, 2), I64, "minimum"))
    assert known(*clamp) == Interval(0, 511)
    wrapped = (*clamp, Apply((4, 1), torch.bool, "lt"), Number.of(512, I64), Apply((5, 6, 4), I64, "where"))
    assert known(*wrapped) == Interval(0, 511), "what is never negative is never wrapped"


def test_other_numbers_have_no_bounds() -> None:
    assert known(Number.of(2.5, F32)) == Interval(-float("inf"), float("inf"))
    assert known(Number.of(2.5, F32), Convert((0,), torch.int32)).high == torch.iinfo(torch.int32).max
