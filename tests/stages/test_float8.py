"""Numbers of 8 bits with a point in generated Triton: they are read, converted and written, bit for bit as eager does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stoker.runtime.cubin import Job, compile_all
from tests.stages.interpreted import Interpreted
from tests.stages.test_triton import side_by_side

DTYPES = [torch.float8_e4m3fn, torch.float8_e5m2]


def numbers() -> torch.Tensor:
    """Every number of half precision, and some around the largest and smallest of both types."""
    every = torch.arange(1 << 16).to(torch.uint16).view(torch.float16).float()
    near = [
        448.0,
        464.0,
        464.01,
        479.9,
        480.0,
        57344.0,
        61439.9,
        61440.0,
        1e30,
        2**-9.99,
        2**-10,
        2**-16.5,
        2**-17,
        1e-38,
    ]
    return torch.cat([every, torch.tensor(near), -torch.tensor(near), torch.randn(36) * 100]).view(-1, 64)


Program = Callable[[torch.Tensor, torch.dtype], Any]
PROGRAMS: dict[str, Program] = {
    "to": lambda x, d: (x.to(d),),
    "of half": lambda x, d: (x.half().to(d), x.double().to(d)),
    "of whole numbers": lambda x, d: (x.nan_to_num(0).clamp(-500, 500).int().to(d), (x > 0).to(d)),
    "and back": lambda x, d: (x.to(d).float(), x.to(d).half(), x.to(d).double() + 1, x.to(d).bfloat16()),
    "scaled": lambda x, d: ((x.nan_to_num(0) * 3 + 1).clamp(-448, 448).to(d),),
    "views": lambda x, d: (x.to(d).t()[:3].float(), x.to(d)[:, ::2].contiguous(), x.to(d).t().contiguous()),
    "rows": lambda x, d: ((y := x[:90].nan_to_num(0).clamp(-9, 9).to(d)), y.float().sum(1)),
    "other bits": lambda x, d: (x[::9].to(d).view(torch.uint8), x[::9].to(d).view(torch.uint8) & 0x7F),
    "copies": lambda x, d: (x.to(d).clone(), torch.cat([x.to(d), x.to(d)])),
}


def same(mine: torch.Tensor, eager: torch.Tensor) -> bool:
    """To the bit, but for what is no number."""
    assert mine.dtype is eager.dtype and mine.shape == eager.shape and mine.stride() == eager.stride()
    mine, eager = mine.cpu(), eager.cpu()
    equal = mine.float() == eager.float() if eager.is_floating_point() else mine == eager
    return bool((equal | (mine.float().isnan() & eager.float().isnan())).all())


def compare(program: Callable[..., Any], given: list[torch.Tensor], backend: Interpreted) -> None:
    for mine, eager in side_by_side(program, given, backend):
        assert same(mine, eager)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_program(name: str, dtype: torch.dtype) -> None:
    compare(lambda x: PROGRAMS[name](x, dtype), [numbers()], Interpreted())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_number_is_read(dtype: torch.dtype) -> None:
    every = torch.arange(256).to(torch.uint8).view(dtype)
    compare(lambda x: (x.float(), x.half(), x.double(), x.float() != 0), [every], Interpreted())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_of_bfloat16(dtype: torch.dtype) -> None:
    compare(lambda x: (x.to(dtype),), [numbers().bfloat16()], Interpreted())


def test_scaling_and_conversion_are_one_kernel() -> None:
    backend = Interpreted()
    compare(lambda x: ((x * 0.5).clamp(-448, 448).to(torch.float8_e4m3fn),), [torch.randn(64, 64)], backend)
    assert len(backend.units) == 1


def test_sources_compile_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    backend = Interpreted()
    for dtype in DTYPES:
        for name in ("to", "and back", "rows"):
            compare(lambda x: PROGRAMS[name](x, dtype), [torch.randn(20, 64)], backend)  # noqa: B023  (called here)
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90) for u in backend.units]
    assert all(b.content.startswith(b"\x7fELF") for b in compile_all(jobs))
