"""Python's data model over Values: operators, comparison, truth, conversion, exceptions.

Each method means what CPython's abstract object layer means (Objects/abstract.c), for objects whose behaviour the
evaluator knows; elsewhere it breaks.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from stoker.bytecode import VERSION
from stoker.bytecode.versions import NULL_BEFORE_CALLABLE
from stoker.capture.frame import Frame
from stoker.capture.values.classes import ClassValue, SuperValue
from stoker.capture.values.constant import Constant, is_numpy_scalar
from stoker.capture.values.context import ScopeValue
from stoker.capture.values.function import BuiltinValue, CellValue, FunctionValue, MethodValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.mapping import pairs_of
from stoker.capture.values.sequence import SequenceValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.slices import SliceValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import NULL, Exhausted, NotConstant, Value
from stoker.errors import Break, Raised
from stoker.guard.guard import Is, IsNot, NotSameAs
from stoker.guard.source import Fixed

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

SPECIAL_BINARY = {
    "+": "add", "-": "sub", "*": "mul", "/": "truediv", "//": "floordiv", "%": "mod", "**": "pow", "@": "matmul",
    "&": "and", "|": "or", "^": "xor", "<<": "lshift", ">>": "rshift",
}  # fmt: skip
SPECIAL_COMPARE = {"==": "__eq__", "!=": "__ne__", "<": "__lt__", "<=": "__le__", ">": "__gt__", ">=": "__ge__"}
SWAPPED = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


class Protocol:
    """The operators. Mixed into the machine."""

    BINARY: dict[str, Callable[[Any, Any], Any]] = {
        "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "//": operator.floordiv,
        "%": operator.mod, "**": operator.pow, "@": operator.matmul, "&": operator.and_, "|": operator.or_,
        "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
        "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv,
        "//=": operator.ifloordiv, "%=": operator.imod, "**=": operator.ipow, "@=": operator.imatmul,
        "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
    }  # fmt: skip
    COMPARE: dict[str, Callable[[Any, Any], Any]] = {
        "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    }  # fmt: skip
    UNARY: dict[str, Callable[[Any], Any]] = {"-": operator.neg, "+": operator.pos, "~": operator.invert}

    def run_real(self: Machine, function: Callable[..., Any], *args: Any) -> Any:
        """Run Python's own function on known objects; what it raises, the program raises."""
        try:
            return function(*args)
        except (Raised, Break, NotConstant):
            raise
        except Exception as error:
            raise Raised(ExceptionValue(type(error), [self.wrap_constant(a) for a in error.args])) from error

    def constant_of(self: Machine, value: Value, what: str) -> Any:
        """The known object behind a value; symbolic numbers are specialised under a guard."""
        if isinstance(value, SymbolicValue):
            return value.specialize(self)
        if isinstance(value, TupleValue):
            value.elements(self)
        try:
            return value.constant()
        except NotConstant:
            value.unsupported(what)

    def index_of(self: Machine, key: Value) -> Any:
        """An int or a slice of ints, for indexing a Python sequence."""
        if isinstance(key, InstanceValue):
            found = key.special(self, "__index__")
            return self.constant_of(found, "indexing") if found is not None else key.unsupported("indexing")
        if isinstance(key, TensorValue):
            raise Break("indexing by a tensor", f"{key.describe()} as an index of a Python sequence depends on data")
        return self.constant_of(key, "indexing")

    def integer(self: Machine, value: Value) -> int:
        found = self.index_of(value)
        if not isinstance(found, int):
            self.raise_(TypeError, f"'{type(found).__name__}' object cannot be interpreted as an integer")
        return found

    def number_of(self: Machine, value: Value) -> Any:
        """The Python or symbolic number behind a value, None if it is not a number."""
        if isinstance(value, SymbolicValue):
            return value.symbol
        if isinstance(value, Constant) and isinstance(value.value, (int, float, complex)):
            return value.value
        return None

    def wrap_number(self: Machine, number: Any) -> Value:
        if isinstance(number, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return SymbolicValue(number)
        return Constant(number)

    def raise_(self: Machine, cls: type[BaseException], *args: Any) -> NoReturn:
        raise Raised(self.exception(cls, *args))

    def exception(self: Machine, cls: type[BaseException], *args: Any) -> ExceptionValue:
        return ExceptionValue(cls, [a if isinstance(a, Value) else Constant(a) for a in args])

    def as_exception(self: Machine, value: Value) -> Value:
        """What `raise value` raises: a class is called."""
        try:
            found = value.constant()
        except NotConstant:
            found = None
        if isinstance(found, type) and issubclass(found, BaseException):
            return self.call(value, [], {})
        if not issubclass(value.python_type(), BaseException):
            self.raise_(TypeError, "exceptions must derive from BaseException")
        return value

    def binary(self: Machine, text: str, left: Value, right: Value) -> Value:
        """`left text right`, text being an operator such as `+` or `+=`."""
        plain = text[:-1] if text.endswith("=") else text
        if self.overriding and self.intercepts([left, right], {}):
            found = self.override_operator(text, left, right)
            if found is not None:
                return found
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            if not any(isinstance(v, InstanceValue) and self.defines(v, plain) for v in (left, right)):
                return self.tensor_binary(text, left, right)
        folded = self.fold(self.BINARY[text], left, right)
        if folded is not None:
            return folded
        if plain == "%" and isinstance(left, Constant) and isinstance(left.value, (str, bytes)):
            return Constant(self.run_real(operator.mod, left.value, self.plain(right, "formatting")))
        if plain != text:
            found = self.operate(
                left, f"__i{SPECIAL_BINARY[plain]}__", right, lambda: left.binary(self, text, right, False)
            )
            if found is not None:
                return found
        name = SPECIAL_BINARY[plain]
        forward = lambda: self.operate(left, f"__{name}__", right, lambda: left.binary(self, plain, right, False))  # noqa: E731
        backward = lambda: self.operate(right, f"__r{name}__", left, lambda: right.binary(self, plain, left, True))  # noqa: E731
        first, second = forward, backward
        lt, rt = left.python_type(), right.python_type()
        if rt is not lt and issubclass(rt, lt) and isinstance(right, InstanceValue):
            first, second = backward, forward
        for attempt in (first, second):
            found = attempt()
            if found is not None:
                return found
        if plain == "+" and issubclass(lt, (list, tuple, str, bytes)):
            self.raise_(TypeError, concatenation_words(lt, rt))
        self.raise_(TypeError, f"unsupported operand type(s) for {text}: '{lt.__name__}' and '{rt.__name__}'")
        return None

    def override_operator(self: Machine, text: str, left: Value, right: Value) -> Value | None:
        name = SPECIAL_BINARY[text.removesuffix("=")]
        forward, backward = (left, f"__{name}__", right), (right, f"__r{name}__", left)
        order = [backward, forward] if self.reflected_first(left, right, f"__r{name}__") else [forward, backward]
        if left.python_type() is right.python_type():
            order = [forward]
        return self.override_binary([(left, f"__i{name}__", right), *order] if text.endswith("=") else order)

    def defines(self: Machine, value: Value, plain: str) -> bool:
        name = SPECIAL_BINARY[plain]
        return any(
            self.class_lookup(value.python_type(), n) is not self.MISSING for n in (f"__{name}__", f"__r{name}__")
        )

    def fold(self: Machine, function: Callable[..., Any], *values: Value) -> Value | None:
        """Both sides known plain data: let Python compute. None otherwise."""
        if not all(isinstance(value, Constant) for value in values):
            if not any(isinstance(v, Constant) and is_numpy_scalar(v.value) for v in values):
                return None
            if not all(isinstance(v, (Constant, SymbolicValue)) for v in values):
                return None
            values = tuple(Constant(self.constant_of(v, "a number")) for v in values)
        return self.wrap_constant(self.run_real(function, *(value.constant() for value in values)))

    def operate(
        self: Machine, value: Value, special: str, other: Value, known: Callable[[], Value | None]
    ) -> Value | None:
        """A special method of a Python class, or the built-in behaviour of a known kind; None is NotImplemented."""
        if isinstance(value, InstanceValue):
            found = value.special(self, special, other)
            return None if found is None or _is_not_implemented(found) else found
        return known()

    def compare(self: Machine, text: str, left: Value, right: Value) -> Value:
        """`left text right` for the six comparisons."""
        if self.overriding and self.intercepts([left, right], {}):
            forward = (left, SPECIAL_COMPARE[text], right)
            backward = (right, SPECIAL_COMPARE[SWAPPED[text]], left)
            lt, rt = left.python_type(), right.python_type()
            later = rt is not lt and issubclass(rt, lt)
            found = self.override_binary([backward, forward] if later else [forward, backward])
            if found is not None:
                return found
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            if not isinstance(left, InstanceValue) and not isinstance(right, InstanceValue):
                return self.tensor_compare(text, left, right)
        folded = self.fold(self.COMPARE[text], left, right)
        if folded is not None:
            return folded
        swapped = SWAPPED[text]
        attempts = [
            lambda: self.operate(left, SPECIAL_COMPARE[text], right, lambda: left.compare(self, text, right)),
            lambda: self.operate(right, SPECIAL_COMPARE[swapped], left, lambda: right.compare(self, swapped, left)),
        ]
        lt, rt = left.python_type(), right.python_type()
        if rt is not lt and issubclass(rt, lt):
            attempts.reverse()
        for attempt in attempts:
            found = attempt()
            if found is not None:
                return found
        if text in ("==", "!="):
            return Constant(self.identical(left, right) == (text == "=="))
        self.raise_(TypeError, f"'{text}' not supported between instances of '{lt.__name__}' and '{rt.__name__}'")
        return None

    def equal(self: Machine, left: Value, right: Value) -> bool:
        return self.compare("==", left, right).truth(self)

    def identical(self: Machine, left: Value, right: Value) -> bool:
        """`left is right`. Identity of constants is that of None, bools, and other singletons; numbers break."""
        if left is right:
            return True
        try:
            a, b = left.constant(), right.constant()
        except NotConstant:
            return False
        if a is b:
            return True
        if isinstance(left, TupleValue) or isinstance(right, TupleValue):
            return False
        return type(a) is type(b) and a == b and isinstance(a, (int, str, bytes, float, complex, torch.device))

    def same_kind(self: Machine, left: SequenceValue, right: SequenceValue) -> bool:
        return issubclass(left.python_type(), list) == issubclass(right.python_type(), list)

    def unary(self: Machine, text: str, value: Value) -> Value:
        return value.unary(self, text)

    def not_(self: Machine, value: Value) -> Value:
        return Constant(not value.truth(self))

    def item(self: Machine, value: Value, key: Value) -> Value:
        if isinstance(key, TensorValue) and not isinstance(value, TensorValue):
            folded = None
        else:
            folded = self.fold(operator.getitem, value, key)
        if folded is None and isinstance(value, InstanceValue) and type(value.real).__module__ == "typing":
            return self.wrap_object(
                self.run_real(operator.getitem, value.real, self.constant_of(key, "a type's argument"))
            )
        return folded if folded is not None else value.item(self, key)

    def contains(self: Machine, container: Value, item: Value) -> Value:
        return Constant(container.contains(self, item).truth(self))

    def has_attribute(self: Machine, value: Value, name: str) -> bool:
        try:
            value.attribute(self, name)
        except Raised as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                return False
            raise
        return True

    def set_key(self: Machine, item: Value) -> Any:
        return item.hash_key(self)

    def identity_key(self: Machine, value: Value) -> Any:
        return IdentityKey(value)

    def symbolic_key(self: Machine, value: Value) -> Any:
        found = value.special(self, "__hash__") if isinstance(value, InstanceValue) else None
        if found is None:
            value.unsupported("hashing")
        return HashedKey(self, value, self.constant_of(found, "a user-written __hash__"))

    def storage_of(self: Machine, value: Value) -> Value:
        """The built-in container inside an instance of its subclass, or the value itself."""
        if isinstance(value, InstanceValue) and value.storage is not None:
            return value.storage
        return value

    def is_same(self: Machine, left: Value, right: Value) -> bool:
        """The `is` operator, with the guard that a negative answer about two outside objects needs."""
        if self.identical(left, right):
            return True
        if left.source is not None and right.source is not None:
            outside = [v for v in (left, right) if not isinstance(v, Constant) and not isinstance(v.source, Fixed)]
            if len(outside) == 2:
                self.guard(left.source, NotSameAs((right.source,)))
            elif len(outside) == 1:
                other = right if outside[0] is left else left
                if not isinstance(other, Constant):
                    self.guard(outside[0].source, IsNot(other.source.value))  # type: ignore[arg-type, union-attr]
        return False

    def slice(self: Machine, start: Value, stop: Value, step: Value) -> Value:
        if all(isinstance(part, Constant) for part in (start, stop, step)):
            return Constant(slice(start.constant(), stop.constant(), step.constant()))
        return SliceValue(start, stop, step)

    def iterate(self: Machine, value: Value) -> Value:
        """`iter(value)`."""
        return value.iterator(self)

    def next_value(self: Machine, value: Value) -> Value:
        try:
            return value.next(self)
        except Exhausted:
            self.stop_iteration(value)

    def stop_iteration(self: Machine, iterator: Value) -> NoReturn:
        """The end of an iterator, as an exception: a generator's carries what it returned."""
        result = iterator.take_result() if isinstance(iterator, GeneratorValue) else None
        self.raise_(StopIteration, *([] if result is None else [result]))

    def pairs_of(self: Machine, value: Value) -> list[tuple[Value, Value]]:
        return pairs_of(self, value)

    def unpack(self: Machine, value: Value, count: int) -> list[Value]:
        """Exactly `count` elements, as tuple assignment takes them."""
        if isinstance(value, TensorValue) and value.fake.dim() == 0:
            self.raise_(TypeError, "iteration over a 0-d tensor")
        items = value.items_list(self)
        if len(items) < count:
            self.raise_(ValueError, f"not enough values to unpack (expected {count}, got {len(items)})")
        if len(items) > count:
            self.raise_(ValueError, f"too many values to unpack (expected {count})")
        return items

    def append_to_list(self: Machine, target: Value, value: Value) -> None:
        self.storage_of(target).method_append(self, value)  # type: ignore[attr-defined]

    def push_callable(self: Machine, frame: Frame, value: Value, wants_null: int) -> None:
        """Push a loaded callable, with the NULL that this version's calls expect beside it."""
        if wants_null and NULL_BEFORE_CALLABLE:
            frame.push(NULL)
        frame.push(value)
        if wants_null and not NULL_BEFORE_CALLABLE:
            frame.push(NULL)

    def super_of(self: Machine, cls: Value, receiver: Value) -> Value:
        after = self.constant_of(cls, "super()")
        bound_to_class = isinstance(receiver, ClassValue) and issubclass(receiver.real, after)
        start = receiver.constant() if bound_to_class else receiver.python_type()
        return SuperValue(after, receiver, start, bound_to_class)

    def current_exception(self: Machine) -> Value | None:
        frame: Frame | None = self.current
        while frame is not None:
            if frame.handled:
                return frame.handled[-1]
            frame = frame.parent
        return None

    def as_cause(self: Machine, value: Value) -> Value:
        return value if isinstance(value, Constant) and value.value is None else self.as_exception(value)

    def stop_iteration_error(self: Machine, value: Value) -> Value:
        """A generator that lets StopIteration escape raises RuntimeError (PEP 479)."""
        if issubclass(value.python_type(), StopIteration):
            return self.exception(RuntimeError, "generator raised StopIteration")
        return value

    def as_scope(self: Machine, manager: Value) -> Value:
        """A device entered as a context makes a scope; every other context manager is its own."""
        if isinstance(manager, Constant) and isinstance(manager.value, torch.device):
            return ScopeValue(torch.device, manager.value)
        return manager

    def context_method(self: Machine, manager: Value, name: str) -> Value:
        if isinstance(manager, InstanceValue):
            found = self.special_method(manager, name)
            if found is None:
                self.raise_(TypeError, f"'{manager.cls.__name__}' object does not support the context manager protocol")
            return found
        return manager.attribute(self, name)

    def finish_send(self: Machine, frame: Frame, result: Value) -> None:
        """SEND met the end: on 3.11 the result replaces the iterator, later versions keep both for END_SEND."""
        if VERSION < (3, 12):
            frame.pop()
        frame.push(result)

    def match_class(self: Machine, subject: Value, cls: Value, count: int, names: tuple[str, ...]) -> Value:
        """A class pattern: the attributes it names, or None where it does not match."""
        real = self.constant_of(cls, "a class pattern")
        if not self.call(self.wrap_object(isinstance), [subject, cls], {}).truth(self):
            return Constant(None)
        found: list[Value] = []
        if count and real in SELF_MATCHING:
            found.append(subject)
        elif count:
            fields = self.constant_of(cls.attribute(self, "__match_args__"), "__match_args__")
            names = (*fields[:count], *names)
        for name in names:
            if not self.has_attribute(subject, name):
                return Constant(None)
            found.append(subject.attribute(self, name))
        return TupleValue(found)

    def guard_identity(self: Machine, value: Value) -> None:
        if value.source is not None and not isinstance(value.source, Fixed):
            self.guard(value.source, Is(value.real))  # type: ignore[attr-defined]

    def real_callable(self: Machine, value: Value) -> Any:
        """The real function behind a value, for questions about it; None if captured code made it."""
        match value:
            case FunctionValue(real=real) | BuiltinValue(real=real) | ClassValue(real=real):
                return real
            case MethodValue(receiver=receiver, function=FunctionValue(real=real)) if real is not None:
                owner = getattr(receiver, "real", None)
                return types.MethodType(real, owner if owner is not None else object())
            case InstanceValue(real=real) if real is not None:
                return real
        return None

    def cell_for(self: Machine, frame: Frame, name: str) -> Value:
        return frame.cells.get(name) or CellValue(None)


def concatenation_words(left: type, right: type) -> str:
    base = next(kind for kind in (list, tuple, str, bytes) if issubclass(left, kind))
    if base is bytes:
        return f"can't concat {right.__name__} to bytes"
    return f'can only concatenate {base.__name__} (not "{right.__name__}") to {base.__name__}'


SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


class IdentityKey:
    """A dictionary key that equals only itself: the identity of one value."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and other.value is self.value


class HashedKey:
    """A dictionary key with a hash and an equality written by the user."""

    __slots__ = ("m", "value", "hash")

    def __init__(self, m: Machine, value: Value, hash_value: int) -> None:
        self.m, self.value, self.hash = m, value, hash_value

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, HashedKey):
            return NotImplemented
        return other.value is self.value or self.m.equal(self.value, other.value)


def _is_not_implemented(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is NotImplemented
