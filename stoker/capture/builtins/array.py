"""Between numpy and torch, and numpy functions that make or rearrange arrays."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import numpy
import torch

from stoker.capture.builtins.conjugate import known_bits
from stoker.capture.handlers import TENSOR_METHODS, handles, pure, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.values.array import DTYPES, ArrayValue
from stoker.capture.values.constant import Constant, is_numpy_scalar
from stoker.capture.values.sequence import GrowingList, ListValue, SequenceValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.capture.values.varying import VaryingFloat, VaryingScalar
from stoker.errors import Break

NONE = Constant(None)
TRUE = Constant(True)
CPU = Constant(torch.device("cpu"))


@tensor_special("numpy")
def to_array(m: Machine, value: TensorValue) -> Value:
    """`tensor.numpy()`: an array on the same memory."""
    fake = value.fake
    if type(value) is not TensorValue or fake.dtype not in DTYPES.values() or fake.device.type != "cpu":
        value.unsupported("numpy()")
    if fake.requires_grad:
        raise Break("Tensor.numpy()", f"{value.describe()} needs a gradient: eager raises an error")
    known_bits(value)
    found = ArrayValue(value)
    found.given = True
    return found


@tensor_special("__array__")
def array_protocol(m: Machine, value: TensorValue) -> Value:
    return to_array(m, value)


def _tensor_of(m: Machine, array: Value) -> Value:
    """The tensor behind an array, as a tensor object of its own."""
    if not isinstance(array, ArrayValue) or array.scalar:
        raise Break("torch.from_numpy", f"{array.describe()} is not an array that is captured")
    if not array.given:
        array.given = True
        return array.tensor
    return m.record.method(array.tensor, "view_as", [array.tensor], {})


@handles(torch.from_numpy)
def from_numpy(m: Machine, array: Value) -> Value:
    return _tensor_of(m, array)


@handles(torch.as_tensor)
def as_tensor(m: Machine, data: Value, dtype: Value = NONE, device: Value = NONE) -> Value:
    if not isinstance(data, ArrayValue):
        given = {name: v for name, v in (("dtype", dtype), ("device", device)) if v is not NONE}
        given = _with_type_of_scalars(m, data, given)
        made = tensor_of_sizes(m, data, given)
        return made if made is not None else m.record.call(torch.as_tensor, [data], given)
    shared = _tensor_of(m, data)
    options = {name: v for name, v in (("dtype", dtype), ("device", device)) if not m.operators.identical(v, NONE)}
    return m.record.method(shared, "to", [], options) if options else shared


@handles(torch.tensor)
def tensor(m: Machine, data: Value, **kwargs: Value) -> Value:
    if isinstance(data, TensorValue) and {*kwargs} <= COPYING_OPTIONS:
        return _copy_constructed(m, data, kwargs, "torch.tensor")
    if not isinstance(data, ArrayValue):
        kwargs = _with_type_of_scalars(m, data, kwargs)
        made = tensor_of_sizes(m, data, kwargs)
        return made if made is not None else m.record.call(torch.tensor, [data], kwargs)
    if not {*kwargs} <= COPYING_OPTIONS:
        data.unsupported("torch.tensor with options")
    return _copied(m, data.tensor, kwargs)


@handles(torch.asarray)
def torch_asarray(m: Machine, data: Value, **kwargs: Value) -> Value:
    return m.record.call(torch.asarray, [data], _with_type_of_scalars(m, data, kwargs))


def _with_type_of_scalars(m: Machine, data: Value, options: dict[str, Value]) -> dict[str, Value]:
    """Numbers of numpy among the data decide its type, which Python's numbers in their place would not."""
    if not m.operators.identical(options.get("dtype", NONE), NONE) or not _holds_scalars(m, data):
        return options
    real = m.concrete.run(torch.tensor, m.concrete.plain(data, "the data of a tensor"))
    return {**options, "dtype": Constant(real.dtype)}


def _holds_scalars(m: Machine, data: Value) -> bool:
    if isinstance(data, SequenceValue):
        return any(_holds_scalars(m, part) for part in data.elements(m))
    return isinstance(data, VaryingScalar) or type(data) is Constant and is_numpy_scalar(data.value)


COPYING_OPTIONS = frozenset({"dtype", "device", "requires_grad"})


def _copy_constructed(m: Machine, data: TensorValue, options: dict[str, Value], name: str) -> Value:
    """A tensor made of a tensor: torch warns of it, at each call."""
    m.wrap.object(warnings.warn).call(m, [Constant(_copying_words(name)), m.wrap.object(UserWarning)], {})
    return _copied(m, m.record.method(data, "detach", [], {}), options)


def _copied(m: Machine, data: Value, options: dict[str, Value]) -> Value:
    given = {k: v for k, v in options.items() if k != "requires_grad" and not m.operators.identical(v, NONE)}
    made = m.record.method(data, "to", [], {**given, "copy": TRUE})
    needs = options.get("requires_grad")
    return made if needs is None or not needs.truth(m) else made.method(m, "requires_grad_", [], {})


@functools.cache
def _copying_words(name: str) -> str:
    """What torch says then."""
    number = torch.zeros(())
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        torch.tensor(number) if name == "torch.tensor" else number.new_tensor(number)
    return str(said[0].message)


def new_tensor(m: Machine, receiver: Any, *args: Value, **kwargs: Value) -> Value:
    """`torch.tensor` whose dtype and device are those of another tensor where none are given."""
    given = {name: v for name, v in kwargs.items() if not (isinstance(v, Constant) and v.value is None)}
    like = {"dtype": Constant(receiver.fake.dtype), "device": Constant(receiver.fake.device)}
    if len(args) == 1 and isinstance(args[0], TensorValue) and {*given} <= COPYING_OPTIONS:
        return _copy_constructed(m, args[0], like | given, "tensor.new_tensor")
    made = tensor_of_sizes(m, args[0], like | given) if len(args) == 1 else None
    return made if made is not None else m.record.method(receiver, "new_tensor", list(args), kwargs)


TENSOR_METHODS["new_tensor"] = new_tensor


def new(m: Machine, receiver: Any, *args: Value, **kwargs: Value) -> Value:
    """With sizes, a tensor without content; a torch.Size is one, another tuple is data."""
    sized = len(args) == 1 and isinstance(args[0], TupleValue) and args[0].cls is torch.Size
    if not kwargs and (sized or all(v.python_type() is int for v in args)):
        return m.record.method(receiver, "new_empty", list(args) or [Constant(0)], {})
    return m.record.method(receiver, "new", list(args), kwargs)


TENSOR_METHODS["new"] = new

# What an int64 becomes without loss of what torch.tensor would have made of the int.
MADE_OF_INTEGERS = (None, torch.int64, torch.float32, torch.float64)


def tensor_of_sizes(m: Machine, data: Value, kwargs: dict[str, Value]) -> Value | None:
    """`torch.tensor` of ints among which are symbolic ones: each becomes data, not a guard. None if it is of anything else."""
    dtype = m.concrete.constant(kwargs.get("dtype", NONE), "a dtype")
    leaves: list[Value] = []
    shape = _nested_shape(m, data, leaves)
    if shape is not None and any(map(_is_float, leaves)) and any(map(_is_symbolic_number, leaves)):
        return _tensor_of_floats(m, leaves, shape, dtype, kwargs)
    known = all(isinstance(v, SymbolicValue) or (isinstance(v, Constant) and type(v.value) is int) for v in leaves)
    symbolic = any(isinstance(v, SymbolicValue) for v in leaves)
    if (
        shape is None
        or not known
        or not symbolic
        or dtype not in MADE_OF_INTEGERS
        or not {*kwargs} <= {"dtype", "device"}
    ):
        return None
    options = {"dtype": Constant(torch.int64), **{k: v for k, v in kwargs.items() if k == "device"}}
    zero = m.record.call(torch.zeros, [TupleValue([])], options)
    made = m.record.call(torch.stack, [ListValue([m.operators.binary("+", zero, leaf) for leaf in leaves])], {})
    made = m.record.method(made, "reshape", [TupleValue([Constant(size) for size in shape])], {})
    return made if dtype in (None, torch.int64) else m.record.method(made, "to", [Constant(dtype)], {})


def _is_symbolic_number(value: Value) -> bool:
    return isinstance(value, (SymbolicValue, VaryingFloat)) and value.python_type() in (int, float)


def _is_float(value: Value) -> bool:
    return isinstance(value, (SymbolicValue, Constant)) and value.python_type() is float


def _tensor_of_floats(
    m: Machine, leaves: list[Value], shape: list[int], dtype: Any, kwargs: dict[str, Value]
) -> Value | None:
    """`torch.tensor` of numbers, some of which are symbolic and some floats; None if there is anything else."""
    known = all(_is_symbolic_number(v) or (isinstance(v, Constant) and type(v.value) in (int, float)) for v in leaves)
    if not known or dtype not in (None, torch.float32, torch.float64) or not {*kwargs} <= {"dtype", "device"}:
        return None
    made = [m.record.call(torch.full, [TupleValue([]), leaf], kwargs) for leaf in leaves]
    if not shape:
        return made[0]
    stacked = m.record.call(torch.stack, [ListValue(made)], {})  # type: ignore[arg-type]  # values
    return m.record.method(stacked, "reshape", [TupleValue([Constant(size) for size in shape])], {})


def _nested_shape(m: Machine, data: Value, leaves: list[Value]) -> list[int] | None:
    """The shape of nested lists of numbers, whose leaves are collected; None if they are not of one shape."""
    if type(data) not in (ListValue, GrowingList, TupleValue):
        leaves.append(data)
        return []
    shapes = [_nested_shape(m, part, leaves) for part in data.items_list(m)]
    if not shapes or any(shape is None or shape != shapes[0] for shape in shapes):
        return None
    return [len(shapes), *(shapes[0] or [])]


@handles(numpy.asarray)
def asarray(m: Machine, data: Value, dtype: Value = NONE) -> Value:
    array = to_array(m, data) if isinstance(data, TensorValue) else data
    if not isinstance(array, ArrayValue):
        return m.arrays.call(numpy.array, [data, dtype], {})
    if array.scalar:
        array = ArrayValue(array.tensor).method_copy(m)
    same = _is_none(dtype) or _dtype(m, dtype).value is array.tensor.fake.dtype
    return array if same else array.method_astype(m, dtype)


def _made(value: Value) -> ArrayValue:
    assert isinstance(value, TensorValue)
    return ArrayValue(value)


def _dtype(m: Machine, dtype: Value) -> Constant:
    wanted = (
        numpy.dtype(float) if _is_none(dtype) else m.concrete.run(numpy.dtype, m.concrete.constant(dtype, "a dtype"))
    )
    if wanted not in DTYPES:
        raise Break("a numpy array", f"arrays of {wanted} are not captured")
    return Constant(DTYPES[wanted])


def _is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is None


def _factory(numpy_function: Any, torch_function: Any) -> None:
    def handler(m: Machine, shape: Value, dtype: Value = NONE) -> Value:
        return _made(m.record.call(torch_function, [shape], {"dtype": _dtype(m, dtype), "device": CPU}))

    handler.__name__ = numpy_function.__name__
    handles(numpy_function)(handler)


_factory(numpy.zeros, torch.zeros)
_factory(numpy.ones, torch.ones)


def _factory_like(numpy_function: Any, torch_function: Any) -> None:
    def handler(m: Machine, array: Value, dtype: Value = NONE) -> Value:
        if not isinstance(array, ArrayValue) or array.scalar:
            raise Break(f"`numpy.{numpy_function.__name__}`", "it is not given an array that is captured")
        options: dict[str, Value] = {} if _is_none(dtype) else {"dtype": _dtype(m, dtype)}
        return _made(m.record.call(torch_function, [array.dense()], options))

    handler.__name__ = numpy_function.__name__
    handles(numpy_function)(handler)


_factory_like(numpy.zeros_like, torch.zeros_like)
_factory_like(numpy.ones_like, torch.ones_like)


def _method(function: Any, name: str) -> None:
    """A function that is a method of its first argument."""

    def handler(m: Machine, array: Value, *args: Value) -> Value:
        if not isinstance(array, ArrayValue):
            raise Break(f"`numpy.{function.__name__}`", "it is not given an array that is captured")
        return m.calls.builtin_method(array, name, list(args), {})

    handler.__name__ = name
    handles(function)(handler)


for _function, _name in (
    (numpy.reshape, "reshape"),
    (numpy.transpose, "transpose"),
    (numpy.ravel, "ravel"),
    (numpy.copy, "copy"),
    (numpy.squeeze, "squeeze"),
    (numpy.swapaxes, "swapaxes"),
):
    _method(_function, _name)


def _view(function: Any, name: str) -> None:
    """A function that gives a view, as the method of tensors does that has this name."""

    def handler(m: Machine, array: Value, *args: Value) -> Value:
        if not isinstance(array, ArrayValue) or array.scalar or not all(type(a.constant()) is int for a in args):
            raise Break(f"`numpy.{function.__name__}`", "it is not given an array that is captured, and numbers")
        return array.view(m.record.method(array.tensor, name, list(args), {}))

    handler.__name__ = name
    handles(function)(handler)


_view(numpy.expand_dims, "unsqueeze")
_view(numpy.moveaxis, "movedim")


def _attribute(function: Any) -> None:
    @handles(function)
    def handler(m: Machine, array: Value, *args: Value) -> Value:
        if isinstance(array, ArrayValue) and not args:
            return array.attribute(m, function.__name__)
        return m.arrays.call(function, [array, *args], {})


_attribute(numpy.shape)
_attribute(numpy.size)
_attribute(numpy.ndim)


def _limits(cls: Any) -> None:
    @handles(cls)
    def handler(m: Machine, dtype: Value) -> Value:
        return Constant(m.concrete.run(cls, m.concrete.constant(dtype, "a dtype")))


_limits(numpy.finfo)
_limits(numpy.iinfo)
pure(numpy.promote_types)


@handles(numpy.issubdtype)
def is_kind_of(m: Machine, kind: Value, family: Value) -> Value:
    known = [m.concrete.constant(value, "numpy.issubdtype()") for value in (kind, family)]
    return Constant(m.concrete.run(numpy.issubdtype, *known))


def _joins(function: Any, torch_function: Any) -> None:
    def handler(m: Machine, arrays: Value, axis: Value = Constant(0)) -> Value:  # noqa: B008
        parts = arrays.elements(m) if isinstance(arrays, SequenceValue) else []
        known = [a for a in parts if isinstance(a, ArrayValue) and not a.scalar]
        if not known or len(known) != len(parts) or any(a.dtype != known[0].dtype for a in known):
            return m.arrays.host(function, [arrays, axis], {})
        given = ListValue([a.dense() for a in known])
        return _made(m.record.call(torch_function, [given, axis], {}))

    handler.__name__ = function.__name__
    handles(function)(handler)


_joins(numpy.concatenate, torch.cat)
_joins(numpy.stack, torch.stack)


@handles(numpy.where)
def where(m: Machine, condition: Value, *both: Value) -> Value:
    if len(both) != 2:
        return m.arrays.call(numpy.nonzero if not both else numpy.where, [condition, *both], {})
    left, right = both
    match condition, left, right:
        case ArrayValue(), ArrayValue(), ArrayValue() if condition.dtype == bool and left.dtype == right.dtype:
            parts: list[Value] = [condition.dense(), left.dense(), right.dense()]
            if not (condition.scalar or left.scalar or right.scalar):
                return _made(m.record.call(torch.where, parts, {}))
    return m.arrays.host(numpy.where, [condition, left, right], {})


def _hosted(function: Any) -> None:
    handles(function)(lambda m, *args, **kwargs: m.arrays.call(function, list(args), kwargs))


for (
    _maker
) in "arange array eye identity tri indices full triu_indices tril_indices hanning hamming blackman bartlett".split():  # noqa: SIM905
    _hosted(getattr(numpy, _maker))
_hosted(numpy.fft.fftfreq)
_hosted(numpy.fft.rfftfreq)
