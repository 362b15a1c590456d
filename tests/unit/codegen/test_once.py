"""Values that several phases compute alike are computed once."""

from __future__ import annotations

import torch

from stoker.codegen.triton.once import each_once
from stoker.loop.index import Dimension
from stoker.loop.instruction import Apply, Indirect, Load, LoopInstruction, Number, Reduce, Store
from stoker.schedule.kernel import Kernel, Phase, kernel_text
from stoker.shape.expr import constant, symbol

F, I = torch.float32, torch.int64
R = symbol("r0")


def kernel_of(*phases: list[tuple[int, LoopInstruction]]) -> Kernel:
    rows = tuple(Phase(True, tuple(lines)) for lines in phases)
    inner = (Dimension(R, constant(8)),)
    return Kernel(torch.device("cpu"), (), inner, rows, (I, F, F), frozenset({2}), (), 0)


def chosen(first: int, name: str) -> list[tuple[int, LoopInstruction]]:
    """a1 at the place that a0 tells."""
    place = symbol(name)
    return [
        (first, Load((), I, "a0", R)),
        (first + 1, Indirect((first,), I, place, constant(8), "index")),
        (first + 2, Load((), F, "a1", place)),
    ]


def test_a_read_at_a_checked_index_is_made_once() -> None:
    kernel = kernel_of(
        [*chosen(0, "x1"), (3, Reduce((2,), F, "max"))],
        [*chosen(4, "x2"), (7, Apply((6, 3), F, "sub")), (8, Store((7,), F, "a2", R, None))],
    )
    once = each_once(kernel)
    assert [n for p in once.phases for n, _ in p.lines] == [0, 1, 2, 3, 7, 8]
    assert once.phases[1].lines[0][1].arguments == (2, 3)


def test_what_depends_on_an_index_under_another_name_is_the_same() -> None:
    kernel = kernel_of([*chosen(0, "x1")], [*chosen(3, "x2"), (6, Load((), F, "a1", symbol("x2") + 1))])
    once = each_once(kernel)
    assert once.phases[1].lines == ((6, Load((), F, "a1", symbol("x1") + 1)),), kernel_text(once)


def test_memory_that_was_written_is_read_again() -> None:
    kernel = kernel_of(
        [(0, Load((), F, "a2", R)), (1, Store((0,), F, "a2", R + 1, "set"))],
        [(2, Load((), F, "a2", R)), (3, Load((), F, "a2", R))],
    )
    assert [n for p in each_once(kernel).phases for n, _ in p.lines] == [0, 1, 2]


def test_numbers_that_are_equal_but_written_otherwise_stay_apart() -> None:
    kernel = kernel_of([(0, Number.of(0.0, F)), (1, Number.of(-0.0, F)), (2, Number.of(0.0, F))])
    assert [n for n, _ in each_once(kernel).phases[0].lines] == [0, 1]
