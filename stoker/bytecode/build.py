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
from .versions import DOCSTRING_FLAG, HAS_CALL_KW, HAS_FAST_CHECK, HAS_PRECALL, NULL_BEFORE_CALLABLE

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


def store_deref(name: str) -> Code:
    """Pop into a cell."""
    return [Instruction("STORE_DEREF", name)]


def delete_deref(name: str) -> Code:
    """Empty a cell."""
    return [Instruction("DELETE_DEREF", name)]


def load_closure(name: str) -> Code:
    """Push the cell itself."""
    return [Instruction("LOAD_CLOSURE", name)]


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


def rotate(depth: int) -> Code:
    """Move the top down to a depth; what lay above moves up one, in order."""
    return [Instruction("SWAP", place) for place in range(depth, 1, -1)]


# Containers.


def build_tuple(count: int) -> Code:
    """[a, b, ...] to [(a, b, ...)]."""
    return [Instruction("BUILD_TUPLE", count)]


def unpack_sequence(count: int) -> Code:
    """[(a, b, ...)] to [..., b, a]: the first item ends on top."""
    return [Instruction("UNPACK_SEQUENCE", count)]


# Control.


def jump(target: Instruction) -> Code:
    """Go on at the target."""
    return [Instruction("JUMP", target)]


def return_value() -> Code:
    """Return the top."""
    return [Instruction("RETURN_VALUE")]


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
    null = [Instruction("PUSH_NULL"), *rotate(2 + NULL_BEFORE_CALLABLE)]
    return [*build_tuple(count), *null, Instruction("CALL_FUNCTION_EX", 0)]


def _with_null(callable: Code) -> Code:
    null = Instruction("PUSH_NULL")
    return [null, *callable] if NULL_BEFORE_CALLABLE else [*callable, null]


def _call(count: int, names: tuple[str, ...]) -> Code:
    if names and HAS_CALL_KW:
        return [*load_const(names), Instruction("CALL_KW", count)]
    keywords = [Instruction("KW_NAMES", names)] if names else []
    precall = [Instruction("PRECALL", count)] if HAS_PRECALL else []
    return [*keywords, *precall, Instruction("CALL", count)]


_IS_GENERATOR = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


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
