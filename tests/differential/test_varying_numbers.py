"""Numbers that differ from call to call: compared, passed on, made into data, without a version for each."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

X = torch.arange(4.0)
FLOATS = (0.25, 3.5, -1.0, 0.0, -0.0, math.inf, math.nan, 7.25, 1e300, 0.5, 0.75)
INTS = (2, 3, 5, -4, 0, 1, 2**40, 9, 8, 77)


def equal(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a.nan_to_num(), b.nan_to_num()) and a.shape == b.shape
    if isinstance(a, (tuple, list)):
        return type(a) is type(b) and len(a) == len(b) and all(map(equal, a, b))
    return type(a) is type(b) and (a == b or repr(a) == repr(b))


PROGRAMS: list[tuple[Callable[..., Any], int]] = [
    (lambda x, k: x * 2 if k > 1.0 else x, 4),
    (lambda x, k: (x + 1, k, [k]) if k else (x, k), 4),
    (lambda x, k: x + 1 if 0 <= k < 5 else x - 1, 5),
    (lambda x, k: x + 1 if k == 0.25 else x - 1 if k != 3.5 else x, 5),
    (lambda x, k: x + 1 if isinstance(k, float) and k is not None else x, 2),
    (lambda x, k: x + 1 if max(k, 1.0) > 2 else x, 8),
]


@pytest.mark.parametrize(("program", "most"), PROGRAMS)
def test_a_float_that_is_compared(program: Callable[..., Any], most: int) -> None:
    graphs: list[Any] = []
    compiled = stoker.compile(program, backend=lambda g, e: graphs.append(g) or g.forward)
    for k in FLOATS * 2:
        assert equal(compiled(X, k), program(X, k)), k
    assert len(graphs) <= most


@pytest.mark.parametrize("program", [lambda x, k: x * k, lambda x, k: x + k * 2, lambda x, k: (x, f"{k:.1f}", hash(k))])
def test_a_float_that_is_used(program: Callable[..., Any]) -> None:
    compiled = stoker.compile(program, backend="eager", options={"version_limit": 30})
    for k in FLOATS:
        assert equal(compiled(X, k), program(X, k)), k


POWERS: list[Callable[..., Any]] = [
    lambda x, k: x * 2**k,
    lambda x, k: (x, 2**k - 1, (-3) ** k, 10**k // 7, 2 ** (k + 1)),
    lambda x, k: torch.round(x * (2**k - 1)) / (2**k - 1),
    lambda x, k: x.clamp(-(2 ** (k - 1)), 2 ** (k - 1) - 1),
    lambda x, k: (x * (1 << k), k << k, 1000 >> k),
    lambda x, k: torch.zeros(2**k) + x.sum(),
    lambda x, k: torch.ones(1000)[: 1 << k] * 10**-k,
]


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("program", POWERS)
def test_an_exponent_that_varies(program: Callable[..., Any], backend: str) -> None:
    stoker.reset()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for k in (1, 2, 3, 5, 4, 9, 8):
        assert equal(compiled(X, k), program(X, k)), k
    assert len(stoker.events("captured")) == 2


def test_exponents_that_no_float_has_room_for() -> None:
    """Or that make a float: these are versions of their own."""

    def program(x: torch.Tensor, k: int) -> Any:
        return x + 1, 3**k, 2**k, 7 >> abs(k)

    compiled = stoker.compile(program, backend="eager", options={"version_limit": 30})
    for k in (2, 3, 33, 34, 53, 54, 70, 0, -1, -2):
        assert equal(compiled(X, k), program(X, k)), k
    with pytest.raises(ValueError, match="negative shift count"):
        stoker.compile(lambda x, k: x * (1 << k), backend="eager", dynamic=True)(X, -1)


def test_the_number_read_at_a_break() -> None:
    graphs: list[Any] = []

    def program(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        if y.sum().item() > 1e6:
            y = y / 2
        return y + 1

    compiled = stoker.compile(program, backend=lambda g, e: graphs.append(g) or g.forward)
    for n in range(12):
        assert torch.equal(compiled(X * n), program(X * n))
    assert torch.equal(compiled(X * 1e7), program(X * 1e7))
    assert len(graphs) <= 4


DATA: list[Callable[..., Any]] = [
    lambda x, t, u: x * torch.tensor([t]),
    lambda x, t, u: torch.tensor(t) + torch.tensor([[t, 3], [u, t * 2]], dtype=torch.float32).sum(),
    lambda x, t, u: torch.tensor((t, u, t + u), device="cpu"),
    lambda x, t, u: torch.tensor([t, u], dtype=torch.float64) / 3,
    lambda x, t, u: torch.tensor([[t], [u]]).expand(2, 3),
]


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("program", DATA)
def test_an_int_that_becomes_data(program: Callable[..., Any], backend: str) -> None:
    stoker.log.clear()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for t, u in zip(INTS, INTS[1:]):
        assert equal(compiled(X, t, u), program(X, t, u)), (t, u)
    assert len(stoker.events("captured")) <= 4  # `expand`, whose sizes are known, and a number that is 1


@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float16, torch.complex64])
def test_other_types_of_data(dtype: torch.dtype) -> None:
    program = lambda x, t: torch.tensor([t, 1], dtype=dtype)  # noqa: E731
    compiled = stoker.compile(program, backend="eager")
    for t in (2, 3, 5):
        assert equal(compiled(X, t), program(X, t))


SCALES = (0.5, 0.25, 0.125, 0.3, 0.7, -1.5, 1e-3, 0.5)

USED: list[Callable[..., Any]] = [
    lambda x, s: x * s + s,
    lambda x, s: x.add(torch.ones_like(x), alpha=-s),
    lambda x, s: ((x / (s * s + 1)).softmax(-1), 1 - s),
    lambda x, s: x.clamp(min=s) - x.clamp(max=abs(s)),
    lambda x, s: x * (1 - s * 2) ** 2,
    lambda x, s: torch.full((3,), s) + torch.full_like(x[:3], s) * torch.tensor(s) + torch.tensor([s, 1.0, 2]),
    lambda x, s: torch.nn.functional.leaky_relu(x - 1, s),
    lambda x, s: torch.where(x > s, x, s) + x.masked_fill(x > s, s),
    lambda x, s: x.half() * s + (x.to(torch.int64) * s).half(),
    lambda x, s: x.sum() * s + torch.tensor(2) * s,
    lambda x, s: x * math.sqrt(s * s) + math.exp(s),
    lambda x, s: x * s if s > -2 else x,
    lambda x, s: torch.addcmul(x, x, x, value=s) + torch.pow(x + 1, s),
    lambda x, s: x.sin_().mul_(s),
    lambda x, s: torch.complex(x, x) * s,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", USED)
def test_a_float_becomes_a_symbol_at_its_second_value(program: Callable[..., Any], backend: str) -> None:
    stoker.log.clear()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for s in SCALES:
        torch.testing.assert_close(compiled(X.clone(), s), program(X.clone(), s), rtol=1e-6, atol=0)
    assert len(stoker.events("captured")) == 2
    assert not stoker.events("backend")


def test_gradients_through_a_symbolic_float() -> None:
    program = lambda x, s: ((x * s).tanh() / (1 + s * s)).sum()  # noqa: E731
    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for s in SCALES:
        a, b = (torch.arange(4.0, requires_grad=True) for _ in range(2))
        compiled(a, s).backward()
        program(b, s).backward()
        torch.testing.assert_close(a.grad, b.grad)
    assert len(stoker.events("captured")) == 2


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.step, self.rate = 0, {"now": 0.5}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.step += 1
        self.rate["now"] *= 0.9
        return x * self.step * self.rate["now"] / (1 - 0.9**self.step)


@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_counters_and_rates_of_a_module(backend: str) -> None:
    stoker.log.clear()
    module, other = Counting(), Counting()
    compiled = stoker.compile(module, backend=backend, fullgraph=True)
    for _ in range(8):
        torch.testing.assert_close(compiled(X), other(X))
    assert (module.step, module.rate) == (other.step, other.rate)
    assert len(stoker.events("captured")) == 2


def test_what_python_refuses_is_refused() -> None:
    def program(x: torch.Tensor, s: float) -> torch.Tensor:
        return x * (1.0 / s) + math.sqrt(s) + s**0.5

    compiled = stoker.compile(program)
    for s in (0.5, 0.25, 0.0, 4.0, -1.0, 2.0):
        try:
            wanted = program(X, s)
        except (ArithmeticError, ValueError) as error:
            with pytest.raises(type(error), match=str(error)):
                compiled(X, s)
        else:
            torch.testing.assert_close(compiled(X, s), wanted)


def test_floats_made_of_sizes() -> None:
    program = lambda x: x / math.sqrt(x.shape[0]) * (x.shape[0] / 3) ** 0.5  # noqa: E731
    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for n in (3, 5, 9, 12):
        torch.testing.assert_close(compiled(torch.arange(float(n))), program(torch.arange(float(n))))
    assert len(stoker.events("captured")) == 2


def test_bits_of_integers_that_vary() -> None:
    """Shifts by plain numbers, and the lowest bits, are arithmetic: no number is a version."""

    def program(x: torch.Tensor, n: int) -> tuple[torch.Tensor, ...]:
        return x * (n & 1), x + (n & 7), x - (n >> 2), x * (n << 3), x + (3 & n)

    stoker.reset()
    compiled = stoker.compile(program)
    for n in (3, 8, 13, 22, -5, 31, 40):
        x = torch.randn(4)
        for found, expected in zip(compiled(x, n), program(x, n), strict=True):
            assert torch.equal(found, expected)
    assert len(stoker.events("recompile")) == 1


@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_masks_of_integers_that_vary(backend: str) -> None:
    """Any plain mask is a sum of remainders: of negative numbers as well, and with masks below zero."""

    def program(x: torch.Tensor, n: int) -> tuple[Any, ...]:
        both = [(n & mask, n | mask, mask ^ n) for mask in (1, 6, 0b1011010, 0, -1, -8, ~0b101, 1 << 20)]
        n |= 1
        return x * n, both, ~n

    stoker.reset()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for n in (3, 8, 13, 22, -5, 31, 1 << 20, -(1 << 21) - 7, 90):
        assert equal(compiled(X, n), program(X, n))
    assert len(stoker.events("recompile")) == 1


def test_sizes_rounded_by_masks() -> None:
    program = lambda x: (torch.zeros((x.shape[0] + 7) & ~7), x * (x.shape[0] | 1))  # noqa: E731
    stoker.reset()
    compiled = stoker.compile(program, fullgraph=True)
    for n in (3, 8, 13, 22, 31):
        assert equal(compiled(torch.ones(n)), program(torch.ones(n)))
    assert len(stoker.events("recompile")) == 1


EXACT_SUMS: list[Callable[..., Any]] = [
    lambda x, k: x * math.fsum([k, 0.1, 0.2]),
    lambda x, k: (x, math.fsum(k * part for part in (1e16, 1.0, -1e16))),
    lambda x, k: x + math.fsum((k, x.shape[0], True)),
    lambda x, k: x + math.fsum([]) + k,
]


@pytest.mark.parametrize("program", EXACT_SUMS)
@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_exact_sums_of_floats_that_vary(program: Callable[..., Any], backend: str) -> None:
    stoker.reset()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for k in (0.25, 3.5, -1.0, 7.25, 0.5):
        assert equal(compiled(X, k), program(X, k))
    assert len(stoker.events("recompile")) == 1
