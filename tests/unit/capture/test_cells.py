"""Variables in cells behind a break: the errors of a frame that has them, in a function that gets them from outside."""

from __future__ import annotations

from typing import Any

import torch

import stoker


def unbound(x: Any) -> Any:
    y = float(x.sum()) * 0 + 1
    told: list[Any] = []
    if told:
        late = 3

    def inner() -> Any:
        return late  # noqa: F821  (deleted below)

    try:
        told.append(late)
    except UnboundLocalError as error:
        told.append(str(error))
    try:
        del late
    except UnboundLocalError as error:
        told.append(str(error))
    try:
        told.append(inner())
    except NameError as error:
        told.append(str(error))
    return x * y, told


def test_a_cell_that_holds_nothing_behind_a_break() -> None:
    assert stoker.compile(unbound, backend="eager")(torch.ones(2))[1] == unbound(torch.ones(2))[1]


def test_an_error_that_leaves_the_function() -> None:
    def leaves(x: Any) -> Any:
        y = float(x.sum())
        if y < 0:
            late = 3
        inner = lambda: late  # noqa: E731
        return late + inner()

    for function in (leaves, stoker.compile(leaves, backend="eager")):
        try:
            function(torch.ones(2))
        except UnboundLocalError as error:
            assert str(error) == "cannot access local variable 'late' where it is not associated with a value"
        else:
            raise AssertionError
