"""Results are written over what dies, and over nothing else."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from stoker.schedule.kernel import Kernel
from stoker.schedule.overwrite import overwritable
from stoker.schedule.plan import Plan
from stoker.schedule.step import Allocate, Run
from tests.unit.schedule.plans import assert_memory_sound, planned

X, W = torch.randn(8, 8), torch.randn(8, 8)


def _runs(plan: Plan) -> list[tuple[Kernel, tuple[str, ...]]]:
    return [(plan.kernels[s.kernel], s.buffers) for s in plan.steps if isinstance(s, Run)]


def test_elementwise_over_a_product_that_dies() -> None:
    plan = planned(lambda x, w: (torch.relu(x @ w) @ w,), X, W)
    ((kernel, (source, target)),) = _runs(plan)
    assert source == target
    assert kernel.shared == {0, 1}
    assert len(plan.arenas[0].offsets) == 1
    assert_memory_sound(plan)


def test_an_output_is_written_over_a_temporary() -> None:
    plan = planned(lambda x, w: (torch.relu(x @ w),), X, W)
    (allocated,) = [s for s in plan.steps if isinstance(s, Allocate)]
    assert plan.outputs[0].buffer == allocated.buffer
    assert not plan.arenas
    assert_memory_sound(plan)


def test_softmax_over_its_rows() -> None:
    plan = planned(lambda x, w: (torch.softmax(x @ w, -1) @ w,), X, W)
    assert [len(set(buffers)) for _, buffers in _runs(plan)] == [1]
    assert_memory_sound(plan)


def test_reduced_columns_and_rows() -> None:
    for dim in (0, 1):
        plan = planned(lambda x, w: ((x @ w - (x @ w).sum(dim, True)).exp() @ w,), X, W)  # noqa: B023
        assert plan.over
        assert_memory_sound(plan)


def test_not_over_inputs() -> None:
    plan = planned(lambda x, w: (torch.relu(x) @ w,), X, W)
    assert not plan.over


def test_not_over_what_is_read_later() -> None:
    def program(x: Any, w: Any) -> Any:
        h = x @ w
        return (torch.relu(h) @ h,)

    plan = planned(program, X, W)
    assert not plan.over
    assert_memory_sound(plan)


def test_not_over_an_output() -> None:
    def program(x: Any, w: Any) -> Any:
        h = x @ w
        return h, torch.relu(h) @ w

    plan = planned(program, X, W)
    assert not plan.over


def test_not_at_other_places() -> None:
    plan = planned(lambda x, w: ((x @ w).t().contiguous() @ w,), X, W)
    assert not plan.over
    plan = planned(lambda x, w: ((x @ w).flip(0) @ w,), X, W)
    assert not plan.over
    plan = planned(lambda x, w: ((lambda h: h + h.roll(1, 0))(x @ w) @ w,), X, W)
    assert not plan.over


def test_not_another_type_or_size() -> None:
    plan = planned(lambda x, w: ((x @ w).double() @ w.double(),), X, W)
    assert all(len(set(buffers)) == len(buffers) for _, buffers in _runs(plan))
    plan = planned(lambda x, w: (F.pad(x @ w, (0, 1)) @ F.pad(w, (0, 0, 0, 1)),), X, W)
    assert_memory_sound(plan)


def test_scans_and_scatters_are_left_alone() -> None:
    plan = planned(lambda x, w: ((x @ w).cumsum(1) @ w,), X, W)
    assert all(not overwritable(kernel) for kernel in plan.kernels)
    assert not plan.over


def test_not_where_a_library_shares_memory() -> None:
    """What one call makes together may be one memory: neither is written over."""
    plan = planned(lambda x, w: (torch.relu(torch.linalg.qr(x @ w)[0]) @ torch.linalg.qr(x @ w)[1],), X, W)
    over = {below for _, below in plan.over}
    results = {r for s in plan.steps for r in getattr(s, "results", ())}
    assert not over & results


def test_one_result_over_one_buffer() -> None:
    def program(x: Any, w: Any) -> Any:
        h = x @ w
        return torch.relu(h) @ w, torch.tanh(h) @ w

    plan = planned(program, X, W)
    ((_, buffers),) = _runs(plan)
    assert len(buffers) == 3
    assert len(set(buffers)) == 2
    assert_memory_sound(plan)
