"""From a list of instructions to a code object: the inverse of decode.

In:  instructions; a template, which gives everything that the instructions do not say (arguments, flags, file name);
     changes to the template, spelled as for `code.replace`.
Out: a code object for the running interpreter.

What must hold (tests/roundtrip):
  1. Decoding the result gives the same instructions, but for backward conditional jumps where the version has none.
  2. Constants stay apart when a program could tell them apart: 1, 1.0 and True; 0.0 and -0.0; objects by identity.
  3. `co_stacksize` is the exact need of the instructions that can be reached. Lists that cannot have one (the stack
     disagrees at a join) are refused.
Of `co_consts` only the first is taken over: the docstring's place. New locals are appended to `co_varnames`.
One thing is lost, because no constructor takes it: which locals of a class body or module belong to an inlined
comprehension (3.12) and are hidden from `locals()`. Function bodies have no such locals.
"""

from __future__ import annotations

from collections.abc import Sequence
from inspect import CO_VARARGS, CO_VARKEYWORDS
from itertools import accumulate
from types import CodeType
from typing import Any

from .flow import reachable, stack_depth
from .instruction import Instruction, Positions
from .table import Range, write_exception_table, write_location_table
from .versions import (
    BACKWARD,
    CLOSURE_IS_FAST,
    COMPARE_MASKS,
    COMPARE_OPS,
    COMPARE_SHIFT,
    COMPARE_TO_BOOL,
    CONDITIONAL_JUMPS,
    EXTENDED_ARG,
    FORMS,
    FORWARD,
    INVERTED,
    SKIPPED_AT_LOOP_END,
    OpcodeForm,
    OperandKind,
    stack_slots,
)


class EncodeError(ValueError):
    """The instructions do not form a code object."""


def encode_entered(
    body: Sequence[Instruction], template: CodeType, argnames: tuple[str, ...], freevars: tuple[str, ...]
) -> CodeType:
    """A code object that goes on in the middle of another one: what is reached of the body, with parameters of its own."""
    return encode(
        [instruction for instruction, alive in zip(body, reachable(body)) if alive],
        template,
        co_argcount=len(argnames),
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_varnames=argnames,
        co_cellvars=(),
        co_freevars=freevars,
        co_flags=template.co_flags & ~(CO_VARARGS | CO_VARKEYWORDS),
    )


def encode(instructions: Sequence[Instruction], template: CodeType, **changes: Any) -> CodeType:
    """A code object that runs the instructions."""
    operands = _Operands(template, changes)
    lines, index = _place(instructions)
    _check_loop_ends(lines, index)
    forms, arguments = operands.resolve(lines, index)
    sizes = _settle(lines, index, forms, arguments)
    starts = [0, *accumulate(sizes)]
    first_line = changes.get("co_firstlineno", template.co_firstlineno)
    return template.replace(
        **{
            **changes,
            "co_code": _write(forms, arguments, sizes),
            "co_exceptiontable": write_exception_table(_ranges(lines, index, starts)),
            "co_linetable": write_location_table(first_line, _runs(lines, sizes)),
            "co_stacksize": max(1, stack_depth(instructions)),
            "co_consts": tuple(operands.constants),
            "co_names": tuple(operands.names),
            "co_varnames": operands.varnames,
            "co_cellvars": operands.cellvars,
            "co_freevars": operands.freevars,
            "co_nlocals": len(operands.varnames),
        }
    )


def _place(instructions: Sequence[Instruction]) -> tuple[list[Instruction], dict[Instruction, int]]:
    """The instructions to write, and at which place each one given starts.

    A conditional jump backward that the version cannot express becomes the opposite jump around a plain one.
    """
    lines: list[Instruction] = []
    index: dict[Instruction, int] = {}
    for place, instruction in enumerate(instructions):
        if instruction in index:
            raise EncodeError(f"{instruction.name} stands twice in the list")
        index[instruction] = len(lines)
        name, target = instruction.name, instruction.value
        if name in CONDITIONAL_JUMPS and name not in BACKWARD and target in index:
            if place + 1 == len(instructions):
                raise EncodeError(f"execution runs past the last instruction, {name}")
            spot, handler = instruction.positions, instruction.handler
            lines.append(Instruction(INVERTED[name], instructions[place + 1], 0, spot, handler))
            lines.append(Instruction("JUMP", target, 0, spot, handler))
        else:
            lines.append(instruction)
    return lines, index


def _check_loop_ends(lines: list[Instruction], index: dict[Instruction, int]) -> None:
    """The interpreter skips instructions after a loop without looking at them, so they must be the right ones."""
    for instruction in lines:
        if instruction.name == "FOR_ITER" and instruction.value in index:
            end = index[instruction.value]
            if any(line.name != name for line, name in zip(lines[end:], SKIPPED_AT_LOOP_END)):
                raise EncodeError(f"FOR_ITER must lead to {', '.join(SKIPPED_AT_LOOP_END)}")


class _Operands:
    """The tables that operands index: names, constants, and the slots of the frame."""

    def __init__(self, template: CodeType, changes: dict[str, Any]) -> None:
        self.varnames: tuple[str, ...] = changes.get("co_varnames", template.co_varnames)
        self.cellvars: tuple[str, ...] = changes.get("co_cellvars", template.co_cellvars)
        self.freevars: tuple[str, ...] = changes.get("co_freevars", template.co_freevars)
        self.names: dict[str, int] = {}
        self.constants: list[object] = []
        self._constant_of: dict[object, int] = {}
        # The first constant is the docstring's place: `__doc__` is taken from it when a function is made.
        for constant in changes.get("co_consts", template.co_consts)[:1]:
            self._constant(constant)

    def resolve(self, lines: list[Instruction], index: dict[Instruction, int]) -> tuple[list[OpcodeForm], list[int]]:
        """The real opcode and the operand of each instruction. Jumps get theirs when distances are known."""
        forms: list[OpcodeForm] = []
        arguments: list[int] = []
        slotted: list[int] = []
        names = self.names
        for place, instruction in enumerate(lines):
            value = instruction.value
            form = _FORM_OF_NAME.get(instruction.name)
            if form is None:
                form = _jump_form(instruction, place, index)
                argument = 0
            else:
                operand, bits = form.operand, form.flag_bits
                if operand is OperandKind.NONE:
                    argument = 0
                elif operand is OperandKind.LOCAL or operand is OperandKind.CELL:
                    slotted.append(place)
                    argument = 0
                elif operand is OperandKind.CONSTANT:
                    argument = self._constant(value)
                elif operand is OperandKind.NAME:
                    argument = names.setdefault(value, len(names)) << bits | instruction.flag
                elif operand is OperandKind.COMPARISON:
                    argument = _comparison(value, instruction.flag)
                elif instruction.name == "COPY_FREE_VARS":
                    argument = len(self.freevars)
                else:
                    argument = value
                    if not isinstance(value, int) or value < 0:
                        raise EncodeError(f"{instruction.name} needs a number, not {value!r}")
            forms.append(form)
            arguments.append(argument)
        self._resolve_slots(lines, slotted, arguments)
        return forms, arguments

    def _resolve_slots(self, lines: list[Instruction], slotted: list[int], arguments: list[int]) -> None:
        """Locals and cells share one numbering, in which cells come after all locals: so collect first, number then."""
        known = set(self.varnames)
        cells = set(self.cellvars)
        for place in slotted:
            name, value = lines[place].name, lines[place].value
            if name == "MAKE_CELL":
                if value not in cells:
                    cells.add(value)
                    self.cellvars += (value,)
            elif name not in _USES_CELL and value not in known and value not in cells:
                known.add(value)
                self.varnames += (value,)
        slots = stack_slots(self.varnames, self.cellvars, self.freevars)
        fast = {name: slot for slot, name in enumerate(slots[: len(slots) - len(self.freevars)])}
        # A class body may have a free variable and a comprehension's local of one name; cells never mean the local.
        cell = {name: fast[name] for name in self.cellvars}
        cell |= {name: len(fast) + number for number, name in enumerate(self.freevars)}
        for place in slotted:
            instruction = lines[place]
            slot = (cell if instruction.name in _USES_CELL else fast).get(instruction.value)
            if slot is None:
                raise EncodeError(f"{instruction.name} {instruction.value}: not a cell or free variable of this code")
            arguments[place] = slot

    def _constant(self, constant: object) -> int:
        key = _constant_key(constant)
        place = self._constant_of.get(key)
        if place is None:
            place = self._constant_of[key] = len(self.constants)
            self.constants.append(constant)
        return place


_FORM_OF_NAME: dict[str, OpcodeForm] = {
    form.name: form for form in FORMS.values() if form.operand is not OperandKind.JUMP
}
if CLOSURE_IS_FAST:
    _FORM_OF_NAME["LOAD_CLOSURE"] = FORMS["LOAD_FAST"]
_USES_CELL = frozenset({"LOAD_CLOSURE"} | {form.name for form in FORMS.values() if form.operand is OperandKind.CELL})


def _jump_form(instruction: Instruction, place: int, index: dict[Instruction, int]) -> OpcodeForm:
    if instruction.name not in FORWARD:
        raise EncodeError(f"{instruction.name} is not an opcode of this Python")
    if instruction.value not in index:
        raise EncodeError(f"{instruction.name} jumps to an instruction that is not in the list")
    real = (BACKWARD if index[instruction.value] <= place else FORWARD).get(instruction.name)
    if real is None:
        raise EncodeError(f"{instruction.name} cannot jump backward")
    return FORMS[real]


def _comparison(text: str, to_bool: int) -> int:
    number = COMPARE_OPS.index(text) << COMPARE_SHIFT
    if COMPARE_SHIFT:
        number |= COMPARE_MASKS[text] | (COMPARE_TO_BOOL if to_bool else 0)
    return number


_COMPARED_BY_VALUE = frozenset({int, bool, str, bytes, type(None), type(...)})


def _constant_key(constant: Any) -> object:
    """Equal for constants that no program can tell apart."""
    kind = type(constant)
    if kind in _COMPARED_BY_VALUE:
        return kind, constant
    if kind in (float, complex) and constant == constant:
        return kind, repr(constant)  # tells -0.0 from 0.0
    if kind is tuple:
        return kind, tuple(map(_constant_key, constant))
    if kind is frozenset:
        return kind, frozenset(map(_constant_key, constant))
    return None, id(constant)


def _settle(
    lines: list[Instruction], index: dict[Instruction, int], forms: list[OpcodeForm], arguments: list[int]
) -> list[int]:
    """Fill in the distances of jumps and return the code units of each instruction.

    A longer distance may need an EXTENDED_ARG, which makes others longer. Sizes only grow, so this ends.
    """
    sizes = [1 + form.caches + _extensions(argument) for form, argument in zip(forms, arguments)]
    jumps = [(place, index[lines[place].value], form) for place, form in enumerate(forms) if form.sign]
    grown = bool(jumps)
    while grown:
        grown = False
        starts = [0, *accumulate(sizes)]
        for place, target, form in jumps:
            distance = (starts[target] - starts[place + 1]) * form.sign
            arguments[place] = distance
            size = 1 + form.caches + _extensions(distance)
            if size > sizes[place]:
                sizes[place] = size
                grown = True
    return sizes


def _extensions(argument: int) -> int:
    return 0 if argument < 256 else 1 if argument < 1 << 16 else 2 if argument < 1 << 24 else 3


def _write(forms: list[OpcodeForm], arguments: list[int], sizes: list[int]) -> bytes:
    raw = bytearray()
    for form, argument, size in zip(forms, arguments, sizes):
        for extension in range(size - 1 - form.caches, 0, -1):
            raw += bytes((EXTENDED_ARG, argument >> 8 * extension & 255))
        raw += bytes((form.code, argument & 255))
        raw += bytes(2 * form.caches)
    return bytes(raw)


def _ranges(lines: list[Instruction], index: dict[Instruction, int], starts: list[int]) -> list[Range]:
    """The exception table: neighbours that lead to one place share an entry."""
    ranges: list[Range] = []
    for place, instruction in enumerate(lines):
        handler = instruction.handler
        if handler is None:
            continue
        if handler.target not in index:
            raise EncodeError(f"the handler of {instruction.name} is not in the list")
        entry = Range(starts[place], starts[place + 1], starts[index[handler.target]], handler.depth, handler.lasti)
        if ranges and ranges[-1].end == entry.start and ranges[-1][2:] == entry[2:]:
            ranges[-1] = ranges[-1]._replace(end=entry.end)
        else:
            ranges.append(entry)
    return ranges


def _runs(lines: list[Instruction], sizes: list[int]) -> list[tuple[int, Positions | None]]:
    """How many code units in a row come from each place in the source."""
    runs: list[tuple[int, Positions | None]] = []
    units, spot = 0, lines[0].positions if lines else None
    for instruction, size in zip(lines, sizes):
        if instruction.positions != spot:
            runs.append((units, spot))
            units, spot = 0, instruction.positions
        units += size
    runs.append((units, spot))
    return runs
