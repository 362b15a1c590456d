"""What differs between CPython 3.11, 3.12 and 3.13, as tables.

Nothing else in this package asks for the version. The tables speak of two sets of names: the *real* opcodes of one
interpreter, and the names that `decode` yields, in which
  - superinstructions are split (SPLITS),
  - the direction of a jump is not part of its name (FORWARD, BACKWARD),
  - loading a cell is LOAD_CLOSURE, also on 3.13, which spells it LOAD_FAST,
  - CACHE, EXTENDED_ARG, specialised and instrumented opcodes do not exist.

Held by tests/unit/bytecode/test_versions.py on each interpreter: OPNAMES agrees with its `opcode` module.
"""

from __future__ import annotations

import opcode
import sys
from enum import Enum
from typing import NamedTuple

Version = tuple[int, int]

SUPPORTED: tuple[Version, ...] = ((3, 11), (3, 12), (3, 13))
VERSION: Version = sys.version_info[:2]


class OperandKind(Enum):
    """What an operand stands for."""

    NONE = "none"
    NUMBER = "number"
    CONSTANT = "constant"
    NAME = "name"
    LOCAL = "local"
    CELL = "cell"
    JUMP = "jump"
    COMPARISON = "comparison"


class OpcodeForm(NamedTuple):
    """How one real opcode is laid out in the bytes."""

    code: int
    name: str  # as decode yields it
    operand: OperandKind
    flag_bits: int  # low bits of the operand that are not part of the index
    caches: int  # code units of inline cache that follow
    sign: int  # of a jump: +1 forward, -1 backward, 0 for the rest


# Opcode names as decode yields them.

_EVERYWHERE = """
    BEFORE_ASYNC_WITH BEFORE_WITH BINARY_OP BINARY_SUBSCR BUILD_CONST_KEY_MAP BUILD_LIST BUILD_MAP BUILD_SET
    BUILD_SLICE BUILD_STRING BUILD_TUPLE CALL CALL_FUNCTION_EX CHECK_EG_MATCH CHECK_EXC_MATCH COMPARE_OP CONTAINS_OP
    COPY COPY_FREE_VARS DELETE_ATTR DELETE_DEREF DELETE_FAST DELETE_GLOBAL DELETE_NAME DELETE_SUBSCR DICT_MERGE
    DICT_UPDATE END_ASYNC_FOR FOR_ITER GET_AITER GET_ANEXT GET_AWAITABLE GET_ITER GET_LEN GET_YIELD_FROM_ITER
    IMPORT_FROM IMPORT_NAME IS_OP JUMP JUMP_BACKWARD_NO_INTERRUPT LIST_APPEND LIST_EXTEND LOAD_ASSERTION_ERROR
    LOAD_ATTR LOAD_BUILD_CLASS LOAD_CLOSURE LOAD_CONST LOAD_DEREF LOAD_FAST LOAD_GLOBAL LOAD_NAME MAKE_CELL
    MAKE_FUNCTION MAP_ADD MATCH_CLASS MATCH_KEYS MATCH_MAPPING MATCH_SEQUENCE NOP POP_EXCEPT POP_JUMP_IF_FALSE
    POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_IF_TRUE POP_TOP PUSH_EXC_INFO PUSH_NULL RAISE_VARARGS RERAISE
    RESUME RETURN_GENERATOR RETURN_VALUE SEND SETUP_ANNOTATIONS SET_ADD SET_UPDATE STORE_ATTR STORE_DEREF STORE_FAST
    STORE_GLOBAL STORE_NAME STORE_SUBSCR SWAP UNARY_INVERT UNARY_NEGATIVE UNARY_NOT UNPACK_EX UNPACK_SEQUENCE
    WITH_EXCEPT_START YIELD_VALUE
"""
_FROM_3_12 = """
    BINARY_SLICE CALL_INTRINSIC_1 CALL_INTRINSIC_2 CLEANUP_THROW END_FOR END_SEND LOAD_FAST_AND_CLEAR LOAD_FAST_CHECK
    LOAD_FROM_DICT_OR_DEREF LOAD_FROM_DICT_OR_GLOBALS LOAD_LOCALS LOAD_SUPER_ATTR STORE_SLICE
"""
_ONLY_3_11 = """
    ASYNC_GEN_WRAP FORMAT_VALUE IMPORT_STAR JUMP_IF_FALSE_OR_POP JUMP_IF_TRUE_OR_POP KW_NAMES LIST_TO_TUPLE
    LOAD_CLASSDEREF LOAD_METHOD PRECALL PREP_RERAISE_STAR PRINT_EXPR UNARY_POSITIVE
"""
_ONLY_3_13 = "CALL_KW CONVERT_VALUE FORMAT_SIMPLE FORMAT_WITH_SPEC SET_FUNCTION_ATTRIBUTE TO_BOOL"

OPNAMES: dict[Version, frozenset[str]] = {
    (3, 11): frozenset(f"{_EVERYWHERE} {_ONLY_3_11}".split()),
    (3, 12): frozenset(f"{_EVERYWHERE} {_FROM_3_12} FORMAT_VALUE KW_NAMES".split()),
    (3, 13): frozenset(f"{_EVERYWHERE} {_FROM_3_12} {_ONLY_3_13}".split()),
}

# Real opcodes that the interpreter keeps for itself: no code object that Python code can reach contains them.
INTERNAL = frozenset({"CACHE", "EXTENDED_ARG", "RESERVED", "INTERPRETER_EXIT", "EXIT_INIT_CHECK", "ENTER_EXECUTOR"})


def opnames(version: Version = VERSION) -> frozenset[str]:
    """Every opcode name that decode yields on a version."""
    return OPNAMES[version]


# Superinstructions: the plain instructions they stand for, first to run first. Those that join two locals keep one
# index in the high and one in the low four bits of the operand.

SPLITS: dict[str, tuple[str, str]] = {
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
    "RETURN_CONST": ("LOAD_CONST", "RETURN_VALUE"),
}

# Jumps: the real opcode behind each name, by direction. A name that is missing has no form in that direction.

_CONDITIONS = ("FALSE", "TRUE", "NONE", "NOT_NONE")
CONDITIONAL_JUMPS = frozenset(f"POP_JUMP_IF_{condition}" for condition in _CONDITIONS)
INVERTED: dict[str, str] = {
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}

FORWARD: dict[str, str] = {
    "JUMP": "JUMP_FORWARD",
    "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_FORWARD",
    "FOR_ITER": "FOR_ITER",
    "SEND": "SEND",
}
BACKWARD: dict[str, str] = {"JUMP": "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT": "JUMP_BACKWARD_NO_INTERRUPT"}
if VERSION == (3, 11):
    FORWARD |= {name: name for name in ("JUMP_IF_FALSE_OR_POP", "JUMP_IF_TRUE_OR_POP")}
    FORWARD |= {f"POP_JUMP_IF_{condition}": f"POP_JUMP_FORWARD_IF_{condition}" for condition in _CONDITIONS}
    BACKWARD |= {f"POP_JUMP_IF_{condition}": f"POP_JUMP_BACKWARD_IF_{condition}" for condition in _CONDITIONS}
else:
    FORWARD |= {name: name for name in CONDITIONAL_JUMPS}

# What a FOR_ITER that ends jumps over at its target, without running it.
SKIPPED_AT_LOOP_END: tuple[str, ...] = {(3, 11): (), (3, 12): ("END_FOR",), (3, 13): ("END_FOR", "POP_TOP")}[VERSION]

# After these, the next instruction in the list does not run.
TERMINAL = frozenset({"JUMP", "JUMP_BACKWARD_NO_INTERRUPT", "RETURN_VALUE", "RAISE_VARARGS", "RERAISE"})

# Operators. A BINARY_OP index at or past the length of the first half is the in-place form.

BINARY_OPS: tuple[str, ...] = ("+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^")
BINARY_OPS += tuple(f"{text}=" for text in BINARY_OPS)
COMPARE_OPS: tuple[str, ...] = ("<", "<=", "==", "!=", ">", ">=")

# COMPARE_OP on 3.12 and later carries the outcomes for which it is true, for the specialised forms (pycore_code.h):
# unordered 1, less 2, greater 4, equal 8. On 3.13 one more bit asks for a bool.
COMPARE_MASKS: dict[str, int] = {"<": 2, "<=": 2 | 8, "==": 8, "!=": 1 | 2 | 4, ">": 4, ">=": 4 | 8}
COMPARE_SHIFT: int = {(3, 11): 0, (3, 12): 4, (3, 13): 5}[VERSION]
COMPARE_TO_BOOL = 16


_FLAG_BITS: dict[str, int] = {"LOAD_GLOBAL": 1, "LOAD_SUPER_ATTR": 2} | ({"LOAD_ATTR": 1} if VERSION >= (3, 12) else {})

# Shapes of code that emitters and the evaluator ask for by what they mean.

SEND_KEEPS_ITERATOR: bool = VERSION >= (3, 12)  # at the end of SEND, until END_SEND takes it off
FOR_ITER_KEEPS_ITERATOR: bool = VERSION >= (3, 12)  # at the loop's end, until its target's instructions take it off
LOOP_END: int = len(SKIPPED_AT_LOOP_END)
END_FOR_POPS: int = 2 if VERSION == (3, 12) else 1
NULL_BEFORE_CALLABLE: bool = VERSION <= (3, 12)  # the order [NULL, callable, arguments...], else [callable, NULL, ...]
HAS_PRECALL: bool = VERSION == (3, 11)
HAS_CALL_KW: bool = VERSION >= (3, 13)  # keyword names on the stack, else in a KW_NAMES before the call
HAS_FAST_CHECK: bool = VERSION >= (3, 12)  # LOAD_FAST assumes a bound local; LOAD_FAST_CHECK does not
HAS_TO_BOOL: bool = VERSION >= (3, 13)  # conditional jumps and UNARY_NOT take an exact bool
CLOSURE_IS_FAST: bool = VERSION >= (3, 13)  # LOAD_CLOSURE is written LOAD_FAST
CLASS_METHODS_CHAIN: bool = VERSION <= (3, 12)  # a classmethod around a descriptor gives what that gives of the class
DOCSTRING_FLAG: int = 0x4000000 if VERSION >= (3, 13) else 0  # CO_HAS_DOCSTRING: co_consts[0] is the docstring


def _caches(name: str, code: int) -> int:
    entries = opcode._inline_cache_entries  # type: ignore[attr-defined]  # not in the stubs
    return entries.get(name, 0) if isinstance(entries, dict) else entries[code]


def _operand(code: int) -> OperandKind:
    kinds = {
        OperandKind.CONSTANT: opcode.hasconst,
        OperandKind.NAME: opcode.hasname,
        OperandKind.LOCAL: opcode.haslocal,
        OperandKind.CELL: opcode.hasfree,
        OperandKind.JUMP: opcode.hasjrel,
        OperandKind.COMPARISON: opcode.hascompare,
    }
    for operand, codes in kinds.items():
        if code in codes:
            return operand
    has_argument = code in opcode.hasarg if hasattr(opcode, "hasarg") else code >= opcode.HAVE_ARGUMENT
    return OperandKind.NUMBER if has_argument else OperandKind.NONE


def _forms() -> dict[str, OpcodeForm]:
    """Every real opcode of this interpreter that may stand in a code object, by its real name."""
    neutral = {real: name for name, real in FORWARD.items() if name != "JUMP_BACKWARD_NO_INTERRUPT"}
    neutral |= {real: name for name, real in BACKWARD.items()}
    forms = {}
    for real, code in opcode.opmap.items():
        if code > 255 or real.startswith("INSTRUMENTED_") or real in INTERNAL:
            continue
        operand = _operand(code)
        sign = (-1 if "BACKWARD" in real else 1) if operand is OperandKind.JUMP else 0
        name = neutral.get(real, real)
        forms[real] = OpcodeForm(code, name, operand, _FLAG_BITS.get(real, 0), _caches(real, code), sign)
    return forms


FORMS: dict[str, OpcodeForm] = _forms()
FORM_OF_CODE: list[OpcodeForm | None] = [None] * 256
for _form in FORMS.values():
    FORM_OF_CODE[_form.code] = _form

EXTENDED_ARG: int = opcode.opmap["EXTENDED_ARG"]


def stack_slots(varnames: tuple[str, ...], cellvars: tuple[str, ...], freevars: tuple[str, ...]) -> tuple[str, ...]:
    """The names of a frame's slots in order ("localsplus"): a cell that is also a local shares the local's slot."""
    if cellvars:
        cellvars = tuple(name for name in cellvars if name not in varnames)
    return varnames + cellvars + freevars
