"""Text from outside that is another in each call: handed on or shown it costs no version for each, looked at it is fixed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker import log


class Thing:
    def __init__(self, name):
        self.name, self.names = name, [name, "last"]


GLOBAL = "first"


def given_back(x, name, thing):
    return x + 1, name, [name, (name,)], {"name": name, "thing": thing.name}


def kept(x, name, thing):
    thing.other = name
    thing.names.append(name)
    return x + 1


def shown(x, name, thing):
    print(name, f"{thing.name!r:>12} has {x.shape}", "{}-{}".format(name, 3))
    return x + 1


def asked_for_its_kind(x, name, thing):
    return x + 1 if isinstance(name, str) and name is not None and type(name) is str else x - 1


def replaced(x, name, thing):
    """What was read before a change is what it was."""
    was, first = thing.name, thing.names[0]
    thing.name, thing.names[0] = "changed", "changed"
    return x + 1, was, first, thing.name, thing.names


class Shared:
    mode = "first"


class Derived(Shared):
    pass


def on_a_class(x, name, thing):
    """Of the class, through an instance, and through a class derived of it."""
    return x + 1, Shared.mode, Derived.mode, Derived().mode, f"{Shared.mode}!"


def put_together(x, name, thing):
    return x + 1, name + ".weight", "layers." + thing.name, name + thing.name


def global_replaced(x, name, thing):
    global GLOBAL
    was, GLOBAL = GLOBAL, name
    return x + 1, was


def made_by_a_break(x, name, thing):
    y = x + 1
    told = time.strftime(name)
    return y * 2, told


HANDED_ON = [given_back, kept, shown, asked_for_its_kind, replaced, global_replaced, on_a_class, put_together]
LOOKED_AT: list[Callable[..., Any]] = [
    lambda x, name, thing: x + 1 if Shared.mode == "mode 2" else x - len(Derived.mode),
    lambda x, name, thing: x + 1 if name + "!" == "name 2!" else {name + thing.name: x},
    lambda x, name, thing: {name: x + 1},
    lambda x, name, thing: (x + len(name), name.upper(), name + "a", name * 2, name[0], name[-1:]),
    lambda x, name, thing: x + 1 if name == "name 2" or name in ("name 3", "name 4") else x - 1,
    lambda x, name, thing: (x + 1 if name else x, name > "name 2", "2" in name, hash(name) == hash("name 2")),
    lambda x, name, thing: (x + int(name[-1]), [*name], sorted([name, "name 1"]), max(name, "name 3")),
    lambda x, name, thing: (x + 1, getattr(thing, "name" if thing.name == name else "names"), "%s" % name),
    lambda x, name, thing: (x + 1, ", ".join([name, "b"]), name.format(3), name.encode(), f"{name}" == "name 1"),
]


def outcome(function: Callable[..., Any], number: int, capture: pytest.CaptureFixture[str]) -> Any:
    global GLOBAL
    GLOBAL, Shared.mode = f"global {number}", f"mode {number}"
    thing = Thing(f"thing {number}")
    found = function(torch.ones(2), f"name {number}", thing)
    thing_now = {key: str(value) for key, value in vars(thing).items()}
    shown_now = str(found).replace(hex(id(thing)), "thing")
    return shown_now, thing_now, GLOBAL, capture.readouterr().out


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("program", [*HANDED_ON, made_by_a_break, *LOOKED_AT])
def test_as_in_eager(program: Any, dynamic: bool | None, capsys: Any) -> None:
    compiled = stoker.compile(program, backend="aot_eager", dynamic=dynamic)
    for number in (1, 2, 3, 1, 4, 5, 2):
        assert outcome(compiled, number, capsys) == outcome(program, number, capsys)


@pytest.mark.parametrize("program", [*HANDED_ON, made_by_a_break])
def test_is_no_version_for_each(program: Any, capsys: Any) -> None:
    log.clear()
    compiled = stoker.compile(program, backend="eager")
    for number in range(7):
        outcome(compiled, number, capsys)
    assert len(log.events("captured")) <= 2 * (1 + len(log.events("break"))), log.events("recompile")


def loops_over_names(x, names):
    told = []
    for name in names:
        x = x + 1
        told.append((name, x.sum().item() > 100))
    return x, told


def test_a_loop_with_a_break_has_no_version_for_each_name() -> None:
    names = [f"name {index}" for index in range(14)]
    log.clear()
    compiled = stoker.compile(loops_over_names, backend="eager")
    for _ in range(2):
        assert str(compiled(torch.ones(2), names)) == str(loops_over_names(torch.ones(2), names))
    assert not log.events("limit")
    assert len(log.events("captured")) < len(names)


def nested_loops_over_names(x, names):
    told = []
    for index, number in enumerate([1, 2]):
        for name in names:
            x = x + number
            told.append((index, name, x.sum().item() > 100))
    return x, told


def test_nested_loops_come_to_an_end_of_versions() -> None:
    """A version for all names takes steps in the second call that others took in the first; the third has all it needs."""
    compiled = stoker.compile(nested_loops_over_names, backend="eager")
    for _ in range(3):
        log.clear()
        found = compiled(torch.ones(2), ["p", "q"])
        assert str(found) == str(nested_loops_over_names(torch.ones(2), ["p", "q"]))
    assert not log.events("captured")
