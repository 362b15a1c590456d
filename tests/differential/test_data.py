"""Numbers, text, and the built-in containers."""

from __future__ import annotations

import collections
import dataclasses
import enum
import types
from collections import Counter, OrderedDict, defaultdict, deque, namedtuple
from typing import NamedTuple

import torch
from harness import BREAK, program

Point = namedtuple("Point", "x y", defaults=[3])


class Pair(NamedTuple):
    left: torch.Tensor
    right: int = 7

    def total(self):
        return self.left * self.right


class Color(enum.Enum):
    RED = 1
    BLUE = 2

    @property
    def shade(self):
        return self.value * 10

    def mix(self, other):
        return Color(3 - other.value)


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 5


class Flags(enum.Flag):
    A = enum.auto()
    B = enum.auto()


class Mode(str, enum.Enum):
    TRAIN = "train"
    EVAL = "eval"


@dataclasses.dataclass
class Config:
    width: int = 4
    scale: float = 0.5
    names: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: object = None


@dataclasses.dataclass(slots=True)
class Slotted:
    t: object
    n: int = 2


@dataclasses.dataclass
class Derived(Config):
    area: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.area = self.width * 2


@dataclasses.dataclass(order=True)
class Ranked:
    rank: int
    name: str = dataclasses.field(compare=False, default="")


@program("int arithmetic")
def test_int_arithmetic(x):
    a, b = 7, 3
    return (
        x * (a + b) - a // b + a % b - a**b + (a << 1) - (a >> 1) + (a & b) + (a | b) + (a ^ b) + (~a) + divmod(a, b)[1]
    )


@program("float arithmetic")
def test_float_arithmetic(x):
    s = 1.5
    s *= 2
    return x * s + 7 / 2 - 7.5 // 2 + float("inf") * 0.0 if s > 10 else x * s / 3.0


@program("complex numbers")
def test_complex(x):
    z = 1 + 2j
    return x * (z * z.conjugate()).real, z.imag, abs(3 + 4j), complex(1, 2)


@program("bool logic and chained comparison")
def test_bool_logic(x):
    n = x.shape[0]
    return x if 1 < n <= 3 and not n == 2 or n is None else -x


@program("conditional expression")
def test_conditional_expression(x):
    return (x + 1) if x.dim() == 2 else (x - 1)


@program("int methods and big ints")
def test_int_methods(x):
    n = 2**70
    return x + (5).bit_length() + (n % 1000), (255).to_bytes(2, "big"), int.from_bytes(b"\x01\x02", "big"), n


@program("float methods")
def test_float_methods(x):
    return x * (2.0).as_integer_ratio()[0], (0.5).is_integer(), float.fromhex("0x1p3"), (1.5).hex()


@program("string methods")
def test_string_methods(x):
    s = "Hello, World"
    parts = s.lower().split(", ")
    return (
        x * len(parts),
        "-".join(parts),
        s.replace("l", "L"),
        s.find("W"),
        s[::-1],
        s.startswith("He"),
        s.partition(","),
    )


@program("string formatting")
def test_string_formatting(x):
    return x, f"{x.shape[0]:>5}|{3.14159:.2f}|{'a'!r}", "%d-%s" % (3, "b"), "{} {k}".format(1, k=2), f"{x.shape}"


@program("nested f-strings and debug f-strings")
def test_nested_f_strings(x):
    width = 6
    n = x.ndim
    return x, f"{n:{width}d}", f"{n=}", f"{[i for i in range(n)]}", f"{ {'a': 1}['a'] }"


@program("bytes")
def test_bytes(x):
    b = b"abc"
    return x + b[0], b + b"d", b.decode(), b.hex(), bytes([1, 2])


@program("string iteration and membership")
def test_string_iteration(x):
    total = 0
    for c in "abc":
        total += ord(c)
    return x + total, "b" in "abc", sorted("cab"), max("abc")


@program("tuples: indexing, slicing, concatenation, comparison")
def test_tuples(x):
    t = (x, x + 1, 2)
    u = t[1:] + (5,) * 2
    return u, len(t), t[-1], (1, 2) < (1, 3), (5, 2).index(2), (1, 1, 2).count(1), 2 in (1, 2)


@program("list methods")
def test_list_methods(x):
    xs = [3, 1, 2]
    xs.append(5)
    xs.extend([7, 8])
    xs.insert(0, 9)
    xs.remove(1)
    last = xs.pop()
    first = xs.pop(0)
    xs.reverse()
    ys = xs.copy()
    ys.sort(reverse=True)
    xs.clear()
    return x * last + first, xs, ys, ys.index(5), ys.count(3)


@program("list slices and deletion")
def test_list_slices(x):
    xs = list(range(10))
    xs[2:4] = [x, x + 1, 0]
    del xs[0]
    del xs[-3:]
    xs[::2] = [1] * len(xs[::2])
    return xs, xs[::-1], xs * 2, [x] + xs, xs + [1] == [1]


@program("list argument mutated", inputs=lambda: ([torch.ones(2), 2], torch.randn(2)))
def test_list_argument(xs, y):
    xs.append(y + 1)
    xs[0] = xs[0] + y
    return xs


@program("list in-place operators", inputs=lambda: ([1, 2], torch.randn(2)))
def test_list_inplace(xs, y):
    alias = xs
    xs += [y]
    xs *= 2
    return alias is xs, xs


@program("the same list passed twice", inputs=lambda: (lambda a: (a, a, torch.ones(2)))([1]))
def test_same_list(a, b, x):
    a.append(2)
    return x * len(b), a is b


@program("cyclic structures")
def test_cycles(x):
    xs = [x]
    xs.append(xs)
    d = {"self": None, "list": xs}
    d["self"] = d
    return d


@program("shared objects in the result")
def test_sharing(x):
    inner = [x + 1]
    return [inner, inner, {"a": inner}], (inner,)


@program("nested list argument", inputs=lambda: ([[torch.ones(2)], [torch.zeros(2)]],))
def test_nested_list(xs):
    for row in xs:
        row.append(row[0] * 2)
    xs[0], xs[1] = xs[1], xs[0]
    return sum(len(row) for row in xs)


@program("dict methods")
def test_dict_methods(x):
    d = {"a": x, "b": 2}
    d["c"] = d.get("z", 4)
    d.update(e=5, a=x * 2)
    d.setdefault("f", []).append(1)
    popped = d.pop("b")
    missing = d.pop("zz", None)
    last = d.popitem()
    return d, popped, missing, last, list(d), "a" in d, len(d), list(reversed(d))


@program("dict display, merge and comprehension")
def test_dict_merge(x):
    a, b = {"p": 1, "q": x}, {"q": x + 1, "r": 3}
    c = {**a, **b, "s": 4}
    return c, a | {"z": 0}, {k: v for k, v in b.items() if k != "r"}, dict(zip("ab", (1, 2))), dict([("k", 1)])


@program("dict views")
def test_dict_views(x):
    d = {"a": 1, "b": 2}
    keys, values, items = d.keys(), d.values(), d.items()
    d["c"] = 3
    return x * sum(values), list(keys), list(items), keys & {"a", "z"}, ("a", 1) in items, len(keys)


@program("dict argument mutated", inputs=lambda: ({"w": torch.ones(2), "n": 1}, torch.randn(2)))
def test_dict_argument(d, x):
    d["w"] = d["w"] + x
    d["new"] = x * 2
    del d["n"]
    return d


@program("dict with int, tuple and None keys")
def test_dict_keys(x):
    d = {1: x, (1, 2): x + 1, None: x + 2, True: 5}
    return d[1], d[(1, 2)], d[None], len(d)


@program("dict keyed by a module or tensor argument", inputs=lambda: (torch.ones(2), torch.zeros(2)))
def test_dict_tensor_keys(x, y):
    d = {x: 1, y: 2}
    return x * d[x] + y * d[y], x in d


@program("dict order and equality")
def test_dict_order(x):
    a = {"x": 1, "y": 2}
    b = {"y": 2, "x": 1}
    return x, a == b, list(a) == list(b), OrderedDict(a) == OrderedDict(b), {} != a


@program("dict.fromkeys, del, in")
def test_dict_fromkeys(x):
    d = dict.fromkeys(["a", "b"], 0)
    d["a"] += 1
    del d["b"]
    return x + d["a"], d


@program("sets and frozensets")
def test_sets(x):
    s = {1, 2, 3}
    s.add(4)
    s.discard(1)
    t = frozenset([2, 9])
    return x * len(s), s | t, s & t, s - t, s ^ t, t <= s, 9 in t, s.isdisjoint({100}), {c for c in "aab"}


@program("set updates", inputs=lambda: ({1, 2}, torch.ones(1)))
def test_set_updates(s, x):
    s |= {5}
    s.update([6], [7])
    s.difference_update([1])
    s.remove(2)
    s.symmetric_difference_update([6, 100])
    s.intersection_update([5, 7, 100])
    return x * len(s), sorted(s)


@program("slices and slice objects")
def test_slices(x):
    s = slice(1, None)
    t = slice(None, None, 2)
    return x[s], x[:, t], s.start, s.stop, list(range(10))[t], s.indices(5), slice(1, 2) == slice(1, 2)


@program("ranges")
def test_ranges(x):
    r = range(2, 10, 3)
    return x * len(r), list(r), 5 in r, r[1], r[-1], r.start, r[1:], list(reversed(r)), r == range(2, 11, 3), r.index(5)


@program("Ellipsis, None, NotImplemented")
def test_singletons(x):
    e = ...
    return x[..., 0], x[e], None, x[None].shape, NotImplemented is NotImplemented, e is Ellipsis


@program("named tuples")
def test_named_tuple(x):
    p = Point(x, 2)
    q = p._replace(y=x + 1)
    return p, q.y, q._asdict(), p.x + Point(1).y, Point._fields, Point._make([1, 2]), p[0] is x, [*q]


@program("typing.NamedTuple with methods and defaults")
def test_typed_named_tuple(x):
    p = Pair(x)
    left, right = p
    return p, p.total(), left + right, isinstance(p, tuple), p == Pair(x)


@program("named tuple argument", inputs=lambda: (Point(torch.ones(2), 3),))
def test_named_tuple_argument(p):
    return p.x * p.y, Point(p.y, p.x), p


@program("enums")
def test_enums(x):
    c = Color.RED
    return (
        x * c.value,
        c,
        c.name,
        Color(2),
        Color["BLUE"],
        c is Color.RED,
        [m.name for m in Color],
        len(Color),
        c in Color,
    )


@program("enum properties and methods")
def test_enum_methods(x):
    return x + Color.BLUE.shade, Color.RED.mix(Color.BLUE), isinstance(Color.RED, Color), {Color.RED: 1}[Color.RED]


@program("IntEnum, Flag and str enums")
def test_other_enums(x):
    f = Flags.A | Flags.B
    return (
        x * Level.HIGH + Level.LOW,
        Level.HIGH > 3,
        f,
        Flags.A in f,
        Mode.TRAIN == "train",
        Mode("eval"),
        Mode.TRAIN.upper(),
    )


@program("enum argument", inputs=lambda: (Color.BLUE, torch.ones(2)))
def test_enum_argument(c, x):
    if c is Color.RED:
        return x
    return x * c.value


@program("dataclasses")
def test_dataclass(x):
    c = Config(scale=2.0)
    c.width += 1
    c.names.append("a")
    return x * c.scale + c.width, c, c == Config(5, 2.0, ["a"])


@program("frozen dataclasses")
def test_frozen_dataclass(x):
    f = Frozen(2, b=x)
    g = dataclasses.replace(f, a=3)
    return f.b * f.a, g, Frozen(1) == Frozen(1)


@program("assignment to a frozen dataclass raises")
def test_frozen_error(x):
    f = Frozen(2, b=x)
    f.a = 3
    return f


@program("slotted dataclasses")
def test_slotted_dataclass(x):
    s = Slotted(x)
    s.n = 5
    return s, s.t * s.n


@program("slotted dataclass argument", inputs=lambda: (Slotted(torch.ones(2)),))
def test_slotted_argument(s):
    s.n += 1
    s.t = s.t + s.n
    return s


@program("dataclass __post_init__ and inheritance")
def test_post_init(x):
    d = Derived(width=3)
    return x * d.area, d, isinstance(d, Config)


@program("dataclasses.asdict, astuple, fields")
def test_asdict(x):
    c = Config(names=["n"])
    return (
        x,
        dataclasses.asdict(c),
        dataclasses.astuple(c),
        [f.name for f in dataclasses.fields(c)],
        dataclasses.is_dataclass(c),
    )


@program("ordered dataclasses")
def test_ordered_dataclass(x):
    a, b = Ranked(1, "b"), Ranked(2, "a")
    return x, a < b, max(a, b).rank, sorted([b, a])[0].rank, a >= b, a == Ranked(1, "z")


@program("dataclass argument mutated", inputs=lambda: (Config(), torch.ones(2)))
def test_dataclass_argument(c, x):
    c.width = 9
    c.names.append(x + 1)
    c.extra = x * c.scale
    return c


@program("deque")
def test_deque(x):
    d = deque([1, 2, 3], maxlen=4)
    d.append(4)
    d.appendleft(0)
    d.rotate(1)
    d.extend([7])
    return x * d[0], d, len(d), d.pop(), d.popleft(), list(d), 2 in d, d.maxlen


@program("deque argument", inputs=lambda: (deque([torch.ones(2)]), torch.ones(2)))
def test_deque_argument(d, x):
    d.append(x + 1)
    d.appendleft(x)
    return d.popleft() + d[0], len(d)


@program("defaultdict")
def test_defaultdict(x):
    d = defaultdict(list)
    d["a"].append(x)
    d["a"].append(x + 1)
    n = defaultdict(int)
    for c in "hello":
        n[c] += 1
    return d, dict(n), "zz" in d, n.default_factory


@program("OrderedDict")
def test_ordered_dict(x):
    d = OrderedDict(a=1, b=x)
    d.move_to_end("a")
    d["c"] = 3
    first = d.popitem(last=False)
    return d, first, list(d.keys()), list(reversed(d))


@program("Counter")
def test_counter(x):
    c = Counter("abca")
    c.update(["a"])
    c["z"] += 2
    return x * c["a"], c["nope"], dict(c), c.most_common(1), c + Counter(a=1), sorted(c.elements()), c.total()


@program("ChainMap and UserDict")
def test_chain_map(x):
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": x})
    u = collections.UserDict({"k": 1})
    u["j"] = 2
    return m["a"], m["b"] * 2, len(m), u["k"] + u["j"], "zz" in m


@program("unpacking and star expressions")
def test_unpacking(x):
    a, *b, c = [1, 2, 3, x]
    (d, e), f = (x, 2), 3
    g = [*b, *(4, 5)]
    h = {*b, 9}
    i = *b, a
    return a, b, c, d * e + f, g, h, i


@program("wrong unpacking raises")
def test_unpacking_error(x):
    y = x + 1
    a, b = [1, 2, 3]
    return y + a + b


@program("walrus")
def test_walrus(x):
    if (n := x.shape[0]) > 2:
        x = x * n
    ys = [y := 1, y**2]
    return x, n, ys, [last := i for i in range(3)], last


@program("augmented assignment to items and attributes")
def test_augmented(x):
    d, xs = {"a": 1}, [x]
    d["a"] += 5
    xs[0] *= 2
    xs[0][0] += 1
    c = Config()
    c.width **= 2
    return d, xs, c


@program("identity of constants and containers")
def test_identity(x):
    a, b = [], []
    t = ()
    return x, a is b, a is not b, t is (), x is x, None is None, a == b


@program("hash of plain data")
def test_hash(x):
    return x + hash(3) % 7, hash((1, 2)) == hash((1, 2)), hash("a") == hash("a")


@program("bytearray and memoryview", BREAK)
def test_bytearray(x):
    b = bytearray(b"abc")
    b[0] = 65
    return x + 1, bytes(b)


@program("struct sequences and sys facts")
def test_sys_facts(x):
    import sys

    return x + 1, sys.version_info >= (3, 11), sys.maxsize > 2**32, sys.byteorder


PROXY = types.MappingProxyType({"scale": 3, "shift": 4})


@program("a read-only mapping")
def test_mapping_proxy(x):
    told = [type(PROXY).__name__, isinstance(PROXY, dict), len(PROXY), "scale" in PROXY, PROXY.get("no", 1)]
    told += [list(PROXY.items()), PROXY == {"scale": 3, "shift": 4}, type(PROXY.copy()).__name__, PROXY | {"new": 5}]
    return x * PROXY["scale"] + PROXY["shift"], told, hasattr(PROXY, "update")


@program("a read-only mapping refuses to be written")
def test_mapping_proxy_refuses(x):
    told = []
    try:
        PROXY["scale"] = 5
    except TypeError as error:
        told.append(str(error))
    try:
        del PROXY["scale"]
    except TypeError as error:
        told.append(str(error))
    changed = PROXY
    try:
        changed |= {"new": 1}
    except TypeError as error:
        told.append(str(error))
    return x + len(changed), told
