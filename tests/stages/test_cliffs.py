"""Kernels that g++ took many seconds for: strides that are powers of two, and one value stored to many places."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import stoker
from stoker.codegen.cpp.expression import WIDEST_KNOWN
from stoker.runtime import build


def _turned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x + y.mT + y.mT.exp(), (x.shape[-1],))


def _many_places(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = (x * 2 + y.mT).relu()
    return tuple(torch.cat([z.mT, y * n], 1) for n in range(12))


@pytest.mark.parametrize("program", [_turned, _many_places])
@pytest.mark.parametrize("size", [1024, 1000])
def test_kernels_are_built_in_seconds(
    program: Callable[..., object], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit is generous: these took half a minute and more."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    x, y = torch.randn(2, 49, size), torch.randn(2, size, 49)
    start = time.perf_counter()
    got = stoker.compile(program)(x, y)
    assert time.perf_counter() - start < 20
    torch.testing.assert_close(got, program(x, y), rtol=1e-4, atol=1e-4)


def test_a_value_is_turned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    usual = build.load_all
    monkeypatch.setattr("stoker.codegen.cpp.backend.load_all", lambda given: sources.extend(given) or usual(given))
    x, y = torch.randn(2, 128, 192), torch.randn(2, 192, 128)
    got = stoker.compile(_many_places)(x, y)
    torch.testing.assert_close(got, _many_places(x, y))
    assert sources and max(s.count("alignas(64) float tile") for s in sources) <= 4 * len(sources)


def test_strides_are_variables() -> None:
    from stoker.codegen.cpp.expression import declared, expression
    from stoker.shape.expr import symbol

    x = symbol("x")
    assert expression(x * WIDEST_KNOWN + x * 1000, {}) == f"{WIDEST_KNOWN + 1000}*x"
    text = declared("void f() {\n  g(" + expression(x * 1024, {}) + ");\n}")
    assert text == "void f() {\n  const int64_t wide_1024 = unknown(1024);\n  g(wide_1024*x);\n}"
