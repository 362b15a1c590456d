"""Elementwise operators, compiled as they are in earnest, against eager: equal bit for bit, except functions that eager rounds
otherwise. One graph holds many operators, so that the C++ compiler runs once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch.fx import Graph, GraphModule

import stoker
from stoker.autograd import aot
from stoker.pipeline import compile_graph, decompositions

FLOAT: list[Callable[..., Any]] = [
    torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.minimum, torch.remainder, torch.fmod,
    lambda a, b: torch.div(a, b, rounding_mode="floor"),
    lambda a, b: a + 2 * b, lambda a, b: torch.where(a > b, a, b * 3), lambda a, b: a.clamp(-0.5, 0.75),
    lambda a, b: torch.relu(a), lambda a, b: a.neg().floor(),
    lambda a, b: a.ceil() + b.round() - a.trunc(), lambda a, b: torch.sign(a), lambda a, b: a.pow(2) - b.pow(3),
    lambda a, b: a.reciprocal(), lambda a, b: (a > b) & (a != 0) | torch.isnan(b), lambda a, b: a.to(torch.int32) * 2,
    lambda a, b: a.to(torch.bfloat16) + b.to(torch.bfloat16) * 3, lambda a, b: a.double() * b, lambda a, b: a.half() - b.half(),
    lambda a, b: a.masked_fill(b > 0, -1.0), lambda a, b: torch.eq(a, b), lambda a, b: torch.add(a, b, alpha=2),
]  # fmt: skip
ROOTS: dict[Callable[..., Any], Callable[..., Any]] = {
    lambda a, b: a.abs().sqrt(): lambda a, b: np.sqrt(np.abs(a)),
    lambda a, b: a.abs().rsqrt(): lambda a, b: np.float32(1) / np.sqrt(np.abs(a)),
    lambda a, b: torch.div(a, b, rounding_mode="trunc"): lambda a, b: np.trunc(a / b),
}
"""Operators of float32 that eager rounds wrongly on some processors, and what IEEE arithmetic says."""
WHOLE: list[Callable[..., Any]] = [
    torch.add, torch.sub, torch.mul, torch.maximum, torch.minimum, lambda a, b: torch.div(a, b + 20, rounding_mode="floor"),
    lambda a, b: torch.remainder(a, b + 20), lambda a, b: a & b, lambda a, b: a | b, lambda a, b: a ^ b, lambda a, b: ~a,
    lambda a, b: a < b, lambda a, b: a.abs(), lambda a, b: a.sign(), lambda a, b: a.float() * 0.5, lambda a, b: a.bool(),
    lambda a, b: torch.where(a > b, a, b), lambda a, b: a.clamp(-3, 4), lambda a, b: a.neg(),
]  # fmt: skip


def shapes(dtype: torch.dtype) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Dense, transposed, strided, broadcast, empty and without dimensions."""
    torch.manual_seed(0)

    def make(*size: int) -> torch.Tensor:
        if dtype.is_floating_point:
            return torch.randn(size).to(dtype)
        return torch.randint(-9, 9, size).to(dtype)

    special = make(37)
    if dtype.is_floating_point:
        special[:5] = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan")])
    return [
        (special, make(37)), (make(5, 7).t(), make(7, 5)), (make(6, 8)[:, ::2], make(6, 1)), (make(0, 3), make(3)),
        (make(), make(3)), (make(2, 1, 33), make(4, 1)),
    ]  # fmt: skip


def compiled(functions: list[Callable[..., Any]], a: torch.Tensor, b: torch.Tensor) -> Any:
    graph = Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y")
    graph.output(tuple(graph.call_function(f, (x, y)) for f in functions))
    module = GraphModule(torch.nn.Module(), graph)
    return aot(module, [a, b], forward_compiler=compile_graph, decompositions=decompositions())


@pytest.mark.parametrize("case", range(6))
@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool], ids=str
)
def test_bit_for_bit(dtype: torch.dtype, case: int) -> None:
    a, b = shapes(dtype)[case]
    functions = FLOAT if dtype.is_floating_point else WHOLE
    functions = [f for f in functions if _runs(f, a, b)]
    for number, (found, function) in enumerate(zip(compiled(functions, a, b)(a, b), functions, strict=True)):
        wanted = function(a, b)
        assert found.dtype is wanted.dtype and found.stride() == wanted.stride(), number
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True, msg=lambda m, n=number: f"{n}: {m}")


@pytest.mark.parametrize("case", range(6))
def test_correctly_rounded(case: int) -> None:
    a, b = shapes(torch.float32)[case]
    for found, truth in zip(compiled(list(ROOTS), a, b)(a, b), ROOTS.values(), strict=True):
        with np.errstate(all="ignore"):
            wanted = torch.from_numpy(np.asarray(truth(a.numpy(), b.numpy())))
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def _runs(function: Callable[..., Any], a: torch.Tensor, b: torch.Tensor) -> bool:
    try:
        function(a, b)
    except (RuntimeError, TypeError):
        return False
    return True


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scalar", [0.3, torch.tensor(0.3)], ids=["number", "tensor"])
@pytest.mark.parametrize(
    "program",
    [
        lambda x, s: x + s,
        lambda x, s: x - s,
        lambda x, s: s - x,
        lambda x, s: x * s,
        lambda x, s: x / s,
        lambda x, s: torch.fmod(x, s),
        lambda x, s: torch.remainder(x, s),
        lambda x, s: (x < s, x == s, x >= s),
        lambda x, s: torch.add(x, x, alpha=1.7),
        lambda x, s: ((x * 1.1 + s) * 0.7 - 0.2) * 1.3,
    ],
)
def test_numbers_in_half_precision_are_rounded_as_eager_does(dtype: torch.dtype, scalar: Any, program: Any) -> None:
    x = torch.randn(4096, generator=torch.Generator().manual_seed(0)).to(dtype)
    torch.testing.assert_close(stoker.compile(program)(x, scalar), program(x, scalar), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_functions_are_near_to_eager(dtype: torch.dtype) -> None:
    """Vector versions, also of functions that the compiler would like to join; tests/unit/codegen/test_math.py has every value."""
    x = torch.cat([torch.linspace(-20, 20, 1001), torch.tensor([1e6, -1e12, float("inf"), float("nan"), -0.0])]).to(
        dtype
    )
    names = [
        "sin",
        "cos",
        "tan",
        "atan",
        "exp",
        "exp2",
        "log2",
        "log10",
        "log1p",
        "expm1",
        "sinh",
        "cosh",
        "tanh",
        "asin",
        "acos",
        "asinh",
        "erf",
        "erfc",
    ]
    functions = [lambda a, b, n=n: getattr(torch, n)(a) for n in names]
    functions += [
        lambda a, b: a.sin() * b + a.cos(),
        torch.atan2,
        lambda a, b: a.abs().pow(b),
        lambda a, b: a.abs().pow(1.5),
    ]
    for found, function in zip(compiled(functions, x, x.flip(0))(x, x.flip(0)), functions, strict=True):
        few = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(found, function(x, x.flip(0)), rtol=few, atol=few, equal_nan=True)


WITHOUT_VECTORS = """
import torch
import stoker
assert torch.backends.cpu.get_cpu_capability() == "DEFAULT"
torch.manual_seed(0)
for dtype in (torch.bfloat16, torch.float16):
    x, y = torch.randn(2, 300).to(dtype)
    for program in (lambda x, y: torch.add(x, y, alpha=1.7), lambda x, y: torch.sub(x, y, alpha=-0.3), lambda x, y: x + 1.7 * y):
        assert torch.equal(stoker.compile(program)(x, y), program(x, y)), dtype
"""


def test_half_precision_where_torch_has_no_vectors() -> None:
    """Eager's code for other processors rounds products, too."""
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT_VECTORS],
        env={**os.environ, "ATEN_CPU_CAPABILITY": "default"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
