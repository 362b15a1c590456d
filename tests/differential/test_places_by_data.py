"""Indexing by tensors of one number, and by numbers into sizes that only data tells: in one graph, as views, with eager's errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker import log

Tensor = torch.Tensor


def written(w: Tensor, i: Tensor) -> Tensor:
    made = w * 1
    made[i] = 7.0
    made[0, i] += 1
    return made


def through_a_view(w: Tensor, i: Tensor) -> Tensor:
    made = w * 1
    row = made[i]
    row.add_(1)
    return made


def chosen_expert(w: Tensor, i: Tensor) -> Tensor:
    total = w.sum(1)
    for expert in (w[:, 0, 0] > -0.5).nonzero()[:1]:
        total = total + (w[expert[0]] * i).sum(0)
    return total


PROGRAMS: dict[str, Callable[[Tensor, Tensor], Any]] = {
    "a row": lambda w, i: w[i] * 2,
    "of another type": lambda w, i: w[i.int()] + w[i.short()],
    "from the end": lambda w, i: w[i - 3] * 2,
    "with others": lambda w, i: (w[:, i], w[..., i], w[0, i], w[i, None], w[i, 1:], w[i, i]),
    "with a list": lambda w, i: (w[i, [0, 2]], w[i, torch.tensor([1, 0])]),
    "with a mask": lambda w, i: w[i, w[0] > 0].sum(),
    "of a row": lambda w, i: w[w[:, 0, 0].argmax()] + w[0, w[0, :, 0].argmin()],
    "written": written,
    "through a view": through_a_view,
    "first chosen": lambda w, i: (w[w[:, 0, 0] > -9][0], w[w > -9][-1], (w > 0).nonzero()[0, i]),
    "chosen expert": chosen_expert,
}


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("grad", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_one_graph(name: str, grad: bool, backend: str) -> None:
    torch.manual_seed(0)

    def outcome(f: Callable[..., Any], given: Tensor, place: int) -> Any:
        w = given.clone().requires_grad_(grad)
        found = f(w, torch.tensor(place))
        parts = found if isinstance(found, tuple) else (found,)
        followed = [p for p in parts if p.requires_grad]
        return found, torch.autograd.grad(sum(p.square().sum() for p in followed), w) if followed else ()  # type: ignore[arg-type]

    log.clear()
    compiled = stoker.compile(PROGRAMS[name], backend=backend)
    for place in (1, 2, 0):
        given = torch.randn(4, 3, 3)
        torch.testing.assert_close(outcome(compiled, given, place), outcome(PROGRAMS[name], given, place))
    assert not log.events("break") or name == "chosen expert"
    assert log.events("captured")


@pytest.mark.parametrize("program", [lambda w, i: w[i] * 2, lambda w, i: (w[w[:, 0] > i])[3] * 2])
def test_places_outside(program: Callable[..., Any]) -> None:
    compiled = stoker.compile(program, backend="aot_eager")
    w = torch.randn(5, 3)
    for place in (1, 9):
        outcomes = []
        for f in (compiled, program):
            try:
                outcomes.append(f(w.abs() + 2, torch.tensor(place)))
            except IndexError as error:
                outcomes.append(str(error))
        torch.testing.assert_close(*outcomes) if isinstance(outcomes[0], Tensor) else None
        assert isinstance(outcomes[0], Tensor) or outcomes[0] == outcomes[1]
