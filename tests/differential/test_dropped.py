"""What was compiled and dropped is gone: fake tensors, shape environments, weights, references to parameters."""

from __future__ import annotations

import gc
import linecache
import os
import subprocess
import sys
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log


def _inference() -> None:
    with torch.no_grad():
        stoker.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))(torch.randn(2, 8))


def _training() -> None:
    stoker.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))(torch.randn(2, 8)).sum().backward()


def _symbolic() -> None:
    stoker.compile(lambda x: (x * 2).sum(0), dynamic=True)(torch.ones(3, 4, requires_grad=True)).sum().backward()


def _written() -> None:
    stoker.compile(lambda x: x.mul_(2).view(-1)[1:].add_(1))(torch.ones(2, 3, requires_grad=True) * 1).sum().backward()


def _alive(*names: str) -> int:
    gc.collect()
    return sum(type(o).__name__ in names for o in gc.get_objects())


@pytest.mark.parametrize("program", [_inference, _training, _symbolic, _written])
def test_nothing_of_the_compiler_stays(program: Callable[[], None]) -> None:
    program()
    stoker.reset()
    log.clear()
    before = _alive("FakeTensor", "ShapeEnv", "FakeMode", "Trace", "Graph")
    for _ in range(4):
        program()
    stoker.reset()
    log.clear()
    assert _alive("FakeTensor", "ShapeEnv", "FakeMode", "Trace", "Graph") <= before + 2


@pytest.mark.parametrize("grad", [False, True])
def test_weights_go_with_the_model(grad: bool) -> None:
    kept = []
    for _ in range(4):
        model = nn.Sequential(nn.Linear(8, 8), nn.Conv1d(2, 2, 3), nn.ReLU())
        compiled = stoker.compile(model)
        with torch.set_grad_enabled(grad):
            compiled(torch.randn(2, 8)), compiled(torch.randn(2, 8))
        kept.append(weakref.ref(model[0].weight))
        del model, compiled
    stoker.reset()
    gc.collect()
    assert [k() for k in kept] == [None] * 4


def test_parameters_can_be_swapped() -> None:
    model = nn.Linear(3, 3)
    compiled = stoker.compile(model)
    compiled(torch.ones(2, 3)).sum().backward()
    model.zero_grad()
    before = torch.__future__.get_swap_module_params_on_conversion()
    try:
        torch.__future__.set_swap_module_params_on_conversion(True)
        model.double()
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)
    x = torch.ones(2, 3, dtype=torch.float64)
    torch.testing.assert_close(compiled(x), model(x))


def _compile_and_drop(times: int) -> None:
    """Functions with a size that varies, each compiled twice and dropped."""
    for _ in range(times):
        names: dict[str, Any] = {}
        exec("def f(x):\n    return x.view(-1, 2).sum(0) * x.shape[0] + x.shape[0] // 3", names)  # noqa: S102
        compiled = stoker.compile(names["f"], backend="aot_eager", dynamic=True)
        compiled(torch.ones(6)), compiled(torch.ones(8))
    log.clear()
    for _ in range(2):  # code objects let go of versions when they are collected themselves
        gc.collect()


def test_text_of_graphs_is_dropped_with_them() -> None:
    _compile_and_drop(2)
    before = len(linecache.cache), len(torch.fx.graph_module._loader.eval_cache)
    _compile_and_drop(5)
    assert (len(linecache.cache), len(torch.fx.graph_module._loader.eval_cache)) == before


COUNTED = """
from stoker.shape import expr
from test_dropped import _compile_and_drop
_compile_and_drop(5)
before = len(expr._INTERNED)
_compile_and_drop(4)
print(before, len(expr._INTERNED))
"""


def test_expressions_of_dropped_functions_are_those_of_the_next() -> None:
    """In a process of its own: symbols of what other tests have compiled would be taken first."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    told = subprocess.run([sys.executable, "-c", COUNTED], env=environment, capture_output=True, text=True, check=True)
    before, after = map(int, told.stdout.split())
    assert before == after


def test_keys_of_a_weak_dictionary_go_at_once() -> None:
    """A capture's values that form a ring hold the program's objects no longer than it takes."""
    known: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
    first, second = nn.Identity(), nn.Identity()
    run = stoker.compile(lambda x: x + sum(known.values()) + len(known), backend="eager")
    known[first] = 5
    assert run(torch.zeros(1)).item() == 6
    known[second] = 6
    assert run(torch.zeros(1)).item() == 13
    del first
    assert run(torch.zeros(1)).item() == 7


def _raises(x: torch.Tensor) -> None:
    raise ValueError(3)


def _raises_inside(x: torch.Tensor) -> list[torch.Tensor]:
    return [a * b for a, b in zip(x, [1, 2], strict=True)]


@pytest.mark.parametrize("program", [_raises, _raises_inside])
def test_an_exception_keeps_no_caller_alive(program: Callable[..., Any]) -> None:
    """It goes with its last name, and with it the frames that it passed, without the garbage collector."""
    run = stoker.compile(program, backend="eager")

    def call() -> weakref.ref[torch.Tensor]:
        held = torch.ones(3)
        with pytest.raises(ValueError) as caught:  # noqa: PT011  # any, its words are eager's
            run(held)
        del caught
        return weakref.ref(held)

    call()
    gc.disable()
    try:
        assert call()() is None
    finally:
        gc.enable()
