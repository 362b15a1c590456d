"""Kernels that differ in numbers alone are one function, and do what each would do alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stoker
from stoker.codegen.cpp import share as sharing
from stoker.codegen.cpp.mark import MARK, marked, plain
from stoker.codegen.cpp.share import SourcePiece, share
from stoker.runtime import build

HEAD = 'extern "C" int {}(void* const* arguments, const int64_t* sizes) {{\n'


def function(name: str, *lines: str) -> str:
    return HEAD.format(name) + "".join(f"  {line}\n" for line in lines) + "}\n"


@pytest.fixture
def any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sources of any length are shared."""
    monkeypatch.setattr(sharing, "LONG", 0)


def test_marks_come_and_go() -> None:
    assert plain(f"a[{marked('49')}*o0 + {marked('wide_64')}]") == "a[49*o0 + wide_64]"


@pytest.mark.usefixtures("any_length")
def test_what_varies_is_given() -> None:
    texts = {f"k{n}": function(f"k{n}", f"f(⟨{n + 40}⟩, ⟨50⟩, ⟨{n + 40}⟩, float(⟨{n}.5⟩));") for n in range(4)}
    (piece,) = share(texts)
    assert piece.kernels == ("k0", "k1", "k2", "k3")
    assert "const int64_t number0, const double number1) {\n  f(number0, 50, number0, float(number1));\n}" in piece.text
    assert HEAD.format("k2").rstrip() + " return shared_k0(arguments, sizes, 42, 2.5); }" in piece.text


@pytest.mark.usefixtures("any_length")
def test_wide_strides_are_numbers_like_others() -> None:
    strides = ("wide_64", "96", "wide_128", "160")
    (piece,) = share({f"k{n}": function(f"k{n}", f"f(⟨{stride}⟩);") for n, stride in enumerate(strides)})
    assert "f(number0);" in piece.text and "wide" not in piece.text
    (piece,) = share({f"k{n}": function(f"k{n}", f"f(⟨wide_64⟩, ⟨{n + 40}⟩);") for n in range(4)})
    assert "const int64_t wide_64 = unknown(64);\n  f(wide_64, number0);" in piece.text


@pytest.mark.usefixtures("any_length")
def test_what_differs_otherwise_stays_apart() -> None:
    texts = {f"k{n}": function(f"k{n}", f"f(⟨{n + 40}⟩, {n % 2});") for n in range(4)}
    pieces = share(texts)
    assert pieces == [
        SourcePiece(plain(text), (name,)) for name, text in sorted(texts.items(), key=lambda t: int(t[0][1]) % 2)
    ]
    texts |= {f"k{n}": function(f"k{n}", f"f(⟨{n + 40}⟩, {n % 2});") for n in range(4, 6)}
    assert [piece.kernels for piece in share(texts)] == [("k0", "k2", "k4"), ("k1", "k3", "k5")]


def test_short_sources_are_left_alone() -> None:
    assert len(share({f"k{n}": function(f"k{n}", f"f(⟨{n + 40}⟩);") for n in range(9)})) == 9


class Widening(nn.Module):
    """Equal layers of different widths, each with the results of all before it."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(40 + 8 * n), nn.ReLU(), nn.Conv2d(40 + 8 * n, 8, 3, padding=1))
            for n in range(layers)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return x


def norms(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [F.layer_norm(t * 1.1 + 0.3, (t.shape[-1],)).relu() for t in tensors]


def moved(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [(t.mT + 1.5).contiguous() * t.shape[0] for t in tensors]


def sums(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [(t * t + 0.7).amax(-1) / 3.7 for t in tensors]


@pytest.fixture
def sources(any_length: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The sources that are built."""
    found: list[str] = []
    usual = build.begin_loading
    monkeypatch.setattr(
        "stoker.codegen.cpp.backend.begin_loading", lambda given, words: found.extend(given) or usual(given, words)
    )
    return found


def shares(sources: list[str]) -> bool:
    assert sources and not any(MARK.search(source) for source in sources)
    return any("static int shared_kernel_" in source for source in sources)


@pytest.mark.parametrize("program", [norms, moved, sums])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_programs_agree(program: Any, dtype: torch.dtype, sources: list[str]) -> None:
    inputs = [torch.randn(70 + 3 * n, 300 + 17 * n).to(dtype) for n in range(6)]
    reach = 1e-5 if dtype is not torch.bfloat16 else 2e-2
    torch.testing.assert_close(stoker.compile(program)(*inputs), program(*inputs), rtol=reach, atol=reach)
    assert shares(sources) or program is sums


@pytest.mark.parametrize("train", [False, True])
def test_layers_agree(train: bool, sources: list[str]) -> None:
    torch.manual_seed(0)
    model = Widening(12).train(train)
    x = torch.randn(2, 40, 24, 24)
    with torch.set_grad_enabled(train):
        got, expected = stoker.compile(model)(x), model(x)
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    if train:
        parameters = list(model.parameters())
        found = torch.autograd.grad(got.square().mean(), parameters)
        torch.testing.assert_close(
            found, torch.autograd.grad(expected.square().mean(), parameters), rtol=1e-3, atol=1e-4
        )
        assert shares(sources)
