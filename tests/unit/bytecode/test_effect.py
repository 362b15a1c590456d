"""Our stack effects against CPython's."""

import dis
import opcode

import pytest

from stoker.bytecode import Instruction, stack_effect
from stoker.bytecode.versions import FORMS, SPLITS, VERSION, OperandKind

# Where `dis` counts otherwise, and why ours is right at the instruction.
DIFFERENT = {"RETURN_GENERATOR"}  # dis up to 3.12 starts a generator one deep instead
if VERSION == (3, 11):
    DIFFERENT |= {"PRECALL", "CALL"}  # dis takes the arguments away at PRECALL
REAL = [name for name in FORMS if name not in SPLITS and FORMS[name].name not in DIFFERENT]


def by_dis(name: str, argument: int | None, jump: bool) -> int:
    return dis.stack_effect(opcode.opmap[name], argument, jump=jump)


@pytest.mark.parametrize("real", REAL)
def test_as_dis(real):
    form = FORMS[real]
    if form.operand is OperandKind.NONE:
        assert stack_effect(Instruction(form.name)) == by_dis(real, None, False)
    elif form.operand is OperandKind.JUMP:
        for jump in (False, True):
            assert stack_effect(Instruction(form.name), jump=jump) == by_dis(real, 1, jump)
    elif form.flag_bits:
        for flag in range(1 << form.flag_bits):
            assert stack_effect(Instruction(form.name, "x", flag)) == by_dis(real, flag, False)
    else:
        counts = {"BUILD_SLICE": (2, 3), "RAISE_VARARGS": (0, 1, 2)}.get(real, range(1, 16))
        for count in counts:
            assert stack_effect(Instruction(form.name, count)) == by_dis(real, count, False)


@pytest.mark.skipif(VERSION != (3, 11), reason="3.11 only")
@pytest.mark.parametrize("count", range(4))
def test_a_call_as_a_whole(count):
    ours = stack_effect(Instruction("PRECALL", count)) + stack_effect(Instruction("CALL", count))
    assert ours == by_dis("PRECALL", count, False) + by_dis("CALL", count, False)
