"""The questions of flow.py on small functions."""

import pytest

from stoker.bytecode import build, decode, live_cells, live_locals, loops, reachable, stack_depth, stack_depths
from tests.unit.bytecode import writing


def where(instructions, name, value=None, nth=0):
    found = [
        place for place, each in enumerate(instructions) if each.name == name and (value is None or each.value == value)
    ]
    return found[nth]


def test_depths_before_each_instruction():
    code = [*build.load_const(1), *build.load_const(2), *writing.binary("+"), *build.return_value()]
    assert stack_depths(code) == [0, 1, 2, 1]
    assert stack_depth(code) == 2


def test_unreachable_code_has_no_depth():
    code = [*writing.return_const(1), *build.pop_top()]
    assert stack_depths(code) == [0, 1, None]
    assert reachable(code) == [True, True, False]


def test_handlers_start_at_their_depth():
    def f(a):
        for x in a:
            try:
                x()
            except ValueError:
                a = x

    instructions = decode(f.__code__)
    handler = instructions[where(instructions, "CALL")].handler
    assert stack_depths(instructions)[instructions.index(handler.target)] == handler.depth + 1 == 2


def test_generators_resume_with_a_value():
    def f():
        yield 1

    instructions = decode(f.__code__)
    start = where(instructions, "RETURN_GENERATOR")
    assert stack_depths(instructions)[start : start + 3] == [0, 1, 0]


def test_live_locals_in_a_straight_line():
    def f(a, b):
        c = a + b
        b = c
        return b * 2

    instructions = decode(f.__code__)
    live = live_locals(instructions)
    assert live[0] == {"a", "b"}
    assert live[where(instructions, "STORE_FAST", "c")] == set()
    assert live[where(instructions, "LOAD_FAST", "c")] == {"c"}
    assert live[where(instructions, "RETURN_VALUE")] == set()


def test_live_locals_round_a_loop():
    def f(items, total, unused):
        for item in items:
            total = total + item
        return total

    instructions = decode(f.__code__)
    live = live_locals(instructions)
    assert live[0] == {"items", "total"}
    assert live[where(instructions, "FOR_ITER")] == {"total"}
    assert live[where(instructions, "STORE_FAST", "total")] == set()


def test_a_handler_keeps_locals_alive():
    def f(a, b):
        try:
            b = a()
        except ValueError:
            return b
        return 1

    instructions = decode(f.__code__)
    assert live_locals(instructions)[where(instructions, "CALL")] == {"b"}
    assert "b" in live_locals(instructions)[where(instructions, "STORE_FAST", "b")]


def test_deleting_is_a_read():
    code = [*build.delete_fast("x"), *writing.return_const(None)]
    assert live_locals(code) == [{"x"}, set(), set()]


def test_live_cells_are_apart():
    def f(a, b):
        g = [lambda: a]
        b = g
        return b[0]

    instructions = decode(f.__code__)
    assert live_cells(instructions)[where(instructions, "RESUME")] == {"a"}
    assert live_cells(instructions)[where(instructions, "STORE_FAST", "b")] == set()
    assert "a" not in live_locals(instructions)[where(instructions, "RESUME")]


def test_loops():
    def f(items):
        first = 1
        for item in items:
            while item:
                item = len(item)
        last = 2
        return first + last

    instructions = decode(f.__code__)
    inside = loops(instructions)
    assert not inside[where(instructions, "STORE_FAST", "first")]
    assert not inside[where(instructions, "GET_ITER")]
    assert inside[where(instructions, "FOR_ITER")]
    assert inside[where(instructions, "CALL")]
    assert not inside[where(instructions, "STORE_FAST", "last")]


def test_a_loop_of_one():
    top = writing.nop()
    spin = build.jump(top[0])
    spin[0].value = spin[0]
    assert loops([*top, *spin]) == [False, True]


def test_a_long_way_is_no_burden():
    top = writing.nop()
    straight = [each for _ in range(50_000) for each in writing.nop()]
    assert loops([*straight, *top, *build.jump(top[0])]) == [False] * 50_000 + [True, True]


def test_nothing():
    assert stack_depths([]) == reachable([]) == live_locals([]) == loops([]) == []


def test_the_wrong_order_is_named():
    with pytest.raises(ValueError, match="POP_TOP"):
        stack_depths([*build.pop_top(), *writing.return_const(1)])
