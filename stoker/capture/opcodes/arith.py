"""Operators."""

from __future__ import annotations

from stoker.bytecode import BINARY_OPS, Instruction
from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.raising import assume_it_divides
from stoker.capture.values.constant import Constant
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value


def BINARY_OP(m: Machine, f: Frame, i: Instruction) -> None:
    right, left = f.pop(), f.pop()
    assume_it_divides(m, BINARY_OPS[i.value], left, right)
    f.push(m.operators.binary(BINARY_OPS[i.value], left, right))


def COMPARE_OP(m: Machine, f: Frame, i: Instruction) -> None:
    right, left = f.pop(), f.pop()
    found = m.operators.compare(i.value, left, right)
    f.push(_as_bool(m, found) if i.flag else found)


def IS_OP(m: Machine, f: Frame, i: Instruction) -> None:
    right, left = f.pop(), f.pop()
    f.push(Constant(m.operators.is_(left, right) != bool(i.value)))


def CONTAINS_OP(m: Machine, f: Frame, i: Instruction) -> None:
    container, item = f.pop(), f.pop()
    found = m.operators.contains(container, item)
    f.push(m.operators.not_(found) if i.value else found)


def UNARY_NEGATIVE(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.operators.unary("-", f.pop()))


def UNARY_POSITIVE(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.operators.unary("+", f.pop()))


def UNARY_INVERT(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.operators.unary("~", f.pop()))


def UNARY_NOT(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.operators.not_(f.pop()))


def TO_BOOL(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(_as_bool(m, f.pop()))


def _as_bool(m: Machine, value: Value) -> Value:
    """The bool that a jump will ask for. A tensor waits for the jump itself, so that a break comes there."""
    return value if isinstance(value, TensorValue) else Constant(value.truth(m))


def BINARY_SUBSCR(m: Machine, f: Frame, i: Instruction) -> None:
    key, container = f.pop(), f.pop()
    f.push(m.operators.item(container, key))


def STORE_SUBSCR(m: Machine, f: Frame, i: Instruction) -> None:
    key, container, value = f.pop(), f.pop(), f.pop()
    container.set_item(m, key, value)


def DELETE_SUBSCR(m: Machine, f: Frame, i: Instruction) -> None:
    key, container = f.pop(), f.pop()
    container.delete_item(m, key)


def BINARY_SLICE(m: Machine, f: Frame, i: Instruction) -> None:
    stop, start, container = f.pop(), f.pop(), f.pop()
    f.push(m.operators.item(container, m.operators.slice(start, stop, Constant(None))))


def STORE_SLICE(m: Machine, f: Frame, i: Instruction) -> None:
    stop, start, container, value = f.pop(), f.pop(), f.pop(), f.pop()
    container.set_item(m, m.operators.slice(start, stop, Constant(None)), value)
