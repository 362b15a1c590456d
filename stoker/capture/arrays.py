"""numpy's operators and functions over array values, by numpy's dtype rules.

numpy itself is asked which loop it would run (`ufunc.resolve_dtypes`); operands are cast to the types of that loop, and the
torch operation runs on them. Only operations of which torch computes the same bits are in the table; others numpy runs itself, as an
operator of the graph (`stoker/graph/numpy_operator.py`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy
import torch

from stoker.capture.machine import Machine
from stoker.capture.values.array import DTYPES, EXACT, ArrayValue, is_operand, kind_of
from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Arguments, Keywords, NotConstant, Value
from stoker.errors import Break
from stoker.graph.numpy_operator import SIZED_BY_DATA, SIZED_BY_NUMBERS, GivenArray, as_text, at_most, dry_run, hosted
from stoker.guard.guard import Holds
from stoker.guard.source import Fixed
from stoker.nest import leaves

OPERATORS = {
    "+": numpy.add, "-": numpy.subtract, "*": numpy.multiply, "/": numpy.true_divide, "&": numpy.bitwise_and,
    "|": numpy.bitwise_or, "^": numpy.bitwise_xor, "==": numpy.equal, "!=": numpy.not_equal, "<": numpy.less,
    "<=": numpy.less_equal, ">": numpy.greater, ">=": numpy.greater_equal, "@": numpy.matmul, "**": numpy.power,
    "//": numpy.floor_divide, "%": numpy.remainder, "<<": numpy.left_shift, ">>": numpy.right_shift,
}  # fmt: skip
UNARY = {"-": numpy.negative, "+": numpy.positive, "~": numpy.invert}
UFUNCS: dict[Any, Callable[..., Any]] = {
    numpy.add: torch.add, numpy.subtract: torch.sub, numpy.multiply: torch.mul, numpy.true_divide: torch.div,
    numpy.bitwise_and: torch.bitwise_and, numpy.bitwise_or: torch.bitwise_or, numpy.bitwise_xor: torch.bitwise_xor,
    numpy.equal: torch.eq, numpy.not_equal: torch.ne, numpy.less: torch.lt, numpy.less_equal: torch.le,
    numpy.greater: torch.gt, numpy.greater_equal: torch.ge, numpy.negative: torch.neg, numpy.positive: torch.clone,
    numpy.invert: torch.bitwise_not, numpy.absolute: torch.abs, numpy.square: torch.square,
    numpy.floor: torch.floor, numpy.ceil: torch.ceil, numpy.trunc: torch.trunc, numpy.isnan: torch.isnan,
    numpy.isfinite: torch.isfinite, numpy.isinf: torch.isinf, numpy.logical_not: torch.logical_not,
    numpy.logical_and: torch.logical_and, numpy.logical_or: torch.logical_or, numpy.logical_xor: torch.logical_xor,
}  # fmt: skip
STATE = Fixed(numpy, "numpy")


class Arrays:
    """Operators and functions of numpy."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    def guard_errors(self) -> None:
        """Errors of floating-point arithmetic must not be asked for: torch does not raise them."""
        now = numpy.geterr()
        if any(how not in ("warn", "ignore") for how in now.values()):
            raise Break("numpy arithmetic", "numpy.seterr asks for floating-point errors")
        self.m.guards.add(STATE, Holds(_errors_are_quiet, "reports no floating-point errors"))

    def binary(self, text: str, left: Value, right: Value) -> Value | None:
        in_place = text.endswith("=") and text not in OPERATORS
        ufunc = OPERATORS.get(text[:-1] if in_place else text)
        if ufunc is None or not all(is_operand(v) for v in (left, right)):
            raise Break(f"operator {text} of an array", "its result may differ between numpy and torch")
        if not in_place:
            return self.ufunc(ufunc, [left, right])
        assert isinstance(left, ArrayValue)
        made = self.ufunc(ufunc, [left, right])
        if not isinstance(made, ArrayValue) or made.dtype != left.dtype or left.scalar:
            left.unsupported(f"operator {text}")
        left.set_item(self.m, Constant(Ellipsis), made)
        return left

    def unary(self, text: str, value: Value) -> Value:
        return self.ufunc(UNARY[text], [value])

    def ufunc(self, ufunc: Any, operands: list[Value]) -> Value:
        """One elementwise function, in the types of the loop that numpy would run."""
        self.guard_errors()
        kinds = [kind_of(value) for value in operands]
        if ufunc not in UFUNCS:
            return self.host(ufunc, operands, {})
        try:
            loop = ufunc.resolve_dtypes((*kinds, None))
        except TypeError as error:
            raise Break(f"`numpy.{ufunc.__name__}`", f"numpy refuses it: {error}") from error
        if any(map(_is_laid_out_otherwise, operands)) or any(dtype not in EXACT for dtype in loop):
            return self.host(ufunc, operands, {})
        scalar = all(not isinstance(v, ArrayValue) or v.scalar for v in operands)
        given = [self.operand(value, dtype) for value, dtype in zip(operands, loop)]
        made = self.m.record.call(UFUNCS[ufunc], given, {})
        assert isinstance(made, TensorValue)
        if made.fake.dim() == 0 and not scalar:
            raise Break(f"`numpy.{ufunc.__name__}`", "an operation on an array without dimensions gives a scalar")
        return ArrayValue(made, scalar=scalar)

    def operand(self, value: Value, dtype: Any) -> Value:
        """An operand of a loop: cast to its type."""
        if isinstance(value, ArrayValue):
            tensor, wanted = value.tensor, DTYPES[dtype]
            return tensor if tensor.fake.dtype is wanted else self.m.record.method(tensor, "to", [Constant(wanted)], {})
        try:
            return Constant(dtype.type(value.constant()).item())
        except OverflowError as error:
            raise Break("a number beside an array", str(error)) from error

    def call(self, function: Any, args: Arguments, kwargs: Keywords) -> Value:
        """A ufunc or function of numpy: folded on plain data, captured on arrays where torch computes the same."""
        try:
            values = [_constant(self.m, a) for a in args]
            named = {name: _constant(self.m, a) for name, a in kwargs.items()}
        except NotConstant:
            pass
        else:
            if isinstance(function, numpy.ufunc) or function.__name__ in PURE_FUNCTIONS:
                found = self.fold(function, values, named)
                if found is not None:
                    return found
            return self.host(function, args, kwargs)
        if isinstance(function, numpy.ufunc) and not kwargs and all(is_operand(a) for a in args):
            return self.ufunc(function, list(args))
        return self.host(function, args, kwargs)

    def host(self, function: Any, args: Arguments, kwargs: Keywords) -> Value:
        """A function that numpy itself runs, in the middle of the graph."""
        if id(function) in SIZED_BY_DATA:
            return self._sized_by_data(function, args, kwargs)
        name, words = hosted().get(id(function)), f"`numpy.{function.__name__}`"
        if name is None or "out" in kwargs:
            raise Break(words, "it is not known to make new arrays, whose sizes follow from those of its arguments")
        self.guard_errors()
        arrays: list[ArrayValue] = []
        given = [self._given(value, arrays) for value in args]
        named = {key: self._given(value, arrays) for key, value in kwargs.items()}
        if function.__name__ in SIZED_BY_NUMBERS and any(
            isinstance(part, GivenArray) for part in leaves([given[1:], named])
        ):
            raise Break(words, "the size of what it makes depends on data")
        tensors = [array.tensor for array in arrays]
        metas = [
            (array.dtype, self._known(t.fake.shape), self._known(t.fake.stride())) for array, t in zip(arrays, tensors)
        ]
        try:
            text = as_text(given, named)
            result = dry_run(name, text, metas)
        except Exception as error:
            raise Break(words, f"it raised {type(error).__name__} on arrays of these sizes") from error
        if result is None or any(meta.dtype not in DTYPES for meta in result.metas):
            raise Break(words, "what it makes is not new arrays of types that torch has")
        made = self.m.record.call(
            torch.ops.stoker.numpy.default, [Constant(name), Constant(text), ListValue([*tensors])], {}
        ).items_list(self.m)
        found: list[Value] = []
        for tensor, meta in zip(made, result.metas, strict=True):
            assert isinstance(tensor, TensorValue)
            found.append(ArrayValue(tensor, scalar=meta.is_scalar))
        if result.cls is None:
            return found[0]
        return ListValue(found) if result.cls is list else TupleValue(found, result.cls)

    def _sized_by_data(self, function: Any, args: Arguments, kwargs: Keywords) -> Value:
        """numpy makes lists of a known size, and says which elements are real; the graph takes those."""
        filled = self.host(at_most, [Constant(SIZED_BY_DATA[id(function)]), *args], kwargs).items_list(self.m)
        real, *parts = [part.tensor for part in filled if isinstance(part, ArrayValue)]
        places = self.m.record.method(self.m.record.call(torch.nonzero, [real], {}), "squeeze", [Constant(1)], {})
        found: list[ArrayValue] = []
        for part in parts:
            taken = self.m.record.call(operator.getitem, [part, places], {})
            assert isinstance(taken, TensorValue)
            found.append(ArrayValue(taken))
        if function is numpy.nonzero:
            return TupleValue(self._columns(found))
        return TupleValue([*found]) if len(found) > 1 else found[0]

    def _columns(self, arrays: list[ArrayValue]) -> list[Value]:
        """The arrays as numpy.nonzero gives them: beside each other in one array."""
        whole = self.m.record.call(torch.stack, [ListValue([array.tensor for array in arrays]), Constant(1)], {})
        assert isinstance(whole, TensorValue)
        every = Constant(slice(None))
        return [ArrayValue(whole).item(self.m, TupleValue([every, Constant(i)])) for i in range(len(arrays))]

    def _given(self, value: Value, arrays: list[ArrayValue]) -> Any:
        """An argument as it is written down: arrays by number, the rest as it is."""
        match value:
            case ArrayValue():
                if value not in arrays:
                    arrays.append(value)
                return GivenArray(arrays.index(value))
            case ListValue():
                return [self._given(part, arrays) for part in value.elements(self.m)]
            case TupleValue() if value.cls is tuple:
                return tuple([self._given(part, arrays) for part in value.elements(self.m)])
        return self.m.concrete.constant(value, "an argument of numpy")

    def _known(self, numbers: Any) -> tuple[int, ...]:
        return tuple([self.m.concrete.constant(self.m.wrap.number(number), "a size of an array") for number in numbers])

    def fold_scalar(self, cls: type, args: Arguments, kwargs: Keywords) -> Value:
        """`numpy.float32(x)`, `numpy.dtype(x)` of plain data; a type of numbers casts an array."""
        if len(args) == 1 and isinstance(args[0], ArrayValue) and args[0].tensor.fake.dim() and cls is not numpy.dtype:
            return args[0].method_astype(self.m, Constant(cls))
        if kwargs or any(isinstance(a, ArrayValue | TensorValue) for a in args):
            raise Break(f"`numpy.{cls.__name__}`", "it is not given plain data")
        made = self.m.concrete.run(cls, *(self.m.concrete.plain(a, "an argument of numpy") for a in args))
        if isinstance(made, numpy.ndarray) or not is_plain(made):
            raise Break(f"`numpy.{cls.__name__}`", "it does not make a number")
        return Constant(made)

    def unwarned(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An operator on numbers of numpy. Where numpy warns, it does so at each call and at the program's line: CPython runs it."""
        self.guard_errors()

        def run(*values: Any) -> Any:
            try:
                with numpy.errstate(all="raise", under="ignore"):
                    return function(*values)
            except FloatingPointError as error:
                raise Break(f"`{function.__name__}` of numbers of numpy", f"numpy warns: {error}") from error

        return run

    def fold(self, function: Any, values: list[Any], named: dict[str, Any]) -> Value | None:
        """Run numpy for real on plain data; what it warns about is left to CPython. None if it makes an array."""
        name = f"`numpy.{function.__name__}`"
        if "out" in named:
            raise Break(name, "it writes into its `out`")
        try:
            with numpy.errstate(all="raise"):
                found = function(*values, **named)
        except FloatingPointError as error:
            raise Break(name, f"numpy reports: {error}") from error
        except Exception as error:
            raise Break(name, f"it raised {type(error).__name__}: {error}") from error
        return None if isinstance(found, numpy.ndarray) else self.m.wrap.constant(found)


PURE_FUNCTIONS = frozenset(
    "prod sum mean min max amin amax std var median ceil floor round dot gcd lcm any all ndim size shape result_type can_cast".split()  # noqa: SIM905
)


def _errors_are_quiet(_: Any) -> bool:
    return all(how in ("warn", "ignore") for how in numpy.geterr().values())


def _is_laid_out_otherwise(value: Value) -> bool:
    """May what torch makes of it lie in memory in another order than what numpy makes?"""
    if not isinstance(value, ArrayValue) or value.tensor.fake.dim() < 2:
        return False
    return not value.tensor.fake.is_contiguous()


def _constant(m: Machine, value: Value) -> Any:
    """Plain data, lists included; raises NotConstant."""
    if isinstance(value, ArrayValue | TensorValue):
        raise NotConstant("an array")
    if isinstance(value, ListValue | TupleValue):
        for element in value.elements(m):
            _constant(m, element)
    return m.concrete.plain(value, "an argument of numpy")
