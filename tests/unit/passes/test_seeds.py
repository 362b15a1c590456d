"""Where attention's random numbers begin: known where nothing is dropped, a reason not to record where something is."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from stoker.passes.recordable import obstacle
from stoker.passes.seeds import SEEDS, settle_seeds
from tests.unit.passes.devices import GPU, Written

aten = torch.ops.aten


def attention(w: Written, target: Any, dropout: float) -> Any:
    x = w.input(2, 4, 32, 64, dtype=torch.float16)
    return w.call(target, x, x, x, None, True, dropout)


@pytest.mark.parametrize("target", SEEDS, ids=str)
def test_seeds_that_nobody_needs_are_known(target: Any) -> None:
    w = Written()
    made = attention(w, target, 0.0)
    results = [w.call(operator.getitem, made, number) for number in (0, *SEEDS[target])]
    module = w.output(*results)
    settle_seeds(module.graph)
    assert [n.target for n in results] == [operator.getitem, aten.full.default, aten.full.default]
    assert {n.kwargs["device"] for n in results[1:]} == {GPU}
    assert all(obstacle(n) is None for n in module.graph.nodes)


@pytest.mark.parametrize("target", SEEDS, ids=str)
def test_attention_that_drops_is_not_recorded(target: Any) -> None:
    w = Written()
    made = attention(w, target, 0.1)
    seed = w.call(operator.getitem, made, SEEDS[target][0])
    settle_seeds(w.graph)
    assert seed.target is operator.getitem
    assert "random numbers" in str(obstacle(made))


def test_its_gradient_neither() -> None:
    w = Written()
    target = aten._scaled_dot_product_efficient_attention_backward.default
    x = w.input(2, 4, 32, 64)
    rest = [x, x, x, x, None, x, x, x, x]
    kept, dropped = (w.graph.call_function(target, (*rest, p, [True] * 4)) for p in (0.0, 0.1))
    assert obstacle(kept) is None and "random numbers" in str(obstacle(dropped))
