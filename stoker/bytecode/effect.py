"""What each instruction does to the depth of the stack.

`dis.stack_effect` answers for real opcodes, and is exact only over whole sequences (3.11 takes a call's arguments away
at PRECALL; generators start one deep). This table answers for the names that decode yields, exactly at each
instruction. tests/unit/bytecode/test_effect.py compares the two.
"""

from __future__ import annotations

from collections.abc import Callable

from .instruction import Instruction
from .versions import END_FOR_POPS, FOR_ITER_KEEPS_ITERATOR, SEND_KEEPS_ITERATOR

_FIXED: dict[int, str] = {
    +1: """PUSH_NULL GET_LEN MATCH_MAPPING MATCH_SEQUENCE MATCH_KEYS PUSH_EXC_INFO WITH_EXCEPT_START GET_ANEXT
           BEFORE_ASYNC_WITH BEFORE_WITH LOAD_BUILD_CLASS LOAD_ASSERTION_ERROR RETURN_GENERATOR LOAD_CONST LOAD_NAME
           IMPORT_FROM COPY LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR LOAD_CLOSURE LOAD_DEREF LOAD_CLASSDEREF
           LOAD_METHOD LOAD_LOCALS""",
    0: """NOP UNARY_POSITIVE UNARY_NEGATIVE UNARY_NOT UNARY_INVERT TO_BOOL CHECK_EXC_MATCH CHECK_EG_MATCH GET_AITER
          GET_ITER GET_YIELD_FROM_ITER LIST_TO_TUPLE SETUP_ANNOTATIONS YIELD_VALUE ASYNC_GEN_WRAP DELETE_NAME
          DELETE_GLOBAL DELETE_FAST DELETE_DEREF SWAP JUMP JUMP_BACKWARD_NO_INTERRUPT GET_AWAITABLE MAKE_CELL
          COPY_FREE_VARS RESUME PRECALL KW_NAMES CALL_INTRINSIC_1 LOAD_FROM_DICT_OR_GLOBALS LOAD_FROM_DICT_OR_DEREF
          FORMAT_SIMPLE CONVERT_VALUE""",
    -1: """POP_TOP BINARY_SUBSCR PRINT_EXPR RETURN_VALUE IMPORT_STAR PREP_RERAISE_STAR POP_EXCEPT STORE_NAME DELETE_ATTR
           STORE_GLOBAL COMPARE_OP IMPORT_NAME POP_JUMP_IF_FALSE POP_JUMP_IF_TRUE POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE
           IS_OP CONTAINS_OP RERAISE BINARY_OP STORE_FAST STORE_DEREF LIST_APPEND SET_ADD LIST_EXTEND SET_UPDATE
           DICT_MERGE DICT_UPDATE CALL_INTRINSIC_2 END_SEND CLEANUP_THROW FORMAT_WITH_SPEC SET_FUNCTION_ATTRIBUTE""",
    -2: "BINARY_SLICE END_ASYNC_FOR DELETE_SUBSCR STORE_ATTR MAP_ADD MATCH_CLASS",
    -3: "STORE_SUBSCR",
    -4: "STORE_SLICE",
}

# By operand and flag.
_COUNTED: dict[str, Callable[[int, int], int]] = {
    "UNPACK_SEQUENCE": lambda count, _: count - 1,
    "UNPACK_EX": lambda counts, _: (counts & 255) + (counts >> 8),
    "BUILD_TUPLE": lambda count, _: 1 - count,
    "BUILD_LIST": lambda count, _: 1 - count,
    "BUILD_SET": lambda count, _: 1 - count,
    "BUILD_STRING": lambda count, _: 1 - count,
    "BUILD_MAP": lambda count, _: 1 - 2 * count,
    "BUILD_CONST_KEY_MAP": lambda count, _: -count,
    "BUILD_SLICE": lambda count, _: 1 - count,
    "LOAD_GLOBAL": lambda _, push_null: 1 + push_null,
    "LOAD_ATTR": lambda _, method: method,
    "LOAD_SUPER_ATTR": lambda _, bits: -2 + (bits & 1),
    "RAISE_VARARGS": lambda count, _: -count,
    "FORMAT_VALUE": lambda bits, _: -1 if bits & 4 else 0,
    "CALL": lambda count, _: -count - 1,
    "CALL_KW": lambda count, _: -count - 2,
    "CALL_FUNCTION_EX": lambda bits, _: -2 - (bits & 1),
    "MAKE_FUNCTION": lambda bits, _: 0 if bits is None else -(bits & 15).bit_count(),
}

# Jumps whose effect depends on whether they jump: (fall through, jump).
_BRANCHING: dict[str, tuple[int, int]] = {
    "JUMP_IF_FALSE_OR_POP": (-1, 0),
    "JUMP_IF_TRUE_OR_POP": (-1, 0),
    "FOR_ITER": (1, 1) if FOR_ITER_KEEPS_ITERATOR else (1, -1),
    "SEND": (0, 0) if SEND_KEEPS_ITERATOR else (0, -1),
}

_EFFECTS: dict[str, int] = {name: effect for effect, names in _FIXED.items() for name in names.split()}
_EFFECTS["END_FOR"] = -END_FOR_POPS

KNOWN: frozenset[str] = frozenset(_EFFECTS) | frozenset(_COUNTED) | frozenset(_BRANCHING)


def stack_effect(instruction: Instruction, *, jump: bool = False) -> int:
    """How many more values are on the stack after the instruction, when it falls through or when it jumps."""
    name = instruction.name
    effect = _EFFECTS.get(name)
    if effect is not None:
        return effect
    if name in _COUNTED:
        return _COUNTED[name](instruction.value, instruction.flag)
    return _BRANCHING[name][jump]
