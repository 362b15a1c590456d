"""Buffers that are alive together never overlap, and the arena is no larger than it must be for simple lives."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from stoker.loop.layout import Layout, contiguous
from stoker.schedule.memory import Life, _arranged
from stoker.shape.expr import constant, evaluate, symbol

spans = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5), st.booleans()), max_size=12)


@given(spans)
def test_no_overlap(given_spans: list[tuple[int, int, int, bool]]) -> None:
    n = symbol("n")
    lives = []
    for number, (a, b, size, symbolic) in enumerate(given_spans):
        bytes_ = constant(64 * size) * (n if symbolic else 1)
        lives.append(Life(f"b{number}", min(a, b), max(a, b), bytes_))
    shape = (constant(1),)
    layout = Layout(torch.float32, torch.device("cpu"), shape, contiguous(shape))
    arena = _arranged(lives, {life.buffer: layout for life in lives})
    place = {name: evaluate(offset, {n: 3}) for name, offset, _ in arena.offsets}
    for x in lives:
        for y in lives:
            if x is not y and x.first <= y.last and y.first <= x.last:
                start, end = place[x.buffer], place[x.buffer] + evaluate(x.size_bytes, {n: 3})
                other = place[y.buffer]
                assert end <= other or other + evaluate(y.size_bytes, {n: 3}) <= start
    assert all(place[x.buffer] + evaluate(x.size_bytes, {n: 3}) <= evaluate(arena.size_bytes, {n: 3}) for x in lives)


def test_memory_is_used_again() -> None:
    shape = (constant(16),)
    layout = Layout(torch.float32, torch.device("cpu"), shape, contiguous(shape))
    lives = [Life(f"b{k}", k, k, constant(64)) for k in range(5)]
    assert _arranged(lives, {life.buffer: layout for life in lives}).size_bytes.value == 64
