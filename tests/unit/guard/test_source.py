"""Every kind of source: Python finds what the guard program's accessor finds, and its text says how to get there."""

from __future__ import annotations

import collections
import math
import weakref
from typing import Any

import pytest
import torch

from stoker import _C
from stoker.guard import source as sources
from stoker.guard.guard import Guard, Holds
from stoker.guard.program import compile_guards, slots_needed
from stoker.guard.source import (
    Asked,
    Attribute,
    CallPoint,
    CellContents,
    Closure,
    DictItem,
    DictKey,
    Fixed,
    FunctionCell,
    FunctionDefaults,
    FunctionKeywordDefaults,
    Globals,
    InstanceDict,
    Item,
    Local,
    Looked,
    MethodFunction,
    MethodSelf,
    Referent,
    Remembered,
    Size,
    Slot,
    Source,
    Stride,
    TypeOf,
    follow,
    root_of,
)


class Slotted:
    __slots__ = ("field", "__weakref__")


class Thing:
    def __init__(self) -> None:
        self.weight = torch.ones(3, 5)
        self.slotted = Slotted()
        self.slotted.field = 7

    def method(self) -> Thing:
        return self


def closed_over(inner: Any) -> Any:
    def function(a: Any, b: int = 1, *, c: int = 2) -> Any:
        return a, b, c, inner

    return function


def held(table: Any, key: Any) -> Any:
    return table.get(key, "none")


THING = Thing()
FUNCTION = closed_over("inside")
BOUND = [THING, {"k": [1, (2, 3)], 4: "four"}, FUNCTION, THING.method, weakref.ref(THING), collections.deque([5, 6])]
AT = CallPoint(BOUND, FUNCTION)
thing, table, function, method, reference, queue = (
    Local(index, name) for index, name in enumerate(("thing", "table", "function", "method", "reference", "queue"))
)

FOUND: dict[Source, tuple[str, Any]] = {
    thing: ("thing", THING),
    Globals(): ("globals()", globals()),
    Closure(0, "inner"): ("inner", "inside"),
    Fixed(math, "math"): ("math", math),
    Attribute(thing, "__class__"): ("thing.__class__", Thing),
    InstanceDict(thing): ("thing.__dict__", THING.__dict__),
    DictItem(InstanceDict(thing), "weight"): ("thing.weight", THING.weight),
    DictItem(table, "k"): ("table['k']", BOUND[1]["k"]),
    DictItem(Globals(), "THING"): ("THING", THING),
    DictKey(table, 1): ("list(table)[1]", 4),
    Item(DictItem(table, "k"), 1): ("table['k'][1]", (2, 3)),
    Item(Item(DictItem(table, "k"), 1), 0): ("table['k'][1][0]", 2),
    Item(queue, 1): ("queue[1]", 6),
    TypeOf(thing): ("type(thing)", Thing),
    FunctionCell(function, 0): ("function.__closure__[0]", FUNCTION.__closure__[0]),
    CellContents(FunctionCell(function, 0)): ("function.__closure__[0].cell_contents", "inside"),
    FunctionDefaults(function): ("function.__defaults__", (1,)),
    FunctionKeywordDefaults(function): ("function.__kwdefaults__", {"c": 2}),
    MethodSelf(method): ("method.__self__", THING),
    MethodFunction(method): ("method.__func__", Thing.method),
    Referent(reference): ("reference()", THING),
    Size(DictItem(InstanceDict(thing), "weight"), 1): ("thing.weight.shape[1]", 5),
    Stride(DictItem(InstanceDict(thing), "weight"), 0): ("thing.weight.stride(0)", 5),
    Slot(DictItem(InstanceDict(thing), "slotted"), Slotted.field): ("thing.slotted.field", 7),
    Asked(table, len): ("len of table", 2),
    Looked(DictKey(table, 1), table): ("table[list(table)[1]]", "four"),
    Remembered(table, held, (DictKey(table, 1),), "list(table)[1]"): ("table[list(table)[1]]", "four"),
    Remembered(table, held, (Item(Remembered(table, held, (DictKey(table, 0),), "k"), 0),), "list(table)[0][0]"): (
        "table[list(table)[0][0]]",
        "none",
    ),
}


def fetched(source: Source) -> Any:
    """What the guard program puts into the slot of a source."""
    always = Guard(source, Holds(lambda now: True, "is there"))
    program = compile_guards([always], [source, *slots_needed([always])], None, (_C.torch_state(), 0))
    return program.check(AT.bound, AT.function)


@pytest.mark.parametrize("source", FOUND, ids=lambda source: source.text)
def test_follow(source: Source) -> None:
    text, expected = FOUND[source]
    found = follow(source, AT)
    assert source.text == text
    assert found is expected or found == expected
    if not isinstance(source, (Size, Stride)):  # sizes are read from tensors by the programs of the shape engine
        slot, *_ = fetched(source)
        assert slot is found or slot == found


def test_every_kind_is_tried() -> None:
    kinds = {kind for kind in vars(sources).values() if isinstance(kind, type) and issubclass(kind, Source)}
    assert kinds - {Source} == {type(source) for source in FOUND}


@pytest.mark.parametrize(
    "source",
    [
        Local(9, "absent"),
        Looked(DictKey(table, 0), table),
        DictItem(table, "absent"),
        Item(queue, 7),
        FunctionCell(function, 3),
        Attribute(thing, "absent"),
        DictItem(thing, "weight"),
        CellContents(thing),
    ],
    ids=lambda source: source.text,
)
def test_what_is_gone_is_a_failed_guard(source: Source) -> None:
    with pytest.raises(LookupError, match="is gone"):
        follow(source, AT)
    assert fetched(source) == 0


def test_equality_never_asks_the_user() -> None:
    class Quarrelsome:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        __hash__ = object.__hash__

    key = Quarrelsome()
    assert Fixed(key, "a") == Fixed(key, "b")
    assert Fixed(key, "a") != Fixed(Quarrelsome(), "a")
    assert DictItem(table, 1) != DictItem(table, True)
    assert DictItem(table, "k") == DictItem(Local(1, "another name"), "k")


def test_root() -> None:
    assert root_of(Item(Item(DictItem(table, "k"), 1), 0)) is table


def test_keys_that_are_objects_are_told_apart_without_being_shown() -> None:
    """Two tensors may look alike, and to look at one that is on a device costs a copy."""

    class Shown:
        def __repr__(self) -> str:
            raise AssertionError("nobody asks")

    first, second = Shown(), Shown()
    texts = [DictItem(Local(0, "d"), key).text for key in (first, second, (first, 1), "k", 3, None)]
    assert len(set(texts)) == len(texts)
    assert texts[3:] == ["d['k']", "d[3]", "d[None]"]
