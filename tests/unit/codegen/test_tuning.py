"""Tiles are measured once: what a process found, others know. A stand-in takes the place of the device."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import stoker
from stoker.codegen.backend import Built, Site
from stoker.codegen.triton import backend as triton_backend
from stoker.codegen.triton import choose
from stoker.codegen.triton.choose import Answer
from stoker.codegen.triton.tiling import Tiling
from stoker.codegen.triton.unit import unit_of
from stoker.loop.index import Dimension
from stoker.loop.instruction import Load, Store
from stoker.loop.layout import Layout
from stoker.schedule.kernel import Kernel, Phase
from stoker.shape.expr import constant, symbol

O0, DEVICE = symbol("o0"), torch.device("cuda", 0)


def copying(size: int) -> Kernel:
    lines = ((0, Load((), torch.float32, "a0", O0)), (1, Store((0,), torch.float32, "a1", O0, None)))
    loops = (Dimension(O0, constant(size)),)
    return Kernel(DEVICE, loops, (), (Phase(False, lines),), (torch.float32,) * 2, frozenset({1}), (), 0)


def site(size: int) -> Site:
    return Site((Layout(torch.float32, DEVICE, (constant(size),), (constant(1),)),) * 2, ("aten.clone.default",))


class StandIn(triton_backend.TritonBackend):
    """Builds sources, and loads them nowhere."""

    def __init__(self) -> None:
        super().__init__(90, 132)
        self.made: list[Tiling] = []

    def built(self, kernels: Sequence[Kernel], sites: Sequence[Site], tilings: Sequence[Tiling]) -> list[Built]:
        self.made += tilings
        return [Built(None, lambda b, s: 0, unit_of(k, t).source) for k, t in zip(kernels, tilings)]


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many builds each measurement had to choose from; the third is always the fastest."""
    found: list[int] = []

    def third(site: Site, builds: Sequence[Built]) -> Answer:
        found.append(len(builds))
        return Answer(2, "2 us as usual, 1 us in other tiles")

    tmp_path.chmod(0o700)
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    monkeypatch.setattr(triton_backend, "fastest", third)
    monkeypatch.setattr(choose, "surroundings", lambda: ["a device"])
    return found


def test_another_process_does_not_measure(measured: list[int]) -> None:
    first, second = StandIn(), StandIn()
    (made,) = first.build([copying(5000)], [site(5000)], tune=True)
    assert len(measured) == 1 and measured[0] > 3
    (again,) = second.build([copying(5000)], [site(5000)], tune=True)
    assert len(measured) == 1 and again.source == made.source
    assert len(second.made) == 1 and second.made == first.made[-1:]
    (usual,) = StandIn().build([copying(5000)], [site(5000)], tune=False)
    assert usual.source != made.source


def test_what_differs_is_measured(measured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    StandIn().build([copying(5000), copying(6000)], [site(5000), site(6000)], tune=True)
    assert len(measured) == 2
    StandIn().build([copying(5000)], [site(9000)], tune=True)
    assert len(measured) == 3
    monkeypatch.setattr(choose, "surroundings", lambda: ["another device"])
    StandIn().build([copying(5000)], [site(5000)], tune=True)
    assert len(measured) == 4


def test_alternatives_are_compiled_together(measured: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    backend, together = StandIn(), []
    built = backend.built
    monkeypatch.setattr(backend, "built", lambda k, s, t: (together.append(len(k)), built(k, s, t))[1])
    backend.build([copying(5000), copying(6000)], [site(5000), site(6000)], tune=True)
    assert together[0] == sum(measured)


def test_events_tell_what_was_known(measured: list[int]) -> None:
    stoker.log.clear()
    for _ in range(2):
        StandIn().build([copying(5000)], [site(5000)], tune=True)
    words: list[Any] = [event.reason for event in stoker.events("tuned")]
    assert words == ["2 us as usual, 1 us in other tiles", "2 us as usual, 1 us in other tiles, as known"]
