"""Which runs wait for which, and which may run at once."""

from __future__ import annotations

from dataclasses import replace

import torch

from stoker.codegen.triton.target import cuda_target
from stoker.loop.index import Dimension
from stoker.loop.instruction import Load, Store
from stoker.loop.layout import Layout
from stoker.schedule.batch import fold, gather, partners, template
from stoker.schedule.kernel import Call, Kernel, Phase
from stoker.schedule.memory import Arena
from stoker.schedule.precede import Precedence
from stoker.schedule.step import Allocate, Batch, Free, Library, Run, Step
from stoker.shape.expr import constant, symbol

DEVICE = torch.device("cuda", 0)
TARGETS = {"cuda": cuda_target(90, 132)}
O0 = symbol("o0")


def copying(size: int) -> Kernel:
    lines = ((0, Load((), torch.float32, "a0", O0)), (1, Store((0,), torch.float32, "a1", O0, None)))
    loops = (Dimension(O0, constant(size)),)
    return Kernel(DEVICE, loops, (), (Phase(False, lines),), (torch.float32,) * 2, frozenset({1}), (), 0)


KERNELS = [copying(10), copying(20), copying(30)]
ADDS = (1, Store((0,), torch.float32, "a1", O0, "add"))


def layout(size: int) -> Layout:
    return Layout(torch.float32, DEVICE, (constant(size),), (constant(1),))


LAYOUTS = {name: layout(10) for name in "abcdefxyz"} | {"large": layout(1 << 20)}


def run(kernel: int, source: str, target: str) -> Run:
    return Run(kernel, (source, target), ())


def gathered(*steps: Step, homes: dict[str, str] | None = None, staying: str = "abc") -> list[Step]:
    return gather(steps, KERNELS, LAYOUTS, TARGETS, set(staying), homes or {})


def call(*reads: str) -> Library:
    return Library(torch.relu, (), (), tuple(reads), (None,) * len(reads), False, False)


def test_lengths_alone_may_differ() -> None:
    first, second = (template(k, TARGETS) for k in KERNELS[:2])
    assert first == second and first is not None and first.batched and first.sizes == 1
    assert template(replace(KERNELS[0], arguments=(torch.float32, torch.float64)), TARGETS) != first
    assert template(copying(0), TARGETS) is None
    assert template(copying(1 << 40), TARGETS) is None


def test_runs_wait_until_one_is_needed() -> None:
    a, b, c = run(0, "a", "x"), run(1, "b", "y"), run(2, "c", "z")
    other, reader = call("d"), run(0, "x", "e")
    assert gathered(a, other, b, c) == [other, a, b, c]
    assert gathered(a, other, b, reader, c) == [other, a, b, reader, c]


def test_one_alone_stays() -> None:
    a, other, reader = run(0, "a", "x"), call("d"), run(1, "x", "e")
    assert gathered(a, other, reader) == [a, other, reader]


def test_who_reads_a_home_runs_before_it_is_written_over() -> None:
    a, b = run(0, "a", "x"), run(1, "b", "y")
    writer = call("z")
    assert gathered(a, writer, b, homes={"z": "a"}) == [a, writer, b]


def test_who_writes_to_the_same_memory_keeps_its_turn() -> None:
    """One fills memory that another one adds to; one reads what is written later."""
    fills = [run(0, "a", "x"), run(1, "b", "y")]
    adds = Run(len(KERNELS), ("c", "x"), ())
    kernels = [*KERNELS, replace(KERNELS[0], phases=(Phase(False, (*KERNELS[0].phases[0].lines[:1], ADDS)),))]
    steps = [fills[0], adds, fills[1]]
    assert gather(steps, kernels, LAYOUTS, TARGETS, set("abc"), {}) == steps
    reader, writer, other = run(0, "a", "x"), Run(len(KERNELS), ("c", "a"), ()), run(1, "b", "y")
    assert gather([reader, writer, other], kernels, LAYOUTS, TARGETS, set("abc"), {}) == [reader, writer, other]


def test_large_temporaries_do_not_wait() -> None:
    large, other, b = run(0, "large", "x"), call("d"), run(1, "b", "y")
    assert gathered(large, other, b) == [large, other, b]


def folded(*steps: Step, arenas: tuple[Arena, ...] = ()) -> list[Step]:
    return fold(steps, list(KERNELS), TARGETS, arenas)[0]


def test_neighbours_are_a_batch() -> None:
    x, y = Allocate("x", layout(10)), Allocate("y", layout(20))
    done = folded(x, run(0, "a", "x"), Free("a"), y, run(1, "b", "y"), call("d"))
    assert [type(step) for step in done] == [Allocate, Allocate, Batch, Free, Library]
    batch = done[2]
    assert isinstance(batch, Batch) and [row.points for row in batch.rows] == [10, 20]
    assert [row.buffers for row in batch.rows] == [("a", "x"), ("b", "y")]


def test_what_one_writes_another_must_not_touch() -> None:
    apart = [run(0, "a", "x"), run(1, "b", "x")]
    assert folded(*apart) == apart
    after = [run(0, "a", "b"), run(1, "b", "y")]
    assert folded(*after) == after
    in_place = folded(run(0, "a", "a"), run(1, "b", "b"))
    assert [type(step) for step in in_place] == [Batch]


def test_places_in_the_arena_must_be_apart() -> None:
    for second, together in ((0, False), (36, False), (40, True)):
        offsets = (("a", constant(0), layout(10)), ("y", constant(second), layout(10)))
        arena = Arena(DEVICE, offsets, constant(100))
        done = folded(run(0, "a", "x"), run(1, "b", "y"), arenas=(arena,))
        assert (len(done) == 1) is together


def test_partners_do_not_wait_for_each_other() -> None:
    calls = {n: Call(KERNELS[n % 3], (), ()) for n in range(4)}
    assert partners(calls, Precedence([[], [], [], []]), TARGETS) == {0, 1, 2, 3}
    assert partners(calls, Precedence([[], [0], [1], [2]]), TARGETS) == set()
    assert partners(calls, Precedence([[], [0], [], [1]]), TARGETS) == {0, 2}
