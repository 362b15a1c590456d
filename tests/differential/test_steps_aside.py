"""Where compiled code steps aside: dispatch modes that must see each operator, the search for anomalies, modules being imported, large
integers."""

from __future__ import annotations

import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import stoker
from stoker import log


class Watching(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("compiled_before", [False, True])
def test_a_dispatch_mode_sees_the_operators(compiled_before: bool) -> None:
    compiled = stoker.compile(lambda x: x.sin() + 1)
    x = torch.randn(3)
    if compiled_before:
        compiled(x)
    with Watching() as mode:
        compiled(x)
    assert mode.seen == ["aten.sin.default", "aten.add.Tensor"]


def test_operations_are_counted() -> None:
    model = stoker.compile(torch.nn.Linear(8, 4))
    model(torch.randn(2, 8))
    with FlopCounterMode(display=False) as counter:
        model(torch.randn(2, 8))
    assert counter.get_total_flops() == 2 * 2 * 8 * 4


def _mode_inside(x: torch.Tensor) -> None:
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        y = (x - x).sqrt().mul(0).sum()
        y.backward()


def _detecting_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.autograd.detect_anomaly(check_nan=False):
        y = (x - x).sqrt().mul(0).sum()
        y.backward()
    return x.grad.isnan()


def _mode_left_on(x: torch.Tensor) -> None:
    torch.autograd.set_detect_anomaly(True)
    (x - x).sqrt().mul(0).sum().backward()


def _given_back(x: torch.Tensor) -> torch.Tensor:
    return (x - x).sqrt().mul(0).sum()


def _what_is_said(function: Any, around: bool) -> tuple[list[str], str, Any]:
    """The warnings, each without the frames that call the program; the error; the result."""
    error, result = "", None
    with warnings.catch_warnings(record=True) as said, torch.autograd.set_detect_anomaly(around):
        warnings.simplefilter("always")
        try:
            result = function(torch.ones(3, requires_grad=True))
            if isinstance(result, torch.Tensor) and result.requires_grad:
                result.backward()
        except RuntimeError as raised:
            error = str(raised)
    frames = [str(w.message).rpartition(f", in {_what_is_said.__name__}")[2] for w in said]
    return frames, error, None if result is None else result.tolist()


_INSIDE = [
    (program, around) for program in (_mode_inside, _detecting_inside, _mode_left_on) for around in (False, True)
]


@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.parametrize(("program", "around"), [*_INSIDE, (_given_back, True)])
def test_an_anomaly_is_found_where_the_program_has_it(program: Any, compiled_before: bool, around: bool) -> None:
    compiled = stoker.compile(program)
    if compiled_before:
        _what_is_said(compiled, False)
    want = _what_is_said(program, around)
    assert want[0]
    assert _what_is_said(compiled, around) == want


def test_importing_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stoker_imported.py").write_text(
        textwrap.dedent("""
            def helper(n):
                return [n + i for i in range(3)]
            TABLE = [helper(n) for n in range(20)]
        """)
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    log.clear()

    @stoker.compile
    def program(x: torch.Tensor) -> torch.Tensor:
        print(end="")
        import stoker_imported

        return x + stoker_imported.TABLE[2][1]

    try:
        assert torch.equal(program(torch.ones(2)), torch.full((2,), 4.0))
    finally:
        sys.modules.pop("stoker_imported", None)
    assert not [e for e in log.events("captured") if "stoker_imported" in e.location]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
def test_integers_beyond_64_bits(backend: str) -> None:
    def program(x: torch.Tensor, n: int) -> Any:
        return x * (n % 5), n * n * n, n * 3 + 2**70, (n * n) // 7

    compiled = stoker.compile(program, backend=backend)
    x = torch.ones(3)
    for n in (3, 4, 10**9, 2**62, 2**64, 10**30):
        expected, found = program(x, n), compiled(x, n)
        assert torch.equal(expected[0], found[0])
        assert expected[1:] == found[1:]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize(
    ("program", "large"),
    [(lambda x, n: x * (n * n * n), 10**9), (lambda x, n: x + 12 // n, 0), (lambda x, n: x[: 5 % n], 0)],
)
def test_numbers_that_eager_refuses(program: Any, large: int, backend: str) -> None:
    compiled = stoker.compile(program, backend=backend)
    x = torch.ones(8)
    for n in (3, 4):
        assert torch.equal(program(x, n), compiled(x, n))
    with pytest.raises((OverflowError, ZeroDivisionError)) as refused:
        program(x, large)
    with pytest.raises(refused.type):
        compiled(x, large)


@pytest.mark.parametrize("compiled_before", [False, True])
@pytest.mark.filterwarnings("ignore")
def test_the_script_tracer_sees_the_operators(compiled_before: bool) -> None:
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU())
    compiled, function = stoker.compile(model), stoker.compile(lambda x: x * 2 + 1)
    x, y = torch.randn(2, 3), torch.randn(5, 3)
    if compiled_before:
        compiled(x), function(x)
    torch.testing.assert_close(torch.jit.trace(compiled, x)(y), model(y))
    torch.testing.assert_close(torch.jit.trace(function, x)(y), y * 2 + 1)
    torch.testing.assert_close(function(y), y * 2 + 1)
