"""A stage of the back end fails: the program runs on, an event, a line and a report say so; STOKER_STRICT=1 raises."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import cache, log
from stoker.errors import BackendFailed

STAGES = [
    "stoker.pipeline.fuse_attention",
    "stoker.pipeline.aot",
    "stoker.autograd.compile.trace_joint",
    "stoker.autograd.compile.split",
    "stoker.pipeline.simplify",
    "stoker.pipeline.precompute",
    "stoker.pipeline.lower_graph",
    "stoker.pipeline.make_plan",
    "stoker.pipeline.begin_kernels",
    "stoker.codegen.cpp.backend.units_of",
    "stoker.codegen.cpp.backend.begin_loading",
    "stoker.pipeline.executor",
    "stoker.pipeline.host_program",
]
INFERENCE = ["stoker.pipeline.join", "stoker.pipeline.pack", "stoker.pipeline.freeze"]


def _raise(*args: Any, **kwargs: Any) -> Any:
    raise KeyError("injected")


@pytest.fixture
def lax(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("STOKER_STRICT")
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path / "cache"))
    log.clear()


def _train(f: Callable[..., Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    y = f(lambda x: torch.relu(layer(x)).sum())(x)
    y.backward()
    return [y.detach(), layer.weight.grad]


def _infer(f: Callable[..., Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layer, x = nn.Linear(3, 3), torch.randn(2, 3)
    with torch.no_grad():
        return [f(lambda x: torch.relu(layer(x)))(x)]


@pytest.mark.parametrize("program", [_train, _infer])
@pytest.mark.parametrize("stage", STAGES + INFERENCE)
def test_the_program_runs_on(
    lax: None,
    stage: str,
    program: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(stage, _raise)
    with caplog.at_level(logging.WARNING, "stoker"):
        got = program(stoker.compile)
    torch.testing.assert_close(got, program(lambda f: f))
    if program is (_train if stage in INFERENCE else _infer if stage.endswith("split") else None):
        return
    (event,) = log.events("defect")
    assert len(caplog.records) == 1 and str(event.data["report"]) in caplog.records[0].getMessage()
    report = event.data["report"].read_text()
    for words in ("injected", "KeyError", torch.__version__, "Options(", "graph():", "relu", "test_defects.py"):
        assert words in report, words


@pytest.mark.parametrize("stage", STAGES[:-1])
def test_strictly_it_raises(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_STRICT", "1")
    monkeypatch.setattr(stage, _raise)
    with pytest.raises(BackendFailed, match="injected"):
        _train(stoker.compile)


def test_users_back_ends_still_raise(lax: None) -> None:
    with pytest.raises(BackendFailed, match="injected"):
        stoker.compile(lambda x: x + 1, backend=_raise)(torch.ones(2))
    assert not log.events("defect")


def test_a_backward_that_is_compiled_late(lax: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def pair(x):
        return x.sin(), x.exp()

    for wanted in ((0,), (1,), (0, 1)):
        x = torch.randn(3, requires_grad=True)
        results = stoker.compile(pair)(x)
        with monkeypatch.context() as patched:
            patched.setattr("stoker.pipeline.make_plan", _raise)
            torch.autograd.backward([results[i].sum() for i in wanted])
        (want,) = torch.autograd.grad([pair(x)[i].sum() for i in wanted], x)
        torch.testing.assert_close(x.grad, want)
    assert log.events("defect")


def test_a_graph_for_inputs_that_overlap(lax: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def write(x, y):
        x.add_(1)
        return x + y

    compiled, base = stoker.compile(write), torch.ones(4)
    compiled(torch.ones(3), torch.ones(3))
    monkeypatch.setattr("stoker.pipeline.make_plan", _raise)
    torch.testing.assert_close(compiled(base[:3], base[1:]), write(*((b := torch.ones(4))[:3], b[1:])))


def test_weights_that_change_too_often(lax: None, monkeypatch: pytest.MonkeyPatch) -> None:
    layer, x = nn.Conv2d(3, 4, 3), torch.randn(1, 3, 8, 8)
    compiled = stoker.compile(lambda x: torch.relu(layer(x)))
    with torch.no_grad():
        compiled(x)
        monkeypatch.setattr("stoker.pipeline.make_plan", _raise)
        for _ in range(8):
            layer.weight.mul_(1.5)
            torch.testing.assert_close(compiled(x), torch.relu(layer(x)))


def test_no_place_for_a_report(lax: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def full() -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("stoker.pipeline.make_plan", _raise)
    for place in ("cache_directory", "private_directory"):
        monkeypatch.setattr(f"stoker.defect.{place}", full)
    torch.testing.assert_close(stoker.compile(lambda x: x + 1)(torch.ones(2)), torch.full((2,), 2.0))
    (event,) = log.events("defect")
    assert "no report could be written" in event.reason


def test_one_meaning_of_strict(monkeypatch: pytest.MonkeyPatch) -> None:
    from stoker.strict import strict

    for value, means in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("STOKER_STRICT", value)
        assert strict() is means


def test_entries_are_sealed(tmp_path: Path) -> None:
    entry = tmp_path / "entry"
    entry.write_bytes(b"content")
    assert not cache.is_whole(entry)
    entry.write_bytes(b"content")
    cache.seal(entry)
    assert cache.is_whole(entry)
    content = bytearray(entry.read_bytes())
    content[2] ^= 1
    entry.write_bytes(content)
    assert not cache.is_whole(entry) and not entry.exists()


def _fails_when_it_runs(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*inputs: Any) -> Any:
        raise error

    monkeypatch.setattr("stoker.pipeline.executor", lambda *given: fail)


def _train_and_draw(f: Callable[..., Any]) -> list[torch.Tensor]:
    """Buffers are written, numbers are drawn."""
    torch.manual_seed(0)
    norm, h = nn.BatchNorm1d(3), torch.randn(3, requires_grad=True)
    y = f(lambda x: (norm(x) * h * torch.rand(3)).sum())(torch.randn(4, 3))
    y.backward()
    return [y.detach(), h.grad, norm.weight.grad, norm.running_mean, norm.num_batches_tracked, torch.rand(2)]


def _write_what_has_a_history(f: Callable[..., Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    w = torch.randn(3, requires_grad=True)
    h = w * 2
    y = f(lambda h: (h.mul_(3) * torch.rand(3)).sum())(h)
    y.backward()
    return [y.detach(), h.detach(), w.grad, torch.rand(2)]


def _train_for_some(f: Callable[..., Any]) -> list[torch.Tensor]:
    """Of two results one gets a gradient, twice."""
    torch.manual_seed(0)
    x = torch.randn(3, requires_grad=True)
    a, b = f(lambda x: (x.sin() * x, x.exp()))(x)
    a.sum().backward(retain_graph=True)
    a.sum().backward()
    return [a.detach(), b.detach(), x.grad]


def _train_in_pieces(f: Callable[..., Any]) -> list[torch.Tensor]:
    torch.manual_seed(0)
    layers, x = nn.ModuleList(nn.Linear(3, 3) for _ in range(3)), torch.randn(2, 3)

    def forward(x: torch.Tensor) -> torch.Tensor:
        for layer in layers:
            x = torch.relu(layer(x))
            print(end="")
        return x.sum()

    f(forward)(x).backward()
    return [p.grad for p in layers.parameters()]


BACKWARDS = [_train, _train_and_draw, _train_for_some, _train_in_pieces]


@pytest.mark.parametrize("program", [*BACKWARDS, _write_what_has_a_history, _infer])
def test_a_graph_that_fails_where_the_program_does_not(
    lax: None, program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    _fails_when_it_runs(monkeypatch, RuntimeError("injected"))
    with caplog.at_level(logging.WARNING, "stoker"):
        got = program(stoker.compile)
    torch.testing.assert_close(got, program(lambda f: f), rtol=0, atol=0)
    for event in (events := log.events("defect")):
        assert "injected" in event.reason and "RuntimeError" in event.data["report"].read_text()
    assert events and all("failed where the program does not" in e.subject for e in events)
    assert len(caplog.records) == len({e.location for e in events})


def _only_backwards_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*inputs: Any) -> Any:
        raise RuntimeError("injected")

    monkeypatch.setattr("stoker.pipeline._compile_backward", lambda *given, **how: fail)


@pytest.mark.parametrize("program", BACKWARDS)
def test_a_backward_that_fails_where_the_program_s_does_not(
    lax: None, program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _only_backwards_fail(monkeypatch)
    torch.testing.assert_close(program(stoker.compile), program(lambda f: f))
    for event in (events := log.events("defect")):
        assert "injected" in event.reason and "graph():" in event.data["report"].read_text()
    assert events


@pytest.mark.parametrize("program", BACKWARDS)
def test_strictly_such_a_backward_raises(program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_STRICT", "1")
    _only_backwards_fail(monkeypatch)
    with pytest.raises(RuntimeError, match="injected"):
        program(stoker.compile)


def test_a_backward_that_fails_as_the_program_s_raises_its_error(lax: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eigenvectors have a gradient only if it does not depend on their phase."""
    _only_backwards_fail(monkeypatch)
    x = torch.randn(3, 3, dtype=torch.float64, requires_grad=True)
    with pytest.raises(RuntimeError) as eager:
        torch.linalg.eig(x @ x).eigenvectors.real.sum().backward()
    with pytest.raises(RuntimeError, match=re.escape(str(eager.value)[:40])):
        stoker.compile(lambda x: torch.linalg.eig(x @ x).eigenvectors.real.sum())(x).backward()
    assert not log.events("defect")


def test_an_input_that_was_overwritten_leaves_the_backward_s_own_error(
    lax: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    _only_backwards_fail(monkeypatch)
    w = torch.ones(2, requires_grad=True)
    x = torch.ones(2)
    loss = stoker.compile(lambda x, w: ((x + 1) * w).sum())(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="injected"):
        loss.backward()


@pytest.mark.parametrize("program", [_train, _infer])
def test_strictly_such_a_graph_raises(program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_STRICT", "1")
    _fails_when_it_runs(monkeypatch, RuntimeError("injected"))
    with pytest.raises(RuntimeError, match="injected"):
        program(stoker.compile)


def test_a_graph_without_memory_is_no_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_STRICT", "1")
    log.clear()
    _fails_when_it_runs(monkeypatch, torch.OutOfMemoryError("injected"))
    torch.testing.assert_close(_infer(stoker.compile), _infer(lambda f: f))
    assert not log.events("defect")


def test_an_error_of_the_program_s_own_is_no_defect(lax: None) -> None:
    table = torch.ones(3, 2)
    with pytest.raises(IndexError):
        stoker.compile(lambda i: table[i] + 1)(torch.tensor([5]))
    assert not log.events("defect")
