"""What is read is guarded, for every reader that capture knows.

A reader is a function with a handler (they are taken from the table, so that a new one is tried without being named here), an
attribute, a method without arguments, or an operator. Each is captured on an object of each kind; then everything that can be
reached from the object is changed, step by step, and compiled code must follow.
"""

from __future__ import annotations

import abc
import collections
import enum
import functools
import inspect
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker.capture import handlers
from stoker.capture.capture import capture  # noqa: F401  (fills the table of handlers)

X = torch.ones(2)
Change = Callable[[], Any]


class Plain:
    shared = 1

    def __init__(self) -> None:
        self.a, self.b = 1, [1, 2]

    def method(self) -> int:
        return self.a + len(self.b)

    @property
    def doubled(self) -> int:
        return self.a * 2


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self) -> None:
        self.a, self.b = 1, "x"


def instance(cls: type) -> tuple[Any, list[Change]]:
    made = type("Fresh", (cls,), {"__slots__": ()} if cls is Slotted else {})()
    kind = type(made)
    return made, [
        lambda: setattr(made, "a", 2),
        lambda: setattr(made, "a", 2.0),
        lambda: delattr(made, "b"),
        lambda: setattr(made, "b", (3,)),
        lambda: setattr(kind, "shared", 5),
        lambda: setattr(kind, "__len__", lambda self: 3),
        lambda: setattr(kind, "__bool__", lambda self: False),
        lambda: setattr(kind, "__call__", lambda self: 4),
        lambda: setattr(kind, "__iter__", lambda self: iter((1, 2))),
        lambda: setattr(kind, "__getattr__", lambda self, name: 7 if name == "c" else _absent(name)),
        lambda: setattr(kind, "method", lambda self: 9),
        lambda: setattr(kind, "__name__", "Renamed"),
        lambda: setattr(kind, "__doc__", "words"),
        lambda: setattr(kind, "__repr__", lambda self: "shown"),
        lambda: setattr(kind, "__hash__", lambda self: 3),
        lambda: setattr(kind, "__eq__", lambda self, other: True),
    ]


def _absent(name: str) -> Any:
    raise AttributeError(name)


def a_list() -> tuple[Any, list[Change]]:
    made = [1, "a", [2]]
    return made, [
        lambda: made.__setitem__(0, 2),
        lambda: made.__setitem__(0, 2.0),
        lambda: made[2].append(3),
        lambda: made.append(5),
        lambda: made.reverse(),
        lambda: made.clear(),
    ]


def a_dict(kind: Callable[..., Any]) -> tuple[Any, list[Change]]:
    made = kind()
    made["a"], made["b"] = 1, [2]
    return made, [
        lambda: made.__setitem__("a", 2),
        lambda: made.__setitem__("a", True),
        lambda: made["b"].append(1),
        lambda: made.__setitem__(3, 4),
        lambda: made.__setitem__("a", made.pop("a")),
        lambda: made.pop("b"),
        lambda: made.clear(),
    ]


def a_set() -> tuple[Any, list[Change]]:
    made: set[Any] = {1, 8, "a"}

    def swap(old: Any, new: Any) -> None:
        made.discard(old)
        made.add(new)

    return made, [lambda: swap(1, 1.0), lambda: swap(8, 16), lambda: made.add(2), lambda: swap("a", "b"), made.clear]


def a_deque() -> tuple[Any, list[Change]]:
    made: collections.deque[Any] = collections.deque([1, 2, 3])
    return made, [lambda: made.append(4), lambda: made.rotate(1), lambda: made.__setitem__(0, 9.0), made.clear]


def a_proxy() -> tuple[Any, list[Change]]:
    held, changes = a_dict(dict)
    return types.MappingProxyType(held), changes


def a_tuple() -> tuple[Any, list[Change]]:
    held, changes = a_list()
    return (1, held, "x"), changes


def a_function() -> tuple[Any, list[Change]]:
    def outer() -> Any:
        cell = 1

        def made(a: int = 2, *, k: int = 3) -> int:
            return a + k + cell

        def change() -> None:
            nonlocal cell
            cell = 10

        return made, change

    made, change = outer()
    return made, [
        change,
        lambda: setattr(made, "__defaults__", (5,)),
        lambda: setattr(made, "__kwdefaults__", {"k": 6}),
        lambda: made.__kwdefaults__.__setitem__("k", 7),
        lambda: setattr(made, "__name__", "renamed"),
        lambda: setattr(made, "__doc__", "words"),
        lambda: setattr(made, "extra", 1),
        lambda: (
            setattr(made, "__code__", (lambda a=2, *, k=3: a * k + made.__closure__[0].cell_contents).__code__)
            if False
            else None
        ),
        lambda: made.__annotations__.__setitem__("a", float),
        lambda: setattr(made, "__module__", "elsewhere"),
        lambda: setattr(made, "__qualname__", "q"),
    ]


def a_method() -> tuple[Any, list[Change]]:
    made, changes = instance(Plain)
    return made.method, changes


def a_partial() -> tuple[Any, list[Change]]:
    function, changes = a_function()
    made = functools.partial(function, 4)
    return made, [*changes, lambda: made.keywords.__setitem__("k", 8), lambda: setattr(made, "extra", 2)]


def a_class() -> tuple[Any, list[Change]]:
    base = type("Base", (abc.ABC,), {"inherited": 1})
    made: Any = type("Fresh", (base,), {"a": 1, "m": classmethod(lambda cls: cls.a), "__slots__": ()})
    return made, [
        lambda: setattr(made, "a", 2),
        lambda: setattr(base, "inherited", 3),
        lambda: setattr(made, "b", 4),
        lambda: setattr(made, "__doc__", "words"),
        lambda: setattr(made, "__name__", "Renamed"),
        lambda: setattr(made, "__qualname__", "Q"),
        lambda: setattr(made, "__module__", "elsewhere"),
        lambda: made.register(dict),
        lambda: delattr(made, "a"),
        lambda: setattr(base, "a", 9),
    ]


def a_module() -> tuple[Any, list[Change]]:
    made: Any = types.ModuleType("fresh")
    made.a, made.b = 1, [2]
    return made, [
        lambda: setattr(made, "a", 2),
        lambda: made.b.append(1),
        lambda: setattr(made, "c", 3),
        lambda: setattr(made, "__getattr__", lambda name: len(name) if not name.startswith("__") else _absent(name)),
        lambda: delattr(made, "a"),
        lambda: setattr(made, "__doc__", "words"),
        lambda: setattr(made, "__name__", "renamed"),
    ]


def a_member() -> tuple[Any, list[Change]]:
    kind: Any = enum.Enum("Fresh", {"A": 1, "B": 2})
    made = kind.A
    made.extra = 1
    return made, [
        lambda: setattr(made, "extra", 2),
        lambda: setattr(made, "_value_", 7),
        lambda: setattr(kind, "method", lambda self: 3),
        lambda: setattr(made, "other", 3),
        lambda: setattr(made, "_name_", "Z"),
    ]


def a_reference() -> tuple[Any, list[Change]]:
    made, changes = instance(Plain)
    reference = weakref.ref(made)
    return reference, [*changes, lambda: made]


def a_cached_function() -> tuple[Any, list[Change]]:
    scale = [1]

    @functools.lru_cache(None)
    def made() -> int:
        return scale[0] * 3

    def change() -> None:
        scale[0] += 1
        made.cache_clear()

    return made, [change, change, lambda: setattr(made, "extra", 1)]


def an_error() -> tuple[Any, list[Change]]:
    made: Any = ValueError("a", 1)
    return made, [
        lambda: setattr(made, "args", ("b",)),
        lambda: setattr(made, "extra", 1),
        lambda: setattr(made, "__cause__", KeyError()),
        lambda: made.add_note("note"),
    ]


def a_network() -> tuple[Any, list[Change]]:
    made: Any = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    return made, [
        lambda: made.eval(),
        lambda: setattr(made, "extra", 1),
        lambda: made[0].register_buffer("more", torch.ones(1)),
        lambda: setattr(made[0], "in_features", 3),
        lambda: made.append(nn.Identity()),
        lambda: made[0].weight.requires_grad_(False),
        lambda: made.__setitem__(1, nn.Tanh()),
        lambda: made.double(),
        lambda: made.register_forward_hook(lambda *_: None),
    ]


def a_tensor() -> tuple[Any, list[Change]]:
    made: Any = torch.ones(2, 3)
    return made, [
        lambda: made.requires_grad_(),
        lambda: made.requires_grad_(False),
        lambda: made.t_(),
        lambda: made.unsqueeze_(0),
        lambda: setattr(made, "extra", 1),
        lambda: setattr(made, "data", torch.zeros(2, dtype=torch.float64)),
        lambda: made.resize_(4),
    ]


KINDS: dict[str, Callable[[], tuple[Any, list[Change]]]] = {
    "an instance": lambda: instance(Plain),
    "an instance with slots": lambda: instance(Slotted),
    "a list": a_list,
    "a dict": lambda: a_dict(dict),
    "an OrderedDict": lambda: a_dict(collections.OrderedDict),
    "a defaultdict": lambda: a_dict(lambda: collections.defaultdict(list)),
    "a UserDict": lambda: a_dict(collections.UserDict),
    "a set": a_set,
    "a deque": a_deque,
    "a mapping proxy": a_proxy,
    "a tuple": a_tuple,
    "a function": a_function,
    "a method": a_method,
    "a partial": a_partial,
    "a class": a_class,
    "a module": a_module,
    "an enum member": a_member,
    "a weak reference": a_reference,
    "a cached function": a_cached_function,
    "an exception": an_error,
    "a network": a_network,
    "a tensor": a_tensor,
}
OPERATORS = (
    "bool(o)", "[*o]", "[e for e in o]", "o[0]", "o['a']", "'a' in o", "1 in o", "o == o", "o != 1", "f'{o}'", "o is None",
    "{**o}", "o + o", "o | o", "isinstance(o, dict)", "isinstance(o, abc.ABC)", "o.a", "o.c", "o.extra", "getattr(o, 'c', 5)",
    "hasattr(o, 'a')", "hasattr(o, 'c')", "vars(o)", "len(vars(o))", "type(o).__name__", "o.__class__.__doc__", "o()", "o.method()",
    "sorted(vars(o))", "o.__dict__.get('a')", "callable(o)", "o.b[0]", "len(o.b)", "o.value", "o.name", "o().a", "o.a.real",
)  # fmt: skip
UNSAFE = {
    "setattr",
    "delattr",
    "print",
    "input",
    "exec",
    "eval",
    "open",
    "id",
    "hash",
    "iter",
    "next",
    "breakpoint",
    "enumerate",
}


def functions() -> Iterator[tuple[str, Callable[[Any], Any]]]:
    """Functions of one object that have a handler and belong to Python itself."""
    for real, _ in handlers._handlers.values():
        name, module = getattr(real, "__name__", ""), getattr(real, "__module__", None)
        if (
            name not in UNSAFE
            and isinstance(module, str)
            and module.split(".")[0] in PYTHONS
            and not isinstance(real, type)
        ):
            yield f"{module}.{name}", real
    yield from (
        (kind.__name__, kind) for kind in (list, tuple, dict, set, frozenset, str, bool, int, float, type, super)
    )


PYTHONS = {
    "builtins",
    "operator",
    "_operator",
    "inspect",
    "copy",
    "functools",
    "_functools",
    "types",
    "math",
    "sys",
    "_abc",
}


def programs(name: str) -> Iterator[tuple[str, Callable[..., Any]]]:
    made, _ = KINDS[name]()
    for text in OPERATORS:
        yield text, eval(f"lambda x, o: (x + 1, ({text}))", {"abc": abc})
    for label, real in functions():
        yield label, lambda x, o, real=real: (x + 1, real(o))
    for attribute in sorted({*dir(made)} - {"__weakref__"}):
        if not callable(inspect.getattr_static(made, attribute, None)) or attribute in READING_METHODS:
            call = attribute in READING_METHODS
            text = f"lambda x, o: (x + 1, o.{attribute}{'()' if call else ''})"
            yield f".{attribute}", eval(text)


READING_METHODS = {"keys", "values", "items", "copy", "method", "named_children", "children", "state_dict", "most_common", "m",
                   "dim", "size", "stride", "numel", "is_contiguous", "__len__", "__bool__", "__str__", "__dir__", "cache_info"}  # fmt: skip


def shown(value: Any, depth: int = 3) -> Any:
    """Comparable: plain data by value and type, the rest by class."""
    if isinstance(value, torch.Tensor):
        return "tensor", value.dtype, tuple(value.shape), value.stride(), value.requires_grad
    if depth and isinstance(value, (list, tuple)):
        return type(value).__name__, [shown(part, depth - 1) for part in value]
    if depth and isinstance(value, (set, frozenset)):
        return type(value).__name__, [shown(part, 0) for part in value]
    if depth and isinstance(value, (dict, types.MappingProxyType)):
        return type(value).__name__, [(shown(k, 0), shown(v, depth - 1)) for k, v in value.items()]
    if type(value) in (int, float, bool, str, bytes, complex, type(None)):
        return type(value).__name__, value if not isinstance(value, str) or " at 0x" not in value else "..."
    return type(value).__name__


def outcome(program: Callable[..., Any], made: Any) -> Any:
    try:
        return shown(program(X, made))
    except Exception as error:
        return "raises", type(error).__name__


@pytest.mark.parametrize("name", KINDS)
def test_every_reader_sees_every_change(name: str) -> None:
    wrong = []
    for label, program in programs(name):
        made, changes = KINDS[name]()
        compiled = stoker.compile(program, backend="eager", options={"version_limit": 40})
        for number, change in enumerate([lambda: None, lambda: None, *changes]):
            try:
                change()
            except Exception:
                continue  # this object cannot be changed so
            expected, found = outcome(program, made), outcome(compiled, made)
            if expected != found:
                wrong.append((label, number - 2, expected, found))
                break
    assert not wrong, "\n".join(map(str, wrong))
