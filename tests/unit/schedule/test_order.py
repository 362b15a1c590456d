"""Orders respect dependencies, and the one kept needs no more memory than the program's own."""

from __future__ import annotations

import itertools
from typing import Any

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.loop.layout import Layout, contiguous
from stoker.loop.node import Extern, Program
from stoker.loop.view import Stored
from stoker.schedule.order import Flow, flow_of, order, peak_bytes
from stoker.schedule.score import group
from stoker.shape.expr import constant, symbol
from tests.unit.schedule.plans import TARGETS, planned

Call = tuple[int, list[int], bool]
"""A library call: elements of its result, the results it reads (counted back from it), whether it draws random numbers."""

calls = st.lists(
    st.tuples(st.integers(1, 50), st.lists(st.integers(1, 8), max_size=3), st.booleans()), min_size=1, max_size=12
)


def _program(made: list[Call], outputs: set[int]) -> Program:
    program = Program()
    stored: list[Stored] = []
    for number, (elements, back, random) in enumerate(made):
        sizes = (constant(elements),)
        layout = Layout(torch.float32, torch.device("cpu"), sizes, contiguous(sizes))
        name = f"b{number}"
        program.layouts[name] = layout
        read = tuple(stored[number - k] for k in back if k <= number)
        program.nodes.append(Extern((name,), "call", read, {}, False, ordered=random))
        stored.append(Stored(name, layout.dtype, layout.device, layout.sizes, layout.strides))
    program.outputs += [stored[k] for k in sorted(outputs) if k < len(stored)]
    return program


@settings(max_examples=200, deadline=None)
@given(calls, st.sets(st.integers(0, 11), max_size=4), st.booleans())
def test_dependencies_and_peak(made: list[Call], outputs: set[int], outside: bool) -> None:
    program = _program(made, outputs)
    found = order(group(program, TARGETS), set(program.layouts) if outside else set())
    assert len(found.items) == len(program.nodes)
    assert set(map(id, found.items)) == set(map(id, program.nodes))
    assert found.peak_bytes <= found.program_peak_bytes
    place = {item.writes[0]: k for k, item in enumerate(found.items)}  # type: ignore[union-attr]
    for item in found.items:
        assert all(place[t.buffer] < place[item.writes[0]] for t in item.arguments)  # type: ignore[union-attr]
    drawn = [place[n.writes[0]] for n in program.nodes if n.ordered]  # type: ignore[union-attr]
    assert drawn == sorted(drawn)


@settings(max_examples=100, deadline=None)
@given(calls, st.sets(st.integers(0, 11), max_size=4))
def test_peak_is_what_lives(made: list[Call], outputs: set[int]) -> None:
    """The estimate, against adding up at each moment what was made and is still needed."""
    program = _program(made, outputs)
    flow = flow_of(group(program, TARGETS), set())
    sequence = list(flow.before)
    kept = {t.buffer for t in program.outputs}
    highest = 0
    for now, later in ((sequence[: k + 1], sequence[k:]) for k in range(len(sequence))):
        needed = kept | {t.buffer for n in later for t in program.nodes[n].arguments}  # type: ignore[union-attr]
        needed |= {b for b in (f"b{now[-1]}",) if any(b == t.buffer for n in program.nodes for t in n.arguments)}  # type: ignore[union-attr]
        highest = max(highest, sum(4 * made[n][0] for n in now if f"b{n}" in needed))
    assert peak_bytes(flow, sequence) == highest


def test_postpones_what_is_needed_last() -> None:
    """Four large values made at once and used one by one: each is made when it is used."""
    large, small = 1000, 1
    made: list[Call] = [(large, [], False)] * 4 + [(small, [4], False)] + [(small, [4, 1], False)] * 3
    program = _program(made, {7})
    found = order(group(program, TARGETS), set())
    assert found.name != "program"
    assert found.program_peak_bytes >= 4 * 4 * large
    assert found.peak_bytes <= 2 * 4 * large


def test_symbolic_sizes_are_estimated() -> None:
    program = _program([(5, [], False), (5, [1], False)], {1})
    n = symbol("n")
    layout = Layout(torch.float32, torch.device("cpu"), (n * 2,), (constant(1),))
    program.layouts["b0"] = layout
    assert order(group(program, TARGETS), set()).peak_bytes > 4 * 5 * 2


def test_the_kept_order_is_in_the_plan() -> None:
    def program(x: Any) -> Any:
        made = [torch.linalg.inv(x + k) for k in range(4)]
        total = made[0].sum()
        for value in made[1:]:
            total = total * value.sum()
        return (total,)

    plan = planned(program, torch.eye(32))
    name, peak, own = plan.order
    assert peak <= own
    assert name in ("program", "early", "late", "greedy")


def _all_orders(flow: Flow) -> list[list[int]]:
    return [
        list(p)
        for p in itertools.permutations(flow.before)
        if all(p.index(b) < p.index(n) for n, earlier in flow.before.items() for b in earlier)
    ]


@settings(max_examples=30, deadline=None)
@given(calls.map(lambda c: c[:6]), st.sets(st.integers(0, 5), max_size=2))
def test_never_below_the_least_possible(made: list[Call], outputs: set[int]) -> None:
    flow = flow_of(group(_program(made, outputs), TARGETS), set())
    least = min(peak_bytes(flow, sequence) for sequence in _all_orders(flow))
    found = order(group(_program(made, outputs), TARGETS), set())
    assert least <= found.peak_bytes
