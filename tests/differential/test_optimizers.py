"""Optimizers' steps are captured, alone and as part of a training step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import stoker

MAKERS: dict[str, Callable[[Any], optim.Optimizer]] = {
    "SGD": lambda p: optim.SGD(p, 0.1),
    "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "Adam": lambda p: optim.Adam(p, 1e-2),
    "AdamW": lambda p: optim.AdamW(p, 1e-2, amsgrad=True),
    "RMSprop": lambda p: optim.RMSprop(p, 1e-2),
    "Adagrad": lambda p: optim.Adagrad(p, 1e-2),
    "Adam, for each": lambda p: optim.Adam(p, 1e-2, foreach=True),
    "NAdam": lambda p: optim.NAdam(p, 1e-2),
    "Adam, fused": lambda p: optim.Adam(p, torch.tensor(1e-2), fused=True, amsgrad=True),
    "SGD, fused": lambda p: optim.SGD(p, 0.1, momentum=0.9, weight_decay=0.01, fused=True),
    "SGD, fused, by a tensor": lambda p: optim.SGD(p, torch.tensor(0.1), fused=True),
    "Adagrad, fused": lambda p: optim.Adagrad(p, 1e-2, fused=True),
}


FUSED = {name: make for name, make in MAKERS.items() if "fused" in name} | {
    "AdamW, fused": lambda p: optim.AdamW(p, 1e-2, fused=True, weight_decay=0.1),
    "AdamW, fused, uphill": lambda p: optim.AdamW(p, 1e-2, fused=True, maximize=True, amsgrad=True),
    "Adam, fused, with decay": lambda p: optim.Adam(p, 1e-2, fused=True, weight_decay=0.1),
    "Adagrad, fused, with decay": lambda p: optim.Adagrad(p, 1e-2, lr_decay=0.1, weight_decay=0.1, fused=True),
    "SGD, fused, Nesterov's": lambda p: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, maximize=True, fused=True),
}


def trained(make: Callable[[Any], optim.Optimizer], compile: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    optimizer = make(model.parameters())
    step = compile(optimizer.step)
    schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(3, 4)).square().sum().backward()
        step()
        schedule.step()
    return [p.detach() for p in model.parameters()], optimizer.state_dict()


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_a_step_is_compiled(name: str, backend: str) -> None:
    stoker.log.clear()
    mine, state = trained(MAKERS[name], lambda step: stoker.compile(step, backend=backend))
    theirs, expected = trained(MAKERS[name], lambda step: step)
    assert stoker.events("captured") and not stoker.events("break")
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(state, expected, rtol=1e-5, atol=1e-6)


CAPTURABLE = ["Adam", "AdamW", "NAdam", "RAdam", "Adamax", "RMSprop", "Rprop", "ASGD", "Adadelta"]


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", CAPTURABLE)
def test_what_eager_refuses_is_refused(name: str, foreach: bool) -> None:
    """Torch leaves its checks out for compilers. Parameters on the CPU cannot be captured into a CUDA graph."""
    p = nn.Parameter(torch.ones(2))
    p.grad = torch.ones(2)
    optimizer = getattr(optim, name)([p], capturable=True, foreach=foreach)
    with pytest.raises(AssertionError) as theirs:
        optimizer.step()
    with pytest.raises(AssertionError) as mine:
        stoker.compile(optimizer.step)()
    assert str(mine.value) == str(theirs.value)


def test_parameters_that_look_alike() -> None:
    """An optimizer's state is found under its parameters. Those of one look, and other sizes, are no change of sizes."""
    ours = [torch.nn.Parameter(torch.zeros(n)) for n in (2000, 3000, 4000)]
    for p in ours:
        p.grad = torch.ones_like(p)
    optimizer = optim.Adam(ours, 1e-2)
    optimizer.step()
    assert _of_varying_size(lambda x: x * 2, torch.ones(5), dynamic=True)
    assert not _of_varying_size(optimizer.step)
    assert all(torch.allclose(p, p[:1]) for p in ours)


def _of_varying_size(function: Callable[..., Any], *args: Any, dynamic: bool | None = None) -> list[Any]:
    """What a graph is given whose size may be another at the next call."""
    given: list[Any] = []

    def compiler(graph: Any, fakes: list[Any]) -> Any:
        given.extend(f for f in fakes if isinstance(f, torch.Tensor) and any(not isinstance(n, int) for n in f.shape))
        return graph.forward

    stoker.compile(function, backend=stoker.aot(compiler, compiler), dynamic=dynamic)(*args)
    return given


IN_TYPES = [(name, torch.float32) for name in FUSED]
IN_TYPES += [
    (name, torch.bfloat16) for name in FUSED if not name.startswith("SGD")
]  # which eager does not compute there


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name, dtype", IN_TYPES)
def test_a_fused_step_is_compiled_with_its_backward(name: str, dtype: torch.dtype, scaled: bool) -> None:
    """As one operator it would keep the whole graph from being compiled. A step of gradients that are not finite is not taken."""

    def run(compile: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(dtype)
        optimizer = FUSED[name](model.parameters())
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0, growth_interval=2, enabled=scaled)

        def step(x: torch.Tensor) -> Any:
            optimizer.zero_grad()
            loss = model(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss.detach()

        inputs = [torch.randn(3, 4, dtype=dtype) for _ in range(5)]
        inputs[2][0, 0] = torch.inf if scaled else 1.0
        step = compile(step)
        losses = [step(x) for x in inputs]
        kept = [state for p in model.parameters() for state in optimizer.state[p].values()]
        return losses, list(model.parameters()), [p.grad for p in model.parameters()], kept, scaler.get_scale()

    stoker.log.clear()
    mine, theirs = run(stoker.compile), run(lambda step: step)
    assert not stoker.events("as captured")
    close = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {"rtol": 1e-5, "atol": 1e-6}
    torch.testing.assert_close(mine, theirs, equal_nan=True, **close)


def test_a_step_by_a_share_that_is_told_by_a_counter() -> None:
    """Adafactor's running means take a share that it computes from a counter, which is a tensor."""
    stoker.log.clear()
    make: Callable[[Any], optim.Optimizer] = lambda p: optim.Adafactor(p, 1e-2)  # noqa: E731
    mine, state = trained(make, stoker.compile)
    theirs, expected = trained(make, lambda step: step)
    assert not stoker.events("break") and not stoker.events("as captured")
    torch.testing.assert_close((mine, state), (theirs, expected), rtol=1e-5, atol=1e-6)


def test_unscaled_gradients_are_one_graph_with_what_clips_them() -> None:
    def run(compile: Callable[[Any], Any]) -> Any:
        torch.manual_seed(0)
        model = nn.Linear(4, 8)
        optimizer = optim.SGD(model.parameters(), 0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=16.0)

        @compile
        def step(x: torch.Tensor) -> Any:
            optimizer.zero_grad()
            scaler.scale(model(x).square().sum()).backward()
            scaler.unscale_(optimizer)
            found = next(iter(scaler._per_optimizer_states[id(optimizer)]["found_inf_per_device"].values()))
            return nn.utils.clip_grad_norm_(model.parameters(), 1.0), found

        return step(torch.randn(2, 4)), [p.grad for p in model.parameters()]

    stoker.log.clear()
    mine, theirs = run(lambda f: stoker.compile(f, fullgraph=True)), run(lambda f: f)
    assert not stoker.events("as captured")
    torch.testing.assert_close(mine, theirs)
