"""Buffers that are alive together never overlap, and the arena is no larger than it must be for simple lives."""

from __future__ import annotations

import itertools
import weakref
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.fx import GraphModule

import stoker
from stoker import _C
from stoker.autograd import aot
from stoker.loop.layout import Layout, contiguous
from stoker.pipeline import compile_graph
from stoker.schedule import memory
from stoker.schedule.memory import Life, _arranged
from stoker.schedule.plan import make_plan
from stoker.schedule.step import Free, Library
from stoker.shape.expr import constant, symbol
from stoker.shape.walk import evaluate
from tests.unit.schedule.plans import TARGETS, lowered

spans = st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 5), st.booleans()), max_size=12)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no finding
@given(spans)
def test_no_overlap(given_spans: list[tuple[int, int, int, bool]]) -> None:
    n = symbol("n")
    lives = []
    for number, (a, b, size, symbolic) in enumerate(given_spans):
        bytes_ = constant(64 * size) * (n if symbolic else 1)
        lives.append(Life(f"b{number}", min(a, b), max(a, b), bytes_))
    shape = (constant(1),)
    layout = Layout(torch.float32, torch.device("cpu"), shape, contiguous(shape))
    arena = _arranged(lives, {life.buffer: layout for life in lives}, torch.device("cpu"))
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
    assert _arranged(lives, {life.buffer: layout for life in lives}, torch.device("cpu")).size_bytes.value == 64


def test_inputs_that_nobody_needs_are_freed_after_their_last_use() -> None:
    program = lowered(lambda x, y: ((x @ x).relu() @ y,), [torch.randn(600, 600), torch.randn(600, 600)])
    plan = make_plan(program, TARGETS, owns_inputs=True)
    assert plan.takes_list
    first = next(k for k, s in enumerate(plan.steps) if isinstance(s, Library))
    assert plan.steps[first + 1] == Free("input0")
    assert plan.steps[-1] == Free("input1")
    assert not any(isinstance(s, Free) for s in make_plan(program, TARGETS).steps)


def test_small_inputs_are_held() -> None:
    program = lowered(lambda x: (x @ x,), [torch.randn(6, 6)])
    assert not make_plan(program, TARGETS, owns_inputs=True).takes_list


def test_the_executor_empties_the_list_and_frees() -> None:
    """Nothing holds an input after the call but the caller."""
    module = torch.fx.symbolic_trace(lambda x, y: ((x @ x) @ y,))
    alive: list[bool] = []
    made: list[Any] = []

    def compile_one(graph: GraphModule, fakes: list[Any]) -> Any:
        made.append(compile_graph(graph, fakes, owns_inputs=True))
        return graph.forward

    x, y = torch.randn(600, 600), torch.randn(600, 600)
    aot(module, [x, y], forward_compiler=compile_one)
    (compiled,) = made
    assert compiled._boxed_call
    expected, given = x @ x @ y, [x, y]
    weakref.finalize(x, lambda: alive.append(False))
    del x
    (found,) = compiled(given)
    assert given == []
    assert alive == [False]
    torch.testing.assert_close(found, expected)
    with pytest.raises(TypeError, match="in one list"):
        compiled(y, y)


def _allocations(call: Any) -> list[int]:
    """The bytes of torch's allocations during a call, in their order; of what is freed, below 0."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        call()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    return [e.nbytes() for e in sorted(events, key=lambda e: e.start_ns())]


def _most_allocated(call: Any) -> int:
    return max(_allocations(call), default=0)


def test_the_executor_frees_what_a_library_call_was_given() -> None:
    """Before the next allocation, not with the next such call."""
    stoker.reset()
    x = torch.randn(1024, 1024)
    function = stoker.compile(lambda x: torch.fft.fft(x).real.sum(0)[:, None] * x.sum(0), fullgraph=True)
    with torch.no_grad():
        for _ in range(2):
            function(x)
        most = max(itertools.accumulate(_allocations(lambda: function(x))))
    spectrum, result = 8 << 20, 4 << 20
    assert spectrum <= most < spectrum + result


def test_one_arena_serves_plans_that_never_run_at_once() -> None:
    """A larger plan's arena takes the place of a smaller one's, and serves both; a reset lets go of it."""
    stoker.reset()
    small, large = torch.randn(64, 64), torch.randn(256, 256)
    function = stoker.compile(lambda x: (torch.relu(x @ x) @ x).sum(), dynamic=False)
    with torch.no_grad():
        for x in (small, large, small, large):
            function(x)
        assert _most_allocated(lambda: function(small)) < 64 * 64 * 4
        assert _most_allocated(lambda: function(large)) < 256 * 256 * 4
        _C.release_arenas()
        assert _most_allocated(lambda: function(large)) >= 256 * 256 * 4
        assert _most_allocated(lambda: function(small)) < 64 * 64 * 4


def test_an_arena_is_smaller_where_it_would_be_held_beside_a_large_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four buffers live together before the result is made, of which one is left then."""
    monkeypatch.setattr(memory, "LARGE_RESULT", 1 << 12)
    monkeypatch.setattr(memory, "WORTH_FREEING", 1 << 10)

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor]:
        a, b = x @ x, x @ x.t()
        return ((a @ b + (b @ a) @ (a @ x)) @ w,)

    small = {device: replace(t, largest_in_arena=1 << 12) for device, t in TARGETS.items()}
    for width, inside in ((32, True), (1024, False)):
        plan = make_plan(lowered(program, [torch.randn(32, 32), torch.randn(32, width)]), small)
        size = sum(arena.size_bytes.value or 0 for arena in plan.arenas)
        assert (size > 1 << 12) is inside


WRITTEN_PARTS = {
    "select": lambda x, i: x[i],
    "slice": lambda x, i: x[i:] if isinstance(i, int) else x,
    "diagonal": lambda x, i: x.diagonal(i),
    "strided": lambda x, i: x.as_strided((2, 2), (1, 3), i),
}


@pytest.mark.parametrize("name", WRITTEN_PARTS)
def test_a_gradient_holds_no_memory_but_its_own(name: str) -> None:
    """Operators that write into a part of a copy copy all that a tensor lies in."""

    def loss(x: torch.Tensor, y: torch.Tensor, i: int) -> torch.Tensor:
        return (WRITTEN_PARTS[name](x * y, i).exp() * 2).sum()

    compiled = stoker.compile(loss, dynamic=True)
    for size, i in ((6, 1), (5, 2), (7, 0), (9, 3)):
        found = []
        for function in (compiled, loss):
            torch.manual_seed(0)
            x, y = (torch.randn(size, size, requires_grad=True) for _ in range(2))
            function(x, y, i).backward()
            found.append([x.grad, y.grad])
        torch.testing.assert_close(*found)
        for gradient in found[0]:
            assert gradient.untyped_storage().nbytes() == gradient.numel() * gradient.itemsize


def test_rows_chosen_in_turn_have_gradients_of_their_own_size() -> None:
    def chain(rows: torch.Tensor) -> torch.Tensor:
        state = rows[0] * 2
        for i in range(1, rows.shape[0]):
            state = state.sin() * rows[i]
        return state.sum()

    compiled = stoker.compile(chain)
    for length in (4, 6, 3):
        rows = torch.randn(length, 2, 4, requires_grad=True)
        compiled(rows).backward()
        assert rows.grad is not None
        assert (rows.grad.storage_offset(), rows.grad.untyped_storage().nbytes()) == (0, length * 32)
