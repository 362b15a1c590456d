"""Heads that are copied before attention are read in place, and the result is what it was."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

from stoker.passes.strided import read_in_place
from tests.unit.passes.devices import CPU, GPU, Written

aten = torch.ops.aten
CUDNN = aten._scaled_dot_product_cudnn_attention.default
ON_CPU = aten._scaled_dot_product_flash_attention_for_cpu.default


def heads(w: Written, x: Any, start: int = 0, width: int = 32) -> Any:
    part = w.call(aten.slice.Tensor, x, 2, start, start + width)
    turned = w.call(aten.transpose.int, w.call(aten.view.default, part, [2, 6, 4, width // 4]), 1, 2)
    return w.call(aten.clone.default, turned, memory_format=torch.contiguous_format)


def attention(w: Written, kernel: Any, x: Any, *rest: Any) -> Any:
    made = w.call(kernel, *(heads(w, x, start) for start in (0, 32, 64)), *rest)
    return w.call(operator.getitem, made, 0)


def targets(w: Written) -> list[Any]:
    return [node.target for node in w.graph.nodes if node.op == "call_function"]


def test_copies_go_and_the_result_lies_as_the_query_does() -> None:
    w = Written()
    x = w.input(2, 6, 96, dtype=torch.float16, device=GPU)
    turned = w.call(aten.transpose.int, attention(w, CUDNN, x, None, False), 1, 2)
    dense = w.call(aten.clone.default, turned, memory_format=torch.contiguous_format)
    w.output(w.call(aten.view.default, dense, [2, 6, 32]))
    assert read_in_place(w.graph) == 3
    assert targets(w).count(aten.clone.default) == 1
    assert dense.args[0].meta["val"].meta.strides == dense.meta["val"].meta.strides  # so that the copy is none


def test_whoever_sees_strides_sees_the_old() -> None:
    w = Written()
    made = attention(w, CUDNN, w.input(2, 6, 96, dtype=torch.float16, device=GPU), None, False)
    strides = made.meta["val"].meta.strides
    module = w.output(made, w.call(aten.exp.default, made))
    assert read_in_place(w.graph) == 3
    first, second = module.graph.output_node().args[0]
    assert first.target is aten.clone.default and first.meta["val"].meta.strides == strides
    assert second.meta["val"].meta.strides == strides


@pytest.mark.parametrize("form", ["odd heads", "odd offset", "expanded"])
def test_copies_that_kernels_need_stay(form: str) -> None:
    w = Written()
    x = w.input(2, 6, 100, dtype=torch.float16, device=GPU)
    if form == "odd heads":
        given = [heads(w, x, start, 20) for start in (0, 20, 40)]
    elif form == "odd offset":
        given = [heads(w, x, 4), heads(w, x, 4), heads(w, x, 4)]
    else:
        one = w.input(2, 1, 6, 8, dtype=torch.float16, device=GPU)
        many = w.call(aten.expand.default, one, [2, 4, 6, 8])
        given = [w.call(aten.clone.default, many, memory_format=torch.contiguous_format) for _ in range(3)]
    w.output(w.call(operator.getitem, w.call(CUDNN, *given, None, False), 0))
    before = targets(w)
    assert read_in_place(w.graph) == 0 and targets(w) == before


def test_values() -> None:
    """By the processor's kernel, which runs here."""
    w = Written()
    x = w.input(2, 6, 96, device=CPU)
    made = attention(w, ON_CPU, x)
    turned = w.call(aten.clone.default, w.call(aten.transpose.int, made, 1, 2), memory_format=torch.contiguous_format)
    module = w.output(turned, w.call(aten.exp.default, made))
    given = torch.randn(2, 6, 96)
    wanted = module(given)
    assert read_in_place(w.graph, frozenset({ON_CPU})) == 3
    module.recompile()
    for found, right in zip(module(given), wanted, strict=True):
        torch.testing.assert_close(found, right)
        assert found.stride() == right.stride()
