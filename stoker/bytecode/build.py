"""Emitters: instructions for replacement code, written once for all versions.

Each returns a new list, so that code is put together with `+` or `[*a, *b]`. What an emitter takes from the stack and
leaves there is the same on every version; how many instructions that takes is not.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from types import CodeType

from .encode import encode
from .instruction import Code, Instruction
from .versions import (
    BINARY_OPS,
    COMPARE_OPS,
    DOCSTRING_FLAG,
    FUNCTION_ATTRIBUTES_AFTER,
    HAS_CALL_KW,
    HAS_FAST_CHECK,
    HAS_INTRINSICS,
    HAS_PRECALL,
    HAS_TO_BOOL,
    INTRINSIC_1,
    NULL_BEFORE_CALLABLE,
)

# Loads, stores and deletes of variables and attributes.


def load_const(constant: object) -> Code:
    """Push any object. The code object keeps it alive."""
    return [Instruction("LOAD_CONST", constant)]


def load_fast(name: str, *, check: bool = False) -> Code:
    """Push a local. With `check` an unbound one raises UnboundLocalError; without, it must be bound."""
    return [Instruction("LOAD_FAST_CHECK" if check and HAS_FAST_CHECK else "LOAD_FAST", name)]


def store_fast(name: str) -> Code:
    """Pop into a local."""
    return [Instruction("STORE_FAST", name)]


def delete_fast(name: str) -> Code:
    """Unbind a local."""
    return [Instruction("DELETE_FAST", name)]


def load_deref(name: str) -> Code:
    """Push what a cell holds."""
    return [Instruction("LOAD_DEREF", name)]


def store_deref(name: str) -> Code:
    """Pop into a cell."""
    return [Instruction("STORE_DEREF", name)]


def delete_deref(name: str) -> Code:
    """Empty a cell."""
    return [Instruction("DELETE_DEREF", name)]


def load_closure(name: str) -> Code:
    """Push the cell itself."""
    return [Instruction("LOAD_CLOSURE", name)]


def make_cell(name: str) -> Code:
    """Turn a slot into a cell that holds what the slot held."""
    return [Instruction("MAKE_CELL", name)]


def load_global(name: str) -> Code:
    """Push a global or a builtin."""
    return [Instruction("LOAD_GLOBAL", name)]


def store_global(name: str) -> Code:
    """Pop into a global."""
    return [Instruction("STORE_GLOBAL", name)]


def delete_global(name: str) -> Code:
    """Unbind a global."""
    return [Instruction("DELETE_GLOBAL", name)]


def load_attr(name: str) -> Code:
    """[object] to [object.name]."""
    return [Instruction("LOAD_ATTR", name)]


def store_attr(name: str) -> Code:
    """[value, object] to []: object.name = value."""
    return [Instruction("STORE_ATTR", name)]


def delete_attr(name: str) -> Code:
    """[object] to []: del object.name."""
    return [Instruction("DELETE_ATTR", name)]


# The stack itself. The top is at depth 1.


def pop_top() -> Code:
    """Drop the top."""
    return [Instruction("POP_TOP")]


def copy(depth: int) -> Code:
    """Push what lies at a depth once more."""
    return [Instruction("COPY", depth)]


def swap(depth: int) -> Code:
    """Exchange the top with what lies at a depth; nothing to do for 1."""
    return [Instruction("SWAP", depth)] if depth > 1 else []


def rotate(depth: int) -> Code:
    """Move the top down to a depth; what lay above moves up one, in order."""
    return [Instruction("SWAP", place) for place in range(depth, 1, -1)]


def nop() -> Code:
    """Nothing: a place to jump to."""
    return [Instruction("NOP")]


# Containers.


def build_tuple(count: int) -> Code:
    """[a, b, ...] to [(a, b, ...)]."""
    return [Instruction("BUILD_TUPLE", count)]


def build_list(count: int) -> Code:
    """[a, b, ...] to [[a, b, ...]]."""
    return [Instruction("BUILD_LIST", count)]


def build_set(count: int) -> Code:
    """[a, b, ...] to [{a, b, ...}]."""
    return [Instruction("BUILD_SET", count)]


def build_map(count: int) -> Code:
    """[k1, v1, k2, v2, ...] to [{k1: v1, ...}], `count` pairs."""
    return [Instruction("BUILD_MAP", count)]


def build_slice(count: int = 2) -> Code:
    """[start, stop] or [start, stop, step] to [slice]."""
    return [Instruction("BUILD_SLICE", count)]


def build_string(count: int) -> Code:
    """[str, str, ...] to their concatenation."""
    return [Instruction("BUILD_STRING", count)]


def list_to_tuple() -> Code:
    """[list] to [tuple]."""
    return _intrinsic("LIST_TO_TUPLE")


def unpack_sequence(count: int) -> Code:
    """[(a, b, ...)] to [..., b, a]: the first item ends on top."""
    return [Instruction("UNPACK_SEQUENCE", count)]


def subscript() -> Code:
    """[container, key] to [container[key]]."""
    return [Instruction("BINARY_SUBSCR")]


def store_subscript() -> Code:
    """[value, container, key] to []: container[key] = value."""
    return [Instruction("STORE_SUBSCR")]


def delete_subscript() -> Code:
    """[container, key] to []: del container[key]."""
    return [Instruction("DELETE_SUBSCR")]


# Operators.


def binary(text: str) -> Code:
    """[a, b] to [a <text> b]; "+=" and its like are the in-place forms."""
    return [Instruction("BINARY_OP", BINARY_OPS.index(text))]


def compare(text: str) -> Code:
    """[a, b] to [a <text> b], for the six rich comparisons."""
    if text not in COMPARE_OPS:
        raise ValueError(f"{text!r} is not one of {' '.join(COMPARE_OPS)}")
    return [Instruction("COMPARE_OP", text)]


def is_op(*, invert: bool = False) -> Code:
    """[a, b] to [a is b], or [a is not b]."""
    return [Instruction("IS_OP", int(invert))]


def contains_op(*, invert: bool = False) -> Code:
    """[a, b] to [a in b], or [a not in b]."""
    return [Instruction("CONTAINS_OP", int(invert))]


def unary(text: str) -> Code:
    """[a] to [<text> a], for "-", "+", "~" and "not"."""
    match text:
        case "-":
            return [Instruction("UNARY_NEGATIVE")]
        case "~":
            return [Instruction("UNARY_INVERT")]
        case "+":
            return _intrinsic("UNARY_POSITIVE")
        case "not":
            return [*_to_bool(), Instruction("UNARY_NOT")]
    raise ValueError(f"{text!r} is not a unary operator")


def _intrinsic(name: str) -> Code:
    return [Instruction("CALL_INTRINSIC_1", INTRINSIC_1[name]) if HAS_INTRINSICS else Instruction(name)]


def _to_bool() -> Code:
    return [Instruction("TO_BOOL")] if HAS_TO_BOOL else []


# Control.


def jump(target: Instruction) -> Code:
    """Go on at the target."""
    return [Instruction("JUMP", target)]


def pop_jump_if_false(target: Instruction) -> Code:
    """Pop any object; go on at the target if it is false."""
    return [*_to_bool(), Instruction("POP_JUMP_IF_FALSE", target)]


def pop_jump_if_true(target: Instruction) -> Code:
    """Pop any object; go on at the target if it is true."""
    return [*_to_bool(), Instruction("POP_JUMP_IF_TRUE", target)]


def pop_jump_if_none(target: Instruction) -> Code:
    """Pop; go on at the target if it is None."""
    return [Instruction("POP_JUMP_IF_NONE", target)]


def pop_jump_if_not_none(target: Instruction) -> Code:
    """Pop; go on at the target unless it is None."""
    return [Instruction("POP_JUMP_IF_NOT_NONE", target)]


def return_value() -> Code:
    """Return the top."""
    return [Instruction("RETURN_VALUE")]


def return_const(constant: object) -> Code:
    """Return any object."""
    return [*load_const(constant), *return_value()]


def raise_value() -> Code:
    """[exception] to []: raise it."""
    return [Instruction("RAISE_VARARGS", 1)]


# Calls. CPython keeps a NULL beside the callable: below it up to 3.12, above it from 3.13.


def call(callable: Code, *arguments: Code, kwargs: Mapping[str, Code] | None = None) -> Code:
    """Evaluate a callable, then its arguments, and call: one value is left."""
    kwargs = kwargs or {}
    values = [instruction for argument in (*arguments, *kwargs.values()) for instruction in argument]
    return [*_with_null(callable), *values, *_call(len(arguments) + len(kwargs), tuple(kwargs))]


def call_stacked(count: int, names: Sequence[str] = ()) -> Code:
    """[callable, a1, ..., an] to [result]; the last len(names) of the `count` arguments go by keyword."""
    if names or count <= 3:
        return [Instruction("PUSH_NULL"), *rotate(count + NULL_BEFORE_CALLABLE + 1), *_call(count, tuple(names))]
    return [*build_tuple(count), *call_ex_stacked()]


def call_ex(callable: Code, arguments: Code, kwargs: Code | None = None) -> Code:
    """Call `callable(*arguments, **kwargs)`: `arguments` must load a tuple, `kwargs` a dict."""
    tail = [Instruction("CALL_FUNCTION_EX", int(kwargs is not None))]
    return [*_with_null(callable), *arguments, *(kwargs or []), *tail]


def call_ex_stacked(*, kwargs: bool = False) -> Code:
    """[callable, tuple] or [callable, tuple, dict] to [result]."""
    depth = 2 + kwargs + NULL_BEFORE_CALLABLE
    return [Instruction("PUSH_NULL"), *rotate(depth), Instruction("CALL_FUNCTION_EX", int(kwargs))]


def _with_null(callable: Code) -> Code:
    null = Instruction("PUSH_NULL")
    return [null, *callable] if NULL_BEFORE_CALLABLE else [*callable, null]


def _call(count: int, names: tuple[str, ...]) -> Code:
    if names and HAS_CALL_KW:
        return [*load_const(names), Instruction("CALL_KW", count)]
    keywords = [Instruction("KW_NAMES", names)] if names else []
    precall = [Instruction("PRECALL", count)] if HAS_PRECALL else []
    return [*keywords, *precall, Instruction("CALL", count)]


# Functions.


def make_function(
    code: CodeType,
    closure: Sequence[Code] | None = None,
    defaults: Code | None = None,
    kwdefaults: Code | None = None,
    annotations: Code | None = None,
) -> Code:
    """Push a new function of the frame's globals.

    `closure` loads one cell for each of the code's free variables, in their order; `defaults` loads a tuple,
    `kwdefaults` a dict, `annotations` a tuple of names and values in turn.
    """
    cells = [*(load for cell in closure for load in cell), *build_tuple(len(closure))] if closure else None
    attributes = {1: defaults, 2: kwdefaults, 4: annotations, 8: cells}
    given = {bit: load for bit, load in attributes.items() if load is not None}
    loads = [instruction for load in given.values() for instruction in load] + load_const(code)
    if FUNCTION_ATTRIBUTES_AFTER:
        setters = [Instruction("SET_FUNCTION_ATTRIBUTE", bit) for bit in reversed(given)]
        return [*loads, Instruction("MAKE_FUNCTION"), *setters]
    return [*loads, Instruction("MAKE_FUNCTION", sum(given))]


_IS_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def prologue(code: CodeType) -> Code:
    """The instructions that must open a code object with these free variables, cells and flags."""
    return open_frame(code.co_cellvars, code.co_freevars, generator=bool(code.co_flags & _IS_GENERATOR))


def open_frame(cellvars: Iterable[str] = (), freevars: Sequence[str] = (), *, generator: bool = False) -> Code:
    """As `prologue`, for code that does not exist yet."""
    frees = [Instruction("COPY_FREE_VARS", len(freevars))] if freevars else []
    cells = [Instruction("MAKE_CELL", name) for name in cellvars]
    start = [Instruction("RETURN_GENERATOR"), Instruction("POP_TOP")] if generator else []
    return [*frees, *cells, *start, Instruction("RESUME", 0)]


def assemble(
    instructions: Sequence[Instruction],
    *,
    name: str,
    argnames: Sequence[str] = (),
    kwonly: Sequence[str] = (),
    varargs: str | None = None,
    varkeywords: str | None = None,
    freevars: Sequence[str] = (),
    cellvars: Sequence[str] = (),
    filename: str | None = None,
    firstlineno: int | None = None,
    template: CodeType | None = None,
    flags: int = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS,
) -> CodeType:
    """A new function's code. The prologue is added here; `instructions` are the body.

    File name and first line come from the template where not given: the code that the new one continues.
    """
    flags |= (inspect.CO_VARARGS if varargs else 0) | (inspect.CO_VARKEYWORDS if varkeywords else 0)
    flags |= inspect.CO_NESTED if freevars else 0
    origin = template or _BLANK
    opening = open_frame(cellvars, freevars, generator=bool(flags & _IS_GENERATOR))
    return encode(
        [*opening, *instructions],
        _BLANK,
        co_name=name,
        co_qualname=name,
        co_filename=origin.co_filename if filename is None else filename,
        co_firstlineno=origin.co_firstlineno if firstlineno is None else firstlineno,
        co_argcount=len(argnames),
        co_posonlyargcount=0,
        co_kwonlyargcount=len(kwonly),
        co_flags=flags & ~DOCSTRING_FLAG,
        co_consts=(None,),
        co_varnames=(*argnames, *kwonly, *(name for name in (varargs, varkeywords) if name)),
        co_cellvars=tuple(cellvars),
        co_freevars=tuple(freevars),
    )


_BLANK: CodeType = compile("lambda: None", "<stoker>", "eval").co_consts[0]
