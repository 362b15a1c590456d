"""Wrong programs through `stoker.compile`: the error that eager raises, of its type and words, at the user's line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker


@torch.library.custom_op("stoker_test::no_formula", mutates_args=())
def no_formula(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@no_formula.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def leaf(*shape: int) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, requires_grad=True)


def multiply_shapes(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    z = x * 2
    return z @ y  # here


def linear_shapes(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    x = x + 1
    return F.linear(x, w)  # here


def write_to_leaf(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)  # here
    return x + 1


def write_to_view_of_leaf(x: torch.Tensor) -> torch.Tensor:
    x[0].mul_(2)  # here
    return x + 1


def bad_reshape(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).view(7, 7)  # here


def bad_index(x: torch.Tensor) -> torch.Tensor:
    return x.select(0, 99)  # here


def mixed_types(x: torch.Tensor) -> torch.Tensor:
    return x @ torch.ones(4, 4, dtype=torch.float64)  # here


FORWARD: list[tuple[Callable[..., Any], Callable[[], list[torch.Tensor]]]] = [
    (multiply_shapes, lambda: [leaf(2, 3), leaf(4, 5)]),
    (linear_shapes, lambda: [leaf(2, 3), leaf(4, 5)]),
    (write_to_leaf, lambda: [leaf(3)]),
    (write_to_view_of_leaf, lambda: [leaf(3)]),
    (bad_reshape, lambda: [leaf(3, 4)]),
    (bad_index, lambda: [leaf(3, 4)]),
    (mixed_types, lambda: [leaf(4, 4)]),
]


def error_of(call: Callable[[], Any]) -> tuple[BaseException, list[str]]:
    with pytest.raises(Exception) as caught:
        call()
    lines = [frame.line or "" for frame in traceback.extract_tb(caught.value.__traceback__)]
    return caught.value, lines


@pytest.mark.parametrize(("program", "make"), FORWARD, ids=lambda v: getattr(v, "__name__", ""))
def test_forward_error(program: Callable[..., Any], make: Callable[[], list[torch.Tensor]]) -> None:
    theirs, _ = error_of(lambda: program(*make()))
    ours, lines = error_of(lambda: stoker.compile(program, backend="aot_eager")(*make()))
    assert type(ours) is type(theirs)
    assert str(ours) == str(theirs)
    assert any(line.endswith("# here") for line in lines)


def without_formula(x: torch.Tensor) -> torch.Tensor:
    return no_formula(x * 2) * 3


def overwritten(x: torch.Tensor) -> torch.Tensor:
    y = x.exp()
    y.add_(1)
    return y


@pytest.mark.parametrize("program", [without_formula, overwritten])
def test_backward_error(program: Callable[..., Any]) -> None:
    call = stoker.compile(program, backend="aot_eager")
    assert torch.equal(call(leaf(3)), program(leaf(3)))
    theirs, _ = error_of(lambda: program(leaf(3)).sum().backward())
    ours, _ = error_of(lambda: call(leaf(3)).sum().backward())
    assert type(ours) is type(theirs)
    assert str(ours).split(". Hint")[0] == str(theirs).split(". Hint")[0]


def test_freed_buffers() -> None:
    x = leaf(3)
    errors = []
    for function in (torch.exp, stoker.compile(lambda x: x.exp(), backend="aot_eager")):
        out = function(x).sum()
        out.backward()
        errors.append(str(error_of(out.backward)[0]))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
def test_an_error_that_capture_does_not_foresee(backend: str) -> None:
    def program(y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        y = y.clone()
        y.index_put_((i,), torch.ones(3, 6), accumulate=True)
        return y

    given = torch.zeros(5, 6, dtype=torch.float16), torch.tensor([0, 1, 2])
    with pytest.raises(RuntimeError) as expected:
        program(*given)
    with pytest.raises(RuntimeError) as found:
        stoker.compile(program, backend=backend)(*given)
    assert str(found.value) == str(expected.value)
