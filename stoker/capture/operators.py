"""Python's data model over Values: operators, comparison, truth, conversion, exceptions.

Each method means what CPython's abstract object layer means (Objects/abstract.c), for objects whose behaviour the
evaluator knows; elsewhere it breaks.
"""

from __future__ import annotations

import collections
import contextlib
import operator
import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from stoker.capture.machine import Machine
from stoker.capture.python_operators import BINARY, COMPARE, SPECIAL_BINARY, SPECIAL_COMPARE, SWAPPED
from stoker.capture.static import MISSING, derives, name_in_c
from stoker.capture.values.classes import ClassValue, SuperValue
from stoker.capture.values.constant import Constant, is_numpy_scalar, is_plain
from stoker.capture.values.context import ScopeValue
from stoker.capture.values.function import BuiltinValue, FunctionValue, MethodValue
from stoker.capture.values.instance import InstanceValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.slices import SliceValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.text import joined, percent, settled, shown, varies
from stoker.capture.values.value import Exhausted, NotConstant, OwnKey, Value
from stoker.capture.values.varying import VaryingFloat, as_symbols, symbolic
from stoker.errors import Break, Raised
from stoker.guard.guard import Is, IsNot, NotSameAs
from stoker.guard.source import Fixed


def is_iterable(cls: type) -> bool:
    return any(hasattr(cls, name) for name in ("__iter__", "__getitem__"))


VARYING = (SymbolicValue, VaryingFloat)
BITWISE = frozenset(["&", "|", "^", "<<", ">>"])
TEXT: dict[type, tuple[type, ...]] = {str: (str,), bytes: (str, bytes, bytearray)}


class Operators:
    """What an operator, a statement or a pattern does to Values."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    def binary(self, text: str, left: Value, right: Value) -> Value:
        """`left text right`, text being an operator such as `+` or `+=`."""
        plain = text[:-1] if text.endswith("=") else text
        if self.m.overrides.active and self.m.overrides.intercepts([left, right], {}):
            found = self.overridden(text, left, right)
            if found is not None:
                return found
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            asked = [
                value
                for value, prefixes in ((left, ("", "r", "i") if text != plain else ("", "r")), (right, ("", "r")))
                if isinstance(value, InstanceValue) and self.defines(value, plain, prefixes)
            ]
            if not asked or (asked == [right] and isinstance(right.stored(), Constant)):  # a tensor takes any number
                return self.m.record.binary(text, left, right)
        special = SPECIAL_BINARY[plain]
        given = left, right
        left, right = self.as_numbers(left, right, (f"__{special}__", f"__i{special}__"), f"__r{special}__")
        if plain in BITWISE and not any(isinstance(operand, InstanceValue) for operand in (left, right)):
            self.refuse_bits(text, *given)
        left, right = as_symbols(text, left, right)
        if plain != "+":
            left, right = *settled(self.m, [left]), *([right] if plain == "%" else settled(self.m, [right]))
        elif left.python_type() is right.python_type() is str and (varies(left) or varies(right)):
            return joined([left, right])
        folded = self.fold(BINARY[text], left, right)
        if folded is not None:
            return folded
        by_right = isinstance(right, InstanceValue) and derives(right.cls, left.python_type())
        by_right = by_right and self.has_own(right.python_type(), left.python_type(), "__rmod__")
        if plain == "%" and isinstance(left, Constant) and isinstance(left.value, (str, bytes)) and not by_right:
            held = right.stored() if isinstance(right, InstanceValue) else right
            is_text = isinstance(held, Constant) and isinstance(held.value, bytes) and isinstance(left.value, bytes)
            right = held if isinstance(held, TupleValue) or is_text else right
            right = TupleValue(right.elements(self.m)) if isinstance(right, TupleValue) else right
            parts = right.elements(self.m) if isinstance(right, TupleValue) else [right]
            deferred = shown(self.m, percent, left, *parts)
            if deferred is not None:
                return deferred
            given = self.m.concrete.plain(right, "formatting")
            alone = isinstance(right, InstanceValue) and not self.is_mapping(right, type(left.value))
            return Constant(self.m.concrete.run(operator.mod, left.value, (given,) if alone else given))
        if plain != text:
            found = self.operate(
                left, f"__i{SPECIAL_BINARY[plain]}__", right, lambda: left.binary(self.m, text, right, False)
            )
            if found is not None:
                return found
        name = SPECIAL_BINARY[plain]
        forward = lambda: self.operate(left, f"__{name}__", right, lambda: left.binary(self.m, plain, right, False))  # noqa: E731
        backward = lambda: self.operate(right, f"__r{name}__", left, lambda: right.binary(self.m, plain, left, True))  # noqa: E731
        first, second = forward, backward
        lt, rt = left.python_type(), right.python_type()
        if (
            rt is not lt
            and derives(rt, lt)
            and isinstance(right, InstanceValue)
            and self.has_own(rt, lt, f"__r{name}__")
        ):
            first, second = backward, forward
        for attempt in (first, second):
            found = attempt()
            if found is not None:
                return found
        self.require_refusal(BINARY[plain], text, lt, rt)
        self.m.exceptions.raise_(TypeError, refusal(text, lt, rt))
        return None

    def as_numbers(self, left: Value, right: Value, forward: tuple[str, ...], backward: str) -> tuple[Value, Value]:
        """Beside a number that is not fixed, a truth value, a member of an IntEnum and an instance of a subclass are the numbers that they
        hold, unless a method of their class is asked first: one of the left operand, or of the right one where C has no answer."""
        lt, rt = left.python_type(), right.python_type()
        if isinstance(left, VARYING) and lt is not bool:
            asked = self._has_written(rt, (backward,)) and (derives(rt, lt) or derives(rt, float))
            return (self._beside(right, left), right) if asked else (left, _held_number(right))
        if isinstance(right, VARYING) and rt is not bool:
            asked = self._has_written(lt, forward)
            return (left, self._beside(left, right)) if asked else (_held_number(left), right)
        return left, right

    def _beside(self, asked: Value, varying: Value) -> Value:
        """A method of an enum, which is run for real, is given the number as it is."""
        return (
            Constant(self.m.concrete.constant(varying, "an operator of an enum"))
            if type(asked) is Constant
            else varying
        )

    def _has_written(self, cls: type, names: tuple[str, ...]) -> bool:
        return any(isinstance(self.m.attributes.class_lookup(cls, name), types.FunctionType) for name in names)

    def refuse_bits(self, text: str, left: Value, right: Value) -> None:
        """Numbers that are not fixed have no bits where one is a float."""
        lt, rt = left.python_type(), right.python_type()
        numbers = all(derives(cls, int) or derives(cls, float) for cls in (lt, rt))
        if (
            numbers
            and isinstance(left if isinstance(left, VARYING) else right, VARYING)
            and (derives(lt, float) or derives(rt, float))
        ):
            self.m.exceptions.raise_(TypeError, refusal(text, lt, rt))

    def is_mapping(self, value: InstanceValue, kind: type) -> bool:
        """Does `%` of text of a kind take its arguments from it by name? As CPython: of what can be indexed, and is no text."""
        return self.m.attributes.class_lookup(value.cls, "__getitem__") is not MISSING and not issubclass(
            value.cls, TEXT[kind]
        )

    def require_refusal(self, function: Callable[..., Any], text: str, left: type, right: type) -> None:
        """Operands that no value here has a meaning for are a TypeError only if CPython's own objects of these types say so."""
        if left not in EMPTY or right not in EMPTY:
            return
        try:
            function(EMPTY[left], EMPTY[right])
        except TypeError:
            return
        except ArithmeticError:
            pass
        raise Break(
            f"the operator `{text}`", f"of a {left.__name__} and a {right.__name__} of these kinds is not captured"
        )

    def overridden(self, text: str, left: Value, right: Value) -> Value | None:
        name = SPECIAL_BINARY[text.removesuffix("=")]
        forward, backward = (left, f"__{name}__", right), (right, f"__r{name}__", left)
        order = (
            [backward, forward]
            if self.m.overrides.reflected_first(left, right, f"__r{name}__")
            else [forward, backward]
        )
        if left.python_type() is right.python_type():
            order = [forward]
        return self.m.overrides.binary([(left, f"__i{name}__", right), *order] if text.endswith("=") else order)

    def has_own(self, cls: type, base: type, name: str) -> bool:
        """Has a class another method than its base, and not the base's own?"""
        return self.m.attributes.class_lookup(cls, name) is not self.m.attributes.class_lookup(base, name)

    def defines(self, value: Value, plain: str, prefixes: Iterable[str]) -> bool:
        """Has its class a method of its own for an operator, or for one of the operator's other forms?"""
        names = [f"__{prefix}{SPECIAL_BINARY[plain]}__" for prefix in prefixes]
        raws = [self.m.attributes.class_lookup(value.python_type(), name) for name in names]
        return any(raw is not MISSING and not isinstance(raw, types.WrapperDescriptorType) for raw in raws)

    def fold(self, function: Callable[..., Any], *values: Value) -> Value | None:
        """Both sides known plain data: let Python compute. None otherwise."""
        if not all(isinstance(value, Constant) for value in values):
            if not any(isinstance(v, Constant) and is_numpy_scalar(v.value) for v in values):
                return None
            if not all(isinstance(v, (Constant, SymbolicValue)) for v in values):
                return None
            values = tuple(Constant(self.m.concrete.constant(v, "a number")) for v in values)
        plain = [value.constant() for value in values]
        run = self.m.arrays.unwarned(function) if any(map(is_numpy_scalar, plain)) else function
        return self.m.wrap.constant(self.m.concrete.run(run, *plain))

    def operate(self, value: Value, special: str, other: Value, known: Callable[[], Value | None]) -> Value | None:
        """A special method of a Python class, or the built-in behaviour of a known kind; None is NotImplemented."""
        if isinstance(value, InstanceValue):
            found = value.special(self.m, special, other)
            return None if found is None or _is_not_implemented(found) else found
        return known()

    def compare(self, text: str, left: Value, right: Value) -> Value:
        """`left text right` for the six comparisons."""
        left, right = settled(self.m, [left, right])
        left, right = self.as_numbers(left, right, (SPECIAL_COMPARE[text],), SPECIAL_COMPARE[SWAPPED[text]])
        if self.m.overrides.active and self.m.overrides.intercepts([left, right], {}):
            forward = (left, SPECIAL_COMPARE[text], right)
            backward = (right, SPECIAL_COMPARE[SWAPPED[text]], left)
            lt, rt = left.python_type(), right.python_type()
            later = rt is not lt and derives(rt, lt)
            found = self.m.overrides.binary([backward, forward] if later else [forward, backward])
            if found is not None:
                return found
        if isinstance(left, TensorValue) or isinstance(right, TensorValue):
            if not isinstance(left, InstanceValue) and not isinstance(right, InstanceValue):
                return self.m.record.compare(text, left, right)
        if all(isinstance(value, (VaryingFloat, SymbolicValue)) for value in (left, right)):
            left, right = symbolic(left), symbolic(right)
        swapped = SWAPPED[text]
        folded = left.answer(self.m, text, right) if isinstance(left, VaryingFloat) else None
        if folded is None and isinstance(right, VaryingFloat):
            folded = right.answer(self.m, swapped, left)
        if folded is None:
            folded = self.fold(COMPARE[text], left, right)
        if folded is not None:
            return folded
        attempts = [
            lambda: self.operate(left, SPECIAL_COMPARE[text], right, lambda: left.compare(self.m, text, right)),
            lambda: self.operate(right, SPECIAL_COMPARE[swapped], left, lambda: right.compare(self.m, swapped, left)),
        ]
        lt, rt = left.python_type(), right.python_type()
        if rt is not lt and derives(rt, lt):
            attempts.reverse()
        for attempt in attempts:
            found = attempt()
            if found is not None:
                return found
        if text in ("==", "!="):
            return Constant(self.is_(left, right) == (text == "=="))
        self.require_refusal(COMPARE[text], text, lt, rt)
        self.m.exceptions.raise_(
            TypeError, f"'{text}' not supported between instances of '{name_in_c(lt)}' and '{name_in_c(rt)}'"
        )
        return None

    def equal(self, left: Value, right: Value) -> bool:
        return self.compare("==", left, right).truth(self.m)

    def identical(self, left: Value, right: Value) -> bool:
        """`left is right`. Constants are compared as the real objects they are, under guards where those may be others."""
        if left is right:
            return True
        if isinstance(left, SymbolicValue) and isinstance(right, Constant) and type(right.value) is int:
            return self.identical(Constant(left.specialize(self.m)), right)
        if isinstance(right, SymbolicValue) and isinstance(left, Constant) and type(left.value) is int:
            return self.identical(left, Constant(right.specialize(self.m)))
        varies = isinstance(left, VaryingFloat) or isinstance(right, VaryingFloat)
        if varies and left.python_type() is not right.python_type():
            return False
        try:
            a, b = left.constant(), right.constant()
        except NotConstant:
            return False
        if isinstance(left, TupleValue) or isinstance(right, TupleValue):
            return a is b
        if type(a) is not type(b) or not isinstance(a, EQUAL_BUT_NOT_SAME) or a != b or _is_unique(a):
            return a is b or (type(a) is type(b) and isinstance(a, EQUAL_BUT_NOT_SAME) and a == b)
        for value, other in ((left, b), (right, a)):
            if value.source is not None and not isinstance(value.source, Fixed):
                self.m.guards.add(value.source, Is(value.constant()) if a is b else IsNot(other))
        return a is b

    def unary(self, text: str, value: Value) -> Value:
        if text == "~" and isinstance(value, VARYING):
            kind = value.python_type()
            if kind is float:
                self.m.exceptions.raise_(TypeError, "bad operand type for unary ~: 'float'")
            if kind is int:
                return self.binary("-", self.unary("-", value), Constant(1))
            return Constant(~self.m.concrete.constant(value, "the operator `~`"))
        return (symbolic(value) if text == "-" else value).unary(self.m, text)

    def not_(self, value: Value) -> Value:
        if isinstance(value, SymbolicValue) and value.untold:
            if value.python_type() is not bool:
                return self.compare("==", value, Constant(0))
            return self.m.wrap.number(torch.sym_not(value.symbol))
        if isinstance(value, TensorValue):
            return self.not_(self.m.calls.builtin_method(value, "__bool__", [], {}))
        return Constant(not value.truth(self.m))

    def item(self, value: Value, key: Value) -> Value:
        if isinstance(key, TensorValue) and not isinstance(value, TensorValue):
            folded = None
        else:
            folded = self.fold(operator.getitem, value, key)
        if folded is None and isinstance(value, InstanceValue) and type(value.real).__module__ == "typing":
            return self.m.wrap.object(
                self.m.concrete.run(operator.getitem, value.real, self.m.concrete.annotation(key, "a type's argument"))
            )
        return folded if folded is not None else value.item(self.m, key)

    def contains(self, container: Value, item: Value) -> Value:
        """A truth value, which may be one that only data tells."""
        cls = container.python_type()
        if all(
            self.m.attributes.class_lookup(cls, name) is MISSING for name in ("__contains__", "__iter__", "__getitem__")
        ):
            self.m.exceptions.raise_(TypeError, f"argument of type '{name_in_c(cls)}' is not iterable")
        found = container.contains(self.m, item)
        is_untold = isinstance(found, SymbolicValue) and found.python_type() is bool
        return found if is_untold else Constant(found.truth(self.m))

    def has_attribute(self, value: Value, name: str) -> bool:
        try:
            value.attribute(self.m, name)
        except Raised as raised:
            if issubclass(raised.value.python_type(), AttributeError):
                return False
            raise
        return True

    def hashed_key(self, value: Value) -> Any:
        noticed = self.m.effects.noticed
        made = HashedKey(self.m, value, self.hash_of(value))
        if self.m.effects.noticed != noticed:
            made.once = made.step
        return made

    def hash_of(self, value: Value) -> int:
        """`hash(value)` of an instance that has a hash of its own: what a C integer cannot hold is hashed again, and -1 means an error."""
        found = value.special(self.m, "__hash__") if isinstance(value, InstanceValue) else None
        if found is None:
            value.unsupported("hashing")
        number = self.m.concrete.constant(found, "a user-written __hash__")
        fits = -sys.maxsize - 1 <= number <= sys.maxsize
        return -2 if number == -1 else int(number) if fits else hash(number)

    def is_(self, left: Value, right: Value) -> bool:
        """The `is` operator, with the guard that a negative answer about two outside objects needs."""
        if self.identical(left, right):
            return True
        if left.source is not None and right.source is not None:
            outside = [v for v in (left, right) if not isinstance(v, Constant) and not isinstance(v.source, Fixed)]
            if len(outside) == 2:
                self.m.guards.add(left.source, NotSameAs((right.source,)))
            elif len(outside) == 1:
                other, source = (right, left.source) if outside[0] is left else (left, right.source)
                if not isinstance(other, Constant) and isinstance(other.source, Fixed):
                    self.m.guards.add(source, IsNot(other.source.value))
        return False

    def slice(self, start: Value, stop: Value, step: Value) -> Value:
        if all(isinstance(part, Constant) for part in (start, stop, step)):
            return Constant(slice(start.constant(), stop.constant(), step.constant()))
        return SliceValue(start, stop, step)

    def iterate(self, value: Value) -> Value:
        """`iter(value)`."""
        return value.iterator(self.m)

    def next(self, value: Value) -> Value:
        try:
            return value.next(self.m)
        except Exhausted:
            self.m.exceptions.stop_iteration(value)

    def unpack(self, value: Value, count: int) -> list[Value]:
        """Exactly `count` elements, as tuple assignment takes them."""
        if isinstance(value, TensorValue) and value.fake.dim() == 0:
            self.m.exceptions.raise_(TypeError, "iteration over a 0-d tensor")
        self.require_iterable(value, "cannot unpack non-iterable {name} object")
        items = self._first(value, count + 1)
        if len(items) < count:
            self.m.exceptions.raise_(ValueError, f"not enough values to unpack (expected {count}, got {len(items)})")
        if len(items) > count:
            self.m.exceptions.raise_(ValueError, f"too many values to unpack (expected {count})")
        return items

    def _first(self, value: Value, count: int) -> list[Value]:
        """That many elements, and no more: the rest stays in the iterator."""
        if type(value).items_list is not Value.items_list:
            return value.items_list(self.m)
        found: list[Value] = []
        iterator = self.iterate(value)
        with contextlib.suppress(Exhausted):
            while len(found) < count:
                found.append(iterator.next(self.m))
        return found

    def require_iterable(self, value: Value, words: str) -> None:
        """Raise CPython's TypeError for what has no elements; `{name}` in the words is its class."""
        cls = value.python_type()
        if not is_iterable(cls):
            self.m.exceptions.raise_(TypeError, words.format(name=cls.__name__))

    def super_of(self, cls: Value, receiver: Value) -> Value:
        after = self.m.concrete.constant(cls, "super()")
        bound_to_class = isinstance(receiver, ClassValue) and derives(receiver.real, after)
        start = receiver.constant() if bound_to_class else receiver.python_type()
        if not derives(start, after):
            self.m.exceptions.raise_(TypeError, "super(type, obj): obj must be an instance or subtype of type")
        return SuperValue(after, receiver, start, bound_to_class)

    def as_scope(self, manager: Value) -> Value:
        """A device entered as a context makes a scope; every other context manager is its own."""
        if isinstance(manager, Constant) and isinstance(manager.value, torch.device):
            return ScopeValue(torch.device, manager.value)
        return manager

    def context_method(self, manager: Value, name: str) -> Value:
        if isinstance(manager, InstanceValue):
            found = self.m.attributes.special_method(manager, name)
            if found is None:
                self.m.exceptions.raise_(
                    TypeError, f"'{manager.cls.__name__}' object does not support the context manager protocol"
                )
            return found
        return manager.attribute(self.m, name)

    def match_class(self, subject: Value, cls: Value, count: int, names: tuple[str, ...]) -> Value:
        """A class pattern: the attributes it names, or None where it does not match."""
        real = self.m.concrete.constant(cls, "a class pattern")
        if not self.m.wrap.object(isinstance).call(self.m, [subject, cls], {}).truth(self.m):
            return Constant(None)
        found: list[Value] = []
        if count and real in SELF_MATCHING:
            found.append(subject)
        elif count:
            names = (*self.matched_fields(cls, count), *names)
        twice = next((name for index, name in enumerate(names) if name in names[:index]), None)
        if twice is not None:
            self.m.exceptions.raise_(TypeError, f"{real.__name__}() got multiple sub-patterns for attribute {twice!r}")
        for name in names:
            if not self.has_attribute(subject, name):
                return Constant(None)
            found.append(subject.attribute(self.m, name))
        return TupleValue(found)

    def matched_fields(self, cls: Value, count: int) -> tuple[str, ...]:
        """The attributes that the positional parts of a class pattern are about."""
        name = self.m.concrete.constant(cls, "a class pattern").__name__
        held = cls.attribute(self.m, "__match_args__") if self.has_attribute(cls, "__match_args__") else TupleValue([])
        if not issubclass(held.python_type(), tuple):
            words = f"{name}.__match_args__ must be a tuple (got {held.python_type().__name__})"
            self.m.exceptions.raise_(TypeError, words)
        fields = self.m.concrete.constant(held, "__match_args__")
        if len(fields) < count:
            plural = "" if len(fields) == 1 else "s"
            words = f"{name}() accepts {len(fields)} positional sub-pattern{plural} ({count} given)"
            self.m.exceptions.raise_(TypeError, words)
        odd = next((field for field in fields[:count] if not isinstance(field, str)), None)
        if odd is not None:
            self.m.exceptions.raise_(TypeError, f"__match_args__ elements must be strings (got {type(odd).__name__})")
        return fields[:count]

    def real_callable(self, value: Value) -> Any:
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


EQUAL_BUT_NOT_SAME = (int, str, bytes, float, complex)
SMALL_INTEGERS = range(-5, 257)  # CPython keeps one object of each


def _is_unique(value: Any) -> bool:
    """Are equal objects of this value one object? Of strings and bytes, those of one character."""
    if isinstance(value, (str, bytes)):
        return len(value) <= 1 and (isinstance(value, bytes) or value < "\u0100")
    return isinstance(value, int) and value in SMALL_INTEGERS


_EMPTY: tuple[Any, ...] = (
    *(0, 0.0, 0j, False, "", b"", [], (), {}, set(), frozenset(), bytearray(), range(0), torch.Size(())),
    *(collections.deque(), collections.OrderedDict(), collections.defaultdict(), {}.keys(), {}.values(), {}.items()),
)
EMPTY = {type(empty): empty for empty in _EMPTY}
"""An object of each of CPython's own types: whether an operator takes two of them, their types decide."""

SEQUENCES = (list, tuple, str, bytes)
REPEATED = (*SEQUENCES, collections.deque)


def _held_number(value: Value) -> Value:
    held, cls = value.stored(), value.python_type()
    kind = next((kind for kind in (int, float) if derives(cls, kind)), None)
    if kind is None or cls is kind or type(held) is not Constant:
        return value
    return Constant(int.__int__(held.value) if kind is int else float.__float__(held.value))


def refusal(text: str, left: type, right: type) -> str:
    """CPython's words for operands of which neither knows the operator."""
    base = next((kind for kind in SEQUENCES if issubclass(left, kind)), None)
    if text in ("+", "+=") and base is not None:
        if base is bytes:
            return f"can't concat {name_in_c(right)} to {name_in_c(left)}"
        return f'can only concatenate {base.__name__} (not "{name_in_c(right)}") to {base.__name__}'
    if text == "+" and issubclass(left, collections.deque):
        return f'can only concatenate deque (not "{name_in_c(right)}") to deque'
    has_slots = text == "*=" and any(hasattr(left, name) for name in ("__len__", "__contains__", "__getitem__"))
    repeated = issubclass(left, REPEATED)
    if text in ("*", "*=") and (repeated or issubclass(right, REPEATED) and not has_slots):
        return f"can't multiply sequence by non-int of type '{name_in_c(right if repeated else left)}'"
    shown = "** or pow()" if text == "**" else text
    return f"unsupported operand type(s) for {shown}: '{name_in_c(left)}' and '{name_in_c(right)}'"


SELF_MATCHING = (bool, bytearray, bytes, dict, float, frozenset, int, list, set, str, tuple)


class HashedKey(OwnKey):
    """A dictionary key with a hash and an equality written by the user. One is made for each thing that is done with a dictionary: what it was
    compared with then, it is not compared with again."""

    __slots__ = ("m", "value", "hash", "answers", "step")

    def __init__(self, m: Machine, value: Value, hash_value: int) -> None:
        self.m, self.value, self.hash, self.step = m, value, hash_value, m.step
        self.once = None
        self.answers: dict[int, tuple[object, bool]] = {}

    def __hash__(self) -> int:
        return self.hash

    def __eq__(self, other: object) -> bool:
        """Dictionaries ask the key that they hold about the one that is looked for."""
        sought = other if isinstance(other, HashedKey) else self
        held = self if sought is other else other
        if id(held) not in sought.answers:
            noticed = self.m.effects.noticed
            sought.answers[id(held)] = (held, self._equals(other))
            if self.m.effects.noticed != noticed:
                self._ask_once(sought, held)
        return sought.answers[id(held)][1]

    def _ask_once(self, *keys: object) -> None:
        for key in keys:
            if isinstance(key, HashedKey):
                key.once = key.step

    def _equals(self, other: object) -> bool:
        if isinstance(other, HashedKey):
            return other.value is self.value or self.m.operators.equal(self.value, other.value)
        return is_plain(other) and self.m.operators.equal(Constant(other), self.value)


def _is_not_implemented(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is NotImplemented
