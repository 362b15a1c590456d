"""From guards to one program: prefixes merged, cheap checks first, a failure reported by its number."""

from __future__ import annotations

from typing import Any

import pytest

from stoker import _C
from stoker.guard.guard import Equals, Guard, HasKey, Holds, HoldsTogether, Length, NotSameAs, SameAs, TypeIs
from stoker.guard.program import compile_guards, slots_needed
from stoker.guard.source import DictItem, Item, Local, Looked, Source

xs, ys, table = Local(0, "xs"), Local(1, "ys"), Local(2, "table")


def plain() -> None:
    return None


def check(guards: list[Guard], bound: list[Any], slots: list[Source] | None = None) -> Any:
    return compile_guards(guards, slots or [], None, (_C.torch_state(), 99)).check(bound, plain)


def test_the_number_of_the_guard_that_fails() -> None:
    guards = [Guard(xs, TypeIs(list)), Guard(xs, Length(2)), Guard(Item(xs, 1), Equals(5))]
    assert check(guards, [[4, 5]]) == ()
    assert check(guards, [(4, 5)]) == 0
    assert check(guards, [[4, 5, 6]]) == 1
    assert check(guards, [[4, 6]]) == 2


def test_cheap_checks_come_first() -> None:
    asked: list[Any] = []

    def expensive(now: Any) -> bool:
        asked.append(now)
        return True

    guards = [Guard(xs, Holds(expensive, "is asked")), Guard(xs, TypeIs(list))]
    assert check(guards, [(1,)]) == 1
    assert asked == []


@pytest.mark.parametrize("wrong", [None, 3, "text", {"k": 1}, object()], ids=lambda value: type(value).__name__)
def test_an_accessor_that_meets_another_type_fails_as_a_guard(wrong: Any) -> None:
    guards = [Guard(xs, TypeIs(list)), Guard(Item(Item(xs, 0), 0), Equals(1))]
    assert check(guards, [[[1]]]) == ()
    assert check(guards, [wrong]) == 0
    assert check(guards, [[wrong]]) == 1


def test_a_prefix_is_followed_once() -> None:
    followed: list[Any] = []

    def seen(now: Any) -> bool:
        followed.append(now)
        return True

    guards = [Guard(xs, Holds(seen, "is seen")), *(Guard(Item(xs, i), Equals(i)) for i in range(4))]
    assert check(guards, [[0, 1, 2, 3]]) == ()
    assert len(followed) == 1


def test_slots_receive_what_is_found() -> None:
    inner = Item(DictItem(table, "k"), 0)
    found = check([Guard(table, HasKey("k"))], [None, None, {"k": ["it"]}], [inner, table])
    assert found == ("it", {"k": ["it"]})


def test_following_a_key_stands_for_having_it() -> None:
    guards = [Guard(table, HasKey("k")), Guard(DictItem(table, "k"), Equals(1))]
    assert check(guards, [None, None, {"k": 1}]) == ()
    assert check(guards, [None, None, {}]) == 1


def test_comparisons_refer_to_slots_and_come_last() -> None:
    guards = [Guard(ys, SameAs(xs)), Guard(table, NotSameAs((xs, ys))), Guard(xs, TypeIs(list))]
    slots = slots_needed(guards)
    assert slots == [xs, ys]
    one: list[int] = []
    assert check(guards, [one, one, {}], slots) == (one, one)
    assert check(guards, [one, [], {}], slots) == 0
    assert check(guards, [one, one, one], slots) == 1
    assert check(guards, [(), (), {}], slots) == 2


def test_a_question_about_several_objects() -> None:
    inner = Item(ys, 0)
    guards = [Guard(xs, HoldsTogether(lambda a, b, c: a < b < c, "answers", (inner, table))), Guard(xs, TypeIs(int))]
    slots = slots_needed(guards)
    assert slots == [inner, table]
    program = compile_guards(guards, slots, None, (_C.torch_state(), 99))
    for _ in range(2):  # along the trail, too
        assert program.check([1, [2], 3], plain) == (2, 3)
        assert program.check([1, [0], 3], plain) == 0
        assert program.check([1, [2], 2], plain) == 0
        assert program.check([1, [2], "text"], plain) == 0
        assert program.check([1.0, [2], 3], plain) == 1
    assert guards[0].text == "xs answers, with ys[0], table"


def test_a_slot_that_is_not_there() -> None:
    check = (_C.CHECKS["PYTHON"], (lambda a, b: True, 1), 0)
    with pytest.raises(ValueError, match="slot that does not exist"):
        _C.GuardProgram([(_C.ACCESSORS["LOCAL"], 0, [check], [], -1)], 1)


def test_a_look_up_under_a_key_from_elsewhere() -> None:
    place = Looked(Item(xs, 0), table)
    guards = [Guard(Item(place, 1), Equals(5)), Guard(place, TypeIs(list))]
    slots = [*slots_needed(guards), place]
    assert slots == [table, place]
    program = compile_guards(guards, slots, None, (_C.torch_state(), 99))
    held = {7: [4, 5], 8: [4, 5], 9: [4, 6], 10: (4, 5)}
    for _ in range(2):  # along the trail, too
        assert program.check([[7], None, held], plain) == (held, held[7])
        assert program.check([[8], None, held], plain)[1] is held[8]
        assert program.check([[9], None, held], plain) == 0
        assert program.check([[10], None, held], plain) == 1
        for key in (11, "7", 7.0, True):
            assert program.check([[key], None, held | {True: [4, 5]}], plain) in (0, 1), key
    assert place.text == "table[xs[0]]"
