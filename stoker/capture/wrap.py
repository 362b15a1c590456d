"""Objects of the program's surroundings to Values, and the guards that reading them needs.

In:  a real object and the source it was found at.
Out: its Value. The same object gives the same Value, however it was reached; reaching it a second way adds a guard.
"""

from __future__ import annotations

import collections
import enum
import functools
import inspect
import operator
import threading
import types
import typing
import weakref
from typing import TYPE_CHECKING, Any

import numpy
import torch

from stoker import _C, torch_private
from stoker.capture.values.array import DTYPES, ArrayValue
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant, is_numpy_scalar, is_plain
from stoker.capture.values.deque import DequeValue
from stoker.capture.values.function import (
    EMPTY,
    BuiltinValue,
    CachedFunction,
    CellValue,
    FunctionValue,
    MethodValue,
    PartialValue,
)
from stoker.capture.values.getter import GetterValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue
from stoker.capture.values.iterator import RunningIterator
from stoker.capture.values.mapping import DictValue, SetValue
from stoker.capture.values.module import ModuleValue, PythonModule
from stoker.capture.values.opaque import OpaqueValue
from stoker.capture.values.reference import ReferenceValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.subclass import SubclassValue, is_captured_class, take_out
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Lazy, Value
from stoker.errors import Break
from stoker.guard.guard import (
    Check,
    CodeIs,
    DictKeys,
    Equals,
    Guard,
    Holds,
    InRange,
    Is,
    Length,
    SameAs,
    TensorMatch,
    TypeIs,
)
from stoker.guard.source import (
    Attribute,
    CellContents,
    DictItem,
    DictKey,
    Fixed,
    FunctionCell,
    InstanceDict,
    Item,
    MethodFunction,
    MethodSelf,
    Referent,
    Source,
    root_of,
)

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

DICTS = (dict, collections.OrderedDict, collections.defaultdict)
_EMPTY: tuple[Any, ...] = ([], (), {}, {}.keys(), {}.values(), {}.items(), set(), "", b"", range(0), range(2**70))
ITERATORS = (
    types.GeneratorType,
    types.CoroutineType,
    *{type(iter(x)) for x in _EMPTY},
    type(reversed([])),
    zip,
    map,
    filter,
    enumerate,
    reversed,
)
BUILTIN_CALLABLES = (
    types.BuiltinFunctionType,
    types.MethodDescriptorType,
    types.WrapperDescriptorType,
    types.MethodWrapperType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    property,
    staticmethod,
    classmethod,
    torch_private.OpOverload,
    torch_private.OpOverloadPacket,
    torch_private.CustomOpDef,
    numpy.ufunc,
    type(numpy.prod),
)
INT64 = 2**63
ALIASES = (type(typing.List[int]), type(typing.Optional[int]), type(typing.Any), typing.TypeVar)  # noqa: UP006, UP045


class Wrapping:
    """Mixed into the machine."""

    def guard(self: Machine, source: Source, check: Check) -> None:
        """Remember a condition, once."""
        root = root_of(source)
        if isinstance(root, Fixed) and root.snapshot:
            return
        key = (source, check.kind, _argument_key(check))
        if key not in self.guards:
            self.guards[key] = Guard(source, check, self.location())

    def force(self: Machine, value: Value) -> Value:
        """Look at a value that nobody had looked at."""
        if type(value) is Lazy:
            if value.forced is None:
                assert value.source is not None
                value.forced = self.wrap(value.real, value.source)
            return value.forced
        return value

    def wrap(self: Machine, real: Any, source: Source) -> Value:
        known = self.wrapped.get(id(real))
        if known is not None:
            self.reached_again(known[0], real, source)
            return known[0]
        value = self.make_value(real, source)
        if not isinstance(value, (Constant, SymbolicValue)):
            self.wrapped[id(real)] = (value, real)
        return value

    def reached_again(self: Machine, value: Value, real: Any, source: Source) -> None:
        first = value.source
        if first is None or first == source:
            return
        if isinstance(real, (types.ModuleType, type)):
            self.guard_unless_fixed(source, Is(real))
        elif isinstance(first, Fixed):
            if not isinstance(source, Fixed):
                self.guard(source, Is(real))
        elif isinstance(source, Fixed):
            self.guard(first, Is(real))
        else:
            self.guard(source, SameAs(first))

    def wrap_object(self: Machine, real: Any) -> Value:
        """An object that needs no path: a class attribute under its class's guard, a class, a function of a library."""
        return self.wrap(real, self.fixed(real))

    def wrap_constant(self: Machine, real: Any) -> Value:
        """A result computed from constants."""
        kind = type(real)
        if kind in (torch.SymInt, torch.SymBool, torch.SymFloat):
            return SymbolicValue(real)
        if kind is tuple or kind is torch.Size:
            return TupleValue([self.wrap_constant(element) for element in real], kind)
        if is_plain(real):
            return Constant(real)
        if kind is list:
            return ListValue([self.wrap_constant(element) for element in real])
        if kind is dict:
            return DictValue({key: (self.wrap_constant(key), self.wrap_constant(value)) for key, value in real.items()})
        if kind in (set, frozenset):
            return SetValue({element: self.wrap_constant(element) for element in real}, kind)
        if isinstance(
            real, (type, types.FunctionType, types.ModuleType, *BUILTIN_CALLABLES, types.UnionType, *ALIASES)
        ):
            return self.wrap_object(real)
        if isinstance(real, types.MappingProxyType):
            return self.wrap_constant(dict(real))
        raise Break(f"an object of type {kind.__qualname__}", "it was made while capturing and has no symbolic form")

    def make_value(self: Machine, real: Any, source: Source) -> Value:
        kind = type(real)
        if real is None or kind is bool or real is Ellipsis or real is NotImplemented or isinstance(real, enum.Enum):
            self.guard_unless_fixed(source, Is(real))
            return Constant(real, source)
        if kind is int:
            return self.wrap_int(real, source)
        if isinstance(real, torch.Tensor):
            return self.wrap_tensor(real, source)
        if is_numpy_scalar(real):
            self.guard_unless_fixed(source, TypeIs(kind))
            was = real.tobytes()
            self.guard_unless_fixed(source, Holds(lambda now: now.tobytes() == was, f"== {real!r}"))
            return Constant(real, source)
        if kind is not tuple and kind is not torch.Size and is_plain(real):
            self.guard_unless_fixed(source, Equals(real))
            return Constant(real, source)
        if isinstance(real, numpy.ndarray):
            return self.wrap_array(real, source)
        script_source = getattr(real, "_torchdynamo_inline", None)
        if isinstance(script_source, types.FunctionType) and not isinstance(real, types.FunctionType):
            self.guard_unless_fixed(source, Is(real))
            return self.wrap_object(script_source)
        for family, maker in WRAPPERS:
            if isinstance(real, family) if family in OPEN else kind is family:
                return maker(self, real, source)
        return self.wrap_instance(real, source)

    def guard_unless_fixed(self: Machine, source: Source, check: Check) -> None:
        if not isinstance(source, Fixed):
            self.guard(source, check)

    def wrap_int(self: Machine, real: int, source: Source) -> Value:
        if not isinstance(source, Fixed) and self.sizes.int_is_dynamic(source, real):
            self.guard(source, InRange(-INT64, INT64 - 1))
            return SymbolicValue(self.sizes.symbol_for_int(self, real, source))
        self.guard_unless_fixed(source, Equals(real))
        return Constant(real, source)

    def wrap_tensor(self: Machine, real: torch.Tensor, source: Source) -> Value:
        cls = type(real)
        ours = cls not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
        if ours and not is_captured_class(cls):
            lazy = issubclass(cls, torch_private.UninitializedTensorMixin)
            reason = (
                "has no shape before the lazy module's first call"
                if lazy
                else "acts below autograd (__torch_dispatch__)"
            )
            return self.wrap_opaque(real, source, f"the tensor subclass {cls.__qualname__}", reason)
        if real.layout is not torch.strided:
            return self.wrap_opaque(real, source, f"a {real.layout} tensor", "is not strided")
        sizes, strides, size_spec, stride_spec = self.sizes.shape_of(self, real, source)
        self.guard(source, TensorMatch(_C.tensor_spec(real, size_spec, stride_spec), _describe(real)))
        fake = self.fake_mode.from_real(real, sizes=sizes, strides=strides)
        node = self.graph.placeholder(self.fresh_input_name(source))
        value = SubclassValue(node, fake, cls, source) if ours else TensorValue(node, fake, cls, source)
        value.real = real
        if ours and self.class_overrides(cls):
            self.overriding = True
            self.conversions[node] = take_out
        node.meta["example_value"] = fake
        node.meta["is_weight"] = _is_weight(real, source)
        self.inputs.append((node, source, real))
        self.tensor_of_fake[id(fake)] = value
        return value

    def wrap_array(self: Machine, real: Any, source: Source) -> Value:
        """A numpy array: its memory goes into the graph as a tensor."""
        if type(real) is not numpy.ndarray or real.dtype not in DTYPES or not real.flags.writeable or not real.ndim:
            return self.wrap_opaque(
                real, source, "a numpy array", f"is a {type(real).__name__} of {real.dtype} not captured"
            )
        if any(stride < 0 or stride % real.itemsize for stride in real.strides) or isinstance(source, Fixed):
            return self.wrap_opaque(real, source, "a numpy array", "has strides that a tensor cannot have")
        seen = _array_facts(real)
        self.guard(source, TypeIs(numpy.ndarray))
        self.guard(source, Holds(lambda now: _array_facts(now) == seen, f"is an array {real.dtype}{list(real.shape)}"))
        tensor = torch.from_numpy(real)
        fake = self.fake_mode.from_real(tensor)
        node = self.graph.placeholder(self.fresh_input_name(source))
        node.meta["example_value"] = fake
        value = TensorValue(node, fake)
        self.inputs.append((node, source, real))
        self.conversions[node] = torch.from_numpy
        self.tensor_of_fake[id(fake)] = value
        return ArrayValue(value, source, outside=True)

    def wrap_opaque(self: Machine, real: Any, source: Source, construct: str, reason: str) -> Value:
        self.guard_unless_fixed(source, TypeIs(type(real)))
        return OpaqueValue(real, source, construct, f"{source.text} {reason}")

    def wrap_tuple(self: Machine, real: tuple, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(type(real)))
        self.guard(source, Length(len(real)))
        elements: list[Value] = [Lazy(tuple.__getitem__(real, i), Item(source, i)) for i in range(len(real))]
        return TupleValue(elements, type(real), source)

    def wrap_list(self: Machine, real: list, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(list))
        self.guard(source, Length(len(real)))
        return ListValue([Lazy(element, Item(source, index)) for index, element in enumerate(real)], source)

    def wrap_dict(self: Machine, real: dict, source: Source) -> DictValue:
        known = self.wrapped.get(id(real))
        if known is not None and isinstance(known[0], DictValue):
            self.reached_again(known[0], real, source)
            return known[0]
        if not isinstance(source, (Fixed, InstanceDict)):
            self.guard(source, TypeIs(type(real)))
        value = DictValue(cls=type(real), source=source, real=real)
        if isinstance(real, collections.defaultdict):
            value.default_factory = self.wrap(real.default_factory, Attribute(source, "default_factory"))
        self.wrapped[id(real)] = (value, real)
        return value

    def wrap_proxy(self: Machine, real: types.MappingProxyType, source: Source) -> Value:
        """A read-only view of a dictionary that is out of reach: its keys are guarded by asking it."""
        self.guard_unless_fixed(source, TypeIs(types.MappingProxyType))
        keys = list(real)
        if not isinstance(source, Fixed):
            self.guard(source, Holds(lambda now: list(now) == keys, f"has the keys {keys}"))
        entries: dict[Any, tuple[Value, Value]] = {}
        for key, value in real.items():
            place = self.fixed(value) if isinstance(source, Fixed) else Item(source, key)
            entries[key] = (self.wrap_constant(key), Lazy(value, place))
        return DictValue(entries, source=source)

    def wrap_set(self: Machine, real: Any, source: Source) -> Value:
        if not all(is_plain(element) or isinstance(element, type) for element in real):
            return self.wrap_opaque(real, source, "a set", "holds elements that are not plain data")
        self.guard_unless_fixed(source, TypeIs(type(real)))
        self.guard(source, Equals(real.copy()))
        entries = {e: self.wrap_object(e) if isinstance(e, type) else Constant(e) for e in real}
        return SetValue(entries, type(real), source, real)

    def guard_keys(self: Machine, source: Source, real: dict) -> None:
        if all(is_plain(key) for key in real):
            self.guard(source, DictKeys(tuple(dict.keys(real))))
        else:
            self.guard(source, Length(len(real)))

    def wrap_key(self: Machine, key: Any, source: Source, index: int) -> Value:
        return Constant(key) if is_plain(key) else self.wrap(key, DictKey(source, index))

    def dict_item(self: Machine, source: Source, key: Any, index: int) -> Source:
        return DictItem(source, key)

    def wrap_function(self: Machine, real: types.FunctionType, source: Source) -> Value:
        self.guard(source, CodeIs(real.__code__))
        return FunctionValue(real.__code__, self.globals_of(real.__globals__), real=real, source=source)

    def globals_of(self: Machine, real: dict) -> DictValue:
        return self.wrap_dict(real, Fixed(real, str(real.get("__name__", "globals"))))

    def wrap_cell(self: Machine, real: types.CellType, source: Source, root_name: str | None = None) -> CellValue:
        known = self.wrapped.get(id(real))
        if known is not None:
            if isinstance(source, FunctionCell) and isinstance(known[0].source, FunctionCell):
                self.reached_again(known[0], real, source)
            return known[0]  # type: ignore[return-value]
        place = CellContents(source) if root_name is None else source
        try:
            contents: Value | None = Lazy(real.cell_contents, place)
        except ValueError:
            contents = EMPTY
        value = CellValue(contents, source if root_name is None else None, root_name)
        self.wrapped[id(real)] = (value, real)
        return value

    def wrap_method(self: Machine, real: types.MethodType, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(types.MethodType))
        receiver = self.wrap(real.__self__, MethodSelf(source))
        return MethodValue(receiver, self.wrap(real.__func__, MethodFunction(source)), source)

    def wrap_partial(self: Machine, real: functools.partial, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(functools.partial))
        function = self.wrap(real.func, Attribute(source, "func"))
        args = self.wrap(real.args, Attribute(source, "args")).items_list(self)
        table = self.wrap_dict(real.keywords, Attribute(source, "keywords"))
        kwargs = {name.constant(): value for name, value in table.pairs(self)}
        return PartialValue(function, args, kwargs, real, source)

    def wrap_builtin(self: Machine, real: Any, source: Source) -> Value:
        owner = getattr(real, "__self__", real)
        raw = inspect.getattr_static(type(owner), getattr(real, "__name__", ""), None)
        if (
            owner is not real
            and isinstance(raw, (types.MethodDescriptorType, types.WrapperDescriptorType))
            and not isinstance(owner, type)
        ):
            self.guard_unless_fixed(source, TypeIs(type(real)))
            self.guard(Attribute(source, "__name__"), Equals(real.__name__))
            receiver = self.wrap(owner, Attribute(source, "__self__"))
            return self.bound_builtin(receiver, real.__name__)
        self.guard_unless_fixed(source, Is(real))
        return BuiltinValue(real, source)

    def wrap_class(self: Machine, real: type, source: Source) -> Value:
        self.guard_unless_fixed(source, Is(real))
        return ClassValue(real, source)

    def wrap_python_module(self: Machine, real: types.ModuleType, source: Source) -> Value:
        self.guard_unless_fixed(source, Is(real))
        return PythonModule(real, source)

    def wrap_iterator(self: Machine, real: Any, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(type(real)))
        return RunningIterator(real, source)

    def wrap_nn_module(self: Machine, real: torch.nn.Module, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(type(real)))
        return ModuleValue(type(real), real, source)

    def wrap_exception(self: Machine, real: BaseException, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(type(real)))
        args = self.wrap(real.args, Attribute(source, "args"))
        return ExceptionValue(type(real), args.items_list(self), source, real)

    def wrap_compiled(self: Machine, real: Any, source: Source) -> Value:
        self.guard_unless_fixed(source, Is(real))
        return self.wrap_object(real.__wrapped__)

    def wrap_cell_object(self: Machine, real: types.CellType, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(types.CellType))
        return self.wrap_cell(real, source)

    def wrap_deque(self: Machine, real: collections.deque, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(collections.deque))
        self.guard(source, Length(len(real)))
        self.guard(Attribute(source, "maxlen"), Equals(real.maxlen))
        items: list[Value] = [Lazy(element, Item(source, index)) for index, element in enumerate(real)]
        return DequeValue(items, real.maxlen, source)

    def wrap_cached_function(self: Machine, real: Any, source: Source) -> Value:
        self.guard_unless_fixed(source, TypeIs(type(real)))
        return CachedFunction(real, source, self.wrap(real.__wrapped__, Attribute(source, "__wrapped__")))

    def wrap_reference(self: Machine, real: weakref.ref, source: Source) -> Value:
        target = real()
        if target is None:
            return self.wrap_opaque(real, source, "a weak reference", "refers to an object that is gone")
        self.guard_unless_fixed(source, TypeIs(weakref.ref))
        return ReferenceValue(Lazy(target, Referent(source)), source)

    def reference_to(self: Machine, value: Value, callback: Value) -> Value:
        if value.source is None or not (isinstance(callback, Constant) and callback.value is None):
            value.unsupported("a weak reference to an object made by the captured code, or with a callback")
        return ReferenceValue(value)

    def wrap_getter(self: Machine, real: Any, source: Source) -> Value:
        """itemgetter, attrgetter, methodcaller: `__reduce__` tells what they were made of."""
        maker, args = real.__reduce__()[:2]
        if maker is not type(real) or not is_plain(args):
            return self.wrap_opaque(
                real, source, f"an {type(real).__qualname__}", "takes arguments that are not plain data"
            )
        self.guard_unless_fixed(source, Holds(lambda now: now.__reduce__() == (maker, args), f"is {real!r}"))
        return GetterValue(type(real), [self.wrap_constant(a) for a in args], {}, source)

    def wrap_thread_local(self: Machine, real: Any, source: Source) -> Value:
        return self.wrap_opaque(real, source, "a threading.local", "has other attributes in each thread")

    def wrap_instance(self: Machine, real: Any, source: Source) -> Value:
        cls = type(real)
        self.guard_unless_fixed(source, TypeIs(cls))
        self.note_class(cls)
        storage: Value | None = None
        if isinstance(real, dict):
            storage = DictValue(cls=_storage_class(cls, DICTS), source=source, real=real)
        elif isinstance(real, list):
            self.guard(source, Length(list.__len__(real)))
            items: list[Value] = [Lazy(e, Item(source, i)) for i, e in enumerate(list.__iter__(real))]
            storage = ListValue(items, source)
        elif isinstance(real, tuple):
            return self.wrap_tuple(real, source)
        elif isinstance(real, (set, frozenset)):
            kind = frozenset if isinstance(real, frozenset) else set
            elements = list(kind.__iter__(real))  # type: ignore[arg-type]
            if not all(is_plain(element) for element in elements):
                return self.wrap_opaque(real, source, "a set", "holds elements that are not plain data")
            storage = SetValue({e: Constant(e) for e in elements}, kind, source, real)
            self.guard(source, Holds(lambda now, was=set(elements): set(now) == was, "has the same elements"))
        elif isinstance(real, (int, float, str, bytes)):
            self.guard(source, Holds(lambda now, was=real: now == was, f"== {real!r}"))
            storage = Constant(next(b for b in (int, float, str, bytes) if isinstance(real, b)).__call__(real))
        return InstanceValue(cls, real, source, storage)


def _array_facts(array: Any) -> Any:
    return array.dtype, array.shape, array.strides, array.flags.writeable


def _storage_class(cls: type, families: tuple[type, ...]) -> type:
    return next(base for base in cls.__mro__ if base in families)


def _argument_key(check: Check) -> Any:
    try:
        argument = check.argument
    except AssertionError:
        argument = check.other if isinstance(check, SameAs) else check.others  # type: ignore[attr-defined]
    if isinstance(argument, (int, str, float, bytes, bool, type(None), Source)):
        return (type(argument), argument)
    if isinstance(check, DictKeys):
        return "keys"
    return id(argument) if not isinstance(check, (TensorMatch,)) else None


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


WRAPPERS: list[tuple[Any, Any]] = [
    (tuple, Wrapping.wrap_tuple),
    (torch.Size, Wrapping.wrap_tuple),
    (list, Wrapping.wrap_list),
    *((kind, Wrapping.wrap_dict) for kind in DICTS),
    (types.MappingProxyType, Wrapping.wrap_proxy),
    (set, Wrapping.wrap_set),
    (frozenset, Wrapping.wrap_set),
    (types.FunctionType, Wrapping.wrap_function),
    (types.MethodType, Wrapping.wrap_method),
    (functools.partial, Wrapping.wrap_partial),
    (types.CellType, Wrapping.wrap_cell_object),
    (collections.deque, Wrapping.wrap_deque),
    (type(functools.lru_cache(int)), Wrapping.wrap_cached_function),
    (weakref.ref, Wrapping.wrap_reference),
    (operator.itemgetter, Wrapping.wrap_getter),
    (operator.attrgetter, Wrapping.wrap_getter),
    (operator.methodcaller, Wrapping.wrap_getter),
    (_C.Compiled, Wrapping.wrap_compiled),
    (type, Wrapping.wrap_class),
    (types.ModuleType, Wrapping.wrap_python_module),
    (BUILTIN_CALLABLES, Wrapping.wrap_builtin),
    (ITERATORS, Wrapping.wrap_iterator),
    (torch.nn.Module, Wrapping.wrap_nn_module),
    (BaseException, Wrapping.wrap_exception),
    (threading.local, Wrapping.wrap_thread_local),
]
OPEN = {type, types.ModuleType, BUILTIN_CALLABLES, ITERATORS, torch.nn.Module, BaseException, threading.local}
