"""Building and taking apart containers, strings, and pattern matching."""

from __future__ import annotations

import collections.abc

from stoker.bytecode import Instruction
from stoker.bytecode.versions import NULL_BEFORE_CALLABLE
from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import DictValue, pairs_of
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.sets import SetValue
from stoker.capture.values.value import Value


def BUILD_TUPLE(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(TupleValue(f.pop_many(i.value)))


def BUILD_LIST(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(ListValue(f.pop_many(i.value)))


def BUILD_SET(m: Machine, f: Frame, i: Instruction) -> None:
    made = SetValue({})
    for value in f.pop_many(i.value):
        made.method_add(m, value)
    f.push(made)


def BUILD_MAP(m: Machine, f: Frame, i: Instruction) -> None:
    parts = f.pop_many(2 * i.value)
    made = DictValue()
    for key, value in zip(parts[::2], parts[1::2]):
        made.store(m, key, value)
    f.push(made)


def BUILD_CONST_KEY_MAP(m: Machine, f: Frame, i: Instruction) -> None:
    keys = m.concrete.constant(f.pop(), "a dictionary display")
    made = DictValue()
    for key, value in zip(keys, f.pop_many(i.value)):
        made.store(m, m.wrap.constant(key), value)
    f.push(made)


def BUILD_SLICE(m: Machine, f: Frame, i: Instruction) -> None:
    parts = f.pop_many(i.value)
    f.push(m.operators.slice(parts[0], parts[1], parts[2] if i.value == 3 else Constant(None)))


def BUILD_STRING(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.text.join(f.pop_many(i.value)))


def FORMAT_VALUE(m: Machine, f: Frame, i: Instruction) -> None:
    specification = f.pop() if i.value & 4 else Constant("")
    f.push(m.text.format(f.pop(), i.value & 3, specification))


def CONVERT_VALUE(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.text.convert(f.pop(), i.value))


def FORMAT_SIMPLE(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.text.format(f.pop(), 0, Constant("")))


def FORMAT_WITH_SPEC(m: Machine, f: Frame, i: Instruction) -> None:
    specification = f.pop()
    f.push(m.text.format(f.pop(), 0, specification))


def LIST_TO_TUPLE(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(TupleValue(f.pop().items_list(m)))


def LIST_APPEND(m: Machine, f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.stack[-i.value].stored().method_append(m, value)


def SET_ADD(m: Machine, f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.stack[-i.value].method_add(m, value)


def MAP_ADD(m: Machine, f: Frame, i: Instruction) -> None:
    value, key = f.pop(), f.pop()
    f.stack[-i.value].set_item(m, key, value)


def LIST_EXTEND(m: Machine, f: Frame, i: Instruction) -> None:
    items = f.pop()
    m.operators.require_iterable(items, "Value after * must be an iterable, not {name}")
    f.stack[-i.value].method_extend(m, items)


def SET_UPDATE(m: Machine, f: Frame, i: Instruction) -> None:
    items = f.pop()
    f.stack[-i.value].method_update(m, items)


def DICT_UPDATE(m: Machine, f: Frame, i: Instruction) -> None:
    other = f.pop()
    if not hasattr(other.python_type(), "keys"):
        m.exceptions.raise_(TypeError, f"'{other.python_type().__name__}' object is not a mapping")
    f.stack[-i.value].method_update(m, other)


def DICT_MERGE(m: Machine, f: Frame, i: Instruction) -> None:
    other = f.pop()
    target = f.stack[-i.value]
    assert isinstance(target, DictValue)
    _require_mapping(m, f.stack[-i.value - (2 if NULL_BEFORE_CALLABLE else 3)], other)
    for key, value in pairs_of(m, other):
        if target.lookup(m, key) is not None:
            words = f"got multiple values for keyword argument '{m.concrete.constant(key, 'a keyword')}'"
            called = f.stack[-i.value - (2 if NULL_BEFORE_CALLABLE else 3)]
            m.exceptions.raise_(TypeError, f"{callee_text(m, called)} {words}")
        target.store(m, key, value)


def _require_mapping(m: Machine, called: Value, keywords: Value) -> None:
    if not hasattr(keywords.python_type(), "keys"):
        words = f"argument after ** must be a mapping, not {keywords.python_type().__name__}"
        m.exceptions.raise_(TypeError, f"{callee_text(m, called)} {words}")


def callee_text(m: Machine, value: Value) -> str:
    """A function that is called, as CPython's errors name it."""
    real = m.operators.real_callable(value)
    name = getattr(real, "__qualname__", None)
    if name is None:
        value.unsupported("the name in an error about keywords")
    module = getattr(real, "__module__", None)
    return f"{module}.{name}()" if module and module != "builtins" else f"{name}()"


def UNPACK_SEQUENCE(m: Machine, f: Frame, i: Instruction) -> None:
    items = m.operators.unpack(f.pop(), i.value)
    f.stack.extend(reversed(items))


def UNPACK_EX(m: Machine, f: Frame, i: Instruction) -> None:
    before, after = i.value & 0xFF, i.value >> 8
    value = f.pop()
    m.operators.require_iterable(value, "cannot unpack non-iterable {name} object")
    items = value.items_list(m)
    if len(items) < before + after:
        m.exceptions.raise_(
            ValueError, f"not enough values to unpack (expected at least {before + after}, got {len(items)})"
        )
    middle = ListValue(items[before : len(items) - after])
    f.stack.extend(reversed([*items[:before], middle, *(items[len(items) - after :] if after else [])]))


def GET_LEN(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(f.stack[-1].length(m))


def MATCH_MAPPING(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(Constant(issubclass(f.stack[-1].python_type(), collections.abc.Mapping)))


def MATCH_SEQUENCE(m: Machine, f: Frame, i: Instruction) -> None:
    kind = f.stack[-1].python_type()
    f.push(Constant(issubclass(kind, collections.abc.Sequence) and not issubclass(kind, (str, bytes, bytearray))))


def MATCH_KEYS(m: Machine, f: Frame, i: Instruction) -> None:
    subject, keys = f.stack[-2].stored(), f.stack[-1]
    found: list[Value] = []
    for key in keys.items_list(m):
        value = subject.lookup(m, key) if isinstance(subject, DictValue) else subject.unsupported("mapping pattern")
        if value is None:
            f.push(Constant(None))
            return
        found.append(value)
    f.push(TupleValue(found))


def MATCH_CLASS(m: Machine, f: Frame, i: Instruction) -> None:
    names, cls, subject = m.concrete.constant(f.pop(), "a pattern"), f.pop(), f.pop()
    f.push(m.operators.match_class(subject, cls, i.value, names))
