"""What a CUDA graph cannot hold stands apart: before the rest where it can, and with a reason."""

from __future__ import annotations

import operator

import torch

from stoker.passes.cut import cut
from stoker.passes.recordable import draws_numbers, obstacle
from tests.unit.passes.devices import CPU, GPU, Written

aten = torch.ops.aten


def is_apart(node: torch.fx.Node) -> bool:
    return obstacle(node) is not None


def test_reasons() -> None:
    w = Written()
    x, scale = w.input(4, 4), w.input(device=CPU)
    assert obstacle(x) is None and obstacle(scale) is None
    assert obstacle(w.call(aten.add.Tensor, x, 1)) is None
    assert "processor" in str(obstacle(w.call(aten.mul.Tensor, x, scale)))
    assert "processor" in str(obstacle(w.call(aten._to_copy.default, x, device=CPU)))
    assert "waits" in str(obstacle(w.call(aten.linalg_cholesky_ex.default, x)))
    drawn = w.call(aten.rand.generator, [4], generator=torch.Generator(), device=GPU)
    assert "generator" in str(obstacle(drawn))


def test_who_draws() -> None:
    w = Written()
    x = w.input(2, 4, 8, 16, dtype=torch.float16)
    attention = aten._scaled_dot_product_flash_attention.default
    assert draws_numbers(w.call(aten.rand_like.default, x))
    assert draws_numbers(w.call(aten.native_dropout.default, x, 0.5, True))
    assert draws_numbers(w.graph.call_function(attention, (x, x, x, 0.1)))
    assert not draws_numbers(w.graph.call_function(attention, (x, x, x, 0.0, True)))
    assert not draws_numbers(w.graph.call_function(attention, (x, x, x)))
    assert not draws_numbers(w.graph.call_function(attention, (x, x, x), {"scale": 0.5}))
    assert not draws_numbers(w.call(aten.sin.default, x))


def test_inputs_are_brought_before_the_rest() -> None:
    """One piece is recorded, not two: what the processor gives is copied first."""
    w = Written()
    x, scale = w.input(4, 4), w.input(device=CPU)
    first = w.call(aten.sin.default, x)
    there = w.call(aten._to_copy.default, scale, device=GPU)
    pieces = cut(w.output(w.call(aten.mul.Tensor, first, there)), is_apart)
    assert pieces is not None and [p.hosted for p in pieces] == [True, False]


def test_a_step_in_the_middle_is_split_around() -> None:
    w = Written()
    x = w.input(4, 4)
    square = w.call(aten.mm.default, x, x)
    root = w.call(aten.linalg_cholesky_ex.default, square)
    lower = w.call(operator.getitem, root, 0)
    pieces = cut(w.output(w.call(aten.add.Tensor, lower, 1)), is_apart)
    assert pieces is not None and [p.hosted for p in pieces] == [False, True, False]


def test_what_is_shown_is_copied_last() -> None:
    w = Written()
    x = w.input(4, 4)
    y = w.call(aten.sin.default, x)
    z = w.call(aten.cos.default, y)
    pieces = cut(w.output(w.call(aten._to_copy.default, y, device=CPU), z), is_apart)
    assert pieces is not None and [p.hosted for p in pieces] == [False, True]


def test_nothing_to_cut() -> None:
    w = Written()
    x = w.input(4, 4)
    assert cut(w.output(w.call(aten.sin.default, x)), is_apart) is None
