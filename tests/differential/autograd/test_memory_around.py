"""`as_strided` that looks past the elements of an input, at memory that other tensors may hold: eager against compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

PROGRAMS: list[Callable[..., Any]] = []


def program(function: Any) -> Any:
    PROGRAMS.append(function)
    return function


@program
def written_before_it(x, y):
    z = x.as_strided((2,), (2,), 0)
    z.mul_(5)
    return z


@program
def written_behind_it(x, y):
    x.as_strided((3,), (1,)).add_(1)
    return x * 1


@program
def written_in_part(x, y):
    x.unsqueeze(0).as_strided((3,), (1,), 4)[1:].add_(1)
    return x * 1


@program
def written_once_for_all(x, y):
    x.as_strided((2, 3), (0, 1), 4)[0].add_(1)
    return x * 1


@program
def read_after_a_write_to_it(x, y):
    x.mul_(2)
    return x.as_strided((3,), (2,), 0) * 2


@program
def seen_before_a_write_to_it(x, y):
    z = x.as_strided((3,), (2,), 0)
    x.mul_(2)
    return z * 2


@program
def seen_around_a_write_to_another(x, y):
    z = x.as_strided((2, 2), (1, 2), 1)
    before = z * 2
    y.add_(1)
    return before, z * 2


@program
def as_another_type(x, y):
    z = x.view(torch.int16).as_strided((2,), (1,), 8)
    z.add_(1)
    return z + 1, x


@program
def behind_all_memory(x, y):
    return x.as_strided((3,), (2,), 8) + 1


@program
def behind_all_memory_that_is_computed(x, y):
    return (x * 2).as_strided((3,), (1,)) + 1


def observed(call: Callable[..., Any], start: int) -> list[Any]:
    memory = torch.arange(10.0)
    try:
        result = call(memory[start : start + 2], memory[:start])
    except RuntimeError as error:
        result = str(error)
    return [memory, *(result if isinstance(result, tuple) else [result])]


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("dynamic", [None, True])
def test_memory_around_inputs(function: Any, backend: str, dynamic: bool | None) -> None:
    stoker.reset()
    compiled = stoker.compile(function, backend=backend, dynamic=dynamic)
    for start in (4, 4, 5, 3):
        for ours, theirs in zip(observed(compiled, start), observed(function, start), strict=True):
            assert torch.equal(ours, theirs) if isinstance(theirs, torch.Tensor) else ours == theirs
