"""From a code object to a list of instructions.

In:  a code object of the running interpreter.
Out: its instructions in order, with operands resolved (see instruction.py) and names as versions.py defines them.

What must hold (tests/roundtrip): `encode(decode(code), code)` behaves as `code`, and decodes to the same list.
On 3.12 a FOR_ITER that ends goes on *past* the END_FOR that is its target (on 3.13 past END_FOR and POP_TOP): see
SKIPPED_AT_LOOP_END.
"""

from __future__ import annotations

from types import CodeType

from .instruction import Handler, Instruction, Positions
from .table import read_exception_table
from .versions import (
    CLOSURE_IS_FAST,
    COMPARE_OPS,
    COMPARE_SHIFT,
    COMPARE_TO_BOOL,
    EXTENDED_ARG,
    FORM_OF_CODE,
    FORMS,
    SPLITS,
    OperandKind,
    stack_slots,
)


def decode(code: CodeType) -> list[Instruction]:
    """The instructions of a code object."""
    slots = stack_slots(code.co_varnames, code.co_cellvars, code.co_freevars)
    cell_slots = _cell_slots(code, slots) if CLOSURE_IS_FAST else frozenset()
    names, constants = code.co_names, code.co_consts
    raw = code.co_code
    positions = [None if spot[0] is None else Positions._make(spot) for spot in code.co_positions()]

    instructions: list[Instruction] = []
    at: dict[int, Instruction] = {}  # the first code unit of an instruction, with its EXTENDED_ARGs
    jumps: list[tuple[Instruction, int]] = []
    unit, end, start, extension = 0, len(raw) // 2, 0, 0
    while unit < end:
        operation = raw[2 * unit]
        argument = raw[2 * unit + 1] | extension
        if operation == EXTENDED_ARG:
            extension = argument << 8
            unit += 1
            continue
        form = FORM_OF_CODE[operation]
        if form is None:
            raise ValueError(f"opcode {operation} in {code.co_qualname} is not one of CPython's compiler")
        _, name, operand, flag_bits, caches, sign = form
        value: object = None
        flag = 0
        if operand is OperandKind.NONE:
            pass
        elif operand is OperandKind.NUMBER:
            value = argument
        elif operand is OperandKind.LOCAL:
            value = argument if name in SPLITS else slots[argument]
            if argument in cell_slots and name == "LOAD_FAST":
                name = "LOAD_CLOSURE"
        elif operand is OperandKind.CELL:
            value = slots[argument]
        elif operand is OperandKind.CONSTANT:
            value = constants[argument]
        elif operand is OperandKind.NAME:
            value = names[argument >> flag_bits]
            flag = argument & (1 << flag_bits) - 1
        elif operand is OperandKind.COMPARISON:
            value = COMPARE_OPS[argument >> COMPARE_SHIFT]
            flag = int(COMPARE_SHIFT == 5 and bool(argument & COMPARE_TO_BOOL))
        instruction = Instruction(name, value, flag, positions[unit], None, 2 * unit)
        at[start] = instruction
        instructions.append(instruction)
        if sign:
            jumps.append((instruction, unit + 1 + caches + sign * argument))
        unit += 1 + caches
        start, extension = unit, 0

    for jump, target in jumps:
        jump.value = at[target]
    if code.co_exceptiontable:
        _attach_handlers(code.co_exceptiontable, at)
    return _split(instructions, slots, cell_slots) if _SUPER else instructions


def _cell_slots(code: CodeType, slots: tuple[str, ...]) -> frozenset[int]:
    local = len(code.co_varnames)
    return frozenset(slot for slot, name in enumerate(slots) if slot >= local or name in code.co_cellvars)


def _attach_handlers(table: bytes, at: dict[int, Instruction]) -> None:
    """Give each instruction its exception-table entry; entries that lead to one place become one Handler."""
    handlers: dict[tuple[int, int, bool], Handler] = {}
    ranges = iter(read_exception_table(table))
    covering = next(ranges, None)
    for unit, instruction in at.items():
        while covering is not None and covering.end <= unit:
            covering = next(ranges, None)
        if covering is None:
            return
        if covering.start <= unit:
            key = (covering.target, covering.depth, covering.lasti)
            if key not in handlers:
                handlers[key] = Handler(at[covering.target], covering.depth, covering.lasti)
            instruction.handler = handlers[key]


_SUPER = frozenset(SPLITS) & frozenset(FORMS)


def _split(instructions: list[Instruction], slots: tuple[str, ...], cell_slots: frozenset[int]) -> list[Instruction]:
    """Replace superinstructions by the plain ones they stand for."""
    plain: list[Instruction] = []
    for instruction in instructions:
        plain.append(instruction)
        if instruction.name not in _SUPER:
            continue
        (first, second), value = SPLITS[instruction.name], instruction.value
        if instruction.name == "RETURN_CONST":
            operand: object = None
        else:
            high, low = value >> 4, value & 15
            first = "LOAD_CLOSURE" if first == "LOAD_FAST" and high in cell_slots else first
            second = "LOAD_CLOSURE" if second == "LOAD_FAST" and low in cell_slots else second
            value, operand = slots[high], slots[low]
        # The first part keeps the identity, because jumps may point at it.
        instruction.name, instruction.value = first, value
        plain.append(Instruction(second, operand, 0, instruction.positions, instruction.handler, instruction.offset))
    return plain
