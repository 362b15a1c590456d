"""Dictionaries from outside that captured code stores in, under keys that vary: what nobody looks at is no guard, and what somebody does is right."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log

MADE = {"dict": dict, "OrderedDict": OrderedDict, "Counter": Counter, "defaultdict": lambda: defaultdict(list)}


def by_number(x, d, n):
    d[n] = n * 2
    return x + 1


def by_text(x, d, n):
    d[f"epoch {n}"] = x.sum()
    return x * 2


def by_arithmetic(x, d, n):
    d[n + 1] = "more"
    d[n // 2] = "half"
    return x - 1


def by_size(x, d, n):
    d[x.shape[0]] = n
    d[f"{x.shape[0]} rows"] = x.mean()
    return x.relu()


def by_update(x, d, n):
    d.update({f"a{n}": 1})
    d |= {n: 3}
    return x


def after_fixed_ones(x, d, n):
    d["last"] = n
    d[n] = x
    return x + 1


STEADY = [by_number, by_text, by_arithmetic, by_size, after_fixed_ones]


def then_fixed(x, d, n):
    d[n] = 1
    d["last"] = n
    d[3] = "three"
    return x


def then_asks(x, d, n):
    d[n] = 1
    return x * len(d)


def then_reads(x, d, n):
    d[n] = n
    return x + d[n] + d.get(2, 0)


def then_walks(x, d, n):
    d[n] = n
    for key, value in d.items():
        x = x + (value if isinstance(value, int) else 0)
    return x


def then_deletes(x, d, n):
    d[n] = n
    d.pop(n)
    d[n + 1] = 0
    return x


def then_clears(x, d, n):
    d[n] = n
    d.clear()
    d["again"] = n
    return x


def twice(x, d, n):
    d[n] = "first"
    d[n] = "second"
    d[n * 1] = "third"
    return x


def then_raises(x, d, n):
    d[n] = x.sum()
    if n == 5:
        raise KeyError(n)
    return x


def then_breaks(x, d, n):
    d[n] = x.sum()
    print(end="")
    torch._C._get_tracing_state()
    d[f"{n}"] = 2
    return x


LOOKING = [
    by_update,
    then_fixed,
    then_asks,
    then_reads,
    then_walks,
    then_deletes,
    then_clears,
    twice,
    then_raises,
    then_breaks,
]


def run(function: Any, made: str, calls: int) -> Any:
    d = MADE[made]()
    results = []
    for n in range(2, 2 + calls):
        try:
            results.append(function(torch.ones(2 + n), d, n))
        except KeyError as error:
            results.append(error.args)
    return results, list(d.items())


def plain(found: Any) -> Any:
    results, items = found
    return [r if isinstance(r, tuple) else r.tolist() for r in results], [
        (k, v.tolist() if isinstance(v, torch.Tensor) else v) for k, v in items
    ]


@pytest.mark.parametrize("made", MADE)
@pytest.mark.parametrize("function", STEADY + LOOKING, ids=lambda f: f.__name__)
def test_as_eager(function: Any, made: str) -> None:
    stoker.reset()
    assert plain(run(stoker.compile(function, backend="eager"), made, 6)) == plain(run(function, made, 6))


@pytest.mark.parametrize("made", ["dict", "OrderedDict", "defaultdict"])
@pytest.mark.parametrize("function", STEADY, ids=lambda f: f.__name__)
def test_versions_do_not_grow(function: Any, made: str) -> None:
    stoker.reset()
    run(stoker.compile(function, backend="eager"), made, 12)
    assert sum(e.kind == "captured" for e in log.events()) <= 4


class Remembers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.losses: dict[Any, Any] = {}

    def forward(self, x: torch.Tensor, step: int) -> torch.Tensor:
        self.losses[step] = x.detach().mean()
        return x * 2


def test_attributes_of_modules() -> None:
    stoker.reset()
    module, eager = Remembers(), Remembers()
    compiled = stoker.compile(module, backend="eager", fullgraph=True)
    for step in range(12):
        assert torch.equal(compiled(torch.ones(2) * step, step), eager(torch.ones(2) * step, step))
    assert module.losses == eager.losses
    assert sum(e.kind == "captured" for e in log.events()) <= 4


def test_a_schedule_of_schedules() -> None:
    def rates(compiled: bool) -> list[float]:
        optimizer = torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1)
        first = torch.optim.lr_scheduler.ConstantLR(optimizer, 0.1, 2)
        then = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
        schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [first, then], milestones=[2])

        def step(x: torch.Tensor) -> torch.Tensor:
            schedule.step()
            return x + optimizer.param_groups[0]["lr"]

        call = stoker.compile(step, backend="eager") if compiled else step
        return [call(torch.zeros(1)).item() for _ in range(8)]

    stoker.reset()
    assert rates(True) == rates(False)
    assert not [e for e in log.events() if e.kind == "break"]
