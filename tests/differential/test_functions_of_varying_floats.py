"""What Python makes of a float that is another at each call: computed anew at each call, guarded only where a branch asks."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

X = torch.arange(1.0, 13.0).reshape(4, 3)
FLOATS = [0.5, 1.25, 2.37, 3.1, 3.99]

OF_ONE = """
sqrt cbrt exp exp2 expm1 log log2 log10 log1p sin cos tan atan sinh cosh tanh asinh erf erfc gamma lgamma degrees radians fabs ulp
floor ceil trunc isnan isinf isfinite
""".split()
OF_TWO = ["atan2", "pow", "copysign", "fmod", "remainder", "nextafter", "hypot", "log"]

PROGRAMS: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "floor division": lambda x, a: (x * (a // 0.3), x + (7 // a), x * (-a // 1), x * divmod(a, 0.7)[0]),
    "remainder": lambda x, a: (x * (a % 0.3), x + (7 % a), x * (-a % 1), x * divmod(a, 0.7)[1]),
    "round to digits": lambda x, a: (x * round(a, 1), x * round(a * 100, -1)),
    "round": lambda x, a: x * round(a) + round(a * 3),
    "int": lambda x, a: (x * int(a), x + int(-a), x - int(a * 10) // 3),
    "int of functions": lambda x, a: x * (math.floor(math.exp(a)) + math.ceil(a / 0.7) - math.trunc(a % 0.4)),
    "float": lambda x, a: x * float(a),
    "float of int": lambda x, a: (x * float(int(a)), x / (math.floor(a) + 0.5)),
    "arcs": lambda x, a: x * (math.asin(a / 10) + math.acos(a / 10) + math.acosh(a + 1) + math.atanh(a / 10)),
    "new_tensor": lambda x, a: (x[0, :2] * x.new_tensor([a, 1]), x.new_tensor(a), x.new_tensor([[a], [2]], dtype=torch.float64)),
    "as_tensor": lambda x, a: x[0, :2] * torch.as_tensor([a, 1.5]),
    "tensor of an int": lambda x, a: x[0, :2] * torch.tensor([int(a), 4]),
    "in a branch": lambda x, a: x * math.log1p(a) if math.isfinite(a) and int(a) < 10 else x,
    "returned": lambda x, a: (x * 2, math.floor(a), round(a, 1), a // 0.4),
    "two of it": lambda x, a: x * math.atan2(a, a + 1) + math.hypot(3.0, 4.0),
    "cosine schedule": lambda x, a: x * (0.5 * (1 + math.cos(math.pi * (a % 2) / 2))),
}  # fmt: skip
PROGRAMS |= {name: lambda x, a, f=getattr(math, name): x * f(a) for name in OF_ONE}
PROGRAMS |= {f"{name} of two": lambda x, a, f=getattr(math, name): (x * f(a, 2), x * f(7.5, a)) for name in OF_TWO}

AS_SIZES: dict[str, Callable[[torch.Tensor, float], Any]] = {
    "made": lambda x, a: torch.zeros(int(a * 2)) + x[0, 0],
    "sliced": lambda x, a: x[: int(a)] * 2,
    "viewed": lambda x, a: torch.ones(int(a) * 3).view(-1, 3) * x[0],
    "repeated": lambda x, a: x.repeat(int(a), 1) + 1,
    "chosen": lambda x, a: x[int(a)] * 2,
    "counted": lambda x, a: sum((x * i for i in range(int(a))), x),
    "of a list": lambda x, a: x * [1.0, 2.0, 4.0, 8.0][int(a)],
    "met by another": lambda x, a: x[: int(a)] + torch.ones(min(int(a), 4), 3),
    "resized": lambda x, a: torch.nn.functional.interpolate(x[None, None], size=(int(4 * (a + 1)), 6)),
    "compared": lambda x, a: x * 2 if int(a) > 2 else x * 3,
    "compared with a size": lambda x, a: x * 2 if int(a) > x.shape[0] else x * 3,
    "printed": lambda x, a: (x + 1, f"{int(a)} of {round(a, 1)}"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_two_versions(name: str) -> None:
    program = PROGRAMS[name]
    stoker.log.clear()
    compiled = stoker.compile(program, fullgraph=True)
    for a in FLOATS:
        assert_same(compiled(X, a), program(X, a))
    assert len(stoker.events("captured")) <= 2, [event.reason for event in stoker.events("recompile")]


@pytest.mark.parametrize("backend", ["eager", "default"])
@pytest.mark.parametrize("name", AS_SIZES)
def test_integers_as_sizes(name: str, backend: str) -> None:
    program = AS_SIZES[name]
    compiled = stoker.compile(program, fullgraph=True, **({"backend": backend} if backend == "eager" else {}))
    for a in (1.25, 2.37, 3.1, 2.9, 0.5, 1.0):
        assert_same(compiled(X, a), program(X, a))


@pytest.mark.parametrize("name", AS_SIZES)
def test_sizes_and_floats_change_together(name: str) -> None:
    program = AS_SIZES[name]
    compiled = stoker.compile(program, backend="eager")
    for rows, a in ((4, 1.25), (5, 2.37), (6, 3.1), (7, 0.5), (4, 2.9)):
        x = torch.arange(3.0 * rows).reshape(rows, 3)
        assert_same(compiled(x, a), program(x, a))


@pytest.mark.parametrize(
    "function", [math.log1p, math.floor, int, round, math.gamma, lambda a: a // (a - 1), lambda a: 3 % a]
)
def test_what_python_refuses(function: Callable[[float], Any]) -> None:
    def program(x: torch.Tensor, a: float) -> torch.Tensor:
        return x * function(a)

    compiled = stoker.compile(program)
    for a in (0.5, 1.25, 2.37, math.nan, math.inf, -math.inf, -2.0, 1.0, 0.0, -0.0, 1e300, 3.5):
        assert_same(*(outcome(call, X, a) for call in (compiled, program)))


def outcome(call: Callable[..., Any], *args: Any) -> Any:
    try:
        return call(*args)
    except (ArithmeticError, ValueError, RuntimeError) as error:
        return f"{type(error).__name__}: {error}"


def test_gradients() -> None:
    def program(x: torch.Tensor, a: float) -> torch.Tensor:
        return (x[: int(a) + 1] * math.log1p(a) * (a // 0.3)).square().sum() * math.floor(a * 3)

    compiled = stoker.compile(program, fullgraph=True)
    for a in FLOATS:
        grads = []
        for call in (compiled, program):
            x = X.clone().requires_grad_()
            call(x, a).backward()
            grads.append(x.grad)
        torch.testing.assert_close(*grads)


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, str):
        assert found == wanted
        return
    assert type(found) is type(wanted)
    for a, b in zip(found, wanted) if isinstance(wanted, tuple) else [(found, wanted)]:
        assert type(a) is type(b)
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True)
        else:
            assert a == b
