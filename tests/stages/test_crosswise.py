"""Operands that walk along memory with different loops: tiles give what eager gives, and are chosen where they should be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu, pad

import stoker
from stoker.codegen.cpp.kernel import emit
from stoker.codegen.cpp.shape import Shape, shape_of_kernel
from stoker.pipeline import Record
from tests.stages.conftest import Agree
from tests.unit.schedule.plans import planned

DTYPES = [
    torch.float32,
    torch.float64,
    torch.bfloat16,
    torch.float16,
    torch.int64,
    torch.int16,
    torch.uint8,
    torch.bool,
]


def _make(dtype: torch.dtype, *size: int) -> torch.Tensor:
    plain = torch.randn(size) if dtype.is_floating_point else torch.randint(0, 2, size)
    return plain.to(dtype)


def _shapes(records: list[Record]) -> set[Shape]:
    return {shape_of_kernel(kernel) for r in records for kernel in r.products["plan"].kernels}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_transposes(agree: Agree, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    records = agree(
        [
            lambda x, y, z: x.t().contiguous(),
            lambda x, y, z: torch.where(x.t() == y, y, x.t()),
            lambda x, y, z: x.t() == y,
            lambda x, y, z: z.transpose(1, 2).contiguous(),
            lambda x, y, z: z.permute(0, 2, 3, 1).contiguous(),
            lambda x, y, z: z.permute(3, 2, 1, 0).contiguous(),
            lambda x, y, z: z.permute(0, 3, 1, 2).contiguous(),
            lambda x, y, z: x[:, ::2].t().contiguous(),
            lambda x, y, z: x[3:, 5:].t().contiguous(),
        ],
        [_make(dtype, 130, 70), _make(dtype, 70, 130), _make(dtype, 2, 9, 67, 12)],
    )
    assert Shape.CROSSWISE in _shapes(records)


def test_results_may_cross_too(agree: Agree) -> None:
    """Two results of one kernel, each in its own order; a value that is moved and also used."""
    torch.manual_seed(0)
    x, y = torch.randn(100, 80), torch.randn(80, 100)
    both = [lambda x, y: (x * 2, (x * 2).t().contiguous() + y), lambda x, y: (x.t().contiguous(), x.t() + y)]
    for program in both:
        assert Shape.CROSSWISE in _shapes(agree([program], [x, y]))


def test_conditions_and_functions(agree: Agree) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(100, 80), torch.randn(80, 100)
    agree([lambda x, y: pad(x, (1, 2)).t()[:80, :] + y, lambda x, y: x.t()[y.argmax(0)[:80]] - y], [x, y])
    agree([lambda x, y: gelu(x.t()).contiguous() * y.sigmoid()], [x, y], exact=False)


@pytest.mark.parametrize(
    ("shape", "permutation", "chosen"),
    [
        ((64, 64), (1, 0), True),
        ((4, 16, 3, 32), (0, 2, 1, 3), False),
        ((4, 16, 8, 32), (0, 2, 3, 1), True),
        ((2, 3, 50), (0, 2, 1), False),
        ((2, 50, 3), (0, 2, 1), False),
        ((4, 8, 40), (2, 0, 1), True),
    ],
)
def test_tiles_are_for_loops_that_cross(agree: Agree, shape: Any, permutation: Any, chosen: bool) -> None:
    records = agree([lambda x: x.permute(permutation).contiguous()], [torch.randn(shape)])
    assert _shapes(records) == ({Shape.CROSSWISE} if chosen else {Shape.PLAIN})


def test_sizes_that_change() -> None:
    compiled = stoker.compile(lambda x, y: (x.transpose(1, 2) + y, x.permute(2, 0, 1).contiguous()), dynamic=True)
    for a, b, c in ((2, 70, 130), (3, 7, 5), (1, 64, 64), (2, 1, 200), (4, 33, 1)):
        x, y = torch.randn(a, b, c), torch.randn(a, c, b)
        for found, wanted in zip(compiled(x, y), (x.transpose(1, 2) + y, x.permute(2, 0, 1).contiguous())):
            torch.testing.assert_close(found, wanted, rtol=0, atol=0)
            assert found.stride() == wanted.stride()


def test_nothing_moves_over_shared_memory_early() -> None:
    """A value that is only moved is written first, unless its target is memory that the kernel also reads."""
    plan = planned(lambda x: (x.t().contiguous(),), torch.randn(100, 200))
    (kernel,) = plan.kernels
    assert "transpose_away(a0" in emit("k", kernel)
    assert "transpose_away(a0" not in emit("k", replace(kernel, shared=kernel.written))
