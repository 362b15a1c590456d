"""A stage of the back end fails: the program runs on, an event, a line and a report say so; STOKER_STRICT=1 raises."""

from __future__ import annotations

import logging
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


def test_a_graph_that_fails_where_the_program_does_not(lax: None, monkeypatch: pytest.MonkeyPatch) -> None:
    _fails_when_it_runs(monkeypatch, RuntimeError("injected"))
    torch.testing.assert_close(_infer(stoker.compile), _infer(lambda f: f))
    (event,) = log.events("defect")
    assert "injected" in event.reason and "RuntimeError" in event.data["report"].read_text()


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
