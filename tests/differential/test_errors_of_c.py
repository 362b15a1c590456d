"""What C code raises and nobody catches: one graph, then eager's error, with its words, fields and traceback."""

from __future__ import annotations

import math
import traceback
import types

import pytest
import torch

import stoker
from stoker import log


class Closed:
    __slots__ = ("only",)

    @property
    def fixed(self):
        return 1

    @property
    def leads_on(self):
        return self.nowhere


class Asked:
    def __getattr__(self, name):
        raise AttributeError(f"there is no {name}")


THREE, ONE = 3, (1,)
LAYER = torch.nn.Linear(2, 2)


class Loud(dict):
    def __missing__(self, key):
        return [][key]


def takes_two(a, b, *, c=0):
    return a, b, c


def deleted():
    value = 1
    del value
    return value  # noqa: F821


def empty_cell():
    def inner():
        return value

    value = 1
    del value
    return inner()


def set_fixed():
    Closed().fixed = 2


def set_nothing():
    Closed().other = 2


def grow():
    table = {1: 1}
    for key in table:
        table[key + 1] = 1


def unpack(values):
    first, second = values
    return first, second


def in_a_generator():
    return list(item[5] for item in ([1], [2]))


def made_inside():
    class Inner:
        pass

    return Inner().nowhere


def kept_by_a_default():
    class Inner:
        def held(self, kept=[]):  # noqa: B006
            return kept

    return Inner().held().nowhere


WAYS = {
    "attribute of an object of a class made inside": made_inside,
    "key": lambda: {"a": 1}["missing"],
    "key of a subclass": lambda: Loud()[7],
    "index of a list": lambda: [1, 2][5],
    "index of a tuple": lambda: ONE["a"],
    "index of a number": lambda: THREE[0],
    "pop": lambda: [].pop(),
    "remove": lambda: [1].remove(2),
    "set element": lambda: {1}.remove(2),
    "attribute of an object": lambda: Closed().nowhere,
    "attribute in a property": lambda: Closed().leads_on,
    "attribute not filled": lambda: Closed().only,
    "attribute of None": lambda: None.nowhere,
    "attribute of a class": lambda: Closed.nowhere,
    "attribute of a module": lambda: math.nowhere,
    "attribute of a tensor": lambda: torch.ones(2).nowhere,
    "attribute of an nn.Module": lambda: LAYER.nowhere,
    "attribute asked of __getattr__": lambda: Asked().nowhere,
    "attribute of a method": lambda: LAYER.forward.nowhere,
    "getattr": lambda: getattr(types.SimpleNamespace(), "nowhere"),
    "a name": lambda: not_defined_anywhere,  # noqa: F821
    "a local that was deleted": deleted,
    "a cell that is empty": empty_cell,
    "a property without setter": set_fixed,
    "an attribute without slot": set_nothing,
    "missing argument": lambda: takes_two(1),
    "unexpected argument": lambda: takes_two(1, 2, d=3),
    "an argument twice": lambda: takes_two(1, 2, a=3),
    "too many arguments": lambda: takes_two(1, 2, 3),
    "not callable": lambda: THREE(),
    "operands": lambda: 1 + "a",
    "operands reversed": lambda: "a" + 1,
    "comparison": lambda: [] < {},
    "division": lambda: 1 / 0,
    "remainder": lambda: 1 % 0,
    "domain": lambda: math.sqrt(-1.0),
    "range": lambda: math.exp(1e9),
    "not a number": lambda: int("four"),
    "not a float": lambda: float("four"),
    "not iterable": lambda: list(3),
    "too few to unpack": lambda: unpack((1,)),
    "too many to unpack": lambda: unpack((1, 2, 3)),
    "a dictionary that grows": grow,
    "unhashable": lambda: {[]: 1},
    "max of nothing": lambda: max([]),
    "next of nothing": lambda: [*map(lambda x: {}[x], [1])],
    "strict zip": lambda: list(zip([1], [], strict=True)),
    "decoding": lambda: b"\xff".decode("utf-8"),
    "encoding": lambda: "\u20ac".encode("ascii"),
    "bad format": lambda: "{:d}".format("a"),
    "bad percent": lambda: "%d" % "a",
    "inside a generator": in_a_generator,
    "len of a number": lambda: len(3),
    "index of text": lambda: "abc".index("z"),
    "chr": lambda: chr(-1),
}
"""Each raises; none of them says `raise`, but for `__getattr__`, whose error C code completes."""


def direct(x, way):
    y = x * 2
    return y, way()


def behind_operations(x, way):
    def step(y):
        y = y + 1
        return y, way()

    return step(x.sin())


def on_its_way(x, way, trace):
    try:
        with torch.no_grad():
            return x * 2, way()
    finally:
        trace.append(x.sum())


def handled_first(x, way):
    try:
        way()
    except Exception as error:
        raise ValueError("wrapped") from error


def looked_at(x, way):
    try:
        way()
    except AttributeError as error:
        return x + 1, str(error), error.name, type(error.obj).__name__
    except NameError as error:
        return x + 1, str(error), error.name
    except UnicodeError as error:
        return x + 1, error.reason, error.start, error.end, error.encoding
    except Exception as error:
        return x + 1, type(error), error.args


def shown(error: BaseException | None):
    """All that is to be seen of an error."""
    if error is None:
        return None
    fields = {name: getattr(error, name, "none") for name in ("name", "start", "end", "reason", "msg", "pos", "doc")}
    lines = [(frame.name, frame.lineno, frame.line) for frame in traceback.extract_tb(error.__traceback__)]
    kept = [line for line in lines if line[0] not in ("observed", "__call__")]
    held = type(getattr(error, "obj", None))
    links = [shown(error.__cause__), shown(error.__context__)]
    return type(error), error.args, str(error), fields, held, kept, links


def observed(function, *args):
    try:
        return function(*args), None
    except Exception as error:  # noqa: BLE001
        return None, shown(error)


@pytest.mark.parametrize("name", WAYS)
@pytest.mark.parametrize("around", [direct, behind_operations, on_its_way, handled_first, looked_at])
def test_leaves(around, name):
    log.clear()
    stoker.reset()
    x, way = torch.ones(3), WAYS[name]
    traces: tuple[list, list] = ([], [])
    extra = [(trace,) if around is on_its_way else () for trace in traces]
    compiled = stoker.compile(around, backend="eager", fullgraph=True)
    wanted, found = observed(around, x, way, *extra[0]), observed(compiled, x, way, *extra[1])
    assert repr(found) == repr(wanted)
    assert repr(traces[0]) == repr(traces[1])
    assert not log.events("break")


@pytest.mark.parametrize("around", [direct, behind_operations, handled_first])
def test_what_cannot_be_rebuilt(around):
    """The error holds what a class that the function made keeps between calls: CPython raises it, and calls that raise nothing are captured."""
    log.clear()
    stoker.reset()
    x, compiled = torch.ones(3), stoker.compile(around, backend="eager")
    assert repr(observed(compiled, x, kept_by_a_default)) == repr(observed(around, x, kept_by_a_default))
    assert not log.events("skip") and log.events("break")
    assert repr(observed(compiled, x, int)) == repr(observed(around, x, int))
