"""Writes that meet: eager's refusals are foretold, and nothing else is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from stoker.fake import FakeMode, Refused
from stoker.shape import ShapeEnv
from stoker.shape.symnode import symint

ROWS = torch.zeros(4, dtype=torch.long)
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "add to an expanded tensor": lambda x: x.expand(2, 4).add_(1),
    "copy into an expanded tensor": lambda x: x.expand(2, 4).copy_(x),
    "fill an expanded tensor": lambda x: x.expand(2, 4).fill_(1),
    "expanded to one": lambda x: x.expand(1, 4).add_(1),
    "copy to the neighbour": lambda x: x[1:].copy_(x[:-1]),
    "multiply by the neighbour": lambda x: x[1:].mul_(x[:-1]),
    "add the other half": lambda x: x[:2].add_(x[2:]),
    "add itself": lambda x: x.add_(x),
    "add its own view": lambda x: x.add_(x.view(4)),
    "add itself backwards": lambda x: x.view(2, 2).add_(x.view(2, 2).t()),
    "scatter itself": lambda x: x.scatter_(0, ROWS, x),
    "add itself by rows": lambda x: x.index_add_(0, ROWS, x),
    "into a part of an operand": lambda x: torch.add(x[1:], 1, out=x[:-1]),
    "into the operand": lambda x: torch.add(x, 1, out=x),
    "put into an expanded tensor": lambda x: x.expand(2, 4).index_put_((torch.tensor([0]),), torch.tensor(1.0)),
    "scatter every second of itself": lambda x: (y := x[::2]).scatter_(0, ROWS[:2], y),
    "scatter another view of every second": lambda x: x[::2].scatter_(0, ROWS[:2], x[::2]),
    "windows": lambda x: x.unfold(0, 2, 1).mul_(2),
}


@pytest.mark.filterwarnings("ignore:Use of")
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_refused_where_eager_refuses(name: str, symbolic: bool) -> None:
    program, x = PROGRAMS[name], torch.ones(4)
    try:
        program(x)
        wanted = None
    except RuntimeError as error:
        wanted = str(error)
    env = ShapeEnv()
    mode = FakeMode(env)
    fake = mode.from_real(x, sizes=[symint(env, env.new_symbol(4))] if symbolic else None)
    try:
        with mode:
            program(fake)
        found = None
    except Refused as error:
        found = str(error)
    assert found == wanted


def test_a_memo_does_not_hide_what_is_shared() -> None:
    mode = FakeMode()
    with mode:
        x, y = torch.ones(4), torch.ones(4)
        x[1:].copy_(y[:-1])
        with pytest.raises(Refused):
            x[1:].copy_(x[:-1])
