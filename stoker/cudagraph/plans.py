"""Plans of the executor, recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stoker import _C
from stoker.cudagraph import arena
from stoker.cudagraph.cuda import CudaDriver
from stoker.cudagraph.recorder import PlanRecorder
from stoker.cudagraph.recording import Held, Run, World
from stoker.loop.node import SymbolSource
from stoker.schedule.plan import Plan

NUMBER = -1
FIRST_STRIDE = -2


def recorded(
    call: _C.Plan, plan: Plan, device: int, location: str, on_defect: Callable[[Exception], None], *, draws: bool
) -> Callable[..., tuple[Any, ...]]:
    """A plan all of whose steps are on one CUDA device, replayed where that is faster. `draws`: random numbers, from torch's generator?"""
    driver = CudaDriver(device, draws=draws)

    def kept(keeps: list[Any]) -> Run:
        source = arena.source(driver.stream(), keeps)
        return lambda *inputs: call.run_in(source, *inputs)

    constants = tuple(value for _, value in plan.constants)
    world = World(call, kept, driver, device, constants, written_inputs(plan), plan.aligned)
    sources = [source for _, source in plan.symbols]
    return PlanRecorder(world, lambda inputs: numbers_of(sources, inputs), location, on_defect)


def written_inputs(plan: Plan) -> frozenset[int]:
    """The inputs that a plan writes: results lie over them."""
    below = {name for _, name in plan.over}
    return frozenset(number for number, name in enumerate(plan.inputs) if name in below)


def numbers_of(sources: Sequence[SymbolSource], inputs: Sequence[Any]) -> tuple[Held, ...]:
    """What a recording of a plan holds for: the numbers that the plan reads from its inputs."""
    return tuple((source.argument, _dimension(source), source.read(inputs)) for source in sources)


def _dimension(source: SymbolSource) -> int:
    """As csrc/replay.cpp has it: a dimension whose size is read; from -2 down one whose stride is; -1 for a number."""
    if source.dimension is None:
        return NUMBER
    return FIRST_STRIDE - source.dimension if source.stride else source.dimension
