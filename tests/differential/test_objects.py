"""Corners of the object model, of nn.Module wrappers, and of exceptions."""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import threading
import typing

import torch
from harness import BREAK, SKIP, program
from torch import nn


class Meter:
    """Comparisons that return other things than bools."""

    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return [self.v, other]

    def __lt__(self, other):
        return NotImplemented

    def __gt__(self, other):
        return "greater"

    __hash__ = None

    def __contains__(self, item):
        return item

    def __len__(self):
        return self.v

    def __getitem__(self, key):
        return key


class BadBool:
    def __bool__(self):
        return 3


class A:
    def __add__(self, other):
        return "A.add"

    def __radd__(self, other):
        return "A.radd"


class B(A):
    def __radd__(self, other):
        return "B.radd"


class Proxy:
    """Delegates everything to what it wraps."""

    def __init__(self, inner):
        object.__setattr__(self, "_inner", inner)

    def __getattr__(self, name):
        return getattr(self._inner, name)

    def __setattr__(self, name, value):
        setattr(self._inner, name, value)

    def __call__(self, *args, **kwargs):
        return self._inner(*args, **kwargs)


class RaisingProperty:
    @property
    def bad(self):
        raise AttributeError("inner")

    def __getattr__(self, name):
        return f"fallback {name}"


class Both:
    __slots__ = ("a", "__dict__")

    def __init__(self):
        self.a, self.b = 1, 2


class Indexed:
    def __class_getitem__(cls, item):
        return (cls.__name__, item)


class Registry:
    classes: dict = {}

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Registry.classes[cls.__name__] = cls


class First(Registry):
    def go(self, x):
        return x + 1


class BadInit:
    def __init__(self):
        return 5  # noqa: PLE0101


@typing.runtime_checkable
class HasRun(typing.Protocol):
    def run(self): ...


class Runs:
    def run(self):
        return 1


class Verb(enum.Enum):
    ADD = enum.auto()
    MUL = enum.auto()
    PLUS = ADD

    def apply(self, x):
        match self:
            case Verb.ADD:
                return x + 1
            case Verb.MUL:
                return x * 2


class Movie(typing.TypedDict):
    name: str
    year: int


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    hidden: tuple = ()
    extra: typing.Optional[dict] = None  # noqa: UP045

    def __getitem__(self, i):
        return (self.logits, self.hidden)[i]


@dataclasses.dataclass(kw_only=True, eq=False)
class Options:
    a: int
    b: int = dataclasses.field(default=3, repr=False)
    total: dataclasses.InitVar[int] = 0

    def __post_init__(self, total):
        self.sum = self.a + self.b + total


class Wrapper(nn.Module):
    """Falls back to the wrapped module for attributes, as DDP-like wrappers do."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def __getattr__(self, name):
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.module, name)

    def forward(self, *args, **kwargs):
        return self.module(*args, **kwargs)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.bias = None
        self.register_parameter("absent", None)
        self.register_buffer("cache", None)
        self.table = {}
        self.steps = 0
        self.act = nn.functional.relu
        self.kinds = ["a", "b"]

    @property
    def width(self):
        return self.fc.in_features

    @staticmethod
    def scale(x):
        return x * 2

    @classmethod
    def kind(cls):
        return cls.__name__

    def forward(self, x, mode="a", *, flag=False, **kwargs):
        self.steps += 1
        if self.bias is None and self.absent is None and self.cache is None:
            self.cache = x.sum()
        self.table[mode] = x.shape
        y = self.act(self.fc(x))
        if flag and mode in self.kinds:
            y = self.scale(y)
        return Output(y, hidden=(x, y), extra=kwargs or None)


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(2))
        self.names = ["x", "y"]

    def forward(self, x):
        out = {}
        for name, layer in zip(self.names, self.layers):
            x = layer(x)
            out[name] = x
        for i in range(len(self.layers) - 1, -1, -1):
            x = x + self.layers[i].weight.sum()
        return out, x


def module_inputs(make):
    def inputs():
        state = torch.get_rng_state()
        torch.manual_seed(3)
        module = make()
        torch.set_rng_state(state)
        return module, torch.randn(2, 4)

    return inputs


@program("comparison that returns other things than bools")
def test_rich_comparison(x):
    m = Meter(2)
    return m == 3, m > 1, 3 in m, 0 in m, len(m), m[1:2], m[1, ...], bool(Meter(0))


@program("unhashable and unorderable instances raise TypeError")
def test_unhashable(x):
    out = []
    for f in (
        lambda: {Meter(1)},
        lambda: Meter(1) < Meter(2),
        lambda: hash(Meter(1)),
        lambda: hash([]),
        lambda: {[]: 1},
    ):
        try:
            out.append(f())
        except TypeError as error:
            out.append(str(error))
    return x, out


@program("__bool__ that returns no bool raises")
def test_bad_bool(x):
    y = x + 1
    if BadBool():
        return y
    return x


@program("reflected operator of a subclass comes first")
def test_reflected_priority(x):
    return x, A() + B(), B() + A(), A() + 1, 1 + A(), 1 + B()


@program("proxy objects", inputs=module_inputs(lambda: Proxy(nn.Linear(4, 4))))
def test_proxy(p, x):
    p.note = "n"
    return p(x), p.in_features, p.note


@program("property that raises AttributeError, with __getattr__")
def test_raising_property(x):
    r = RaisingProperty()
    return x, r.bad, r.other


@program("__slots__ with __dict__")
def test_slots_and_dict(x):
    b = Both()
    b.c = x
    return b, b.__dict__, b.a


@program("__class_getitem__")
def test_class_getitem(x):
    return x, Indexed[3], Indexed["a", 1]


@program("classes found in a registry")
def test_registry(x):
    return Registry.classes["First"]().go(x), First in Registry.classes.values()


@program("__init__ that returns something raises")
def test_bad_init(x):
    y = x + 1
    return y, BadInit()


@program("runtime-checkable protocols")
def test_protocol(x):
    return x, isinstance(Runs(), HasRun), isinstance(3, HasRun)


@program("enum: auto, alias, match, iteration")
def test_enum_match(x):
    return Verb.ADD.apply(x), Verb.MUL.apply(x), Verb.PLUS is Verb.ADD, list(Verb), f"{Verb.ADD}", Verb.MUL.value


@program("TypedDict and NewType")
def test_typed_dict(x):
    m = Movie(name="n", year=1)
    return x, m, m["year"]


@program("keyword-only dataclass, InitVar, eq=False")
def test_options(x):
    o = Options(a=2, total=4)
    return x * o.sum, o.b, o == o, o != Options(a=2), repr(o)


@program("module with many kinds of attributes", inputs=module_inputs(Net))
def test_net(m, x):
    out = m(x, "b", flag=True, extra_key=1)
    return out, out.logits, out[1], m.width, m.kind(), m.steps, m.cache, m.table


@program("wrapper modules with __getattr__", inputs=module_inputs(lambda: Wrapper(Wrapper(nn.Linear(4, 4)))))
def test_wrapper(m, x):
    return m(x), m.in_features, hasattr(m, "nope"), m.module.module is m.module.module


@program("module loops with dict results", inputs=module_inputs(Loop))
def test_loop(m, x):
    return m(x)


@program("list of modules outside nn.ModuleList", inputs=lambda: ([nn.Linear(2, 2), nn.ReLU()], torch.ones(1, 2)))
def test_plain_list(ms, x):
    for m in ms:
        x = m(x)
    return x.shape


@program("functional calls with parameters in dicts", inputs=module_inputs(lambda: nn.Linear(4, 4)))
def test_functional_parameters(m, x):
    params = dict(m.named_parameters())
    return nn.functional.linear(x, params["weight"] * 2, params["bias"]), {k: v.shape for k, v in params.items()}


@program("torch.func.functional_call", inputs=module_inputs(lambda: nn.Linear(4, 4)))
def test_functional_call(m, x):
    params = {k: v * 2 for k, v in m.named_parameters()}
    return torch.func.functional_call(m, params, (x,))


@program("requires_grad loop over parameters", inputs=module_inputs(lambda: nn.Linear(4, 4)))
def test_requires_grad_loop(m, x):
    n = sum(p.numel() for p in m.parameters() if p.requires_grad)
    return m(x) * n


@program("gradient accumulation read: p.grad is None", inputs=module_inputs(lambda: nn.Linear(4, 4)))
def test_grad_is_none(m, x):
    return m(x) if m.weight.grad is None else x


@program("module.to and half inside", inputs=module_inputs(lambda: nn.Linear(4, 4)), steady=False)
def test_module_to(m, x):
    y = x + 1
    m.to(torch.float64)
    return m(y.double())


@program("zero_grad inside", inputs=module_inputs(lambda: nn.Linear(4, 4)))
def test_zero_grad(m, x):
    m.zero_grad()
    return m(x)


@program("exception from an inlined method, caught by the caller's caller")
def test_exception_levels(x):
    def a():
        raise KeyError("deep")

    def b():
        try:
            a()
        finally:
            log.append("b")

    def c():
        with_else = "none"
        try:
            b()
        except ValueError:
            with_else = "wrong"
        return with_else

    log = []
    try:
        c()
    except KeyError as error:
        log.append(error.args)
    return x, log


@program("exception notes and custom __str__")
def test_notes(x):
    class_ = ValueError("base")
    class_.add_note("more")
    return x, class_.__notes__, repr(class_)


@program("errors about None and wrong types have Python's words")
def test_error_words(x):
    out = []
    none = None
    for f in (
        lambda: none.attribute, lambda: none(), lambda: none[0], lambda: len(3), lambda: [1, 2]["a"], lambda: {}["k"], lambda: (1,)[5],
        lambda: "abc"[9], lambda: int([]), lambda: iter(3), lambda: next([]), lambda: [].pop(), lambda: {}.popitem(), lambda: 1 + "a",
        lambda: [] + (), lambda: max([]), lambda: sum(["a"]), lambda: "a" * "b", lambda: -"s", lambda: 1 < "a", lambda: [].remove(1),
        lambda: [].index(3), lambda: set().pop(), lambda: dict([1]), lambda: float("x"), lambda: ord("ab"), lambda: range(1.5),
        lambda: 3 in 4, lambda: x.nope, lambda: abs("s"), lambda: sorted([1, "a"]), lambda: {1}.remove(5), lambda: print(sep=3),
    ):  # fmt: skip
        try:
            f()
            out.append("no error")
        except Exception as error:
            out.append((type(error).__name__, str(error)))
    return out


@program("calls with wrong arguments have Python's words")
def test_call_words(x):
    def f(a, b, *, c):
        return a

    out = []
    for g in (
        lambda: f(),
        lambda: f(1),
        lambda: f(1, 2),
        lambda: f(1, 2, 3),
        lambda: f(1, 2, c=3, d=4),
        lambda: f(1, 2, a=1, c=2),
        lambda: Output(),
    ):
        try:
            g()
        except TypeError as error:
            out.append(str(error))
    return x, out


@program("partial objects as attributes and methods")
def test_partial_attributes(x):
    p = functools.partial(torch.add, alpha=2)
    q = functools.partial(p, x)
    return q(x), p(x, x, alpha=3), q.func is torch.add, q.keywords


@program("class-level constants, nested classes and static tables")
def test_nested_class(x):
    return x * Outer.Inner.value + Outer.TABLE["k"], Outer.Inner.__qualname__


class Outer:
    TABLE: typing.ClassVar = {"k": 4}

    class Inner:
        value = 2


@program("ternaries, lambdas and conditionals in defaults")
def test_mixed_expressions(x):
    pick = (lambda c: x + 1 if c else x - 1) if x.ndim else None
    table = {True: pick, False: None}
    return table[bool(x.ndim)](0), [v if v else -1 for v in (0, 1)], (x and 1) if x is None else "set"


@program("long and chained string building")
def test_string_building(x):
    parts = []
    for i, d in enumerate(x.shape):
        parts.append(f"{i}:{d:03d}")
    return (
        x,
        ",".join(parts),
        "".join(reversed("abc")),
        ("%s|%5.2f|%r" % ("a", 1.5, [1])),
        "a".join(str(i) for i in range(3)),
    )


@program("bit tricks and integer loops")
def test_integer_loops(x):
    n, steps = 27, 0
    while n != 1:
        n = n // 2 if n % 2 == 0 else 3 * n + 1
        steps += 1
    primes = [p for p in range(2, 30) if all(p % q for q in range(2, p))]
    return x * steps, primes


class Local(threading.local):
    def __init__(self, **fields):
        self.__dict__.update(fields)


THREAD_LOCAL = Local(count=1)


@program("threading.local")
def test_thread_local(x):
    y = x + 1
    made = Local(a=2)
    THREAD_LOCAL.count = 5
    return y * made.a, THREAD_LOCAL.count, made.__dict__


class Ancestor:
    def scale(self, x):
        return x * 2


class Sharing(Ancestor):
    """A method whose `self` is a cell: an inner function uses it too."""

    factor = 3

    def scale(self, x):
        y = x + 1
        if y.sum() > 1e9:
            return y
        return sum(super(Sharing, self).scale(y) * self.factor for _ in range(2)) + super().scale(y)


@program("super() where an inner function shares self, around a break", BREAK if sys.version_info < (3, 12) else SKIP)
def test_shared_receiver(x):
    return Sharing().scale(x)


class Tagging(type):
    """A metaclass that does more when a class is called."""

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tagged = True
        return made


class Tagged(metaclass=Tagging):
    def __init__(self, v):
        self.v = v


class Tenfold:
    """A descriptor that can be deleted."""

    def __get__(self, instance, owner=None):
        return instance.__dict__.get("stored", 0)

    def __set__(self, instance, value):
        instance.__dict__["stored"] = value * 10

    def __delete__(self, instance):
        del instance.__dict__["stored"]


class WithTenfold:
    field = Tenfold()


class Slotted:
    __slots__ = ("a",)


class OnlyLess:
    def __init__(self, v):
        self.v = v

    def __lt__(self, other):
        return self.v < other.v

    def __index__(self):
        return 2


@program("metaclass whose __call__ calls super()")
def test_metaclass_call(x):
    made = Tagged(x)
    return made.v * 2, made.tagged


@program("descriptor with __delete__")
def test_descriptor_delete(x):
    held = WithTenfold()
    held.field = 3
    before = held.field
    del held.field
    return before, held.field, x


@program("attribute that is no slot")
def test_no_slot(x):
    held = Slotted()
    held.a = x
    try:
        held.b = 1
    except AttributeError as error:
        return held.a, str(error)
    return None


@program("ordering by the reflected method, __index__ into strings and ranges")
def test_reflected_order(x):
    return OnlyLess(2) > OnlyLess(1), max(OnlyLess(3), OnlyLess(9)).v, range(5)[OnlyLess(1)], "abc"[OnlyLess(1)], x


@program("docstrings of functions made inside")
def test_docstrings(x):
    def outer(f):
        @functools.wraps(f)
        def inner(*args):
            return f(*args)

        return inner

    @outer
    def scale(v):
        """Twice."""
        return v * 2

    def bare(v):
        return v

    return scale(x), scale.__doc__, scale.__name__, scale.__module__, bare.__doc__, bare.__closure__, scale


@program("words of wrong calls")
def test_wrong_calls(x):
    def f(a, /, b, *, c):
        return a

    found = []
    for call in (lambda: f(a=1, b=2, c=3), lambda: f(1, 2), lambda: f(1, 2, 3, c=1), lambda: f(1, 2, 3, 4)):
        try:
            call()
        except TypeError as error:
            found.append(str(error))
    return found, x


@program("str.translate, str.maketrans, iterators' own methods, torch.cond on a known predicate")
def test_library_corners(x):
    table = str.maketrans("lo", "01")
    return (
        "hello".translate(table), "hello".translate({104: "H"}), reversed([1, 2]).__next__(), iter([5]).__iter__().__next__(),
        torch.cond(x.shape[0] == 3, lambda v: v + 1, lambda v: v - 1, (x,)), x.is_inference(),
    )  # fmt: skip


@program("words of wrong unpacking, of min(), of attribute names, of super()", BREAK)
def test_wrong_words(x):
    found = []
    for call in (lambda: {**[1]}, lambda: [*5], lambda: min(), lambda: getattr(x, 1), lambda: super()):
        try:
            call()
        except (TypeError, RuntimeError) as error:
            found.append(str(error))
    return found, x


class Pair(tuple):
    """A tuple whose constructor takes its parts apart."""

    def __new__(cls, a, b):
        return super().__new__(cls, (a, b))

    @property
    def first(self):
        return self[0]


class Number(int):
    def double(self):
        return self * 2


class Name(str):
    pass


@program("tuple, int and str subclasses: rebuilt, as operands of tensors, as keys")
def test_plain_subclasses(x):
    pair, number, name = Pair(1, x), Number(3), Name("ab")
    return pair, pair.first, x * number, number - x, number.double(), {name: 1}["ab"], {"ab": 2}[name], {number: 1}[3]
