"""Graph breaks: run one instruction in CPython, then continue in a function made from the rest of the code.

A resume function is the original code entered in the middle: its parameters are the stack and the live locals, its
first instructions put the stack back and jump. Its cells are free variables. Replacement code does not call it but
returns it as a tail call, so a break inside a loop uses no stack.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import CellType, CodeType, FunctionType
from typing import Any

from stoker import _C
from stoker.bytecode import Code, Instruction, build, encode_entered, stack_effect
from stoker.bytecode.versions import NULL_BEFORE_CALLABLE
from stoker.capture.frame import DecodedCode, register_program
from stoker.capture.values.instance import PreviousException
from stoker.capture.values.rounds import PARAMETER
from stoker.capture.values.running import is_iterator_by_rounds
from stoker.capture.values.value import Null, Value
from stoker.errors import SkipFrame

NULL_MARK = "N"
VALUE_MARK = "v"
HANDLED_MARK = "E"  # the parameter is an exception being handled; what it replaces is pushed in its place
LASTI_MARK = "0"
ROUNDS_MARK = "r"  # the parameter is the iterator of a loop that CPython advances

PARAMETERS = {VALUE_MARK: "__stack_", HANDLED_MARK: "__stack_", ROUNDS_MARK: PARAMETER}


@dataclass(frozen=True)
class Continuation:
    """Where to go on: an instruction of the original program, the stack's shape there, the live locals."""

    program: DecodedCode
    target: int
    shape: str
    locals: tuple[str, ...]
    leading: tuple[str, ...] = ()  # the first parameter, kept first where zero-argument super() may look for it


def resume_function(continuation: Continuation, globals_: dict[str, Any]) -> Any:
    """The `_C.Resume` for a continuation; one code object for each, so that its compiled versions are found again."""
    program = continuation.program
    key = (continuation.target, continuation.shape, continuation.locals, continuation.leading)
    code = program.resumes.get(key)
    if code is None:
        code = program.resumes[key] = _resume_code(continuation)
    closure = tuple(CellType() for _ in code.co_freevars) or None
    return _C.Resume(FunctionType(code, globals_, code.co_name, None, closure), code.co_name)


def _resume_code(continuation: Continuation) -> CodeType:
    program = continuation.program
    original = program.code
    target = program.instructions[continuation.target]
    stack_names = [f"{PARAMETERS[mark]}{index}" for index, mark in enumerate(continuation.shape) if mark in PARAMETERS]
    argnames = (*continuation.leading, *stack_names, *continuation.locals)
    freevars = (*original.co_cellvars, *original.co_freevars)
    opening = build.open_frame((), freevars)
    names = iter(stack_names)
    restore: Code = []
    for mark in continuation.shape:
        if mark == NULL_MARK:
            restore.append(Instruction("PUSH_NULL"))
        elif mark == LASTI_MARK:
            restore += build.load_const(0)
        else:
            restore += build.load_fast(next(names))
            if mark == HANDLED_MARK:
                restore += enter_handler()
    prefix = opening + restore
    body = [*prefix, Instruction("JUMP", target), *program.instructions]
    positions = target.positions
    for instruction in (*prefix, body[len(prefix)]):
        instruction.positions = positions
    code = encode_entered(body, original, argnames, freevars)
    register_program(code, DecodedCode(code, body, program.origin))
    return code


def enter_handler() -> Code:
    """With an exception on the stack: make it the one being handled, leave what was handled before."""
    return [Instruction("PUSH_EXC_INFO"), *build.pop_top()]


# How many values each instruction that may break takes from the stack; what it leaves follows from its stack effect.
OPERANDS = {
    "CALL": lambda i: i.value + 2,
    "CALL_KW": lambda i: i.value + 3,
    "CALL_FUNCTION_EX": lambda i: 3 + (i.value & 1),
    "BINARY_OP": lambda i: 2,
    "COMPARE_OP": lambda i: 2,
    "IS_OP": lambda i: 2,
    "CONTAINS_OP": lambda i: 2,
    "BINARY_SUBSCR": lambda i: 2,
    "BINARY_SLICE": lambda i: 3,
    "STORE_SLICE": lambda i: 4,
    "STORE_SUBSCR": lambda i: 3,
    "DELETE_SUBSCR": lambda i: 2,
    "LOAD_ATTR": lambda i: 1,
    "LOAD_METHOD": lambda i: 1,
    "LOAD_SUPER_ATTR": lambda i: 3,
    "STORE_ATTR": lambda i: 2,
    "DELETE_ATTR": lambda i: 1,
    "LOAD_GLOBAL": lambda i: 0,
    "STORE_GLOBAL": lambda i: 1,
    "DELETE_GLOBAL": lambda i: 0,
    "LOAD_FAST": lambda i: 0,
    "LOAD_FAST_CHECK": lambda i: 0,
    "DELETE_FAST": lambda i: 0,
    "LOAD_CONST": lambda i: 0,
    "UNARY_NEGATIVE": lambda i: 1,
    "UNARY_POSITIVE": lambda i: 1,
    "UNARY_INVERT": lambda i: 1,
    "UNARY_NOT": lambda i: 1,
    "TO_BOOL": lambda i: 1,
    "GET_ITER": lambda i: 1,
    "FOR_ITER": lambda i: 1,
    "GET_LEN": lambda i: 1,
    "UNPACK_SEQUENCE": lambda i: 1,
    "UNPACK_EX": lambda i: 1,
    "BUILD_STRING": lambda i: i.value,
    "BUILD_SET": lambda i: i.value,
    "BUILD_MAP": lambda i: 2 * i.value,
    "BUILD_CONST_KEY_MAP": lambda i: i.value + 1,
    "FORMAT_VALUE": lambda i: 2 if i.value & 4 else 1,
    "FORMAT_SIMPLE": lambda i: 1,
    "FORMAT_WITH_SPEC": lambda i: 2,
    "CONVERT_VALUE": lambda i: 1,
    "LIST_EXTEND": lambda i: i.value + 1,
    "SET_UPDATE": lambda i: i.value + 1,
    "SET_ADD": lambda i: i.value + 1,
    "MAP_ADD": lambda i: i.value + 2,
    "LIST_APPEND": lambda i: i.value + 1,
    "DICT_UPDATE": lambda i: i.value + 1,
    "LIST_TO_TUPLE": lambda i: 1,
    "IMPORT_NAME": lambda i: 2,
    "IMPORT_FROM": lambda i: 1,
    "RAISE_VARARGS": lambda i: i.value,
    "RERAISE": lambda i: 1,
    "BEFORE_WITH": lambda i: 1,
    "MATCH_CLASS": lambda i: 3,
    "MATCH_KEYS": lambda i: 2,
    "LOAD_BUILD_CLASS": lambda i: 0,
    "CALL_INTRINSIC_1": lambda i: 1,
    "MAKE_FUNCTION": lambda i: 1 + bin(i.value or 0).count("1"),
    "POP_JUMP_IF_TRUE": lambda i: 1,
    "POP_JUMP_IF_FALSE": lambda i: 1,
    "POP_JUMP_IF_NONE": lambda i: 1,
    "POP_JUMP_IF_NOT_NONE": lambda i: 1,
    "JUMP_IF_TRUE_OR_POP": lambda i: 1,
    "JUMP_IF_FALSE_OR_POP": lambda i: 1,
    "CHECK_EXC_MATCH": lambda i: 2,
    "CHECK_EG_MATCH": lambda i: 2,
    "PREP_RERAISE_STAR": lambda i: 2,
    "CALL_INTRINSIC_2": lambda i: 2,
    "LOAD_DEREF": lambda i: 0,
    "DELETE_DEREF": lambda i: 0,
}
if NULL_BEFORE_CALLABLE:
    # The callable is there for the words of an error. Later versions keep a NULL among the operands: no place to break.
    OPERANDS["DICT_MERGE"] = lambda i: i.value + 3
NEVER_FALLS_THROUGH = frozenset({"RAISE_VARARGS", "RERAISE", "RETURN_VALUE"})


def operand_count(instruction: Instruction) -> int:
    count = OPERANDS.get(instruction.name)
    if count is None:
        raise SkipFrame(f"capture cannot break at {instruction.name}, so the whole function runs in CPython")
    return count(instruction)


def results_count(instruction: Instruction, *, jump: bool) -> int:
    """How many values the instruction leaves in place of its operands."""
    return operand_count(instruction) + stack_effect(instruction, jump=jump)


def mark_of(value: Value) -> str:
    if isinstance(value, Null):
        return NULL_MARK
    if isinstance(value, PreviousException):
        return HANDLED_MARK
    return ROUNDS_MARK if is_iterator_by_rounds(value) else VALUE_MARK
