"""The long tail of Python: overrides of built-in classes, views, exceptions that leave, generators, references, text, references."""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import itertools
import math
import sys
import traceback
import types
import typing
import weakref

import torch
import torch._prims_common as common
import torch._refs as refs
from harness import program

program = functools.partial(program, default=True)


class Doubling(list):
    def __getitem__(self, index):
        return list.__getitem__(self, index) * 2 if isinstance(index, int) else list.__getitem__(self, index)

    def __len__(self):
        return 1 + list.__len__(self)

    def append(self, value):
        list.append(self, value + 1)

    def __iter__(self):
        return iter([7, 8])

    def __contains__(self, value):
        return value == 99

    def __add__(self, other):
        return "added"

    def __eq__(self, other):
        return "equal"

    def __bool__(self):
        return False

    __hash__ = None


@program("overrides of a list, made inside")
def test_list_overrides(x):
    held = Doubling([1, 2])
    held.append(5)
    return (
        x + held[0],
        len(held),
        99 in held,
        [v for v in held],
        held + [1],
        held == [1],
        bool(held),
        list.__len__(held),
    )


DOUBLING = Doubling([1, 2, 3])


@program("overrides of a list from outside")
def test_list_from_outside(x):
    return x * DOUBLING[1], len(DOUBLING), 99 in DOUBLING, list(DOUBLING), DOUBLING + [1], sum(DOUBLING), [*DOUBLING]


class Tripling(dict):
    def __getitem__(self, key):
        return dict.__getitem__(self, key) * 3

    def get(self, key, default=None):
        return "got"

    def keys(self):
        return ["a", "b"]

    def items(self):
        return [("q", 1)]

    def __contains__(self, key):
        return True

    def __setitem__(self, key, value):
        dict.__setitem__(self, key, value + 1)

    def update(self, *args, **kwargs):
        dict.__setitem__(self, "updated", 1)


@program("overrides of a dict")
def test_dict_overrides(x):
    held = Tripling(a=1)
    held["b"] = 2
    held.update(z=3)
    return x + held["a"], held.get("a"), held.keys(), "z" in held, held.items(), sorted(dict.keys(held)), len(held)


class Lengths(dict):
    def __missing__(self, key):
        found = self[key] = len(key)
        return found


@program("__missing__")
def test_missing(x):
    held = Lengths()
    return x + held["abc"], dict(held), held["abc"], held.get("q"), "q" in held


class Twice(set):
    def add(self, value):
        set.add(self, value * 2)

    def __contains__(self, value):
        return True

    def __or__(self, other):
        return "or"

    def __len__(self):
        return 42


@program("overrides of a set")
def test_set_overrides(x):
    held = Twice([1])
    held.add(4)
    return x * len(held), 5 in held, held | {1}, sorted(held), set.__len__(held)


class Hundred(tuple):
    def __new__(cls, *parts):
        return tuple.__new__(cls, parts)

    def __getitem__(self, index):
        return 100

    def __len__(self):
        return 9

    def total(self):
        return sum(tuple.__iter__(self))

    @property
    def first(self):
        return tuple.__getitem__(self, 0)


@program("overrides of a tuple")
def test_tuple_overrides(x):
    held = Hundred(1, 2, 3)
    return x + held[0], len(held), held.total(), held.first, list(held), (lambda *parts: parts)(*held)


class Loud(str):
    __slots__ = ()

    def upper(self):
        return "UP"

    def __len__(self):
        return 77

    def __add__(self, other):
        return Loud(str.__add__(self, other) + "!")

    def __format__(self, specification):
        return "formatted"

    def __str__(self):
        return "shown"


@program("overrides of a str")
def test_str_overrides(x):
    held = Loud("ab")
    return (
        x * len(held),
        held.upper(),
        str.__str__(held + "c"),
        f"{held}",
        str(held),
        held.lower(),
        held[0],
        "a" in held,
    )


class Stubborn(int):
    def __add__(self, other):
        return 1000

    def __mul__(self, other):
        return "product"

    def __repr__(self):
        return "stubborn"

    def __lt__(self, other):
        return True

    def __bool__(self):
        return False


@program("overrides of an int")
def test_int_overrides(x):
    held = Stubborn(3)
    return (
        x + (held + 1),
        held * 2,
        repr(held),
        held < 0,
        bool(held),
        held - 1,
        -held,
        int(held),
        f"{held}",
        f"{held:04d}",
    )


class Half(float):
    def __mul__(self, other):
        return 3.5

    def __rmul__(self, other):
        return 4.5


@program("overrides of a float")
def test_float_overrides(x):
    held = Half(1.5)
    return x * float(held), held * 2, 2 * held, held + 1, held > 1, f"{held:.2f}"


class Pair(typing.NamedTuple):
    a: int
    b: float = 2.0

    def total(self):
        return self.a + self.b

    @property
    def twice(self):
        return self.a * 2

    def __add__(self, other):
        return "sum"


Point = collections.namedtuple("Point", "x y", defaults=[5])


class Odd(Point):
    __slots__ = ()

    def __getitem__(self, index):
        return "item"

    def __len__(self):
        return 7


@program("named tuples and their overrides")
def test_named_tuples(x):
    pair, point, odd = Pair(1), Point(x, 3)._replace(y=4), Odd(1)
    return (
        x * pair.total(), pair.twice, pair + (1,), pair._asdict(), point.y, odd[0], len(odd), odd.x, Pair._fields,
        Point._make([1, 2]).y, pair == (1, 2.0), repr(pair),
    )  # fmt: skip


class Ordered(collections.OrderedDict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value * 2)


@program("ordered dictionaries")
def test_ordered(x):
    held = Ordered()
    held["a"] = 1
    held["b"] = 2
    held.move_to_end("a")
    plain = collections.OrderedDict.fromkeys("xy", 0)
    plain.move_to_end("x")
    same = plain == collections.OrderedDict(y=0, x=0)
    return x * held["a"], list(held), held.popitem(last=False), list(reversed(plain)), same, plain == {"x": 0, "y": 0}


class Fallback(collections.defaultdict):
    def __missing__(self, key):
        return key * 2


@program("defaultdict and its subclass")
def test_default(x):
    held, plain = Fallback(int), collections.defaultdict(list, {1: [2]})
    plain[3].append(4)
    return x * held[3], dict(held), plain, held.default_factory is int


class Wrapped(collections.UserDict):
    def __getitem__(self, key):
        return self.data[key] + 1


@program("UserDict, UserList and ChainMap")
def test_user_containers(x):
    held, sequence = Wrapped(a=1), collections.UserList([1, 2])
    held["b"] = 3
    sequence.append(3)
    chained = collections.ChainMap({"a": 1}, {"a": 2, "b": 3}).new_child({"z": 9})
    return x * held["a"], dict(held.data), list(held), sequence.data, list(sequence[1:]), chained["b"], sorted(chained)


class Number(enum.IntEnum):
    ONE = 1
    TWO = 2


class Flags(enum.Flag):
    P = 1
    Q = 2


@program("enumerations")
def test_enumerations(x):
    return x * Number.ONE, Number(2), Number["TWO"].name, list(Number), Flags.P in (Flags.P | Flags.Q), Number.ONE + 1


@program("views of dictionaries")
def test_views(x):
    held = {"a": 1, "b": 2, "c": 3}
    keys, items, values = held.keys(), held.items(), held.values()
    held["d"] = 4
    return (
        x, sorted(keys), ("a", 1) in items, 4 in values, keys & {"a", "z"}, keys | {"q"}, keys - {"a"}, keys ^ {"a"},
        sorted(items - {("a", 1)}), items & {("b", 2)}, len(keys), list(reversed(held)), keys == {"a", "b", "c", "d"},
        keys.isdisjoint({"z"}), keys <= {"a", "b", "c", "d", "e"}, list(reversed(values)),
    )  # fmt: skip


OUTSIDE = {"a": 1, "b": 2}
PROXY = types.MappingProxyType(OUTSIDE)


@program("mapping proxies")
def test_proxies(x):
    inside = types.MappingProxyType({"a": 1})
    return (
        x * PROXY["a"], sorted(PROXY), PROXY.get("z", 3), list(PROXY.items()), "a" in PROXY, PROXY | {"q": 1},
        PROXY.copy(), list(PROXY.values()), PROXY == OUTSIDE, inside["a"], inside.get("b"), list(inside),
    )  # fmt: skip


@program("methods of dictionaries")
def test_dict_methods(x):
    held = dict.fromkeys(["a", "b"], 1)
    held.setdefault("c", []).append(2)
    held.setdefault("a", 9)
    both = held | {"z": 1}
    held |= {"y": 2}
    return (
        x,
        held,
        both,
        held.pop("a"),
        held.pop("no", None),
        held.popitem(),
        {**held},
        dict(held, q=1),
        dict(zip("ab", (1, 2))),
    )


class Coded(Exception):
    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


def refuse(x):
    y = x * 2
    raise TypeError("deep", y.shape[0])


def pass_on(x):
    return refuse(x + 1)


@program("raise leaves the function")
def test_raise_leaves(x):
    x.add_(1)
    raise ValueError(f"shape {tuple(x.shape)}")


@program("raise leaves two inlined calls")
def test_raise_leaves_calls(x):
    return pass_on(x * 2)


@program("an exception class of the user's leaves")
def test_own_exception_leaves(x):
    raise Coded("message", 3)


@program("raise from, and from inside a handler")
def test_raise_from(x):
    try:
        raise KeyError("first")
    except KeyError as error:
        raise RuntimeError("second") from error


@program("an assertion on shapes fails")
def test_assertion_leaves(x):
    assert x.shape[0] == 4, f"four are wanted, not {x.shape[0]}"
    return x


@program("raise behind a condition on a number", inputs=lambda: (torch.ones(3), -1))
def test_raise_on_number(x, n):
    if n < 0:
        raise ValueError("n must not be negative")
    return x * n


@program("what C code raises leaves the function")
def test_error_of_c(x):
    return (x + 1) * {}["missing"]


@program("exceptions as values")
def test_exceptions_as_values(x):
    try:
        refuse(x)
    except TypeError as error:
        kind, value, _ = sys.exc_info()
        shown = traceback.format_exception_only(type(error), error)
        return x, type(error).__name__, error.args, str(error), repr(error), kind is TypeError, value is error, shown


@program("context and cause")
def test_context(x):
    try:
        try:
            raise ValueError(1)
        except ValueError:
            raise KeyError(2)
    except KeyError as error:
        return x, error.__context__.args, error.__cause__, error.__suppress_context__


@program("contextlib.suppress")
def test_suppress(x):
    with contextlib.suppress(ValueError):
        raise ValueError
    return x * 2


def echo():
    received = yield 1
    while received is not None:
        received = yield received * 2
    return "done"


@program("send")
def test_send(x):
    generator = echo()
    return next(generator), generator.send(5), generator.send(x)


@program("throw")
def test_throw(x):
    def careful():
        try:
            yield 1
        except ValueError as error:
            yield "caught " + str(error)

    generator = careful()
    next(generator)
    return x, generator.throw(ValueError("thrown"))


@program("close")
def test_close(x):
    closed = []

    def closing():
        try:
            yield 1
        finally:
            closed.append("closed")

    generator = closing()
    next(generator)
    generator.close()
    return x, closed, list(generator)


@program("the value of StopIteration, and yield from")
def test_stop_value(x):
    def delegate():
        result = yield from echo()
        yield result

    generator, outer = echo(), delegate()
    next(generator)
    try:
        generator.send(None)
    except StopIteration as stop:
        return x, stop.value, next(outer), outer.send(3), outer.send(None)


@functools.lru_cache(maxsize=None)
def fibonacci(n):
    return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


@functools.cache
def scaled(a, *, b=2):
    return a * b


@program("lru_cache and cache")
def test_caches(x):
    return x * fibonacci(10) + scaled(3, b=4) + scaled(3)


class Base:
    registry: typing.ClassVar[dict] = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Base.registry[cls.__name__] = cls


class First(Base):
    value = 1


class Second(Base):
    value = 2


@program("__subclasses__ and registries of classes")
def test_subclasses(x):
    return x * sum(cls.value for cls in Base.__subclasses__()) + Base.registry["Second"].value, First.__bases__ == (
        Base,
    )


class Meta(type):
    scale = 3

    def __call__(cls, *args, **kwargs):
        made = super().__call__(*args, **kwargs)
        made.tag = "made"
        return made

    def __len__(cls):
        return 11

    def __getitem__(cls, key):
        return key * 2

    def __contains__(cls, key):
        return key == "yes"

    def __iter__(cls):
        return iter([1, 2])

    @property
    def size(cls):
        return 8

    def method(cls):
        return cls.base

    def __instancecheck__(cls, other):
        return other == 5


class Made(metaclass=Meta):
    base = 4


@program("attributes and operators of metaclasses")
def test_metaclass(x):
    return (
        x * Made.scale, Made().tag, len(Made), Made[3], "yes" in Made, list(Made), Made.size, Made.method(),
        isinstance(5, Made), type(Made).__name__,
    )  # fmt: skip


class Abstract(abc.ABC):
    @abc.abstractmethod
    def first(self): ...

    @abc.abstractmethod
    def second(self): ...


@program("an abstract class is not made")
def test_abstract(x):
    try:
        Abstract()
    except TypeError as error:
        return x, str(error)


class Twofold:
    def __get__(self, owner, cls=None):
        return 5 if owner is None else owner.held * 2

    def __set__(self, owner, value):
        owner.held = value

    def __set_name__(self, cls, name):
        self.name = name


class Described:
    value = Twofold()


@program("descriptors")
def test_descriptors(x):
    described = Described()
    described.value = 3
    return x * described.value, Described.value, vars(Described)["value"].name


class Answers:
    def __getattr__(self, name):
        return name + "!"

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value * 2)

    def __call__(self, *args, **kwargs):
        return args, kwargs


@program("__getattr__, __setattr__, __call__")
def test_attribute_hooks(x):
    answers = Answers()
    answers.value = 4
    return x * answers.value, answers.other, getattr(answers, "third", "d"), answers(1, a=2), callable(answers)


@dataclasses.dataclass(order=True)
class Record:
    a: int
    b: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    a: int


@program("dataclasses")
def test_dataclasses(x):
    record, frozen = Record(1), Frozen(3)
    other = dataclasses.replace(record, a=2)
    try:
        frozen.a = 4
    except dataclasses.FrozenInstanceError as error:
        refused = str(error)
    return (
        x * other.a, record < other, record == Record(1), dataclasses.asdict(other), repr(record), refused,
        hash(frozen) == hash(Frozen(3)), {frozen: 1}[Frozen(3)], [field.name for field in dataclasses.fields(record)],
    )  # fmt: skip


class Keyed:
    def __init__(self, value):
        self.value = value

    def __hash__(self):
        return self.value

    def __eq__(self, other):
        return self.value == other.value

    def __repr__(self):
        return f"Keyed({self.value})"


@program("hash and equality of the user's classes")
def test_hash(x):
    held = {Keyed(1): 2, Keyed(2): 3}
    return (
        x * held[Keyed(1)],
        repr(Keyed(3)),
        str([Keyed(4)]),
        f"{Keyed(5)!r:>8}",
        len({Keyed(1), Keyed(1)}),
        Keyed(1) in held,
    )


@program("hash, repr and str of plain data")
def test_text(x):
    return (
        x, hash(3), hash((1, 2)) == hash((1, 2)), hash(1.5), repr([1, "a", None]), str({"k": (1,)}), f"{[1.5]!s}",
        format(math.pi, ".2f"), "%s" % (1,), ascii("é"), repr(b"x"), repr(slice(1, 2)), str(x.dtype), repr(x.shape),
    )  # fmt: skip


@program("complex numbers")
def test_complex(x):
    return (
        complex(1, 2) * 2j,
        complex("1+2j"),
        (1 + 2j).conjugate(),
        abs(3 + 4j),
        x * (1 + 2j),
        complex(1.5),
        pow(2, 3, 5),
    )


class Thing:
    pass


THING = Thing()
THING.value = 4
REFERENCE = weakref.ref(THING)
BY_KEY = weakref.WeakKeyDictionary({THING: 6})


@program("weak references from outside")
def test_weak_references(x):
    return x * REFERENCE().value, REFERENCE() is THING, REFERENCE == weakref.ref(THING)


@program("WeakKeyDictionary")
def test_weak_keys(x):
    return x * BY_KEY[THING], len(BY_KEY), THING in BY_KEY, BY_KEY.get(THING)


@program("torch's reference code is entered")
def test_references(x):
    return refs.add(x, x, alpha=2), refs.stack([x, x]), refs.var(x, 0), refs.where(x > 0, x, 0)


@program("torch._prims_common is entered")
def test_prims_common(x):
    return x, common.is_same_shape(x.shape, (3, 4)), common.canonicalize_dim(2, -1), common.is_contiguous(x)


@program("itertools together")
def test_itertools(x):
    pairs = list(itertools.pairwise([1, 2, 3]))
    groups = [(key, list(part)) for key, part in itertools.groupby([1, 1, 2])]
    return (
        x * sum(itertools.accumulate([1, 2, 3])),
        pairs,
        groups,
        list(itertools.zip_longest("ab", "c", fillvalue="-")),
    )


def reordered():
    table = collections.OrderedDict(a=1, b=2, c=3)
    table.move_to_end("c", last=False)
    table.move_to_end("a")
    return torch.ones(2), table


@program("an OrderedDict from outside that was put in another order", inputs=reordered)
def test_reordered(x, table):
    for value in table.values():
        x = x * 10 + value
    return x, list(table), list(table.items()), list(reversed(table)), dict(table)
