"""Classes that the program makes, and that outlive the call: each call has its own."""

from __future__ import annotations

import collections

import torch
from harness import BREAK, program

import stoker

SCALE = 2


@program("namedtuple made inside, its objects returned", default=True)
def test_namedtuple(x):
    Pair = collections.namedtuple("Pair", "left right")
    pair = Pair(x + 1, x.shape[0])
    return pair, pair._replace(right=x * 2), pair.left is pair[0], Pair._fields


@program("namedtuple made inside with defaults, the class returned", default=True)
def test_namedtuple_class(x):
    Row = collections.namedtuple("Row", ["first", "second", "third"], defaults=(3, "end"))
    rows = [Row(x), Row(x * 2, third=x)]
    return rows, Row, type(rows[0]) is Row, Row._make, Row._make([x, 1, 2])


@program("namedtuple made inside: nested, shared, in a dictionary", default=True)
def test_namedtuple_nested(x):
    Point = collections.namedtuple("Point", "a b")
    Line = collections.namedtuple("Line", "start end")
    start = Point(x.abs(), 1)
    return {"line": Line(start, start), Point: Point(start, x)}


@program("namedtuple made inside that is alive at a break", BREAK, steady=False)
def test_namedtuple_at_break(x):
    Pair = collections.namedtuple("Pair", "left right")
    pair = Pair(x * 2, x + 1)
    if x.sum() > 1e9:
        return x
    return pair.left + Pair(x, x).right, type(pair) is Pair, pair


@program("class defined inside, returned with its subclass and what it holds", default=True)
def test_family(x):
    class Base:
        __slots__ = ("v",)
        scale = SCALE

        def __init__(self, v, w=3):
            self.v = v * w

        @property
        def doubled(self):
            return self.v * 2

        @staticmethod
        def static(v):
            return v + 1

    class Derived(Base):
        def __init__(self, v):
            super().__init__(v)
            self.extra = [v]

    made = Derived(x)
    return made, Base, Derived, Base.static, Base.doubled, Derived.__init__, made.doubled, made.__init__, {Base: made}


@program("exception class defined inside that leaves the function", default=True)
def test_exception(x):
    class Stop(ValueError):
        pass

    y = x + 1
    raise Stop(y.shape[0])


@program("class made by type(), returned", default=True)
def test_type(x):
    Made = type("Made", (), {"k": 3, "name": "made"})
    made = Made()
    made.x = x * Made.k
    return made, Made


@program("class defined inside whose methods change a variable around it", default=True)
def test_nonlocal(x):
    total, calls = x * 0, 0

    class Summed:
        def add(self, v):
            nonlocal total, calls
            total, calls = total + v, calls + 1
            return self

    Summed().add(x).add(x + 1)
    return total, calls


@program("class defined inside with a closure, returned", default=True)
def test_closure_returned(x):
    y = x + 1

    class Adder:
        def __init__(self, v):
            self.v = v

        def add(self):
            return self.v + y

        def again(self):
            return Adder(self.add())

    made = Adder(x).again()
    return made, made.add(), Adder, type(made) is Adder, y


@program("class defined inside with a closure that leads to other classes, alive at a break", BREAK, steady=False)
def test_closures_at_break(x):
    scale = x.abs()

    class First:
        def other(self):
            return Second()

    class Second:
        def value(self, v):
            return v * scale

        def other(self):
            return First()

    made = First().other()
    if x.sum() > 1e9:
        return x
    scale = scale + 1
    return made.value(x), made.other().other().value(x)


def with_variables(v, k):
    class Local:
        def value(self):
            return v * k

    return Local()


@program("class defined in a callee with a closure", default=True)
def test_closure_in_a_callee(x):
    first, second = with_variables(x, 2), with_variables(x + 1, 3)
    return first.value() + second.value(), type(first) is type(second), first


def test_closure_is_shared() -> None:
    """A returned class and a returned function see one variable."""

    def run(x):
        y = x + 1

        class Holder:
            def get(self):
                return y

        def put(v):
            nonlocal y
            y = v

        def make():
            return Holder()

        return Holder, put, Holder(), make

    holder, put, held, make = stoker.compile(run, backend="eager", fullgraph=True)(torch.ones(2))
    assert type(held) is holder and type(make()) is holder
    assert torch.equal(holder().get(), torch.full((2,), 2.0))
    put(3)
    assert holder().get() == 3


@program("class defined inside whose mutable default leaves the function", BREAK, steady=False)
def test_mutable_default(x):
    class Keeper:
        def keep(self, v, held=[]):  # noqa: B006
            held.append(v)
            return held

    return Keeper().keep(x + 1)


@program("class defined inside, and a global of its body that changes", BREAK, globals=("SCALE",), steady=False)
def test_body_sees_globals(x):
    global SCALE

    class Scaled:
        scale = SCALE

    before = SCALE
    SCALE = before + 1
    made = Scaled()
    SCALE = 2 if before > 2 else 3
    return x * made.scale, made


def test_each_call_makes_its_own() -> None:
    """Classes of two calls differ; within a call, the class of an object, and what it holds, is the one that is returned."""

    def run(x):
        class Local:
            def __init__(self, v):
                self.v = v

        Pair = collections.namedtuple("Pair", "a b")
        return Local(x), Local, Pair(x, x), Pair, Local.__init__

    compiled = stoker.compile(run, backend="eager", fullgraph=True)
    first, second = compiled(torch.ones(2)), compiled(torch.zeros(2))
    for local, cls, pair, pair_class, init in (first, second):
        assert type(local) is cls and type(pair) is pair_class and cls.__init__ is init
    assert first[1] is not second[1] and first[3] is not second[3]
