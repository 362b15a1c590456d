"""What CPython makes of special methods that give something else than they should, of those that a class has None for, and of arguments that
constructors do not take."""

from __future__ import annotations

import collections
import copy
import enum
import itertools
import math
import operator

import torch
from harness import BREAK, program


class Wrong:
    def __float__(self):
        return "a"

    __int__ = __index__ = __hash__ = __len__ = __float__

    def __str__(self):
        return 1

    __repr__ = __bool__ = __str__

    def __format__(self, specification):
        return 1


class Blocked:
    __bool__ = __len__ = __iter__ = __contains__ = __reversed__ = __add__ = None

    def __getitem__(self, index):
        return index


class Negative:
    def __len__(self):
        return -1


class Endless:
    def __len__(self):
        return 1 << 70


class Far:
    def __hash__(self):
        return 1 << 70


class Minus:
    def __hash__(self):
        return -1


class Convertible:
    def __index__(self):
        return 12

    def __float__(self):
        return 2.5

    def __floor__(self):
        return 4


class Empty: ...


class Started:
    def __init__(self, first):
        self.first = first


class Passing:
    def __init__(self, *args):
        super().__init__(*args)


class Made:
    def __new__(cls, first):
        return object.__new__(cls)


class Number(int): ...


class Real(float): ...


class Text(str): ...


class Ordered(collections.OrderedDict): ...


def said(function, *args, **kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return type(error).__name__, str(error)


@program("special methods that give what they should not")
def test_wrong(x):
    functions = float, int, str, repr, hash, len, bool, format
    texts = said(lambda: f"{Wrong()}"), said(lambda: f"{Wrong()!r}")
    return x + 1, [said(function, Wrong()) for function in functions], texts, said(lambda: [1][Wrong()])


@program("special methods that a class has None for")
def test_blocked(x):
    functions = bool, len, iter, list, reversed
    return (
        x + 1,
        [said(function, Blocked()) for function in functions],
        said(lambda: 1 in Blocked()),
        said(lambda: Blocked() + 1),
    )


@program("lengths and hashes that a C integer does not hold")
def test_numbers_of_c(x):
    lengths = said(len, Negative()), said(len, Endless()), said(bool, Negative())
    return x + 1, lengths, hash(Far()), hash(Minus())


@program("functions of C that convert objects", BREAK)
def test_converted(x):
    y = x + 1
    found = [said(function, Convertible()) for function in (hex, math.sqrt, math.floor, chr, operator.index)]
    return y, found, said(math.gcd, Convertible(), 8)


@program("functions of C on numbers and text of the program's classes")
def test_plain_inside(x):
    return (
        x + 1,
        math.sqrt(Real(4.0)),
        math.gcd(Number(4), 6),
        "-".join([Text("a"), "b"]),
        hex(Number(17)),
        "a".replace(Text("a"), Text("b")),
    )


@program("constructors that take no arguments")
def test_constructors(x):
    return (
        x + 1,
        said(lambda: Empty(1)),
        said(lambda: Empty(a=1)),
        said(lambda: Started()),
        said(lambda: Passing(1)),
        said(lambda: object.__new__(Empty, 1)),
        said(lambda: object.__new__(Made, 1)),
        Made(1) is not None,
        said(lambda: slice()),
        said(lambda: slice(1, 2, 3, 4)),
        slice(3),
    )


@program("comparison methods of constants, by name")
def test_methods_by_name(x):
    return x + 1, float.__eq__(1.0, "a"), (1).__lt__("a"), "a".__eq__(1), (1j).__lt__(None), (2).__ge__(1)


@program("defaultdict and its factory")
def test_factories(x):
    table = collections.defaultdict()
    table.default_factory = list
    table["a"].append(1)
    counts = collections.defaultdict(int, a=1)
    return (
        x + 1,
        table,
        said(collections.defaultdict, 1),
        said(lambda: collections.defaultdict()["q"]),
        counts | {"b": 1},
        {"b": 2} | counts,
        counts.copy(),
        {"c": 1} | collections.OrderedDict(a=1),
    )


@program("classes of ordered dictionaries are made by themselves", BREAK)
def test_own_class(x):
    made = Ordered(a=1)
    return x + 1, type(made | {"b": 2}).__name__, type(made.copy()).__name__, type({} | made).__name__


@program("deques that are full, and limits that are none")
def test_deques(x):
    queue = collections.deque([1, 2], 2)
    return (
        x + 1,
        said(queue.insert, 0, 1),
        said(collections.deque, [1], -1),
        said(collections.deque, [1], "a"),
        said(queue.remove, 9),
        queue,
    )


@program("the mapping behind a view")
def test_mapping(x):
    table = {"a": 1}
    behind = table.keys().mapping
    table["b"] = 2
    return x + 1, len(behind), behind == table, behind["b"], said(lambda: behind.update({}))


@program("reversed ranges and text")
def test_reversed(x):
    return (
        x + 1,
        type(reversed(range(3))).__name__,
        list(reversed(range(3))),
        list(reversed("abc")),
        [*reversed((1, 2))],
    )


class Dotted:
    def __init__(self):
        self.name = "dot"

    def __getitem__(self, key):
        return f"item {key}"

    def __repr__(self):
        return "<\U0001f40d>"


class Odd:
    __match_args__ = ["name"]


class Few:
    __match_args__ = ("name",)
    name = 1


class Numbered:
    __match_args__ = (1,)


@program("attributes and items in formats")
def test_formats(x):
    y = x + 1
    return y, "{0.name} {0[key]}".format(Dotted()), said("{:d}".format, Dotted())


@program("ascii() of instances")
def test_ascii(x):
    return x + 1, ascii(Dotted()), f"{Dotted()!a}", repr(Dotted())


@program("views compared with what is no set")
def test_views(x):
    keys = {"a": 1}.keys()
    return x + 1, keys == 5, keys != [1], said(lambda: keys < 5), keys == {"a"}, {"a": 1}.items() == {("a", 1)}


@program("sizes with complex numbers", inputs=lambda: (torch.ones(3),), steady=False)
def test_complex_sizes(x):
    return x + 1, x.shape[0] * 2j, 1j - x.shape[0], x.shape[0] == 3 + 0j


@program("arguments of itertools that do not fit")
def test_itertools(x):
    return (
        x + 1,
        said(itertools.islice, "abc"),
        said(itertools.islice, "abc", 1, 2, 3, 4),
        said(itertools.combinations, "abc", -1),
        said(itertools.count, "a"),
        list(itertools.permutations("ab")),
        list(itertools.combinations("abc", r=2)),
    )


def matches(subject, kind):
    match kind, subject:
        case "odd", Odd(name):
            return name
        case "few", Few(first, second):
            return first, second
        case "twice", Few(first, name=second):
            return first, second
        case "numbered", Numbered(first):
            return first
        case "one", Few(first):
            return first


@program("class patterns that do not fit their classes")
def test_patterns(x):
    subjects = {"odd": Odd(), "few": Few(), "twice": Few(), "numbered": Numbered(), "one": Few()}
    return x + 1, [said(matches, subject, kind) for kind, subject in subjects.items()]


@program("copies of what C code holds", BREAK)
def test_copies(x):
    y = x + 1
    return y, copy.copy(bytearray(b"abc")), copy.deepcopy(bytearray(b"abc"))


def makes_enumeration():
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    return [member.name for member in Color]


def makes_wrong():
    class Wrong(enum.Enum, list):
        RED = 1


@program("classes of other metaclasses, made in callees", BREAK, steady=False)
def test_metaclasses(x):
    return x + 1, makes_enumeration(), type(said(makes_wrong)).__name__


class Left:
    def __floordiv__(self, other):
        return "left"

    def __rfloordiv__(self, other):
        return "right"


class Inherits(Left): ...


class Overrides(Left):
    def __rfloordiv__(self, other):
        return "own"


class Modulus(str):
    def __rmod__(self, other):
        return "modulus"


@program("which operand is asked first")
def test_first_asked(x):
    return x + 1, Left() // Inherits(), Left() // Overrides(), 1 // Left(), "%r" % Modulus("a"), "%s" % "b"


@program("defaults of a function that are set")
def test_set_defaults(x):
    def function(a=1, *, b=2):
        return a, b

    before = function()
    function.__kwdefaults__ = {"b": 5}
    function.__defaults__ = (9,)
    return x + 1, before, function()


@program("an instance dictionary that is set")
def test_set_dictionary(x):
    held = Empty()
    held.__dict__ = {"b": 1}
    return x + 1, held.b, vars(held)


@program("super() of what does not fit, and keywords that are no strings")
def test_super(x):
    def takes(**kwargs):
        return kwargs

    return x + 1, said(lambda: super(int, "a")), said(lambda: takes(**{1: 2})), takes(**{"a": 2})


async def coroutine():
    return 1


@program("coroutines are not gone over", BREAK)
def test_coroutines(x):
    y, held, shown = x + 1, coroutine(), []
    try:
        for _ in held:
            pass
    except TypeError as error:
        shown.append(str(error))
    held.close()
    return y, shown
