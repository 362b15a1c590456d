"""What is computed on the processor for the device alone is computed there."""

from __future__ import annotations

import torch

from stoker.passes.detour import MOST_ELEMENTS, straighten
from tests.unit.passes.devices import CPU, GPU, Written, devices

aten = torch.ops.aten


def test_a_value_made_on_the_processor() -> None:
    w = Written()
    x = w.input(4, 4)
    made = w.call(aten.full.default, [4], 2.0, device=CPU)
    there = w.call(aten._to_copy.default, made, device=GPU)
    module = w.output(w.call(aten.mul.Tensor, x, there))
    assert straighten(module.graph) == 1
    assert devices(module) == {"cuda"}
    module.graph.lint()


def test_there_and_back() -> None:
    w = Written()
    lengths = w.input(4, dtype=torch.int64)
    here = w.call(aten._to_copy.default, lengths, device=CPU)
    positions = w.call(aten.arange.default, 4, device=CPU)
    mask = w.call(aten.lt.Tensor, positions, here)
    module = w.output(w.call(aten._to_copy.default, mask, dtype=torch.float32, device=GPU))
    assert straighten(module.graph) == 3
    assert devices(module) == {"cuda"}
    result = next(n for n in reversed(module.graph.nodes) if n.op == "call_function")
    assert result.meta["val"].dtype is torch.float32


def test_what_somebody_on_the_processor_reads_stays() -> None:
    w = Written()
    x = w.input(4)
    here = w.call(aten._to_copy.default, x, device=CPU)
    shown = w.call(aten.add.Tensor, here, 1)
    module = w.output(shown, w.call(aten._to_copy.default, shown, device=GPU))
    assert straighten(module.graph) == 0


def test_what_rounds_otherwise_stays() -> None:
    w = Written()
    x = w.input(4)
    here = w.call(aten._to_copy.default, x, device=CPU)
    angle = w.call(aten.sin.default, here)
    module = w.output(w.call(aten._to_copy.default, angle, device=GPU))
    assert straighten(module.graph) == 0


def test_an_input_on_the_processor_stays() -> None:
    w = Written()
    x, scale = w.input(4), w.input(device=CPU)
    twice = w.call(aten.mul.Tensor, scale, 2)
    module = w.output(w.call(aten.mul.Tensor, x, w.call(aten._to_copy.default, twice, device=GPU)))
    assert straighten(module.graph) == 0


def test_what_is_large_stays() -> None:
    w = Written()
    w.input(4)
    made = w.call(aten.full.default, [MOST_ELEMENTS + 1], 2.0, device=CPU)
    module = w.output(w.call(aten._to_copy.default, made, device=GPU))
    assert straighten(module.graph) == 0


def test_counting_in_floats_stays() -> None:
    w = Written()
    w.input(4)
    made = w.call(aten.arange.default, 4.0, device=CPU)
    module = w.output(w.call(aten._to_copy.default, made, device=GPU))
    assert straighten(module.graph) == 0


def test_several_devices() -> None:
    w = Written()
    w.input(4)
    w.input(4, device=torch.device("cuda", 1))
    made = w.call(aten.full.default, [4], 2.0, device=CPU)
    module = w.output(w.call(aten._to_copy.default, made, device=GPU))
    assert straighten(module.graph) == 0
