"""Numbers of the processor that kernels of a device take by value: no copy is made of them, and nobody waits."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import optim

import stoker
from stoker.runtime.cubin import Job, compile_all
from stoker.schedule.step import Library
from tests.stages.two_devices import DEVICE, PROCESSOR, TwoDevices

X = torch.linspace(-2, 2, 150).view(10, 15)
NUMBERS = [
    torch.tensor(2.5),
    torch.tensor(0.1, dtype=torch.float64),
    torch.tensor(-3),
    torch.tensor(7, dtype=torch.int8),
    torch.tensor(-300, dtype=torch.int16),
    torch.tensor(1.5, dtype=torch.float16),
    torch.tensor(-0.375, dtype=torch.bfloat16),
    torch.tensor(True),
]
PROGRAMS: dict[str, Callable[..., Any]] = {
    "scaled": lambda x, n: x * n + n,
    "chosen": lambda x, n: torch.where(x > n, x, n),
    "computed": lambda x, n: x / (n.double() * 3 + 1),
    "a row is reduced": lambda x, n: torch.softmax(x * n, -1).sum(0) * n,
    "crossing": lambda x, n: x.t().contiguous() + n,
    "of itself": lambda x, n: (n + 1, x + (n + 1)),
    "compared": lambda x, n: x.eq(n) | (x < n),
}


MORE: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "masked_fill": (lambda x, n: x.masked_fill(x > 0, n), NUMBERS[0]),
    "lerp": (lambda x, n: torch.lerp(x, x * 2, n), NUMBERS[0]),
    "powers": (lambda x, n: ((x.abs() + 1) ** n, n**x), NUMBERS[0]),
    "a condition": (lambda x, n: (torch.where(n, x, -x), (x > 0) & n), NUMBERS[7]),
    "fill": (lambda x, n: torch.empty_like(x).fill_(n), NUMBERS[0]),
    "copy": (lambda x, n: torch.empty_like(x).copy_(n), NUMBERS[1]),
    "written to a part": (lambda x, n: (y := x.clone(), y.__setitem__(slice(0, 3), n))[0], NUMBERS[0]),
    "index_put": (lambda x, n: x.index_put((torch.tensor([1, 2]),), n), NUMBERS[0]),
    "gather": (lambda x, n: x.gather(1, (x * 0).long() + n), torch.tensor(3)),
    "division": (lambda x, n: (x % n, x // n, torch.atan2(x, n)), NUMBERS[0]),
    "bits": (lambda x, n: (x.abs() * 9).int() << n, torch.tensor(3, dtype=torch.int32)),
    "a norm": (lambda x, n: F.layer_norm(x * n, (15,)) + (x * n).cumsum(1), NUMBERS[0]),
    "joined": (lambda x, n: torch.cat([x * n, x + n]) * torch.stack([n, n * 2]).sum(), NUMBERS[0]),
    "a product": (lambda x, n: (x @ x.t()) * n, NUMBERS[0]),
    "its functions": (lambda x, n: (x * (n + 1).sqrt() - n.exp(), n * 2, (x * n).sum() + n), NUMBERS[0]),
    "in place": (lambda x, n: (y := x.clone(), y.mul_(n), y.add_(n, alpha=2))[0], NUMBERS[0]),
}


def compare(program: Callable[..., Any], inputs: list[Any], backend: TwoDevices) -> None:
    mine = stoker.compile(program, backend=backend, fullgraph=True)(*inputs)
    torch.testing.assert_close(mine, program(*inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda n: str(n.dtype))
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number(name: str, number: torch.Tensor) -> None:
    backend = TwoDevices()
    compare(PROGRAMS[name], [X, number], backend)
    assert not [s for plan in backend.plans for s in plan.steps if isinstance(s, Library)]
    assert any(k.values for plan in backend.plans for k in plan.kernels)


@pytest.mark.parametrize("name", MORE)
def test_where_numbers_may_stand(name: str) -> None:
    program, number = MORE[name]
    compare(program, [X, number], TwoDevices())


def test_numbers_inside_other_memory() -> None:
    """An element of a row of the processor has memory of its own, for kernels to take it from."""
    compare(lambda x, n: (x * n[1], x + n[2], n * 2), [X, torch.arange(4.0)], TwoDevices())
    stoker.reset()

    def program(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Any:
        stacked = torch.stack([a, b]) * 2
        return x * stacked[0], x * stacked[1]

    compare(program, [X, torch.tensor(2.0), torch.tensor(3.0)], TwoDevices())


def test_what_is_recorded_takes_none() -> None:
    backend = TwoDevices(by_value=False)
    compare(PROGRAMS["scaled"], [X, NUMBERS[0]], backend)
    assert [s.operator for p in backend.plans for s in p.steps if isinstance(s, Library)]
    assert not any(k.values for plan in backend.plans for k in plan.kernels)


def test_a_costly_number_is_computed_once() -> None:
    """By a kernel of its own, not by each program of the kernel that needs it."""
    backend = TwoDevices(DEVICE)
    compare(lambda x, n: x / (1 - 0.9**n).sqrt(), [X, torch.tensor(3.0)], backend)
    assert [len(k.outer) for k in backend.plans[0].kernels] == [0, 1]


OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01, foreach=True),
    "Adam": lambda p: optim.Adam(p, 1e-2, foreach=True),
    "AdamW": lambda p: optim.AdamW(p, 1e-2, amsgrad=True, foreach=True),
    "AdamW, one by one": lambda p: optim.AdamW(p, 1e-2, foreach=False),
    "NAdam": lambda p: optim.NAdam(p, 1e-2, foreach=True),
    "Adamax": lambda p: optim.Adamax(p, 1e-2, foreach=True),
    "RMSprop": lambda p: optim.RMSprop(p, 1e-2, momentum=0.1, centered=True, foreach=True),
    "Adagrad": lambda p: optim.Adagrad(p, 1e-2, foreach=True),
}


@pytest.mark.parametrize("place", [PROCESSOR, DEVICE], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer(name: str, place: torch.device) -> None:
    """Its counters are on the processor, as torch keeps them, or on the device."""
    torch.manual_seed(0)
    ours = [torch.nn.Parameter(torch.randn(s)) for s in ((40, 8), (8,), (8, 8), (16, 8), (8, 16), (8,))]
    eager = copy.deepcopy(ours)
    optimizers = [OPTIMIZERS[name](p) for p in (ours, eager)]
    backend = TwoDevices(place)
    steps = [stoker.compile(optimizers[0].step, backend=backend), optimizers[1].step]
    for number in range(3):
        for p, q in zip(ours, eager):
            p.grad = torch.randn_like(p) + number
            q.grad = p.grad.clone()
        for step in steps if number else (o.step for o in optimizers):
            step()
    torch.testing.assert_close(ours, eager, rtol=1e-4, atol=1e-5)
    for p, q in zip(ours, eager):
        torch.testing.assert_close(optimizers[0].state[p], optimizers[1].state[q], rtol=1e-4, atol=1e-5)
    assert not [s for plan in backend.plans for s in plan.steps if isinstance(s, Library)]


def test_sources_compile_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    backend = TwoDevices()
    for number in NUMBERS:
        compare(PROGRAMS["scaled"], [X, number], backend)
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90) for u in backend.device.units]
    assert all(b.content.startswith(b"\x7fELF") for b in compile_all(jobs))
