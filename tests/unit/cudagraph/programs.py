"""Plans for the stand-in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.cudagraph.recorder import PlanRecorder
from stoker.cudagraph.recording import Held, World
from tests.unit.cudagraph.stand_in import StandIn, add, double


def two_steps(device: StandIn, *, extra: bool = False) -> Callable[..., tuple[Any, ...]]:
    """2 * (x + w), and x + w."""

    def run(x: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
        n = x.numel()
        total, result = torch.empty(n), torch.empty(n)
        device.kernel(add, x.data_ptr(), w.data_ptr(), total.data_ptr(), n, extra=extra)
        device.kernel(double, total.data_ptr(), result.data_ptr(), n, extra=extra)
        return result, total

    return run


def running_total(device: StandIn) -> Callable[..., tuple[Any, ...]]:
    """total += x, in place; and twice the total."""

    def run(x: torch.Tensor, total: torch.Tensor) -> tuple[Any, ...]:
        n = x.numel()
        result = torch.empty(n)
        device.kernel(add, x.data_ptr(), total.data_ptr(), total.data_ptr(), n)
        device.kernel(double, total.data_ptr(), result.data_ptr(), n)
        return total, result

    return run


def world_of(
    device: StandIn,
    run: Callable[..., tuple[Any, ...]],
    constants: Sequence[torch.Tensor] = (),
    written: frozenset[int] = frozenset(),
) -> World:
    return World(run, lambda keeps: run, device, 0, tuple(constants), written)


def recorder_of(
    device: StandIn,
    run: Callable[..., tuple[Any, ...]],
    constants: Sequence[torch.Tensor] = (),
    written: frozenset[int] = frozenset(),
) -> PlanRecorder:
    """Every tensor's first size is a number that recordings hold for."""

    def held(inputs: Sequence[Any]) -> tuple[Held, ...]:
        return tuple((i, 0, v.shape[0]) for i, v in enumerate(inputs) if isinstance(v, torch.Tensor))

    return PlanRecorder(world_of(device, run, constants, written), held, "here", defects.append)


defects: list[Exception] = []
"""What recorders reported."""
