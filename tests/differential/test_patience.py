"""Calls that do not wait for kernels: a graph runs operator by operator until they are built, and they take over between calls.

A program is called in each phase: nothing is built, one half of a training graph, the other, all. It must agree with eager in each of them,
whatever the phase in which the graph was compiled.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stoker
from stoker import log
from stoker.runtime import build

WAITS = "a graph runs operator by operator until its kernels are built"
TOOK_OVER = "kernels of a graph are built, and have taken over"
FORWARD, BACKWARD = 0, 1
EVERYTHING = frozenset(range(100))
PHASES = [
    [frozenset(), EVERYTHING],
    [frozenset(), frozenset({FORWARD}), EVERYTHING],
    [frozenset({FORWARD}), frozenset({FORWARD}), EVERYTHING],
    [frozenset(), frozenset({BACKWARD}), EVERYTHING],
    [frozenset({BACKWARD}), EVERYTHING],
]


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch) -> list[frozenset[int]]:
    """Which kernels are built, by the order in which they were begun: the last set in the list. Graphs are not waited for."""
    begun: list[build.Loading] = []
    now: list[frozenset[int]] = [frozenset()]

    class Held(build.Loading):
        def __init__(self, sources: Sequence[str], words: Sequence[str]) -> None:
            super().__init__(sources, words)
            begun.append(self)

        def built_by(self, moment: float) -> bool:
            return begun.index(self) in now[-1]

        def __call__(self) -> Any:
            assert begun.index(self) in now[-1], "it is waited for"
            return super().__call__()

    monkeypatch.setattr("stoker.codegen.cpp.backend.begin_loading", Held)
    monkeypatch.setenv("STOKER_PATIENCE", "0")
    log.clear()
    return now


def _said() -> list[str]:
    return [event.subject for event in log.events("patience")]


class Images(nn.Module):
    """Buffers that are written, numbers that are drawn; in inference convolutions lay out otherwise what these numbers are drawn for."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.second = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(F.dropout(F.gelu(self.norm(self.first(x))), 0.3)).flatten(1)


class Rows(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(12, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.flatten(1)[:, :12]).softmax(-1).t()


def _pictures(size: int) -> torch.Tensor:
    return torch.randn(size, 3, 6, 6)


def _step(model: nn.Module, x: torch.Tensor) -> list[Any]:
    """What a step of training shows."""
    torch.manual_seed(1)
    model.zero_grad()
    x = x.clone().requires_grad_()
    result = model(x)
    (result * torch.linspace(0, 1, result.shape[-1])).sum().backward()
    strides = [t.stride() for t in (result, x.grad, *(p.grad for p in model.parameters()))]  # type: ignore[union-attr]
    tensors = [result.detach(), x.grad, *(p.grad for p in model.parameters()), *model.buffers()]
    return [[t.clone() for t in tensors], strides, torch.get_rng_state()]  # type: ignore[union-attr]


def _infer(model: nn.Module, x: torch.Tensor) -> list[Any]:
    torch.manual_seed(1)
    with torch.no_grad():
        result = model(x)
    return [[result, *(b.clone() for b in model.buffers())], result.stride(), torch.get_rng_state()]


def _pair(model: type[nn.Module]) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    eager, other = model(), model()
    other.load_state_dict(eager.state_dict())
    return eager, stoker.compile(other)


def _agree(wanted: list[Any], found: list[Any]) -> None:
    torch.testing.assert_close(found[0], wanted[0], atol=1e-5, rtol=1e-4)
    assert found[1] == wanted[1]
    assert torch.equal(found[2], wanted[2])


@pytest.mark.parametrize("phases", PHASES)
@pytest.mark.parametrize("model", [Images, Rows])
def test_training(model: type[nn.Module], phases: list[frozenset[int]], built: list[frozenset[int]]) -> None:
    eager, compiled = _pair(model)
    for phase in phases:
        built.append(phase)
        for _ in range(2):
            x = _pictures(2)
            _agree(_step(eager, x), _step(compiled, x))
    late = len({FORWARD, BACKWARD} - phases[0])
    assert _said() == [WAITS] * late + [TOOK_OVER] * late
    assert len(log.events("compiled")) == 2


@pytest.mark.parametrize("model", [Images, Rows])
def test_between_forward_and_backward(model: type[nn.Module], built: list[frozenset[int]]) -> None:
    """Kernels that are built after the forward ran operator by operator take over in its backward."""
    eager, compiled = _pair(model)
    x = _pictures(2)
    results = []
    for one in (eager, compiled):
        torch.manual_seed(1)
        results.append(one(x))
    assert _said() == [WAITS]
    built.append(EVERYTHING)
    for result in results:
        result.square().sum().backward()
    torch.testing.assert_close(results[1], results[0], atol=1e-5, rtol=1e-4)
    for a, b in zip(compiled.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("options", [{}, {"freezing": True}, {"packing": False}])
@pytest.mark.parametrize("model", [Images, Rows])
def test_inference(model: type[nn.Module], options: dict[str, bool], built: list[frozenset[int]]) -> None:
    torch.manual_seed(0)
    eager = model().eval()
    compiled = stoker.compile(eager, options=options)
    for phase in (frozenset[int](), EVERYTHING):
        built.append(phase)
        for _ in range(2):
            x = _pictures(2)
            _agree(_infer(eager, x), _infer(compiled, x))
    assert _said() == [WAITS, TOOK_OVER]


@pytest.mark.parametrize("run", [_step, _infer])
def test_sizes_that_change(run: Callable[..., list[Any]], built: list[frozenset[int]]) -> None:
    """The second size is compiled, symbolically, while the first one's kernels are not there; then the second one's are not."""
    eager, compiled = _pair(Rows)
    graphs = 2 if run is _step else 1
    for phase in (frozenset[int](), frozenset(range(graphs)), EVERYTHING):
        built.append(phase)
        for size in (2, 3, 4, 3, 2):
            x = _pictures(size)
            _agree(run(eager, x), run(compiled, x))
    assert _said().count(WAITS) == _said().count(TOOK_OVER) == 2 * graphs


def _found(x: Any, scale: float) -> Any:
    chosen = x[x > 0].exp() * scale
    return chosen.sum() + chosen.shape[0]


def _two(x: Any, scale: float) -> Any:
    return (x * scale).sin(), (x.exp() + scale).sum(0)


@pytest.mark.parametrize("function", [_found, _two])
def test_other_graphs(function: Callable[..., Any], built: list[frozenset[int]]) -> None:
    """Pieces around sizes that data tells, numbers beside tensors, results of which one has a gradient."""
    compiled = stoker.compile(function)
    for phase in (frozenset[int](), EVERYTHING):
        built.append(phase)
        for scale in (1.5, 2.5, 3.5):
            for sign in (1.0, -1.0):
                gradients = []
                for call in (function, compiled):
                    x = (torch.arange(12.0).view(3, 4) * sign / 10 - 0.35).requires_grad_()
                    result = call(x, scale)
                    first = result[0] if isinstance(result, tuple) else result
                    first.sum().backward()
                    gradients.append((result, x.grad))
                torch.testing.assert_close(*gradients)
    assert _said().count(WAITS) == _said().count(TOOK_OVER) > 0


def test_graphs_inside_operators(built: list[frozenset[int]]) -> None:
    """They are waited for."""

    def branch(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: a.sin() + 1, lambda a: a.exp() * 2, (x,)) * 3

    compiled = stoker.compile(branch)
    for phase in (frozenset({0, 1}), EVERYTHING):
        built.append(phase)
        for x in (torch.ones(3), -torch.ones(3)):
            torch.testing.assert_close(compiled(x), branch(x))
    assert _said() == [WAITS, TOOK_OVER]


def test_memory_is_given_back(built: list[frozenset[int]]) -> None:
    """A backward that runs operator by operator keeps no tensor after its last use."""
    alive: list[int] = []
    kept: list[weakref.ref[Any]] = []

    @torch.library.custom_op("stoker_test_patience::look", mutates_args=())
    def look(x: torch.Tensor) -> torch.Tensor:
        alive.append(sum(one() is not None for one in kept))
        return x.clone()

    @look.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    look.register_autograd(lambda ctx, gradient: look(gradient))

    @torch.library.custom_op("stoker_test_patience::keep", mutates_args=())
    def keep(x: torch.Tensor) -> torch.Tensor:
        result = x.clone()
        kept.append(weakref.ref(result.untyped_storage()))
        return result

    @keep.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    keep.register_autograd(
        lambda ctx, gradient: gradient * ctx.saved_tensors[0],
        setup_context=lambda ctx, inputs, output: ctx.save_for_backward(output),
    )
    x = torch.randn(4, requires_grad=True)
    result = stoker.compile(lambda x: keep(keep(look(x))))(x)
    alive.clear()
    result.sum().backward()
    assert _said() == [WAITS, WAITS]
    assert alive == [1], "the result itself"


def test_a_model_that_is_dropped(built: list[frozenset[int]]) -> None:
    _, compiled = _pair(Rows)
    _step(compiled, _pictures(2))
    parameter = weakref.ref(compiled.layers[0].weight)  # type: ignore[union-attr, index]
    del compiled
    gc.collect()
    assert parameter() is None


def test_explain_waits(built: list[frozenset[int]]) -> None:
    """Also for what runs operator by operator already."""
    compiled = stoker.compile(lambda x: (x.sin() + 1).sum())
    compiled(torch.ones(3))
    assert _said() == [WAITS]
    built.append(EVERYTHING)
    assert len(stoker.explain(compiled, torch.ones(3)).compiled) == 1
    assert _said() == [WAITS, TOOK_OVER]
    assert len(stoker.explain(compiled, torch.ones(3)).compiled) == 1


def _spread(x: Any) -> Any:
    return (x.sum() * 2).expand(3, 4), torch.distributions.Normal(0.0, 1.0).expand((3,)).log_prob(x[:, 0])


def _written_inside(x: Any) -> Any:
    with torch.inference_mode():
        x.mul_(2)
    return x.sum()


@pytest.mark.parametrize("function", [_spread, _written_inside])
def test_how_results_lie(function: Callable[..., Any], built: list[frozenset[int]]) -> None:
    """Results whose elements lie in one place, and inputs of inference mode that are written."""
    outcomes = []
    for call in (function, stoker.compile(function)):
        torch.manual_seed(0)
        with torch.inference_mode():
            x = torch.arange(12.0).view(3, 4) / 10
        results = call(x)
        found = results if isinstance(results, tuple) else (results,)
        outcomes.append((found, [t.stride() for t in found], x, torch.get_rng_state()))
    torch.testing.assert_close(outcomes[1], outcomes[0])
    assert WAITS in _said() and TOOK_OVER not in _said()
