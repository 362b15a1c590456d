"""Numbers of numpy that are others in each call, and tensors made of numpy's numbers: values, types and warnings are eager's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker import log

TAKEN: dict[str, Callable[..., Any]] = {
    "a factor": lambda x, n: (x * n, n * x, 1 - x / n),
    "a summand": lambda x, n: (x.clone().add_(x, alpha=n), x - n, x.clone().__iadd__(n)),
    "of a function": lambda x, n: (x.lerp(x * 2, n), x.clamp(max=n), (x / n).softmax(-1), x.abs() ** n),
    "chosen": lambda x, n: (torch.where(x > 0, x, n), torch.full((3,), n)),
    "of integers": lambda x, n: (x.int() * n, (x > 0) * n),
    "asked for its kind": lambda x, n: x * n if n is not None and isinstance(n, np.floating) else x - n,
    "asked": lambda x, n: x * n if n < 100 else x * 2,
    "after a conversion": lambda x, n: x * float(n),
}
READ: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, n: (x * (n - 1), n + 1, +n, n * n, n / 2),
    "returned": lambda x, n: (x + n, n, n.dtype, type(n)),
    "compared": lambda x, n: (x, n > 0.5, n == 0.5),
    "numpy's functions": lambda x, n: (x * np.sqrt(n), np.float32(n)),
    "text": lambda x, n: (x * n, f"{n:.2f}", str(n), repr(n)),
    "the largest": lambda x, n: (x * max(n, 0.6), min(n, 0.6, 2)),
    "a branch": lambda x, n: x * 2 if n else x,
    "in a list": lambda x, n: (torch.tensor([n, 1.0]) + x[:2], torch.tensor(n)),
}


def _shown(found: Any) -> Any:
    if isinstance(found, tuple):
        return tuple(map(_shown, found))
    return (found.dtype, found.tolist()) if isinstance(found, torch.Tensor) else (type(found), repr(found))


@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("name", [*TAKEN, *READ])
def test_as_in_eager(name: str, kind: type) -> None:
    program = (TAKEN | READ)[name]
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for number in (0.5, 0.25, 0.75, 1.5, 2.5, 0.125):
        x = torch.linspace(-2, 2, 3)
        assert _shown(compiled(x, kind(number))) == _shown(program(x, kind(number)))
    assert not log.events("break")
    if name in TAKEN:
        assert len(log.events("captured")) == 2


TAKEN_INTEGERS: dict[str, Callable[..., Any]] = {
    "a factor": lambda x, n: (x * n, n * x, 1 - x / n, x // n, x % n),
    "a summand": lambda x, n: (x.clone().add_(x, alpha=n), x - n, x.clone().__iadd__(n)),
    "of a function": lambda x, n: (x.clamp(max=n), torch.where(x > 0, x, n), torch.full((3,), n)),
    "of integers": lambda x, n: (x.int() * n, (x > 0) * n, x.to(torch.uint8) + n, x.int() & n),
    "asked": lambda x, n: x * n if n < 100 and isinstance(n, np.integer) else x * 2,
    "after a conversion": lambda x, n: (x * int(n), int(n) + 1, x * float(n)),
}
READ_INTEGERS: dict[str, Callable[..., Any]] = {
    "arithmetic": lambda x, n: (x * (n - 1), n + 1, +n, n * n, n / 2, n // 2, n << 1),
    "returned": lambda x, n: (x + n, n, n.dtype, type(n)),
    "a size": lambda x, n: (torch.zeros(n), x.repeat(n), list(range(n)), x[n % 3], x[:n]),
    "text and tables": lambda x, n: (x * n, str(n), f"{n:03d}", {n: 1}, [0] * n, n in (3, 5), hash(n)),
    "compared": lambda x, n: (x, n > 3, n == 3, max(n, 4), bool(n)),
    "in a list": lambda x, n: (torch.tensor([n, 1]), torch.tensor(n), x * 2 if n else x),
}


@pytest.mark.parametrize("kind", [np.int64, np.int16, np.uint8])
@pytest.mark.parametrize("name", [*TAKEN_INTEGERS, *READ_INTEGERS])
def test_integers(name: str, kind: type) -> None:
    program = (TAKEN_INTEGERS | READ_INTEGERS)[name]
    log.clear()
    compiled = stoker.compile(program, backend="aot_eager")
    for number in (3, 2, 5, 7, 4, 1):
        x = torch.linspace(-2, 2, 3)
        assert _shown(compiled(x, kind(number))) == _shown(program(x, kind(number)))
    if name in TAKEN_INTEGERS:
        assert len(log.events("captured")) == 2


def test_a_schedule() -> None:
    schedule = np.linspace(0.1, 0.9, 9)

    def program(x, beta):
        return F.dropout(x * beta, 0.0) + beta

    log.clear()
    compiled = stoker.compile(program)
    for beta in schedule:
        torch.testing.assert_close(compiled(torch.ones(3), beta), program(torch.ones(3), beta))
    assert len(log.events("captured")) == 2


MADE: list[Callable[..., torch.Tensor]] = [
    lambda n: torch.tensor(n),
    lambda n: torch.tensor([n, n]),
    lambda n: torch.tensor([[n], [1.5]]),
    lambda n: torch.tensor([2, n]),
    lambda n: torch.tensor([n], dtype=torch.float32),
    lambda n: torch.as_tensor([n, 2.5]),
    lambda n: torch.as_tensor(n),
    lambda n: torch.asarray([n]),
    lambda n: torch.zeros(2).new_tensor([n]),
    lambda n: torch.Tensor([n]),
]


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8])
@pytest.mark.parametrize("program", MADE)
def test_tensors_of_numbers(program: Callable[..., torch.Tensor], kind: type) -> None:
    assert _shown(stoker.compile(program, backend="eager")(kind(2))) == _shown(program(kind(2)))


@pytest.mark.parametrize(
    "program",
    [
        lambda x, n: (x * 2, n + n),
        lambda x, n: (x * 2, -n),
        lambda x, n: (x * 2, n / np.float64(0)),
    ],
)
def test_numpy_warns_of_its_numbers_at_each_call(program: Callable[..., Any]) -> None:
    compiled = stoker.compile(program, backend="eager")
    told = []
    for function in (program, compiled):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            shown = [_shown(function(torch.ones(1), np.int8(-128))) for _ in range(2)]
        told.append([(str(w.message), w.filename, w.lineno) for w in caught])
        assert shown[0] == shown[1]
    assert len(told[0]) == 2
    assert told[0] == told[1]
