"""What a cache of the program's keeps is made once and is one object: drawn once, printed once, written to by all who ask."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

Tensor = torch.Tensor
Program = Callable[[Tensor], Any]
COUNT = {"calls": 0}
SETTING = {"scale": 2}


def _drawn() -> Program:
    @functools.lru_cache(maxsize=None)
    def noise(n: int) -> Tensor:
        return torch.rand(n)

    return lambda x: x + noise(x.shape[0])


def _dropped_out() -> Program:
    @functools.cache
    def mask(n: int) -> tuple[Tensor, int]:
        return torch.nn.functional.dropout(torch.ones(n)), n

    return lambda x: x * mask(x.shape[0])[0]


def _written() -> Program:
    @functools.cache
    def state(n: int) -> Tensor:
        return torch.zeros(n)

    def run(x: Tensor) -> Tensor:
        total = state(x.shape[0])
        total.add_(x)
        return total * 2

    return run


def _written_by_a_view() -> Program:
    @functools.cache
    def state(n: int) -> tuple[Tensor, Tensor]:
        return torch.zeros(n), torch.ones(n)

    def run(x: Tensor) -> Tensor:
        first, second = state(x.shape[0])
        second[1:] += x[1:]
        return first + second

    return run


def _given_away() -> Program:
    @functools.cache
    def table(n: int) -> Tensor:
        return torch.arange(n).float()

    return lambda x: (x * 2, table(x.shape[0])[1:])


def _read() -> Program:
    @functools.cache
    def table(n: int, base: float = 10.0) -> tuple[Tensor, Tensor]:
        angles = base ** -torch.empty(n).fill_(0.5)
        return angles.sin(), angles.cos()

    def run(x: Tensor) -> Tensor:
        sines, cosines = table(x.shape[0])
        return x * sines + table(x.shape[0], base=2.0)[1] * cosines

    return run


def _kept_in_a_list() -> Program:
    @functools.cache
    def seen(n: int) -> list[int]:
        return []

    def run(x: Tensor) -> Any:
        seen(x.shape[0]).append(1)
        return x + len(seen(x.shape[0]))

    return run


def _printed() -> Program:
    @functools.cache
    def table(n: int) -> Tensor:
        print("made", n)
        return torch.ones(n)

    return lambda x: x + table(x.shape[0])


def _after_a_change(fill: Callable[[], Tensor]) -> Program:
    cached = functools.cache(fill)

    def run(x: Tensor) -> Tensor:
        COUNT["calls"] += 1
        kept = cached()
        kept.add_(1)
        return x.sum() + kept

    return run


def _after_a_change_with_arguments() -> Program:
    @functools.lru_cache(maxsize=8)
    def noise(n: int) -> Tensor:
        print("made", n)
        return torch.rand(n)

    def run(x: Tensor) -> Tensor:
        COUNT["calls"] += 1
        return x.sum() + noise(3)

    return run


def _number_of_what_changed() -> Program:
    @functools.cache
    def calls() -> int:
        return COUNT["calls"]

    def run(x: Tensor) -> Tensor:
        COUNT["calls"] += 1
        return x + calls()

    return run


def _number_of_a_setting() -> Program:
    @functools.cache
    def scale(n: int) -> int:
        return SETTING["scale"] * n

    def run(x: Tensor) -> Tensor:
        COUNT["calls"] += 1
        found = x * scale(3)
        SETTING["scale"] += 1
        return found

    return run


PROGRAMS: dict[str, Callable[[], Program]] = {
    "drawn": _drawn,
    "dropped out": _dropped_out,
    "written": _written,
    "written by a view": _written_by_a_view,
    "given away": _given_away,
    "read": _read,
    "kept in a list": _kept_in_a_list,
    "printed": _printed,
    "zeros after a change": lambda: _after_a_change(lambda: torch.zeros(2)),
    "drawn after a change": lambda: _after_a_change(lambda: torch.rand(2)),
    "with arguments after a change": _after_a_change_with_arguments,
    "a number of what changed": _number_of_what_changed,
    "a number of a setting": _number_of_a_setting,
}


def _observed(run: Program) -> list[Any]:
    torch.manual_seed(0)
    COUNT["calls"], SETTING["scale"] = 0, 2
    found = [run(torch.arange(n).float()) for n in (2, 3, 4, 3, 4, 2, 5)]
    return [found, torch.rand(1), dict(COUNT), dict(SETTING)]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_cached_functions(name: str, dynamic: bool | None, capsys: pytest.CaptureFixture[str]) -> None:
    expected = _observed(PROGRAMS[name]())
    printed = capsys.readouterr().out
    found = _observed(stoker.compile(PROGRAMS[name](), dynamic=dynamic))
    torch.testing.assert_close(found, expected)
    assert capsys.readouterr().out == printed


def test_given_away_is_the_same() -> None:
    run = stoker.compile(_given_away())
    results = [run(torch.zeros(n))[1] for n in (2, 3, 4, 3, 4)]
    assert results[1].data_ptr() == results[3].data_ptr()
    assert results[2].data_ptr() == results[4].data_ptr()


def test_read_is_one_graph() -> None:
    run = stoker.compile(_read(), fullgraph=True, dynamic=True)
    for n in (3, 5, 7):
        torch.testing.assert_close(run(torch.ones(n)), _read()(torch.ones(n)))


def test_only_the_call_that_is_made_is_made() -> None:
    """The guard of another version, for another number, calls nothing."""
    called: list[int] = []

    @functools.cache
    def doubled(n: int) -> int:
        called.append(n)
        return 2 * n

    run = stoker.compile(lambda x, n: x * doubled(n), dynamic=False)
    for n in (2, 3, 3, 2):
        assert run(torch.ones(1), n).item() == 2 * n
    doubled.cache_clear()
    assert run(torch.ones(1), 2).item() == 4
    assert called == [2, 3, 2]
