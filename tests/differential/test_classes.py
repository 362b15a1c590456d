"""User classes: construction, attributes, descriptors, protocols, inheritance."""

from __future__ import annotations

import abc
import enum
import functools
from typing import Generic, TypeVar

import torch
from harness import BREAK, ONE, program

T = TypeVar("T")


class Plain:
    shared = 5
    registry: list = []

    def __init__(self, x, k=2):
        self.x, self.k = x, k

    def scaled(self):
        return self.x * self.k


class WithProperty:
    def __init__(self, v):
        self._v = v

    @property
    def v(self):
        return self._v * 2

    @v.setter
    def v(self, new):
        self._v = new + 1

    @v.deleter
    def v(self):
        self._v = None


class Typed:
    """A data descriptor."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, instance, owner=None):
        return self if instance is None else getattr(instance, self.name, 0) + 1

    def __set__(self, instance, value):
        setattr(instance, self.name, value * 2)


class Lazy_:
    """A non-data descriptor."""

    def __init__(self, f):
        self.f = f

    def __get__(self, instance, owner=None):
        return self.f(instance)


class Described:
    size = Typed()

    def __init__(self, x):
        self.x = x

    @Lazy_
    def doubled(self):
        return self.x * 2

    @functools.cached_property
    def tripled(self):
        return self.x * 3


class Fallback:
    def __init__(self, **kw):
        self.__dict__.update(kw)

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name)
        raise AttributeError(name)


class Intercept:
    def __init__(self):
        object.__setattr__(self, "log", [])

    def __getattribute__(self, name):
        if name == "magic":
            return 42
        return object.__getattribute__(self, name)

    def __setattr__(self, name, value):
        self.log.append(name)
        super().__setattr__(name, value)

    def __delattr__(self, name):
        self.log.append("del " + name)
        object.__delattr__(self, name)


class Slots:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


class Vector:
    def __init__(self, t):
        self.t = t

    def __add__(self, other):
        return Vector(self.t + (other.t if isinstance(other, Vector) else other))

    def __radd__(self, other):
        return Vector(other + self.t)

    def __mul__(self, other):
        if not isinstance(other, (int, float)):
            return NotImplemented
        return Vector(self.t * other)

    def __rmul__(self, other):
        return self * other

    def __iadd__(self, other):
        self.t = self.t + other
        return self

    def __neg__(self):
        return Vector(-self.t)

    def __abs__(self):
        return Vector(self.t.abs())

    def __matmul__(self, other):
        return (self.t * other.t).sum()

    def __eq__(self, other):
        return isinstance(other, Vector) and self.t.shape == other.t.shape

    def __hash__(self):
        return 7

    def __bool__(self):
        return self.t.ndim > 1

    def __len__(self):
        return self.t.shape[0]

    def __getitem__(self, key):
        return self.t[key]

    def __setitem__(self, key, value):
        self.t = self.t.clone()
        self.t[key] = value

    def __contains__(self, item):
        return item == "t"

    def __iter__(self):
        return iter([self.t, self.t + 1])

    def __call__(self, x):
        return self.t + x

    def __repr__(self):
        return f"Vector{tuple(self.t.shape)}"

    def __float__(self):
        return 2.5

    def __int__(self):
        return 2

    def __index__(self):
        return 1

    def __round__(self, n=None):
        return 3

    def __lt__(self, other):
        return len(self) < len(other)

    def __divmod__(self, other):
        return (1, 2)

    def __reversed__(self):
        return iter([3, 2, 1])

    def __format__(self, spec):
        return f"<{spec}>"

    def __enter__(self):
        return self

    def __exit__(self, *args):
        return False


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n <= 0:
            raise StopIteration
        self.n -= 1
        return self.n


class Base:
    kind = "base"

    def __init__(self, x):
        self.x = x
        self.trail = ["base"]

    def run(self):
        return self.x + 1

    @classmethod
    def make(cls, x):
        return cls(x)

    def __init_subclass__(cls, tag=None, **kw):
        super().__init_subclass__(**kw)
        cls.tag = tag


class Left(Base, tag="l"):
    def __init__(self, x):
        super().__init__(x)
        self.trail.append("left")

    def run(self):
        return super().run() * 2


class Right(Base):
    def __init__(self, x):
        super().__init__(x)
        self.trail.append("right")

    def run(self):
        return super().run() * 3

    @classmethod
    def make(cls, x):
        return super().make(x * 2)


class Diamond(Left, Right, tag="d"):
    def run(self):
        return super(Diamond, self).run() + Right.run(self)


class Meta(type):
    def __new__(mcs, name, bases, namespace):
        cls = super().__new__(mcs, name, bases, namespace)
        cls.made_by = "meta"
        return cls

    @property
    def label(cls):
        return cls.__name__ + "!"

    def __len__(cls):
        return 11


class WithMeta(metaclass=Meta):
    pass


class Singleton(type):
    instances: dict = {}

    def __call__(cls, *args):
        if cls not in Singleton.instances:
            Singleton.instances[cls] = super().__call__(*args)
        return Singleton.instances[cls]


class Only(metaclass=Singleton):
    def __init__(self, v=3):
        self.v = v


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    def twice(self):
        return 2 * self.area()


class Square(Shape):
    def __init__(self, s):
        self.s = s

    def area(self):
        return self.s * self.s


class Box(Generic[T]):
    def __init__(self, item: T):
        self.item = item

    def get(self) -> T:
        return self.item


class NewOnly:
    def __new__(cls, v):
        self = super().__new__(cls)
        self.v = v
        return self


class OtherNew:
    def __new__(cls, v):
        return [v]


class MyList(list):
    def total(self):
        return sum(self)

    def append(self, item):
        super().append(item * 2)


class MyDict(dict):
    def __missing__(self, key):
        return f"no {key}"

    def __setitem__(self, key, value):
        super().__setitem__(key.upper(), value)


class MyInt(int):
    def twice(self):
        return self * 2


class MyStr(str):
    def shout(self):
        return self.upper() + "!"


class MyTuple(tuple):
    def first(self):
        return self[0]


@functools.total_ordering
class Version:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __lt__(self, other):
        return self.n < other.n


class Getter:
    def __getitem__(self, i):
        if i >= 3:
            raise IndexError
        return i * 10


@program("construction and attributes")
def test_construction(x):
    p = Plain(x)
    p.k += 1
    p.extra = p.scaled()
    return p, p.shared, Plain.shared, p.__class__ is Plain, type(p).__name__, isinstance(p, Plain)


@program("object argument: attributes read and written", inputs=lambda: (Plain(torch.ones(2)),))
def test_object_argument(p):
    p.x = p.scaled()
    p.new = [p.x]
    p.new.append(p)
    return p.x


@program("object argument: deletion of attributes", inputs=lambda: (Plain(torch.ones(2)),))
def test_delete_attribute(p):
    del p.k
    return hasattr(p, "k"), getattr(p, "k", 5), p.x


@program("missing attribute raises", inputs=lambda: (Plain(torch.ones(2)),))
def test_missing_attribute(p):
    y = p.x + 1
    return y + p.nope


@program("properties with setter and deleter")
def test_properties(x):
    w = WithProperty(x)
    w.v = x + 1
    first = w.v
    del w.v
    return first, w._v


@program("property without setter raises")
def test_property_error(x):
    d = Described(x)
    y = d.doubled
    p = Square(2)
    type(p)
    x.shape = 3
    return y


@program("descriptors: data, non-data, __set_name__")
def test_descriptors(x):
    d = Described(x)
    d.size = 4
    return d.size, d.doubled, d._size, Described.size.name


@program("functools.cached_property")
def test_cached_property(x):
    d = Described(x)
    return d.tripled is d.tripled, d.tripled, sorted(d.__dict__)


@program("__getattr__")
def test_getattr(x):
    f = Fallback(a=1)
    return x * f.dyn_ab + f.a, hasattr(f, "zz"), getattr(f, "zz", None)


@program("__getattribute__, __setattr__, __delattr__")
def test_intercept(x):
    i = Intercept()
    i.p = x
    del i.p
    i.q = 1
    return x * i.magic, i.log, hasattr(i, "p")


@program("__slots__")
def test_slots(x):
    s = Slots(x)
    s.b = 2
    s.a = s.a * s.b
    return s, hasattr(s, "b")


@program("__slots__ argument", inputs=lambda: (Slots(torch.ones(2)),))
def test_slots_argument(s):
    s.b = s.a + 1
    s.a = 3
    return s.b


@program("empty slot raises AttributeError", inputs=lambda: (Slots(torch.ones(2)),))
def test_empty_slot(s):
    try:
        return s.b
    except AttributeError:
        return s.a * 2


@program("binary operators, reflected, in-place, unary")
def test_operators(x):
    v = Vector(x)
    a, b, c, d = v + v, v + 1, 1 + v, 3 * v
    v += 1
    return a.t, b.t, c.t, d.t, v.t, (-v).t, abs(v).t, v @ v


@program("operators between instances and tensors")
def test_tensor_operators(x):
    v = Vector(x)
    return (v + x).t, (x + v.t)


@program("unsupported operands raise TypeError")
def test_operator_error(x):
    y = x + 1
    return y, Vector(x) * "s"


@program("comparison, equality, hash")
def test_comparison(x):
    v, w = Vector(x), Vector(x + 1)
    return v == w, v != w, v < w, v is w, {v: 1}[w], len({v, w})


@program("container protocol")
def test_container_protocol(x):
    v = Vector(x)
    v[0] = 1.0
    return len(v), v[0], "t" in v, [t.sum() for t in v], bool(v), v(x), list(reversed(v))


@program("conversion protocol")
def test_conversion(x):
    v = Vector(x)
    return float(v), int(v), [10, 20, 30][v], round(v), divmod(v, 1), f"{v:>3}", str(v), repr([v]), f"{v!r}"


@program("iterator protocol")
def test_iterator_protocol(x):
    total = x
    for n in Countdown(3):
        total = total + n
    a, b = Countdown(2)
    return total, a, b, list(Countdown(4)), sum(Countdown(3)), next(Countdown(1)), next(Countdown(0), "end")


@program("old iteration protocol: __getitem__")
def test_getitem_iteration(x):
    return x, list(Getter()), 20 in Getter(), [i for i in Getter()]


@program("user context manager on an instance")
def test_instance_with(x):
    with Vector(x) as v:
        y = v.t + 1
    return y


@program("inheritance and super()")
def test_inheritance(x):
    left = Left(x)
    return left.run(), left.trail, left.kind, Left.tag, issubclass(Left, Base)


@program("multiple inheritance, MRO, super with arguments")
def test_diamond(x):
    d = Diamond(x)
    return d.run(), d.trail, [c.__name__ for c in Diamond.__mro__], Diamond.tag, Right.make(x).x


@program("metaclass attributes")
def test_metaclass(x):
    return x * len(WithMeta), WithMeta.label, WithMeta.made_by, type(WithMeta) is Meta, isinstance(WithMeta(), WithMeta)


@program("metaclass __call__")
def test_metaclass_call(x):
    return x * Only().v


@program("abstract classes")
def test_abstract(x):
    s = Square(3)
    return x * s.area(), s.twice(), isinstance(s, Shape), Shape.__abstractmethods__


@program("instantiating an abstract class raises")
def test_abstract_error(x):
    y = x + 1
    return y, Shape()


@program("Generic classes")
def test_generic(x):
    b = Box[int](x)
    return b.get() + 1, Box(2).get(), isinstance(b, Box)


@program("__new__")
def test_new(x):
    return NewOnly(x), OtherNew(x)


@program("subclasses of list, dict, tuple, int, str")
def test_builtin_subclasses(x):
    xs = MyList([1, 2])
    xs.append(5)
    d = MyDict()
    d["a"] = 1
    return (
        x * xs.total(),
        xs,
        d,
        d["zz"],
        MyInt(4).twice(),
        MyStr("hi").shout(),
        MyTuple([x, 1]).first(),
        len(xs),
        xs[0],
    )


@program("subclass of list as argument", inputs=lambda: (MyList([1, 2]), torch.ones(2)))
def test_list_subclass_argument(xs, x):
    xs.append(3)
    return x * xs.total(), xs


@program("subclass of dict as argument", inputs=lambda: (MyDict(A=1), torch.ones(2)))
def test_dict_subclass_argument(d, x):
    d["b"] = x
    return d["A"], d["nope"], len(d)


@program("functools.total_ordering")
def test_total_ordering(x):
    a, b = Version(1), Version(2)
    return x, a <= b, a > b, max(a, b).n, sorted([b, a])[0].n


@program("class attributes read through instances and changed on them")
def test_class_attributes(x):
    p = Plain(x)
    p.shared = 6
    return p.shared, Plain.shared, Plain(x).shared


@program("mutable class attribute")
def test_mutable_class_attribute(x):
    Plain.registry.append(1)
    n = len(Plain.registry)
    Plain.registry.clear()
    return x * n


@program("assignment to a class attribute")
def test_class_assignment(x):
    Plain.shared = 5
    return x * Plain.shared


@program("class defined inside")
def test_class_inside(x):
    class Local:
        k = 2

    return x * Local.k


@program("vars, dir, __dict__, getattr, setattr, delattr")
def test_reflection(x):
    p = Plain(x, 3)
    setattr(p, "z", 9)
    delattr(p, "k")
    return sorted(vars(p)), p.__dict__["z"], getattr(p, "x") is x, hasattr(p, "k"), "scaled" in dir(p)


@program("private names and class scope")
def test_private_names(x):
    return x * _Private().get()


class _Private:
    def __init__(self):
        self.__hidden = 3

    def get(self):
        return self.__hidden


@program("isinstance and issubclass with tuples, ABCs and unions")
def test_isinstance(x):
    import collections.abc as ca

    return (
        isinstance(x, torch.Tensor), isinstance(1, (int, str)), isinstance([], ca.Sequence), isinstance({}, ca.Mapping),
        issubclass(bool, int), isinstance(1, int | str), isinstance(Vector(x), ca.Iterable), isinstance(x, torch.nn.Parameter),
    )  # fmt: skip


@program("instances in sets and as dictionary keys", inputs=lambda: (Plain(1), Plain(2), torch.ones(2)))
def test_instance_keys(a, b, x):
    d = {a: 1, b: 2}
    return x * d[a], a in {b}, len({a, b, a})


@program("objects that refer to each other", inputs=lambda: (Plain(torch.ones(2)), Plain(torch.zeros(2))))
def test_mutual(a, b):
    a.other, b.other = b, a
    a.other.x = b.x + 5
    return a.other.other is a, b.x


@program("the same object through two names", inputs=lambda: (lambda p: (p, [p]))(Plain(torch.ones(2))))
def test_alias(p, ps):
    p.x = p.x + 1
    ps[0].x = ps[0].x * 2
    return ps[0].x, p is ps[0]


@program("string and repr of plain objects", ONE)
def test_default_str(x):
    return x, str(Vector(x)), "{}".format(Vector(x)), "%s" % Vector(x)


@program("class defined inside: properties, super(), exceptions, defaults")
def test_class_inside_rich(x):
    class Point:
        kind: str = "point"

        def __init__(self, v, w=2):
            self.v, self.w = v, w

        @property
        def total(self):
            return self.v * self.w

        @staticmethod
        def double(v):
            return v * 2

    class Point3(Point):
        def __init__(self, v):
            super().__init__(v, 3)

    class Stop(Exception):
        pass

    try:
        raise Stop("here")
    except Stop as stop:
        return Point3(x).total, Point.double(x), Point3.kind, isinstance(Point3(x), Point), stop.args


@program("class defined inside that is returned", default=True)
def test_class_escapes(x):
    y = x + 1

    class Holder:
        def __init__(self, v):
            self.v = v

    held = Holder(y * 2)
    return held.v, held, Holder.__name__


@program("class defined inside that is alive at a break", BREAK, steady=False)
def test_class_at_break(x):
    class Holder:
        def __init__(self, v):
            self.v = v

    held = Holder(x * 2)
    if x.sum() > 1e9:
        return x
    return held.v + Holder(x).v


@program("class defined inside with a closure", default=True)
def test_class_closure(x):
    y = x + 1

    class Adder:
        def add(self, v):
            return v + y

    return Adder().add(x)


@program("class defined inside with a metaclass or hooks", BREAK, steady=False)
def test_class_hooks(x):
    y = x + 1

    class Kind(enum.Enum):
        A = 1

    return y, Kind.A.value


def makes_unused_class(x):
    y = x * 2

    class Unused(torch.autograd.Function):
        @staticmethod
        def forward(ctx, v):
            return v + y

    return y


@program("class defined in a callee and not used")
def test_class_unused(x):
    return makes_unused_class(x) + 1


@program("torch.masked")
def test_masked(x):
    mask = x > 0
    return torch.masked.sum(x, 1, mask=mask), torch.masked.softmax(x, 1, mask=mask), torch.masked.amax(x, 0, mask=mask)
