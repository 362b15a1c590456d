"""Constructors of built-in types: numbers, text, containers."""

from __future__ import annotations

import collections
import types
from typing import Any

import torch

from stoker.capture.handlers import CLASS_METHODS, STORAGE, handles, on_object
from stoker.capture.machine import Machine
from stoker.capture.static import derives
from stoker.capture.values.array import ArrayValue
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.deque import DequeValue
from stoker.capture.values.descriptor import FIELDS, PropertyFields
from stoker.capture.values.function import MethodValue
from stoker.capture.values.instance import InstanceValue
from stoker.capture.values.mapping import DictValue, dict_from
from stoker.capture.values.rounds import SizedRange, goes_by_rounds
from stoker.capture.values.sequence import ListValue, TupleValue, take_each
from stoker.capture.values.sets import SetValue, set_of
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Arguments, Keywords, NotConstant, Value
from stoker.capture.values.varying import VaryingInteger, VaryingScalar, symbolic
from stoker.errors import Break

NONE = Constant(None)


def _number(m: Machine, cls: type, special: str, args: tuple[Value, ...]) -> Value:
    if not args:
        return Constant(cls())
    value = args[0] if len(args) > 1 else symbolic(args[0])
    if isinstance(value, ArrayValue) and value.scalar:
        value = value.tensor
    if isinstance(value, TensorValue):
        return m.calls.builtin_method(value, f"__{cls.__name__}__", [], {})
    if isinstance(value, InstanceValue):
        found = value.special(m, special) or value.special(m, "__index__")
        if found is not None and issubclass(found.python_type(), cls) and found.python_type() is not cls:
            raise Break(
                f"{cls.__name__}()", f"{special} gives a {found.python_type().__name__}, of which CPython warns"
            )
        if found is not None:
            return found
    if isinstance(value, SymbolicValue) and value.python_type() is cls:
        return value
    if isinstance(value, SymbolicValue) and cls is float:
        return m.wrap.number(m.concrete.run(torch.sym_float, m.concrete.number(value)))
    if isinstance(value, SymbolicValue) and cls is int:
        return m.wrap.number(m.concrete.run(torch.sym_int, m.concrete.number(value)))
    if isinstance(value, InstanceValue) and not isinstance(value.storage, Constant):
        m.exceptions.raise_(TypeError, f"{_wanted(cls)}, not '{value.cls.__name__}'")
    return m.wrap.constant(m.concrete.run(cls, *(m.concrete.plain(a.stored(), f"{cls.__name__}()") for a in args)))


def _wanted(cls: type) -> str:
    if cls is int:
        return "int() argument must be a string, a bytes-like object or a real number"
    return "float() argument must be a string or a real number"


@handles(int)
def int_(m: Machine, *args: Value, base: Value | None = None) -> Value:
    if len(args) == 1 and isinstance(args[0], VaryingInteger):
        return args[0].symbolic()
    return _number(m, int, "__int__", args if base is None else (*args, base))


@handles(float)
def float_(m: Machine, *args: Value) -> Value:
    if len(args) == 1 and isinstance(args[0], VaryingInteger):
        args = (args[0].symbolic(),)
    elif len(args) == 1 and isinstance(args[0], VaryingScalar):
        return args[0].symbolic()
    return _number(m, float, "__float__", args)


@handles(complex)
def complex_(m: Machine, *args: Value) -> Value:
    return m.wrap.constant(m.concrete.run(complex, *(m.concrete.constant(a, "complex()") for a in args)))


@handles(bool)
def bool_(m: Machine, value: Value = Constant(False)) -> Value:  # noqa: B008
    if isinstance(value, TensorValue):
        return m.calls.builtin_method(value, "__bool__", [], {})
    if isinstance(value, SymbolicValue) and value.untold:
        return value if value.python_type() is bool else m.operators.compare("!=", value, Constant(0))
    return Constant(value.truth(m))


@handles(str)
def str_(m: Machine, value: Value = Constant("")) -> Value:  # noqa: B008
    if isinstance(value, InstanceValue):
        found = value.special(m, "__str__")
        if found is not None:
            return found
    return m.text.convert(value, 1)


@handles(bytes)
def bytes_(m: Machine, *args: Value) -> Value:
    return Constant(m.concrete.run(bytes, *(m.concrete.data(a, "bytes()") for a in args)))


@handles(collections.deque)
def deque_(m: Machine, iterable: Value | None = None, maxlen: Value = NONE) -> Value:
    limit = m.concrete.constant(maxlen, "deque()")
    m.concrete.run(collections.deque, (), limit)  # raises, in its own words
    return DequeValue(iterable.items_list(m) if iterable is not None else [], limit)


@handles(torch.device)
def device_(m: Machine, *args: Value, **kwargs: Value) -> Value:
    named = {name: m.concrete.constant(value, "torch.device()") for name, value in kwargs.items()}
    return Constant(
        m.concrete.run(lambda: torch.device(*(m.concrete.constant(a, "torch.device()") for a in args), **named))
    )


@handles(slice)
def slice_(m: Machine, *args: Value) -> Value:
    if not 1 <= len(args) <= 3:
        m.concrete.run(slice, *[None] * len(args))  # raises, in its own words
    start, stop, step = (NONE, *args, NONE)[:3] if len(args) == 1 else (*args, NONE)[:3]
    return m.operators.slice(start, stop, step)


@handles(range)
def range_(m: Machine, *args: Value) -> Value:
    if goes_by_rounds(m, args):
        return SizedRange(args)
    return Constant(m.concrete.run(range, *(m.concrete.integer(a) for a in args)))


@handles(list)
def list_(m: Machine, items: Value | None = None) -> Value:
    return ListValue(items.items_list(m) if items is not None else [])


@handles(tuple)
def tuple_(m: Machine, items: Value | None = None) -> Value:
    if isinstance(items, TupleValue) and items.cls is tuple:
        return items
    return TupleValue(items.items_list(m) if items is not None else [])


@handles(torch.Size)
def size_(m: Machine, items: Value | None = None) -> Value:
    return TupleValue(items.items_list(m) if items is not None else [], torch.Size)


@handles(dict)
def dict_(m: Machine, *args: Value, **kwargs: Value) -> Value:
    return dict_from(m, dict, list(args), kwargs)


@handles(collections.OrderedDict)
def ordered_dict(m: Machine, *args: Value, **kwargs: Value) -> Value:
    return dict_from(m, collections.OrderedDict, list(args), kwargs)


@handles(collections.defaultdict)
def default_dict(m: Machine, factory: Value = NONE, *args: Value, **kwargs: Value) -> Value:
    _refuse_factory(m, factory)
    made = dict_from(m, collections.defaultdict, list(args), kwargs)
    made.default_factory = factory
    return made


def _refuse_factory(m: Machine, factory: Value) -> None:
    callable_ = any("__call__" in vars(base) for base in factory.python_type().__mro__)
    if not callable_ and not (isinstance(factory, Constant) and factory.value is None):
        m.exceptions.raise_(TypeError, "first argument must be callable or None")


@on_object(
    *(
        getattr(kind, name)
        for kind in (collections.OrderedDict, collections.defaultdict)
        for name in ("copy", "__or__", "__ror__")
    )
)
def made_by_own_class(m: Machine, value: Value, *args: Value) -> Value:
    """They make an object of the receiver's class, by calling it."""
    storage = value.stored()
    if storage is not value or not isinstance(storage, DictValue):
        value.unsupported("a copy")
    if not args:
        return storage.method_copy(m)
    return storage.binary(m, "|", args[0], False) or Constant(NotImplemented)


@on_object(dict.copy)
def dict_copy(m: Machine, value: Value) -> Value:
    return value.method_copy(m) if isinstance(value, DictValue) else _merged(m, value)


@on_object(dict.__or__)
def dict_or(m: Machine, value: Value, other: Value) -> Value:
    return _merged(m, value, other)


@on_object(dict.__ror__)
def dict_ror(m: Machine, value: Value, other: Value) -> Value:
    return _merged(m, other, value)


def _merged(m: Machine, *parts: Value) -> Value:
    """A plain dictionary, of subclasses too: of one with an `__iter__` of its own, `keys` and `__getitem__` tell what is in it."""
    if not all(derives(part.python_type(), dict) for part in parts):
        return Constant(NotImplemented)
    merged = DictValue({})
    merged.method_update(m, *parts)
    return merged


@handles(set)
def set_(m: Machine, items: Value | None = None) -> Value:
    return set_of(m, items) if items is not None else SetValue({})


@handles(frozenset)
def frozenset_(m: Machine, items: Value | None = None) -> Value:
    return set_of(m, items, frozenset) if items is not None else SetValue({}, frozenset)


@handles(object)
def object_(m: Machine) -> Value:
    return InstanceValue(object)


@handles(types.MethodType)
def method_(m: Machine, function: Value, receiver: Value) -> Value:
    return MethodValue(receiver, function)


def from_keys(m: Machine, args: Arguments, kwargs: Keywords) -> Value:
    if kwargs or not 1 <= len(args) <= 2:
        m.concrete.run(lambda: dict.fromkeys(*[()] * len(args), **dict.fromkeys(kwargs)))  # raises, in its own words
    items, value = (*args, NONE)[:2]
    made = DictValue({})
    take_each(m, items, lambda key: made.store(m, key, value))
    return made


CLASS_METHODS[(dict, "fromkeys")] = from_keys


def ordered_from_keys(m: Machine, args: Arguments, kwargs: Keywords) -> Value:
    if not args or not kwargs.keys() <= {"value"}:
        raise Break("a call of `OrderedDict.fromkeys`", "its arguments are not of a form that capture knows")
    made = from_keys(m, [*args, *kwargs.values()], {})
    assert isinstance(made, DictValue)
    made.cls = collections.OrderedDict
    return made


CLASS_METHODS[(collections.OrderedDict, "fromkeys")] = ordered_from_keys


def _new_dict(cls: type):
    def new(m: Machine, owner: type, args: Arguments, kwargs: Keywords) -> Any:
        return DictValue(cls=cls)

    return new


def _refuse_keywords(m: Machine, base: type, owner: type, kwargs: Keywords) -> None:
    """What takes no keywords says so, unless a class written in Python takes them in its `__init__`."""
    if kwargs and not isinstance(m.attributes.class_lookup(owner, "__init__"), types.FunctionType):
        m.exceptions.raise_(TypeError, f"{base.__name__}() takes no keyword arguments")


def _new_number(base: type):
    def new(m: Machine, owner: type, args: Arguments, kwargs: Keywords) -> Any:
        if kwargs:
            raise Break(f"construction of {owner.__qualname__}", "it is given keywords")
        try:
            return Constant(m.concrete.run(base, *(a.constant() for a in args)))
        except NotConstant:
            raise Break(f"construction of {owner.__qualname__}", "its value is not constant") from None

    return new


def _new_tuple(m: Machine, owner: type, args: Arguments, kwargs: Keywords) -> Any:
    _refuse_keywords(m, tuple, owner, kwargs)
    _refuse_more(m, "tuple", args)
    return TupleValue(args[0].items_list(m) if args else [], owner)


def _new_frozenset(m: Machine, owner: type, args: Arguments, kwargs: Keywords) -> Any:
    _refuse_keywords(m, frozenset, owner, kwargs)
    _refuse_more(m, owner.__name__, args)
    return set_of(m, args[0], frozenset) if args else SetValue({}, frozenset)


def _refuse_more(m: Machine, name: str, args: Arguments) -> None:
    if len(args) > 1:
        m.exceptions.raise_(TypeError, f"{name} expected at most 1 argument, got {len(args)}")


def _new_named_sequence(m: Machine, owner: Any, args: Arguments, kwargs: Keywords) -> Any:
    """`torch.return_types.max((values, indices))`."""
    items = args[0].items_list(m) if len(args) == 1 and not kwargs else None
    if items is None or owner.n_fields != owner.n_sequence_fields:
        raise Break(f"construction of {owner.__qualname__}", "it is given more than a sequence, or has hidden fields")
    if len(items) != owner.n_fields:
        m.concrete.run(owner, [None] * len(items))  # raises, in its own words
    return TupleValue(items, owner)


STORAGE.update({cls: _new_named_sequence for cls in vars(torch.return_types).values() if isinstance(cls, type)})
STORAGE.update({base: _new_dict(base) for base in (collections.OrderedDict, collections.defaultdict, dict)})
STORAGE.update({base: _new_number(base) for base in (int, float, str, bytes, complex)})
STORAGE.update(
    {
        list: lambda m, owner, args, kwargs: ListValue([]),
        set: lambda m, owner, args, kwargs: SetValue({}),
        frozenset: _new_frozenset,
        tuple: _new_tuple,
        property: lambda m, owner, args, kwargs: PropertyFields(),
    }
)


@on_object(dict.__init__, collections.OrderedDict.__init__)
def dict_init(m: Machine, value: Value, *args: Value, **kwargs: Value) -> Value:
    storage = value.stored()
    assert isinstance(storage, DictValue)
    storage.method_update(m, *args, **kwargs)
    return NONE


@on_object(collections.deque.__init__)
def deque_init(m: Machine, value: Value, items: Value | None = None, maxlen: Value = NONE) -> Value:
    storage = value.stored()
    assert isinstance(storage, DequeValue)
    if maxlen.constant() != storage.maxlen:
        value.unsupported("a change of maxlen")
    storage.method_clear(m)
    if items is not None:
        storage.method_extend(m, items)
    return NONE


@on_object(collections.defaultdict.__init__)
def defaultdict_init(m: Machine, value: Value, factory: Value = NONE, *args: Value, **kwargs: Value) -> Value:
    storage = value.stored()
    assert isinstance(storage, DictValue)
    _refuse_factory(m, factory)
    if value.source is not None:
        value.unsupported("a change of its default factory")
    storage.default_factory = factory
    if isinstance(value, InstanceValue):
        value.slots[vars(collections.defaultdict)["default_factory"]] = factory
    storage.method_update(m, *args, **kwargs)
    return NONE


@on_object(list.__init__, set.__init__)
def init_of_elements(m: Machine, value: Value, items: Value | None = None) -> Value:
    storage = value.stored()
    assert isinstance(storage, (ListValue, SetValue))
    if storage.truth(m):
        storage.attribute(m, "clear").call(m, [], {})
    if items is not None:
        storage.method_extend(m, items) if isinstance(storage, ListValue) else storage.method_update(m, items)
    return NONE


@on_object(property.__init__)
def property_init(
    m: Machine, value: Value, fget: Value = NONE, fset: Value = NONE, fdel: Value = NONE, doc: Value = NONE
) -> Value:
    storage = value.stored()
    assert isinstance(storage, PropertyFields)
    storage.fields = dict(zip(FIELDS, (fget, fset, fdel, doc)))
    return NONE


@on_object(*(vars(object)[name] for name in ("__lt__", "__le__", "__gt__", "__ge__")))
def not_ordered(m: Machine, value: Value, other: Value) -> Value:
    return Constant(NotImplemented)


@on_object(type.__call__)
def call_type(m: Machine, cls: Value, *args: Value, **kwargs: Value) -> Value:
    """`super().__call__(...)` in a metaclass."""
    assert isinstance(cls, ClassValue)
    return m.calls.construct(cls.real, list(args), kwargs)
