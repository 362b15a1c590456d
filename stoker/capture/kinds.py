"""One function for each kind of object of the program's surroundings: the guards that looking at it needs, and its Value.

In:  the machine, a real object that nobody has looked at, and the source it was found at.
Out: its Value; `KINDS` tells by which function. A kind without an entry is an instance of a Python class.
"""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import inspect
import itertools
import operator
import threading
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy
import torch

from stoker import _C, torch_private
from stoker.capture.machine import Machine
from stoker.capture.values.ambient import ThreadLocalValue, VariableValue
from stoker.capture.values.array import DTYPES, ArrayValue
from stoker.capture.values.cached import CachedFunction
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant, is_numpy_scalar, is_plain
from stoker.capture.values.deque import GrowingDeque
from stoker.capture.values.function import (
    BuiltinValue,
    FunctionValue,
    MethodValue,
    PartialValue,
    wrap_cell,
)
from stoker.capture.values.getter import GetterValue
from stoker.capture.values.group import GroupValue
from stoker.capture.values.instance import DisabledFunction, ExceptionValue, InstanceValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.module import ModuleValue, PythonModule
from stoker.capture.values.opaque import OpaqueValue
from stoker.capture.values.pending import pending_generator
from stoker.capture.values.proxy import ProxyValue, mapping_behind
from stoker.capture.values.reference import ReferenceValue
from stoker.capture.values.remembered import cache_parameters
from stoker.capture.values.running import RunningIterator, is_kept_by_a_break, known_iterator
from stoker.capture.values.sequence import GrowingList, ListValue, TupleValue, is_plain_tuple
from stoker.capture.values.sets import GrowingSet, SetValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.subclass import SubclassValue, is_captured_class, take_out
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.text import VaryingText
from stoker.capture.values.value import Lazy, Value
from stoker.capture.values.varying import VaryingFloat, VaryingInteger, VaryingScalar
from stoker.errors import Break
from stoker.graph.numpy_operator import ON_ARRAY
from stoker.guard.guard import (
    CodeIs,
    Equals,
    Holds,
    InRange,
    Is,
    Length,
    SetElements,
    TensorMatch,
    TypeIs,
)
from stoker.guard.source import (
    Asked,
    Attribute,
    DictItem,
    Fixed,
    Item,
    Local,
    MethodFunction,
    MethodSelf,
    Referent,
    Source,
)

DICTS = (dict, collections.OrderedDict, collections.defaultdict)
_VIEWS: tuple[Any, ...] = ({}, {}.values(), {}.items())
_EMPTY: tuple[Any, ...] = (
    [], (), *_VIEWS, collections.OrderedDict(), set(), "", "é", b"", range(0), range(2**70)
)  # fmt: skip
ITERATORS = (
    types.GeneratorType,
    types.CoroutineType,
    *{type(iter(x)) for x in _EMPTY},
    type(reversed([])),
    *(type(reversed(view)) for view in _VIEWS),
    zip,
    map,
    filter,
    enumerate,
    reversed,
    type(iter(collections.deque())),
    type(iter(int, 1)),
    *(kind for kind in vars(itertools).values() if isinstance(kind, type)),
)
INT64 = 2**63
BUILTIN_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    type(numpy.random.seed),  # a function that Cython made
    property,
    staticmethod,
    classmethod,
    torch_private.OpOverload,
    torch_private.OpOverloadPacket,
    torch_private.CustomOpDef,
    numpy.ufunc,
    type(numpy.prod),
)


def fixed_source(real: Any) -> Fixed:
    """The source of an object that needs no path."""
    return Fixed(real, _name_of(real))


def _name_of(real: Any) -> str:
    """What an object is called. Objects of the program's may answer any question in their own way: they are not asked."""
    if not isinstance(real, (type, types.FunctionType, types.ModuleType, *BUILTIN_CALLABLES)):
        return type(real).__name__
    return str(_held(real, "__qualname__") or _held(real, "__name__") or type(real).__name__)


def _held(real: Any, name: str) -> Any:
    """An attribute that an object has, without asking the object's `__getattr__`, which may do anything."""
    try:
        return object.__getattribute__(real, name)
    except AttributeError:
        return None


INTEGERS = frozenset(numpy.dtype(code).type for code in "bhilqBHI")
"""Integers of numpy that torch's hold."""


def value_of(m: Machine, real: Any, source: Source) -> Value:
    kind = type(real)
    if kind in weakref.ProxyTypes:
        return wrap_opaque(
            m, real, source, "a weak proxy", "it stands for another object, and says that it is one of its class"
        )
    if real is None or kind is bool or real is Ellipsis or real is NotImplemented or isinstance(real, enum.Enum):
        m.guards.add_unless_fixed(source, Is(real))
        return Constant(real, source)
    if kind is int:
        return wrap_int(m, real, source)
    if kind is float and not isinstance(source, Fixed) and m.sizes.float_varies(source, real):
        m.guards.add(source, TypeIs(float))
        return VaryingFloat(m, real, source)
    if kind is str and not isinstance(source, Fixed) and m.sizes.text_varies(source, real):
        m.guards.add(source, TypeIs(str))
        return VaryingText(m, real, source)
    if isinstance(real, torch.Tensor):
        return wrap_tensor(m, real, source)
    if is_numpy_scalar(real):
        m.guards.add_unless_fixed(source, TypeIs(kind))
        if not isinstance(source, Fixed):
            if isinstance(real, numpy.floating) and m.sizes.float_varies(source, float(real)):
                return VaryingScalar(m, real, source)
            if kind in INTEGERS and m.sizes.int_is_dynamic(source, int(real)):
                return VaryingInteger(m, real, source)
        was = real.tobytes()
        m.guards.add_unless_fixed(source, Holds(lambda now: now.tobytes() == was, f"== {real!r}"))
        return Constant(real, source)
    if kind is not tuple and kind is not torch.Size and is_plain(real):
        m.guards.add_unless_fixed(source, Equals(real))
        return Constant(real, source)
    if isinstance(real, numpy.ndarray):
        return wrap_array(m, real, source)
    for family, maker in KINDS:
        if isinstance(real, family) if family in OPEN else kind is family:
            return maker(m, real, source)
    return wrap_instance(m, real, source)


def wrap_int(m: Machine, real: int, source: Source) -> Value:
    if not isinstance(source, Fixed) and m.sizes.int_is_dynamic(source, real):
        m.guards.add(source, InRange(-INT64, INT64 - 1))
        return SymbolicValue(m.sizes.symbol_for_int(m, real, source))
    m.guards.add_unless_fixed(source, Equals(real))
    return Constant(real, source)


def wrap_tensor(m: Machine, real: torch.Tensor, source: Source) -> Value:
    cls = type(real)
    ours = cls not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
    if ours and not is_captured_class(cls):
        lazy = issubclass(cls, torch_private.UninitializedTensorMixin)
        reason = (
            "has no shape before the lazy module's first call" if lazy else "acts below autograd (__torch_dispatch__)"
        )
        return wrap_opaque(m, real, source, f"the tensor subclass {cls.__qualname__}", reason)
    if real.layout is not torch.strided:
        return wrap_opaque(m, real, source, f"a {real.layout} tensor", "is not strided")
    if real.is_nested:
        return wrap_opaque(m, real, source, "a nested tensor", "has rows of several sizes")
    sizes, strides, size_spec, stride_spec = m.sizes.shape_of(m, real, source)
    m.guards.add(source, TensorMatch(_C.tensor_spec(real, size_spec, stride_spec), _describe(real)))
    fake = m.record.fake_mode.from_real(real, sizes=sizes, strides=strides)
    node = m.record.input(source, real, fake)
    value = SubclassValue(node, fake, cls, source) if ours else TensorValue(node, fake, cls, source)
    value.real = real
    if ours and m.overrides.class_overrides(cls):
        m.overrides.active = True
        m.record.conversions[node] = take_out
    node.meta["is_weight"] = _is_weight(real, source)
    m.record.hold(fake, value)
    return value


def wrap_array(m: Machine, real: Any, source: Source) -> Value:
    """A numpy array: its memory goes into the graph as a tensor."""
    if type(real) is not numpy.ndarray or real.dtype not in DTYPES or not real.flags.writeable or not real.ndim:
        return wrap_opaque(m, real, source, "a numpy array", f"is a {type(real).__name__} of {real.dtype} not captured")
    if any(stride < 0 or stride % real.itemsize for stride in real.strides) or isinstance(source, Fixed):
        return wrap_opaque(m, real, source, "a numpy array", "has strides that a tensor cannot have")
    seen = _array_facts(real)
    m.guards.add(source, TypeIs(numpy.ndarray))
    m.guards.add(source, Holds(lambda now: _array_facts(now) == seen, f"is an array {real.dtype}{list(real.shape)}"))
    tensor = torch.from_numpy(real)
    fake = m.record.fake_mode.from_real(tensor)
    node = m.record.input(source, real, fake)
    value = TensorValue(node, fake)
    m.record.conversions[node] = torch.from_numpy
    node.meta[ON_ARRAY] = True
    m.record.hold(fake, value)
    return ArrayValue(value, source)


def wrap_opaque(m: Machine, real: Any, source: Source, construct: str, reason: str) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(type(real)))
    return OpaqueValue(real, source, construct, f"{source.text} {reason}")


def wrap_tuple(m: Machine, real: tuple, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(type(real)))
    m.guards.add(source, Length(tuple.__len__(real)))
    elements: list[Value] = [Lazy(e, Item(source, i)) for i, e in enumerate(tuple.__iter__(real))]
    if is_plain_tuple(type(real)):
        return TupleValue(elements, type(real), source)
    return InstanceValue(type(real), real, source, TupleValue(elements))


def wrap_list(m: Machine, real: list, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(list))
    return GrowingList(lambda: _elements(m, real, source), source)


def _elements(m: Machine, real: list | collections.deque, source: Source) -> list[Value]:
    """What a container holds at this moment, by looking at it. One that a break has left, and that was seen with another length
    before, is left to CPython: a loop that CPython advances may have filled it."""
    behind_a_break = m.root.program is not m.root.program.origin and isinstance(source, Local)
    if behind_a_break and m.sizes.int_is_dynamic(Asked(source, len), len(real)):
        raise Break(
            f"a {type(real).__name__} whose length changes from call to call",
            f"`{source.text}` is filled before a break, and each of its lengths would be a graph of its own",
            "make a tensor of what it collects before the break, or remove the break",
        )
    m.guards.add(source, Length(len(real)))
    return [Lazy(element, Item(source, index)) for index, element in enumerate(real)]


def wrap_dictionary(m: Machine, real: dict, source: Source) -> Value:
    return m.wrap.dictionary(real, source)


def wrap_proxy(m: Machine, real: types.MappingProxyType, source: Source) -> Value:
    """A read-only view of a dictionary, which may be met elsewhere too, and changed there."""
    mapping = mapping_behind(real)
    m.attributes.view(mapping)
    if type(mapping) not in DICTS:
        return wrap_opaque(m, real, source, "a mapping proxy", f"is a view of a {type(mapping).__qualname__}")
    m.guards.add_unless_fixed(source, TypeIs(types.MappingProxyType))
    place: Source = (
        Fixed(mapping, source.name, source.snapshot) if isinstance(source, Fixed) else Asked(source, mapping_behind)
    )
    return ProxyValue(m.wrap.dictionary(mapping, place), source)


HASHED_BY_IDENTITY = (
    type,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
)
"""Elements of sets that equal themselves alone, whoever looks."""


def wrap_set(m: Machine, real: Any, source: Source) -> Value:
    if type(real) is set and real and all(type(element) is weakref.ref for element in real):
        return wrap_references(m, real, source)
    if not all(is_plain(element) or isinstance(element, HASHED_BY_IDENTITY) for element in real):
        return wrap_opaque(m, real, source, "a set", "holds elements that are not plain data")
    m.guards.add_unless_fixed(source, TypeIs(type(real)))

    def look() -> dict[Any, Value]:
        m.guards.add(source, SetElements(tuple(real)))
        return {e: Constant(e) if is_plain(e) else m.wrap.object(e) for e in real}

    return GrowingSet(look, source, real) if type(real) is set else SetValue(look(), type(real), source, real)


def wrap_references(m: Machine, real: set[Any], source: Source) -> Value:
    """What a WeakSet keeps its elements in."""
    m.guards.add_unless_fixed(source, TypeIs(set))

    def look() -> dict[Any, Value]:
        count = len(real)
        m.guards.add(source, Holds(lambda now: len(now) == count, f"has {count} elements"))
        found = [m.wrap.at(element, Asked(source, element_at(index))) for index, element in enumerate(real)]
        return {reference.hash_key(m): reference for reference in found}

    found = GrowingSet(look, source, real)
    found._entries = look()  # which of them an element is, that comes later, is asked when it comes
    return found


@functools.cache
def element_at(index: int) -> Callable[[Any], Any]:
    """The question for an element of a set, in the order that it has: the same question for the same index."""

    def element(found: Any) -> Any:
        return next(itertools.islice(found, index, None))

    return element


def wrap_function(m: Machine, real: types.FunctionType, source: Source) -> Value:
    m.guards.add(source, CodeIs(real.__code__))
    return FunctionValue(real.__code__, m.wrap.globals(real.__globals__), real=real, source=source)


def wrap_method(m: Machine, real: types.MethodType, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(types.MethodType))
    receiver = m.wrap.at(real.__self__, MethodSelf(source))
    return MethodValue(receiver, m.wrap.at(real.__func__, MethodFunction(source)), source)


def wrap_partial(m: Machine, real: functools.partial, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(functools.partial))
    function = m.wrap.at(real.func, Attribute(source, "func"))
    args = m.wrap.at(real.args, Attribute(source, "args")).items_list(m)
    table = m.wrap.dictionary(real.keywords, Attribute(source, "keywords"))
    kwargs = {name.constant(): value for name, value in table.pairs(m)}
    return PartialValue(function, args, kwargs, real, source)


def wrap_builtin(m: Machine, real: Any, source: Source) -> Value:
    owner = getattr(real, "__self__", real)
    raw = inspect.getattr_static(type(owner), getattr(real, "__name__", ""), None)
    if (
        owner is not real
        and isinstance(raw, (types.MethodDescriptorType, types.WrapperDescriptorType))
        and not isinstance(owner, type)
    ):
        m.guards.add_unless_fixed(source, TypeIs(type(real)))
        m.guards.add(Attribute(source, "__name__"), Equals(real.__name__))
        receiver = m.wrap.at(owner, Attribute(source, "__self__"))
        return m.attributes.bound_builtin(receiver, real.__name__)
    m.guards.add_unless_fixed(source, Is(real))
    return BuiltinValue(real, source)


def wrap_class(m: Machine, real: type, source: Source) -> Value:
    m.guards.add_unless_fixed(source, Is(real))
    return ClassValue(real, source)


def wrap_python_module(m: Machine, real: types.ModuleType, source: Source) -> Value:
    m.guards.add_unless_fixed(source, Is(real))
    return PythonModule(real, source)


def wrap_iterator(m: Machine, real: Any, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(type(real)))
    known = pending_generator if isinstance(real, types.GeneratorType) else known_iterator
    found: Value | None = known(m, real, source) if not is_kept_by_a_break(source) else None
    return found if found is not None else RunningIterator(real, source)


def wrap_nn_module(m: Machine, real: torch.nn.Module, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(type(real)))
    return ModuleValue(type(real), real, source)


def wrap_exception(m: Machine, real: BaseException, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(type(real)))
    args = m.wrap.at(real.args, Attribute(source, "args"))
    if isinstance(real, BaseExceptionGroup):
        return GroupValue(type(real), args.items_list(m), None, source, real)
    return ExceptionValue(type(real), args.items_list(m), source, real)


def wrap_script_function(m: Machine, real: Any, source: Source) -> Value:
    """A function that TorchScript has compiled: the Python function it was made from is captured."""
    original = vars(real).get(torch_private.SCRIPT_ORIGINAL)
    if not isinstance(original, types.FunctionType):
        return wrap_opaque(m, real, source, "a function of TorchScript", "has no Python function behind it")
    m.guards.add_unless_fixed(source, Is(real))
    return m.wrap.object(original)


def wrap_compiled(m: Machine, real: Any, source: Source) -> Value:
    m.guards.add_unless_fixed(source, Is(real))
    return m.wrap.object(real.__wrapped__)


def wrap_disabled(m: Machine, real: Any, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(type(real)))
    return DisabledFunction(type(real), real, source)


def wrap_cell_object(m: Machine, real: types.CellType, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(types.CellType))
    return wrap_cell(m, real, source)


def wrap_deque(m: Machine, real: collections.deque, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(collections.deque))
    m.guards.add(Attribute(source, "maxlen"), Equals(real.maxlen))
    return GrowingDeque(lambda: _elements(m, real, source), real.maxlen, source)


def wrap_cached_function(m: Machine, real: Any, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(type(real)))
    function = m.wrap.at(real.__wrapped__, Attribute(source, "__wrapped__"))
    told = m.guards.ask(source, real, cache_parameters, "has the same parameters")
    return CachedFunction(function, told["maxsize"], told["typed"], real, source)


def wrap_reference(m: Machine, real: weakref.ref, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(weakref.ref))
    return ReferenceValue(Lazy(real(), Referent(source)), source)


def wrap_getter(m: Machine, real: Any, source: Source) -> Value:
    """itemgetter, attrgetter, methodcaller: `__reduce__` tells what they were made of."""
    maker, args = real.__reduce__()[:2]
    if maker is not type(real) or not is_plain(args):
        return wrap_opaque(m, real, source, f"an {type(real).__qualname__}", "takes arguments that are not plain data")
    m.guards.add_unless_fixed(source, Holds(lambda now: now.__reduce__() == (maker, args), f"is {real!r}"))
    return GetterValue(type(real), [m.wrap.constant(a) for a in args], {}, source)


def wrap_thread_local(m: Machine, real: Any, source: Source) -> Value:
    m.guards.add_unless_fixed(source, TypeIs(type(real)))
    return ThreadLocalValue(type(real), real, source)


def wrap_context_variable(m: Machine, real: contextvars.ContextVar, source: Source) -> Value:
    m.guards.add_unless_fixed(source, Is(real))
    return VariableValue(m, real, source)


# The number or text that an instance of a subclass holds, whatever its class makes of it.
HELD_BY: dict[type, Any] = {
    int: int.__int__,
    float: float.__float__,
    complex: complex.__complex__,
    str: str.__str__,
    bytes: bytes.__bytes__,
}


def wrap_instance(m: Machine, real: Any, source: Source) -> Value:
    cls = type(real)
    m.guards.add_unless_fixed(source, TypeIs(cls))
    m.overrides.note_class(cls)
    storage: Value | None = None
    if issubclass(cls, dict):
        storage = DictValue(cls=_storage_class(cls, DICTS), source=source, real=real)
    elif issubclass(cls, list):
        m.guards.add(source, Length(list.__len__(real)))
        items: list[Value] = [Lazy(e, Item(source, i)) for i, e in enumerate(list.__iter__(real))]
        storage = ListValue(items, source)
    elif issubclass(cls, tuple):
        return wrap_tuple(m, real, source)
    elif issubclass(cls, (set, frozenset)):
        kind: Any = frozenset if issubclass(cls, frozenset) else set
        elements = list(kind.__iter__(real))
        if not all(is_plain(element) or isinstance(element, HASHED_BY_IDENTITY) for element in elements):
            return wrap_opaque(m, real, source, "a set", "holds elements that are not plain data")
        entries = {e: Constant(e) if is_plain(e) else m.wrap.object(e) for e in elements}
        storage = SetValue(entries, kind, source, real)
        m.guards.add(source, SetElements(tuple(elements)))
    elif issubclass(cls, weakref.ref):
        storage = ReferenceValue(Lazy(real(), Referent(source)), source)
    elif issubclass(cls, tuple(HELD_BY)):
        held = HELD_BY[next(base for base in HELD_BY if issubclass(cls, base))]
        storage = Constant(m.guards.ask(source, real, held, f"holds {held(real)!r}"))
    return InstanceValue(cls, real, source, storage)


def _array_facts(array: Any) -> Any:
    return array.dtype, array.shape, array.strides, array.flags.writeable


def _storage_class(cls: type, families: tuple[type, ...]) -> type:
    return next(base for base in cls.__mro__ if base in families)


def _is_weight(real: torch.Tensor, source: Source) -> bool:
    """Is it a parameter or buffer of a module, reached as such? A back end may expect it to be the same on the next call."""
    held = (
        isinstance(source, DictItem)
        and source.base is not None
        and source.base.text.endswith(("_parameters", "_buffers"))
    )
    return held and not real.is_inference()


def _describe(real: torch.Tensor) -> str:
    grad = ", requires_grad" if real.requires_grad else ""
    return f"a {type(real).__name__} {str(real.dtype).removeprefix('torch.')}{list(real.shape)} on {real.device}{grad}"


KINDS: list[tuple[Any, Any]] = [
    (tuple, wrap_tuple),
    (torch.Size, wrap_tuple),
    (list, wrap_list),
    *((kind, wrap_dictionary) for kind in DICTS),
    (types.MappingProxyType, wrap_proxy),
    (set, wrap_set),
    (frozenset, wrap_set),
    (types.FunctionType, wrap_function),
    (types.MethodType, wrap_method),
    (functools.partial, wrap_partial),
    (types.CellType, wrap_cell_object),
    (collections.deque, wrap_deque),
    (type(functools.lru_cache(int)), wrap_cached_function),
    (weakref.ref, wrap_reference),
    (operator.itemgetter, wrap_getter),
    (operator.attrgetter, wrap_getter),
    (operator.methodcaller, wrap_getter),
    (_C.Compiled, wrap_compiled),
    (_C.Disabled, wrap_disabled),
    (torch_private.ScriptFunction, wrap_script_function),
    (type, wrap_class),
    (types.ModuleType, wrap_python_module),
    (BUILTIN_CALLABLES, wrap_builtin),
    (ITERATORS, wrap_iterator),
    (torch.nn.Module, wrap_nn_module),
    (BaseException, wrap_exception),
    (threading.local, wrap_thread_local),
    (contextvars.ContextVar, wrap_context_variable),
]
OPEN = {type, types.ModuleType, BUILTIN_CALLABLES, ITERATORS, torch.nn.Module, BaseException, threading.local}
