"""numpy arrays and numpy scalars.

An array is a tensor of the graph on the same memory: `torch.from_numpy` before the graph, `Tensor.numpy` behind it. What
gives the very same numbers in torch is an operation of torch, other functions numpy runs itself (`arrays.py`). A numpy scalar
that is known is a Constant; one that the graph computes is an array value with `scalar` set.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy
import torch

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant, is_numpy_scalar
from stoker.capture.values.function import BuiltinMethod
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.slices import SliceValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.graph.numpy_operator import assigned
from stoker.guard.source import Source

DTYPES: dict[Any, torch.dtype] = {
    numpy.dtype(name): getattr(torch, name)
    for name in ("float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool", "complex64", "complex128")
}
EXACT = frozenset(dtype for dtype in DTYPES if dtype.kind != "c")  # torch multiplies complex numbers in another order
WIDTH = {"f": 1, "c": 2}
NUMPY_OF = {theirs: ours for ours, theirs in DTYPES.items()}


# Methods that are functions of numpy, of which the array is the first argument.
BY_FUNCTION = frozenset(
    "sum mean prod max min argmax argmin std var any all cumsum cumprod trace dot clip round repeat take argsort ptp searchsorted conj conjugate nonzero".split()  # noqa: SIM905
)


def as_array(tensor: torch.Tensor) -> Any:
    return tensor.numpy()


def as_scalar(tensor: torch.Tensor) -> Any:
    return tensor.numpy()[()]


class ArrayValue(Value):
    """An ndarray, or a numpy scalar whose value only the graph knows."""

    def __init__(self, tensor: TensorValue, source: Source | None = None, *, scalar: bool = False) -> None:
        self.tensor, self.source, self.scalar = tensor, source, scalar
        self.given = False  # has the tensor itself been handed to the program?

    @property
    def dtype(self) -> Any:
        return NUMPY_OF[self.tensor.fake.dtype]

    def python_type(self) -> type:
        return self.dtype.type if self.scalar else numpy.ndarray

    def describe(self) -> str:
        return f"`{self.source.text}`" if self.source else f"the array `{self.tensor.node.name}`"

    def attribute(self, m: Machine, name: str) -> Value:
        fake = self.tensor.fake
        match name:
            case "shape":
                return TupleValue([m.wrap.number(size) for size in fake.shape])
            case "dtype":
                return Constant(self.dtype)
            case "ndim":
                return Constant(fake.dim())
            case "size":
                return m.wrap.number(fake.numel())
            case "real" if self.dtype.kind == "c" and not self.scalar:
                return self.view(m.record.call(torch.real, [self.tensor], {}))
            case "imag" if self.dtype.kind == "c" and not self.scalar:
                return self.view(m.record.call(torch.imag, [self.tensor], {}))
            case "real" if not self.scalar:
                return self
            case "itemsize":
                return Constant(self.dtype.itemsize)
            case "nbytes":
                return m.wrap.number(fake.numel() * self.dtype.itemsize)
            case "strides":
                return TupleValue([m.wrap.number(stride * self.dtype.itemsize) for stride in fake.stride()])
            case "T":
                return self.view(
                    m.record.method(self.tensor, "permute", [Constant(tuple(range(fake.dim()))[::-1])], {})
                )
        if not hasattr(self.python_type(), name):
            m.exceptions.no_attribute(self.python_type(), name)
        if hasattr(type(self), f"method_{name}") or name in BY_FUNCTION:
            return BuiltinMethod(self, name)
        self.unsupported(f"array attribute {name!r}")
        return None

    def view(self, tensor: Value) -> ArrayValue:
        """Another array on the same memory."""
        assert isinstance(tensor, TensorValue)
        return ArrayValue(tensor)

    def truth(self, m: Machine) -> bool:
        raise Break("a branch on an array", f"the truth value of {self.describe()} depends on data")

    def length(self, m: Machine) -> Value:
        if self.tensor.fake.dim() == 0:
            self.unsupported("len()")
        return m.wrap.number(self.tensor.fake.shape[0])

    def item(self, m: Machine, key: Value) -> Value:
        if self._is_chosen_by(key):
            chosen = m.record.call(operator.getitem, [self.dense(), key.tensor], {})  # type: ignore[attr-defined]  # an array
            assert isinstance(chosen, TensorValue)
            return ArrayValue(chosen)
        parts = key.elements(m) if isinstance(key, TupleValue) else [key]
        if self.scalar or any(_may_be_mask(m, part) for part in parts):
            self.unsupported("an index of this kind")
        if not all(_is_basic(part) for part in parts):
            return m.arrays.host(numpy.ndarray.__getitem__, [self, key], {})
        found = m.record.call(operator.getitem, [self.tensor, key], {})
        assert isinstance(found, TensorValue)
        if found.fake.dim() == 0 and not any(_is_ellipsis(part) for part in parts):
            copied = m.record.method(found, "clone", [], {})
            assert isinstance(copied, TensorValue)
            return ArrayValue(copied, scalar=True)
        return self.view(found)

    def _is_chosen_by(self, key: Value) -> bool:
        """Is it an array of places, or a mask of its first dimensions? What they choose is a new array, one choice after the other."""
        if self.scalar or not isinstance(key, ArrayValue) or key.scalar or not key.tensor.fake.dim():
            return False
        if key.dtype.kind != "b":
            return key.dtype == numpy.int64
        mine, theirs = self.tensor.fake.shape, key.tensor.fake.shape
        return len(theirs) <= len(mine) and all(bool(a == b) for a, b in zip(mine, theirs))

    def set_item(self, m: Machine, key: Value, value: Value) -> None:
        """`array[key] = value`. What torch would write otherwise, numpy writes into a copy, which is then the content."""
        if self.scalar:
            self.unsupported("an assignment to parts of a scalar")
        if not self._is_written_alike(m, key, value):
            key, value = Constant(Ellipsis), m.arrays.host(assigned, [self, key, value], {})
        given = m.arrays.operand(value, self.dtype)
        if isinstance(given, TensorValue):
            given = _cloned(m, given)  # the two may overlap
        m.record.call(operator.setitem, [self.tensor, key, given], {}, keep=True)

    def _is_written_alike(self, m: Machine, key: Value, value: Value) -> bool:
        """Does torch write the same numbers to the same places?"""
        parts = key.elements(m) if isinstance(key, TupleValue) else [key]
        if not all(_is_basic(part) for part in parts) or not is_operand(value):
            return False
        kind, wanted = kind_of(value), self.dtype
        if isinstance(kind, numpy.dtype):
            return kind == wanted
        return kind is int or kind is float and wanted.kind == "f"

    def iterator(self, m: Machine) -> Value:
        count = self.length(m).constant()
        return TupleValue([self.item(m, Constant(index)) for index in range(count)]).iterator(m)

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        return m.arrays.binary(operator, *((other, self) if reflected else (self, other)))

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        return m.arrays.binary(operator, self, other)

    def unary(self, m: Machine, operator: str) -> Value:
        return m.arrays.unary(operator, self)

    def method_reshape(self, m: Machine, *shape: Value) -> Value:
        return self.view(m.record.method(self.dense(), "reshape", list(shape), {}))

    def method_transpose(self, m: Machine, *axes: Value) -> Value:
        return self.view(m.record.method(self.tensor, "permute", list(axes), {})) if axes else self.attribute(m, "T")

    def method_squeeze(self, m: Machine, axis: Value = Constant(None)) -> Value:  # noqa: B008
        given = [] if isinstance(axis, Constant) and axis.value is None else [axis]
        wanted = axis.constant() if given else None
        if isinstance(wanted, int) and self.tensor.fake.shape[wanted] != 1:
            self.unsupported("squeeze() of an axis that is not 1")
        return self.view(m.record.method(self.tensor, "squeeze", given, {}))

    def method_swapaxes(self, m: Machine, first: Value, second: Value) -> Value:
        return self.view(m.record.method(self.tensor, "transpose", [first, second], {}))

    def method_ravel(self, m: Machine) -> Value:
        return self.view(m.record.method(self.dense(), "reshape", [Constant(-1)], {}))

    def method_flatten(self, m: Machine) -> Value:
        return ArrayValue(_cloned(m, m.record.method(self.tensor, "reshape", [Constant(-1)], {})))

    def method_copy(self, m: Machine) -> ArrayValue:
        return self if self.scalar else ArrayValue(_cloned(m, self.tensor))

    def method_fill(self, m: Machine, value: Value) -> Value:
        if not is_operand(value) or isinstance(value, ArrayValue) and not value.scalar:
            self.unsupported("fill() with what is no number")
        self.set_item(m, Constant(Ellipsis), value)
        return Constant(None)

    def method_sort(self, m: Machine, axis: Value = Constant(-1)) -> Value:  # noqa: B008
        self.set_item(m, Constant(Ellipsis), m.arrays.host(numpy.sort, [self, axis], {}))
        return Constant(None)

    def method_item(self, m: Machine) -> Value:
        return m.calls.builtin_method(self.tensor, "item", [], {})

    def method_tolist(self, m: Machine) -> Value:
        return m.calls.builtin_method(self.tensor, "tolist", [], {})

    def method_astype(self, m: Machine, dtype: Value) -> Value:
        wanted = m.concrete.run(numpy.dtype, m.concrete.constant(dtype, "a dtype"))
        loses = WIDTH.get(self.dtype.kind, 0) > WIDTH.get(wanted.kind, 0)
        if wanted not in DTYPES or loses or self.scalar:
            return m.arrays.host(numpy.ndarray.astype, [self, Constant(wanted)], {})
        made = m.record.method(self.dense(), "to", [Constant(DTYPES[wanted])], {"copy": Constant(True)})
        assert isinstance(made, TensorValue)
        return ArrayValue(made)

    def dense(self) -> TensorValue:
        """The tensor, where its elements lie in the order of their indices: elsewhere numpy and torch lay out differently."""
        if not self.tensor.fake.is_contiguous():
            self.unsupported("an operation on a strided array", "use numpy.ascontiguousarray outside")
        return self.tensor

    def emit(self, e: Emitting) -> None:
        e.call_function(as_scalar if self.scalar else as_array, [self.tensor])


def _cloned(m: Machine, tensor: Value) -> TensorValue:
    """A copy, in the order of its indices."""
    made = m.record.method(tensor, "clone", [], {"memory_format": Constant(torch.contiguous_format)})
    assert isinstance(made, TensorValue)
    return made


def is_operand(value: Value) -> bool:
    if isinstance(value, Constant):
        return is_numpy_scalar(value.value) or type(value.value) in (int, float, bool, complex)
    return isinstance(value, ArrayValue)


def kind_of(value: Value) -> Any:
    """What numpy's promotion looks at: a dtype, or the class of a Python number."""
    if isinstance(value, ArrayValue):
        return value.dtype
    constant = value.constant()
    if is_numpy_scalar(constant):
        return constant.dtype
    return numpy.dtype(bool) if type(constant) is bool else type(constant)


def _is_basic(part: Value) -> bool:
    if isinstance(part, SliceValue):
        return False
    if not isinstance(part, Constant):
        return False
    value = part.value
    if isinstance(value, slice):
        return value.step is None or (isinstance(value.step, int) and value.step > 0)
    return value is Ellipsis or type(value) is int


def _may_be_mask(m: Machine, part: Value) -> bool:
    """What such a part chooses only data tells."""
    if isinstance(part, ArrayValue):
        return part.dtype.kind == "b"
    if isinstance(part, ListValue):
        return any(_may_be_mask(m, element) for element in part.elements(m))
    return part.python_type() in (bool, numpy.bool_)


def _is_ellipsis(part: Value) -> bool:
    return isinstance(part, Constant) and part.value is Ellipsis
