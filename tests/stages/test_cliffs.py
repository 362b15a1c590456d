"""Kernels that g++ took many seconds for: strides that are powers of two, and one value stored to many places."""

from __future__ import annotations

import resource
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import stoker
from stoker.codegen.cpp import spread
from stoker.codegen.cpp.mark import WIDEST_KNOWN
from stoker.runtime import build


def _turned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.layer_norm(x + y.mT + y.mT.exp(), (x.shape[-1],))


def _many_places(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    z = (x * 2 + y.mT).relu()
    return tuple(torch.cat([z.mT, y * n], 1) for n in range(12))


def _compiler_seconds() -> float:
    """What the processes that have ended took of a processor."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime


@pytest.mark.parametrize("program", [_turned, _many_places])
@pytest.mark.parametrize("size", [1024, 1000])
def test_kernels_are_built_in_seconds(
    program: Callable[..., object], size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit, of a processor's time, is generous: these took half a minute and more."""
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    x, y = torch.randn(2, 49, size), torch.randn(2, size, 49)
    start = _compiler_seconds()
    got = stoker.compile(program)(x, y)
    assert _compiler_seconds() - start < 20
    torch.testing.assert_close(got, program(x, y), rtol=1e-4, atol=1e-4)


def test_a_value_is_turned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    usual = build.begin_loading
    monkeypatch.setattr(
        "stoker.codegen.cpp.backend.begin_loading", lambda given, words: sources.extend(given) or usual(given, words)
    )
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


def _spread(x: torch.Tensor, *others: torch.Tensor) -> list[torch.Tensor]:
    """One value into many concatenations."""
    y = torch.sin(x) + 1
    return [torch.cat([other, y, other * n], -2) for n, other in enumerate(others)]


@pytest.mark.parametrize(
    "layout", ["rows", "columns", "transposed", "tiles", "short rows", "offsets", "growing", "uneven"]
)
@pytest.mark.parametrize("count", [2, 5, 9])
def test_a_value_is_copied_to_many_places(layout: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []
    usual = build.begin_loading
    monkeypatch.setattr(
        "stoker.codegen.cpp.backend.begin_loading", lambda given, words: sources.extend(given) or usual(given, words)
    )
    width = 7 if layout == "short rows" else 80
    x = torch.randn(3, 40, width)
    if layout == "transposed":
        x = torch.randn(3, width, 40).mT
    elif layout == "tiles":
        x = torch.randn(3, width, 40).mT + torch.zeros(3, 40, width)
    elif layout == "columns":
        x = torch.randn(40, width, 3).permute(2, 0, 1)
    more = {"offsets": lambda n: n % 3, "growing": lambda n: 2 * n, "uneven": lambda n: n * n}.get(layout, lambda n: 0)
    others = [torch.randn(3, 5 + more(n), width) for n in range(count)]
    expected, got = _spread(x, *others), stoker.compile(_spread)(x, *others)
    for a, b in zip(expected, got, strict=True):
        torch.testing.assert_close(b, a)
        assert a.stride() == b.stride()
    if layout in ("rows", "growing"):
        assert any("arguments[copy]" in source for source in sources) == (count > spread.MANY)
