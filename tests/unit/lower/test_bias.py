"""What attention adds to its scores is stored once for those that share it, in rows that begin where its kernels read."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from stoker.codegen.triton.target import cuda_target
from stoker.loop.view import Stored
from stoker.lower.driver import lower_graph
from stoker.schedule.plan import make_plan
from stoker.schedule.step import Library
from stoker.shape.walk import evaluate
from tests.unit.passes.devices import Written

aten = torch.ops.aten
HALF = torch.float16


def given(
    make: Any,
    *,
    kernel: Any = aten._scaled_dot_product_efficient_attention.default,
    calls: int = 1,
    inference: bool = True,
) -> list[Stored]:
    """The bias of each attention of a plan, where `make` computes it."""
    w = Written()
    q, k, v = (w.input(4, 3, 49, 32, dtype=HALF) for _ in range(3))
    bias = make(w)
    results = [w.call(operator.getitem, w.call(kernel, q, k, v, bias, False), 0) for _ in range(calls)]
    targets = {"cuda": cuda_target(90, 132)}
    plan = make_plan(lower_graph(w.output(*results), targets, inference=inference), targets)
    return [step.arguments[3] for step in plan.steps if isinstance(step, Library) and step.operator is kernel]


def strides(stored: Stored) -> list[int]:
    return [evaluate(s, {}) for s in stored.strides]


def expanded(w: Written, *sizes: int) -> Any:
    return w.call(aten.expand.default, w.call(aten.sin.default, w.input(*sizes, dtype=HALF)), [4, 3, 49, 49])


@pytest.mark.parametrize(
    ("sizes", "wanted"),
    [
        ((4, 3, 49, 49), [7203, 2401, 49, 1]),
        ((1, 3, 49, 49), [0, 2401, 49, 1]),
        ((4, 1, 49, 49), [2401, 0, 49, 1]),
        ((1, 1, 49, 49), [0, 0, 49, 1]),
    ],
)
def test_it_is_stored_once(sizes: tuple[int, ...], wanted: list[int]) -> None:
    (bias,) = given(lambda w: expanded(w, *sizes))
    assert strides(bias) == wanted and [evaluate(s, {}) for s in bias.sizes] == [4, 3, 49, 49]


def test_padded_rows_stay_apart() -> None:
    def make(w: Written) -> Any:
        padded = w.call(aten.constant_pad_nd.default, w.input(1, 3, 49, 49, dtype=HALF), [0, 15])
        return w.call(aten.expand.default, w.call(aten.slice.Tensor, padded, 3, 0, 49), [4, 3, 49, 49])

    (bias,) = given(make)
    assert strides(bias) == [0, 3136, 64, 1]


@pytest.mark.parametrize("inference", [False, True])
def test_padded_rows_of_a_mask_of_keys(inference: bool) -> None:
    def make(w: Written) -> Any:
        padded = w.call(aten.constant_pad_nd.default, w.input(4, 1, 1, 49, dtype=HALF), [0, 15])
        return w.call(aten.expand.default, w.call(aten.slice.Tensor, padded, 3, 0, 49), [4, 3, 49, 49])

    (bias,) = given(make, inference=inference)
    assert strides(bias) == [64, 0, 0, 1]


@pytest.mark.parametrize("inference", [False, True])
def test_what_does_not_vary_along_keys_is_laid_out_along_them(inference: bool) -> None:
    """A mask of queries, seen by all keys: kernels read along keys."""

    def make(w: Written) -> Any:
        spread = w.call(aten.expand.default, w.call(aten.sin.default, w.input(4, 1, 49, 1, dtype=HALF)), [4, 1, 49, 49])
        dense = w.call(aten.clone.default, spread, memory_format=torch.contiguous_format)
        return w.call(aten.expand.default, dense, [4, 3, 49, 49])

    (bias,) = given(make, kernel=aten._scaled_dot_product_cudnn_attention.default, inference=inference)
    assert strides(bias) == [2401, 0, 49, 1]


def test_all_calls_share_it() -> None:
    first, second = given(lambda w: expanded(w, 1, 3, 49, 49), calls=2)
    assert first == second


def test_one_in_memory_stays_there() -> None:
    (bias,) = given(lambda w: w.call(aten.expand.default, w.input(1, 3, 49, 49, dtype=HALF), [4, 3, 49, 49]))
    assert bias.buffer.startswith("input") and strides(bias)[0] == 0
