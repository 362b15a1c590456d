"""Generators: yield, `yield from`."""

from __future__ import annotations

from stoker.bytecode import Instruction
from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.value import Exhausted, Value
from stoker.errors import Raised


def RETURN_GENERATOR(m: Machine, f: Frame, i: Instruction) -> None:
    """The frame is entered when the generator is first advanced; the value sent then is None."""
    f.push(Constant(None))


def YIELD_VALUE(m: Machine, f: Frame, i: Instruction) -> Value:
    f.yielded = f.pop()
    return f.yielded


def GET_YIELD_FROM_ITER(m: Machine, f: Frame, i: Instruction) -> None:
    if not isinstance(f.stack[-1], GeneratorValue):
        f.push(m.operators.iterate(f.pop()))


def SEND(m: Machine, f: Frame, i: Instruction) -> None:
    """Stack: iterator, value to send. On exhaustion the result replaces both (3.11) or the value (3.12+)."""
    sent = f.pop()
    iterator = f.stack[-1]
    try:
        if isinstance(iterator, GeneratorValue):
            f.push(iterator.resume(m, sent))
        elif isinstance(sent, Constant) and sent.value is None:
            f.push(iterator.next(m))
        else:
            f.push(iterator.attribute(m, "send").call(m, [sent], {}))
    except Exhausted:
        f.finish_send(iterator.result if isinstance(iterator, GeneratorValue) else Constant(None))
        f.jump(i.value)
    except Raised as raised:
        if not issubclass(raised.value.python_type(), StopIteration):
            raise
        f.finish_send(raised.value.attribute(m, "value"))
        f.jump(i.value)


def END_SEND(m: Machine, f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.pop()
    f.push(value)
