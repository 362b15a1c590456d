"""Conversions between all types, and the corners of arithmetic: as eager, bit for bit, through every stage."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stoker

FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
WHOLES = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
SPECIAL = [
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    1.5,
    -1.5,
    2.5,
    -2.5,
    3.7,
    100.0,
    -100.0,
    float("inf"),
    float("-inf"),
    float("nan"),
]


def _floats(dtype: torch.dtype, *, finite: bool = False) -> torch.Tensor:
    values = torch.tensor([v for v in SPECIAL if not finite or abs(v) < 127]).to(dtype)
    return values.repeat(3)


@pytest.mark.parametrize("source", [*WHOLES, *FLOATS], ids=str)
def test_conversions(agree: Any, source: torch.dtype) -> None:
    """Numbers that both types hold, or that wrap; what C++ leaves undefined (infinity as a whole number) is left out."""
    x = _floats(source, finite=True) if source.is_floating_point else torch.arange(-40, 41).to(source)
    targets = [t for t in (*WHOLES, *FLOATS) if not (source.is_floating_point and t is torch.uint8)]
    agree([lambda x, t=t: x.to(t) for t in targets] + [lambda x, t=t: (x + 1).to(t) for t in targets[1:]], [x])


@pytest.mark.parametrize("whole", WHOLES[1:], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_through_whole_numbers(dtype: torch.dtype, whole: torch.dtype) -> None:
    """Not the same as truncating: zero has no sign, and what is out of range comes back as what the processor made of it."""

    def there_and_back(x: torch.Tensor) -> torch.Tensor:
        return x.to(whole).to(dtype) * 2

    x = torch.tensor([*SPECIAL, 300.7, -200.2, 3000000005.0, -3000000005.0, 1e20, -1e20], dtype=dtype).repeat(3)
    got, expected = stoker.compile(there_and_back)(x), there_and_back(x)
    assert got.tolist() == expected.tolist() and torch.equal(got.signbit(), expected.signbit())


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_no_ordinary_number(agree: Any, dtype: torch.dtype) -> None:
    a = _floats(dtype)
    b = a.roll(5)
    programs = [
        torch.maximum, torch.minimum, torch.fmax, torch.fmin, lambda a, b: torch.sign(a), lambda a, b: torch.round(a),
        lambda a, b: torch.floor(a), lambda a, b: torch.ceil(a), lambda a, b: torch.trunc(a), lambda a, b: a.clamp(-1, 2),
        lambda a, b: torch.clamp(a, b, b + 1), lambda a, b: torch.relu(a), torch.copysign,
        lambda a, b: torch.signbit(a), lambda a, b: torch.isnan(a) | torch.isinf(b), lambda a, b: torch.isposinf(a),
        lambda a, b: torch.nan_to_num(a), lambda a, b: torch.nan_to_num(a, 1, 2, 3), torch.heaviside, lambda a, b: a.bool(),
        lambda a, b: torch.logical_and(a, b), torch.eq, torch.lt, torch.ge, lambda a, b: a.abs(), lambda a, b: -a,
        lambda a, b: a.amax(), lambda a, b: a.amin(), lambda a, b: a.argmax(), lambda a, b: a.argmin(), lambda a, b: a.any(),
        lambda a, b: torch.where(a > b, a, b), lambda a, b: torch.aminmax(a), lambda a, b: torch.nn.functional.hardtanh(a),
    ]  # fmt: skip
    agree(programs, [a, b])


@pytest.mark.parametrize("dtype", WHOLES[1:], ids=str)
def test_whole_numbers(agree: Any, dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    a = torch.tensor([limits.min, limits.max, limits.min + 1, 0, 1, 7, 100, limits.max - 7] * 2, dtype=dtype)
    b = torch.tensor(
        [3, 7, 2, 5, 1, 4, 3, 2] + [-3 if limits.min else 3, 7, -2 if limits.min else 2, 5, 1, 4, 3, 2]
    ).to(dtype)
    shift = torch.tensor([0, 1, 3, 7, 8, 15, 31, 63]).clamp(max=limits.bits + 1).repeat(2).to(dtype)
    programs = [
        lambda a, b, s: a + b, lambda a, b, s: a - b, lambda a, b, s: a * b, lambda a, b, s: torch.div(a, 7, rounding_mode="floor"),
        lambda a, b, s: torch.div(a, 3, rounding_mode="trunc"), lambda a, b, s: a % 5, lambda a, b, s: torch.fmod(a, 3),
        lambda a, b, s: a << s, lambda a, b, s: a >> s, lambda a, b, s: a.abs(), lambda a, b, s: -a, lambda a, b, s: a.sign(),
        lambda a, b, s: ~a, lambda a, b, s: a.clamp(1, 9), lambda a, b, s: a.sum(), lambda a, b, s: a.prod(), lambda a, b, s: a.amax(),
        lambda a, b, s: a / b, lambda a, b, s: a.float().mean(), lambda a, b, s: a // 3, lambda a, b, s: a + True, lambda a, b, s: a * 2.5,
    ]  # fmt: skip
    agree(programs, [a, b, shift])
    by_tensors = [  # which may hold a 0: the library divides, and raises
        lambda a, b, s: torch.div(a, b, rounding_mode="floor"), lambda a, b, s: torch.div(a, b, rounding_mode="trunc"),
        lambda a, b, s: a % b, lambda a, b, s: torch.fmod(a, b),
    ]  # fmt: skip
    agree(by_tensors, [a, b, shift], lowered=False)


@pytest.mark.parametrize("first", [*WHOLES, *FLOATS], ids=str)
def test_promotion(agree: Any, first: torch.dtype) -> None:
    """Tensors with dimensions, without, and Python's numbers, of all types."""
    a = torch.arange(6).to(first)
    others = [torch.arange(6).to(t) for t in (*WHOLES, *FLOATS)]
    scalars = [torch.tensor(3).to(t) for t in (*WHOLES, *FLOATS)]
    count = len(others)
    programs = [lambda *g, k=k: g[0] + g[k] for k in range(1, 1 + 2 * count)]
    programs += [lambda *g, k=k: g[0] < g[k] for k in range(1, 1 + 2 * count)]
    programs += [
        lambda *g: g[0] * 2,
        lambda *g: g[0] * 2.0,
        lambda *g: g[0] + True,
        lambda *g: torch.where(g[0] > 2, g[0], 1),
    ]
    agree(programs, [a, *others, *scalars])


def test_a_bound_that_is_no_number() -> None:
    a = _floats(torch.float32)

    def program(x: Any) -> Any:
        return x.clamp(min=float("nan")) * 1, x.clamp(max=float("nan")) * 1

    torch.testing.assert_close(stoker.compile(program)(a), program(a), equal_nan=True)


REFUSED: dict[str, tuple[Any, list[torch.dtype]]] = {
    "running sums of truths in their place": (lambda x: x.cumsum_(0), [torch.bool]),
    "running products of truths in their place": (lambda x: x.cumprod_(0), [torch.bool]),
    "the trace": (torch.trace, [torch.bool, torch.uint16, torch.uint32, torch.uint64]),
    "combinations": (lambda x: torch.combinations(x[0]), [torch.uint16, torch.uint32, torch.uint64]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_types_that_eager_has_no_kernel_for(name: str) -> None:
    function, dtypes = REFUSED[name]
    for dtype in dtypes:
        with pytest.raises(NotImplementedError) as theirs:
            function(torch.ones(2, 2).to(dtype))
        with pytest.raises(NotImplementedError) as ours:
            stoker.compile(function)(torch.ones(2, 2).to(dtype))
        assert str(ours.value) == str(theirs.value)
