"""Places that inputs are written at are checked first: once, early, and no more than needed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.fx import GraphModule

from stoker.autograd import aot
from stoker.loop.instruction import Store
from stoker.lower.driver import lower_graph
from stoker.pipeline import decompositions
from stoker.schedule.plan import Plan, make_plan
from stoker.schedule.step import Run
from tests.unit.schedule.plans import TARGETS

CACHE, OTHER, PLACES, KEYS = torch.zeros(2, 16, 4), torch.zeros(2, 16, 4), torch.tensor([3, 5]), torch.randn(2, 2, 4)


def planned(program: Callable[..., Any], *inputs: Any) -> Plan:
    """The plan of a program that writes to its inputs."""
    found: list[Plan] = []

    def keep(module: GraphModule, fakes: Any) -> Any:
        found.append(make_plan(lower_graph(module, TARGETS), TARGETS))
        return module.forward

    aot(
        torch.fx.symbolic_trace(program),
        [t.clone() for t in inputs],
        forward_compiler=keep,
        decompositions=decompositions(),
    )
    return found[0]


def checks(plan: Plan) -> list[int]:
    """Where kernels run that store nothing."""
    return [n for n, s in enumerate(plan.steps) if isinstance(s, Run) and not plan.kernels[s.kernel].written]


def both(cache: Any, other: Any, places: Any, keys: Any) -> Any:
    cache.index_copy_(1, places, keys)
    other.index_copy_(1, places, keys * 2)
    return (cache.sum(1) + other.sum(1),)


def computed(cache: Any, other: Any, places: Any, keys: Any) -> Any:
    other.add_(1)
    cache.index_copy_(1, torch.cumsum(places, 0) // 2, keys)
    return (cache.sum(1),)


def accumulated(cache: Any, other: Any, places: Any, keys: Any) -> Any:
    cache.index_add_(1, places, keys)
    return (cache.sum(1),)


def test_one_check_for_all_that_write_to_the_same_places() -> None:
    plan = planned(both, CACHE, OTHER, PLACES, KEYS)
    assert checks(plan) == [0]
    check = plan.kernels[plan.steps[0].kernel]  # type: ignore[union-attr]  # a Run
    assert [d.size.value for d in check.outer] == [2], "only the loop over places"
    assert check.arguments == (torch.int64,)
    assert sum(below in plan.inputs for _, below in plan.over) == 2, "both caches are written in place"


@pytest.mark.parametrize("program", [both, computed, accumulated], ids=lambda p: p.__name__)
def test_inputs_are_written_after_checks(program: Callable[..., Any]) -> None:
    plan = planned(program, CACHE, OTHER, PLACES, KEYS)
    written = [
        n
        for n, s in enumerate(plan.steps)
        if isinstance(s, Run) and any(s.buffers[a] in plan.inputs for a in plan.kernels[s.kernel].written)
    ]
    assert checks(plan) and written
    assert max(checks(plan)) < min(written)


def test_nothing_is_checked_twice_where_inputs_stay() -> None:
    plan = planned(lambda cache, places, keys: (cache.index_copy(1, places, keys),), CACHE, PLACES, KEYS)
    assert not checks(plan)
    stores = [i for k in plan.kernels for p in k.phases for _, i in p.lines if isinstance(i, Store)]
    assert any(i.combine == "set" for i in stores)
