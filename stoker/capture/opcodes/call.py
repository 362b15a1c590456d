"""Calls and function objects."""

from __future__ import annotations

import builtins

from stoker.bytecode import Instruction
from stoker.bytecode.versions import NULL_BEFORE_CALLABLE
from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.opcodes.container import callee_text
from stoker.capture.opcodes.exception import PREP_RERAISE_STAR as raise_rest
from stoker.capture.operators import is_iterable
from stoker.capture.values.function import CellValue, FunctionValue
from stoker.capture.values.mapping import pairs_of
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Null, Value
from stoker.errors import Break


def _callee(f: Frame) -> tuple[Value, list[Value]]:
    """Pop the callable and its NULL or self, whichever way round this version keeps them."""
    upper, lower = f.pop(), f.pop()
    if NULL_BEFORE_CALLABLE:
        return (upper, []) if isinstance(lower, Null) else (lower, [upper])
    return (lower, []) if isinstance(upper, Null) else (lower, [upper])


def CALL(m: Machine, f: Frame, i: Instruction) -> None:
    names, f.keyword_names = f.keyword_names, ()
    values = f.pop_many(i.value)
    function, first = _callee(f)
    split = len(values) - len(names)
    f.push(function.call(m, [*first, *values[:split]], dict(zip(names, values[split:]))))


def KW_NAMES(m: Machine, f: Frame, i: Instruction) -> None:
    f.keyword_names = i.value


def CALL_KW(m: Machine, f: Frame, i: Instruction) -> None:
    f.keyword_names = m.concrete.constant(f.pop(), "a call")
    CALL(m, f, i)


def CALL_FUNCTION_EX(m: Machine, f: Frame, i: Instruction) -> None:
    keywords = f.pop() if i.value & 1 else None
    arguments = f.pop()
    if NULL_BEFORE_CALLABLE:
        function, _ = f.pop(), f.pop()
    else:
        _, function = f.pop(), f.pop()
    kwargs = {}
    cls = arguments.python_type()
    if not is_iterable(cls):
        words = f"argument after * must be an iterable, not {cls.__name__}"
        m.exceptions.raise_(TypeError, f"{callee_text(m, function)} {words}")
    if keywords is not None:
        for key, value in pairs_of(m, keywords):
            name = m.concrete.constant(key, "a keyword")
            if not isinstance(name, str):
                m.exceptions.raise_(TypeError, "keywords must be strings")
            kwargs[name] = value
    f.push(function.call(m, arguments.items_list(m), kwargs))


def MAKE_FUNCTION(m: Machine, f: Frame, i: Instruction) -> None:
    code = m.concrete.constant(f.pop(), "a function definition")
    flags = i.value or 0
    closure = _cells(m, f.pop()) if flags & 8 else []
    annotations = f.pop() if flags & 4 else None
    keyword_defaults = {k.constant(): v for k, v in pairs_of(m, f.pop())} if flags & 2 else {}
    defaults = f.pop().items_list(m) if flags & 1 else []
    f.push(
        FunctionValue(
            code,
            f.globals,
            defaults=defaults,
            keyword_defaults=keyword_defaults,
            closure=closure,
            annotations=annotations,
        )
    )


def _cells(m: Machine, closure: Value) -> list[CellValue]:
    return [cell for cell in closure.items_list(m) if isinstance(cell, CellValue)]


def SET_FUNCTION_ATTRIBUTE(m: Machine, f: Frame, i: Instruction) -> None:
    function, value = f.pop(), f.pop()
    assert isinstance(function, FunctionValue)
    match i.value:
        case 8:
            function._closure = _cells(m, value)
        case 4:
            function.annotations = value
        case 2:
            function.keyword_table = value
        case 1:
            function._defaults = value.items_list(m)
    f.push(function)


def LOAD_BUILD_CLASS(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.wrap.object(builtins.__build_class__))


def LOAD_ASSERTION_ERROR(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.wrap.object(AssertionError))


def CALL_INTRINSIC_1(m: Machine, f: Frame, i: Instruction) -> None:
    match i.value:
        case 3:  # INTRINSIC_STOPITERATION_ERROR
            f.push(m.exceptions.of_generator(f.pop()))
        case 5:  # INTRINSIC_UNARY_POSITIVE
            f.push(m.operators.unary("+", f.pop()))
        case 6:  # INTRINSIC_LIST_TO_TUPLE
            f.push(TupleValue(f.pop().items_list(m)))
        case _:
            raise Break(f"intrinsic {i.value}", "it belongs to async code, type parameters or `import *`")


def CALL_INTRINSIC_2(m: Machine, f: Frame, i: Instruction) -> None:
    if i.value != 1:  # INTRINSIC_PREP_RERAISE_STAR
        raise Break(f"intrinsic {i.value}", "it belongs to type parameters")
    raise_rest(m, f, i)
