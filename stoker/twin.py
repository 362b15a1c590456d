"""The twin of a module: a second object of the module's class that shares its state and runs compiled code when called.

In:  a module, and what is to run when its twin is called.
Out: an object of a class made from the module's (same name, `isinstance` holds) whose `__dict__` is the module's.

Requirements (tests/differential/test_twins.py):
  1. Whatever is written through one is seen through the other: attributes, slots, the class itself.
  2. The twin owns the module, never the reverse, and no cycle: dropping both frees both without the collector.
  3. The twin's class stands for the module's: constructing, subclassing, `isinstance` and writes to it act on the module's.
  4. What is pickled can be read where there is no Stoker; there it is the plain module.
"""

from __future__ import annotations

import abc
import copy
import functools
import importlib.util
import inspect
import operator
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

STANDS_FOR = "_stoker_stands_for"
"""The attribute of a twin's class that names the module's class."""


class Origin(NamedTuple):
    """What a twin was made of: `compile(module, **settings)` makes such a twin anew."""

    module: torch.nn.Module
    compile: Callable[..., Any]
    settings: dict[str, Any]


class _Signature:
    """`inspect.signature` of a twin and of its class: the module's."""

    def __get__(self, twin: Any, cls: type) -> inspect.Signature:
        return inspect.signature(twin._stoker_origin.module if twin is not None else stands_for(cls))


REAL_CLASS = vars(object)["__class__"]


class Twinned:
    """What twins add to their modules' classes. It comes first in their method resolution order."""

    __slots__ = ()
    __signature__ = _Signature()
    _stoker_origin: Origin

    def __init_subclass__(cls, **keywords: Any) -> None:
        """A twin's class is not one more class of the user's: registries do not hear of it."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        """A blank object, for `copy` and its like: one of the module's class."""
        real = stands_for(cls)
        return real.__new__(real, *args, **kwargs)

    def __copy__(self) -> Any:
        return _again(self, copy.copy(self._stoker_origin.module))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _again(self, copy.deepcopy(self._stoker_origin.module, memo))

    def __reduce_ex__(self, protocol: Any) -> Any:
        return REVIVE, ((self._stoker_origin.module, self._stoker_origin.settings),)

    @property
    def __class__(self) -> type:
        """The module's class. The twin follows when it changes."""
        now = type(self._stoker_origin.module)
        if stands_for(type(self)) is not now:
            REAL_CLASS.__set__(self, twin_class(now))
        return now

    @__class__.setter
    def __class__(self, cls: type) -> None:
        self._stoker_origin.module.__class__ = cls
        REAL_CLASS.__set__(self, twin_class(cls))


SLOTS = ("__call__", "_stoker_origin")
"""What a twin keeps outside of the `__dict__` that it shares. The compiled callable in the slot `__call__` is what the interpreter
finds when the twin is called: no Python code runs in between."""


class TwinnedModule(Twinned, torch.nn.Module):
    """Holds the slots for all modules without slots of their own: so twins can change their class where modules can."""

    __slots__ = SLOTS


class TwinType(type):
    """The class of twins' classes."""

    def __new__(metacls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> Any:
        """A subclass that a user makes is one of the module's class."""
        real = tuple(stands_for(base) for base in bases)
        return types.new_class(name, real, keywords, lambda body: body.update(namespace))

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return stands_for(cls)(*args, **kwargs)

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(stands_for(cls), name, value)

    def __delattr__(cls, name: str) -> None:
        delattr(stands_for(cls), name)

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, stands_for(cls))

    def __subclasscheck__(cls, subclass: type) -> bool:
        """As `type` does it: `ABCMeta` would ask this class again, as one of those below it."""
        return type.__subclasscheck__(stands_for(cls), subclass)


def stands_for(cls: type) -> type:
    """The class itself; the module's class for that of a twin."""
    return vars(cls).get(STANDS_FOR, cls)


def is_twin(value: Any) -> bool:
    return issubclass(type(value), Twinned)


def origin_of(twin: Any) -> Origin:
    return twin._stoker_origin


def can_have_twin(module: torch.nn.Module) -> bool:
    """Is all its state in its `__dict__` and slots? A class that is also a list or a dict has more."""
    return all(cls is object or cls.__flags__ & HEAP_TYPE for cls in type(module).__mro__)


HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: made by a class statement


def make_twin(origin: Origin, call: Callable[..., Any]) -> Any:
    """The twin of a module: calling it is `call`."""
    twin: Any = object.__new__(twin_class(type(origin.module)))
    for name, value in (("__dict__", vars(origin.module)), ("__call__", call), ("_stoker_origin", origin)):
        object.__setattr__(twin, name, value)
    return twin


_classes: weakref.WeakKeyDictionary[type, weakref.ref[type]] = weakref.WeakKeyDictionary()


def twin_class(cls: type) -> type:
    """The class of the twins of a class's modules; one for all of them while it lives."""
    known = _classes.get(cls)
    found = known() if known is not None else None
    if found is None:
        found = _new_class(cls)
        _classes[cls] = weakref.ref(found)
    return found


def _new_class(cls: type) -> type:
    """Made by `type` or `ABCMeta` directly: the user's metaclass does not hear of it either."""
    slots = {name: _forwarded(name) for name in _slot_names(cls)}
    namespace = {
        "__slots__": SLOTS if slots else (),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        STANDS_FOR: cls,
        **slots,
        **{name: _of_the_module(name) for name in ABOUT_THE_CLASS if hasattr(cls, name)},
    }
    bases = (Twinned, cls) if slots else (TwinnedModule, cls)
    metaclass = _metaclass(type(cls))
    make = abc.ABCMeta.__new__ if issubclass(metaclass, abc.ABCMeta) else type.__new__
    return make(metaclass, cls.__name__, bases, namespace)


@functools.cache
def _metaclass(metaclass: type) -> type:
    return TwinType if metaclass is type else type(metaclass)("TwinType", (TwinType, metaclass), {})


def _slot_names(cls: type) -> list[str]:
    return [name for base in cls.__mro__ for name, d in vars(base).items() if isinstance(d, types.MemberDescriptorType)]


ABOUT_THE_CLASS = ("recompile", "_replicate_for_data_parallel")
"""Methods of torch's that do something with `type(self)`: graph modules write their code into it, replicas are made of it."""


def _of_the_module(name: str) -> Callable[..., Any]:
    def method(twin: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(twin._stoker_origin.module, name)(*args, **kwargs)

    return method


def _forwarded(name: str) -> property:
    """A slot of the module, seen through its twin."""

    def read(twin: Any) -> Any:
        return getattr(twin._stoker_origin.module, name)

    def write(twin: Any, value: Any) -> None:
        setattr(twin._stoker_origin.module, name, value)

    def delete(twin: Any) -> None:
        delattr(twin._stoker_origin.module, name)

    return property(read, write, delete)


def _again(twin: Any, module: torch.nn.Module) -> Any:
    origin = twin._stoker_origin
    return origin.compile(module, **origin.settings)


class _Later:
    """A call that is pickled to be made when it is read."""

    def __init__(self, function: Callable[..., Any], *args: Any) -> None:
        self.made_by = function, args

    def __call__(self, *args: Any) -> Any:
        raise NotImplementedError("it is pickled, never called")

    def __reduce__(self) -> Any:
        return self.made_by


# Names nothing of Stoker's but strings: `stoker._revive`, or where there is no Stoker `operator.itemgetter(0)`, which of a
# module and its settings gives the module.
REVIVE = _Later(
    getattr,
    _Later(importlib.import_module, _Later(getattr, _Later(importlib.util.find_spec, "stoker"), "name", "operator")),
    "_revive",
    operator.itemgetter(0),
)
