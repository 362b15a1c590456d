"""Moving values on the stack, and instructions that mean nothing to the evaluator."""

from __future__ import annotations

from stoker.bytecode import Instruction
from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.values.value import NULL, Value


def NOP(m: Machine, f: Frame, i: Instruction) -> None:
    pass


RESUME = PRECALL = CACHE = COPY_FREE_VARS = EXTENDED_ARG = NOP


def POP_TOP(m: Machine, f: Frame, i: Instruction) -> None:
    f.pop()


END_FOR = POP_TOP  # FOR_ITER skips it when it runs out; reached only through instrumentation


def PUSH_NULL(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(NULL)


def COPY(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(f.stack[-i.value])


def SWAP(m: Machine, f: Frame, i: Instruction) -> None:
    f.stack[-i.value], f.stack[-1] = f.stack[-1], f.stack[-i.value]


def RETURN_VALUE(m: Machine, f: Frame, i: Instruction) -> Value:
    return f.pop()
