"""What is read is guarded: each way to look at a live object, then a change of what it looked at."""

from __future__ import annotations

import abc
import collections.abc
import enum
import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

X = torch.ones(2)


class Thing:
    pass


class Color(enum.Enum):
    RED = 1
    BLUE = 2


@typing.runtime_checkable
class HasSize(typing.Protocol):
    size: int


class Family(abc.ABC):
    pass


class Hooked(abc.ABC):
    @classmethod
    def __subclasshook__(cls, other: type) -> Any:
        return "quack" in vars(other) or NotImplemented


class Meta(type):
    wide = False

    def __instancecheck__(cls, instance: Any) -> bool:
        return cls.wide or type(instance) is cls

    def __contains__(cls, item: Any) -> bool:
        return cls.wide


class Loose(metaclass=Meta):
    pass


class Base:
    pass


def module_with(source: str) -> types.ModuleType:
    made = types.ModuleType("made_for_a_test")
    exec(source, vars(made))
    return made


class Properties(types.ModuleType):
    @property
    def flag(self) -> int:
        return self.__dict__["_flag"]


@functools.lru_cache(None)
def table(n: int) -> torch.Tensor:
    return torch.full((n,), SCALE)


@functools.lru_cache(None)
def number(n: int) -> float:
    return n * SCALE


SCALE = 1.0
Case = tuple[Callable[..., Any], Callable[[], Any]]


def properties() -> Case:
    m = Properties("m")
    m._flag = 1
    return lambda x: x * m.flag, lambda: setattr(m, "_flag", 2)


def module_getattr() -> Case:
    m = module_with("n = 1\ndef __getattr__(name): return len(name) + n")
    return lambda x: x * m.four, lambda: setattr(m, "n", 5)


def backend_flag() -> Case:
    def change() -> None:
        torch._C._set_cudnn_benchmark(not torch.backends.cudnn.benchmark)

    return lambda x: x + 1 if torch.backends.cudnn.benchmark else x - 1, change


def threads() -> Case:
    return lambda x: x * torch.get_num_threads(), lambda: torch.set_num_threads(3 - min(torch.get_num_threads(), 2))


def member() -> Case:
    Color.RED.scale = 2.0  # type: ignore[attr-defined]
    return lambda x: x * Color.RED.scale, lambda: setattr(Color.RED, "scale", 3.0)  # type: ignore[attr-defined]


def attributes(reader: Callable[[Any], Any]) -> Callable[[], Case]:
    def case() -> Case:
        o = Thing()
        return lambda x: x + 1 if reader(o) else x - 1, lambda: setattr(o, "size", 1)

    return case


def of_class(reader: Callable[[Any], Any], change: Callable[[type], Any]) -> Callable[[], Case]:
    def case() -> Case:
        cls = type("Fresh", (Base,), {})
        o = cls()
        return lambda x: x + 1 if reader(o) else x - 1, lambda: change(cls)

    return case


def subclasses() -> Case:
    root = type("Root", (), {})
    kept: list[type] = []
    return lambda x: x + len(root.__subclasses__()), lambda: kept.append(type("Leaf", (root,), {}))


def cleared(function: Any) -> Callable[[], Case]:
    def case() -> Case:
        def change() -> None:
            global SCALE
            function.cache_clear()
            SCALE += 1.0
            function(2)

        return lambda x: x * function(2), change

    return case


def imported() -> Case:
    def program(x: Any) -> Any:
        import made_for_a_test as found

        return x * found.n

    sys.modules["made_for_a_test"] = module_with("n = 1")
    return program, lambda: sys.modules.__setitem__("made_for_a_test", module_with("n = 7"))


def identity_of_floats() -> Case:
    held = Thing()
    held.a = held.b = 1e-5  # type: ignore[attr-defined]
    return lambda x: x + 1 if held.a is held.b else x - 1, lambda: setattr(held, "b", float("1e-5"))  # type: ignore[attr-defined]


def function_fields() -> Case:
    def f() -> None: ...

    return lambda x: x * len(f.__name__), lambda: setattr(f, "__name__", "longer")


def function_words() -> Case:
    def f() -> None: ...

    return lambda x: x * len(f.__doc__ or ""), lambda: setattr(f, "__doc__", "words")


def class_name() -> Case:
    cls = type("Short", (), {})
    return lambda x: x * len(cls.__name__), lambda: setattr(cls, "__name__", "MuchLonger")


def class_namespace() -> Case:
    cls = type("Fresh", (), {"a": 1})
    return lambda x: x * len([n for n in vars(cls) if len(n) == 1]), lambda: setattr(cls, "b", 1)


def class_bases() -> Case:
    cls = type("Fresh", (Base,), {})
    return lambda x: x * (len(cls.__mro__) + len(cls.__bases__[0].__name__)), lambda: setattr(
        cls, "__bases__", (Thing,)
    )


def view() -> Case:
    held = Thing()
    held.row = torch.ones(3, 2)[1]  # type: ignore[attr-defined]
    return lambda x: x * (2 if held.row._is_view() else 3), lambda: setattr(held, "row", torch.ones(2))  # type: ignore[attr-defined]


def result_number() -> Case:
    held = Thing()
    first, second = torch.ones(2, 2, requires_grad=True).unbind()
    held.row = first  # type: ignore[attr-defined]
    return lambda x: x * (2 + held.row.output_nr), lambda: setattr(held, "row", second)  # type: ignore[attr-defined]


def retained() -> Case:
    held = Thing()
    held.row = torch.ones(2, requires_grad=True) * 2  # type: ignore[attr-defined]
    return lambda x: x * (2 if held.row.retains_grad else 3), lambda: held.row.retain_grad()  # type: ignore[attr-defined]


CASES: dict[str, Callable[[], Case]] = {
    "whose result a tensor is": result_number,
    "whether a tensor retains its gradient": retained,
    "whether a tensor is a view": view,
    "a property of a module": properties,
    "a module's __getattr__": module_getattr,
    "a flag of a back end": backend_flag,
    "the number of threads": threads,
    "an attribute of an enum member": member,
    "dir": attributes(lambda o: "size" in dir(o)),
    "vars": attributes(lambda o: "size" in vars(o)),
    "len(vars)": attributes(lambda o: len(vars(o))),
    "__dict__": attributes(lambda o: list(o.__dict__)),
    "hasattr": attributes(lambda o: hasattr(o, "size")),
    "getattr": attributes(lambda o: getattr(o, "size", 0)),
    "a protocol": attributes(lambda o: isinstance(o, HasSize)),
    "a protocol in a tuple": attributes(lambda o: isinstance(o, (int, HasSize))),
    "a registry": of_class(lambda o: isinstance(o, Family), Family.register),
    "a registry, by class": of_class(lambda o: issubclass(type(o), Family), Family.register),
    "a registry of the library": of_class(
        lambda o: isinstance(o, collections.abc.Sized), collections.abc.Sized.register
    ),
    "a metaclass's __instancecheck__": of_class(
        lambda o: isinstance(o, Loose), lambda cls: setattr(Meta, "wide", True)
    ),
    "a metaclass's __contains__": of_class(lambda o: 3 in Loose, lambda cls: setattr(Meta, "wide", not Meta.wide)),
    "callable": of_class(callable, lambda cls: setattr(cls, "__call__", lambda self: 1)),
    "truth": of_class(bool, lambda cls: setattr(cls, "__len__", lambda self: 0)),
    "__subclasses__": subclasses,
    "an lru_cache of tensors": cleared(table),
    "an lru_cache of numbers": cleared(number),
    "sys.modules": imported,
    "identity of floats": identity_of_floats,
    "a function's name": function_fields,
    "a function's words": function_words,
    "a class's name": class_name,
    "a class's namespace": class_namespace,
    "a class's bases": class_bases,
}


@pytest.mark.parametrize("name", CASES)
def test_a_change_is_seen(name: str) -> None:
    program, change = CASES[name]()
    compiled = stoker.compile(program, backend="eager")
    threads = torch.get_num_threads()
    before = program(X)
    assert torch.equal(compiled(X), before)
    assert torch.equal(compiled(X), before)
    try:
        change()
        after = program(X)
        assert not torch.equal(before, after)
        assert torch.equal(compiled(X), after)
    finally:
        Meta.wide = False
        torch.set_num_threads(threads)
        sys.modules.pop("made_for_a_test", None)


def test_registrations_elsewhere_recompile_nothing() -> None:
    graphs: list[Any] = []
    o = Thing()
    program = lambda x: x + 1 if isinstance(o, Family) else x - 1  # noqa: E731
    compiled = stoker.compile(program, backend=lambda g, e: graphs.append(g) or g.forward)
    for _ in range(3):
        assert torch.equal(compiled(X), program(X))
        type("Other", (abc.ABC,), {}).register(type("Unrelated", (), {}))  # type: ignore[attr-defined]
    assert len(graphs) == 1


class Permissive:
    asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        Permissive.asked.append(name)
        raise KeyError(name)

    def scale(self) -> float:
        return 2.0


@pytest.mark.parametrize("hold", [lambda o: o, lambda o: [o][0], lambda o: {"k": o}["k"], lambda o: (o, 1)[0]])
def test_nothing_is_asked_of_users_objects(hold: Callable[[Any], Any]) -> None:
    """Only the program asks an object for attributes: a `__getattr__` may answer anything, or raise."""
    o, holder = Permissive(), Thing()
    holder.o = o  # type: ignore[attr-defined]
    Permissive.asked.clear()
    assert torch.equal(stoker.compile(lambda x: x * hold(o).scale(), backend="eager")(X), X * 2)
    assert torch.equal(stoker.compile(lambda x: x * hold(holder.o).scale(), backend="eager")(X), X * 2)  # type: ignore[attr-defined]
    assert torch.equal(stoker.compile(lambda x, p: (x * hold(p).scale(), p), backend="eager")(X, o)[0], X * 2)
    assert Permissive.asked == []


def _renamed(x: Any, other: Any) -> None: ...


def _with_attribute(name: str, value: Any) -> Callable[[Any], None]:
    return lambda function: setattr(function, name, value)


@pytest.mark.parametrize("wrapped", [False, True], ids=["itself", "wrapped"])
@pytest.mark.parametrize("method", [False, True], ids=["function", "method"])
@pytest.mark.parametrize(
    "change",
    [
        _with_attribute("__defaults__", (7,)),
        _with_attribute("__defaults__", None),
        _with_attribute("__kwdefaults__", {"key": 9}),
        lambda function: function.__kwdefaults__.update(key=5),
        lambda function: function.__annotations__.update(scale=int),
        _with_attribute("__code__", _renamed.__code__),
        _with_attribute("__signature__", inspect.signature(_renamed)),
        _with_attribute("__wrapped__", _renamed),
    ],
    ids="defaults no_defaults kwdefaults in_kwdefaults annotations code signature another".split(),
)
def test_signatures(change: Callable[[Any], None], method: bool, wrapped: bool) -> None:
    def asked(x, scale: float = 2.0, *, key=3): ...

    holder = type("Holder", (), {})
    given: Any = asked
    if wrapped:

        @functools.wraps(asked)
        def given(*args, **kwargs): ...

    holder.asked = given
    place = holder() if method else types.SimpleNamespace(asked=given)

    def program(x):
        names = list(inspect.signature(place.asked).parameters.values())
        return x * len(names), str(names[-1]) if names else "", [p.default is p.empty for p in names]

    compiled = stoker.compile(program, backend="eager")
    for _ in range(2):
        found, expected = compiled(X), program(X)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]
        change(asked)


class Quarrelsome:
    """Raises when it is asked whether it is equal to something, or for its hash."""

    def __eq__(self, other: Any) -> bool:
        raise ArithmeticError("who asks?")

    def __hash__(self) -> int:
        raise ArithmeticError("who asks?")

    def __call__(self, x: Any) -> Any:
        print("called")  # a break may follow
        return x + 1


class QuarrelsomeList(list):
    __eq__, __hash__ = Quarrelsome.__eq__, Quarrelsome.__hash__


@pytest.mark.parametrize("opaque", [Quarrelsome(), functools.cmp_to_key(lambda p, q: p - q)], ids=["object", "key"])
def test_objects_are_not_compared(opaque: Any) -> None:
    """Neither as a function, nor as an argument of a call that breaks, nor as what a method belongs to."""
    rows = QuarrelsomeList([3, 1, 2])

    def program(x: Any, f: Any) -> Any:
        y = x * 2
        torch._assert(True, "")
        found = [sorted(rows, key=f)] if not isinstance(f, Quarrelsome) else [f(x), str.join(",", map(str, rows))]
        rows.append(len(rows))
        return y, found, f is opaque, type(f)

    expected = program(X, opaque)
    rows.pop()
    found = stoker.compile(program, backend="eager")(X, opaque)
    assert torch.equal(found[0], expected[0]) and str(found[1:]) == str(expected[1:])


def test_a_history_that_the_program_gives() -> None:
    """What was read of a tensor at entry holds until it is written."""

    def program(x: torch.Tensor, w: torch.Tensor) -> list[Any]:
        told = [x.is_leaf, x.retains_grad, x.output_nr]
        x[1:].mul_(w[1:])
        return [*told, x.is_leaf, x.retains_grad, x.requires_grad, x.output_nr, w.is_leaf]

    make = lambda: (torch.ones(3), torch.ones(3, requires_grad=True))  # noqa: E731
    assert stoker.compile(program, backend="eager")(*make()) == program(*make()) == [
        True, False, 0, False, False, True, 0, True
    ]  # fmt: skip


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "deterministic": (torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "filled memory": (
        lambda: torch.utils.deterministic.fill_uninitialized_memory,
        lambda on: setattr(torch.utils.deterministic, "fill_uninitialized_memory", on),
    ),
    "tf32": (
        lambda: torch.backends.cuda.matmul.allow_tf32,
        lambda on: setattr(torch.backends.cuda.matmul, "allow_tf32", on),
    ),
    "flash": (torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "efficient": (torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.enable_mem_efficient_sdp),
    "mkldnn": (lambda: torch.backends.mkldnn.enabled, lambda on: torch.backends.mkldnn.set_flags(on) and None),
}


@pytest.mark.parametrize("name", SETTINGS)
def test_settings_of_the_process(name: str) -> None:
    """Read in one graph, and read again."""
    read, write = SETTINGS[name]
    compiled = stoker.compile(lambda x: x + 1 if read() else x - 1, backend="eager", fullgraph=True)
    was = read()
    try:
        for on in (True, False, True):
            write(on)
            assert torch.equal(compiled(X), X + 1 if on else X - 1)
    finally:
        write(was)
