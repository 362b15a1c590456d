"""Generators that leave the captured code: a real generator, suspended where the symbolic one is.

In:  a GeneratorValue.
Out: code that makes it. One that has not started is a call of its function. One in the middle is a generator function
made from the rest of its code, whose first `next()` only restores the stack and waits at the place of the original
`yield`: what is sent or thrown there then goes where it would have gone.
"""

from __future__ import annotations

import dataclasses
import inspect
import types
from typing import TYPE_CHECKING, Any

from stoker.bytecode import Code, Instruction, build, encode_entered
from stoker.capture.machine import Emitting
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import cell_of
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Null, Value
from stoker.errors import Break

if TYPE_CHECKING:
    from stoker.capture.frame import Frame
    from stoker.capture.values.iterator import GeneratorValue


def emit_generator(e: Emitting, generator: GeneratorValue) -> None:
    """Push a real generator that continues the symbolic one."""
    if generator.finished:
        e.call_function(_finished, [])
    elif generator.started:
        _emit_suspended(e, generator)
    else:
        _emit_pending(e, generator.frame)


def _nothing() -> Any:
    yield from ()


def _finished() -> Any:
    made = _nothing()
    made.close()
    return made


def _function(e: Emitting, frame: Frame, code: types.CodeType, names: tuple[str, ...]) -> Code:
    """The code that makes a function of `code` in the frame's globals, with the frame's cells under these names."""
    cells = TupleValue([cell_of(frame, name) for name in names]) if names else Constant(None)
    parts = [Constant(code), frame.globals, Constant(code.co_name), Constant(None), cells]
    return build.call(build.load_const(types.FunctionType), *(e.detached(part) for part in parts))


def _emit_pending(e: Emitting, frame: Frame) -> None:
    code = frame.code
    count, slot = code.co_argcount, code.co_argcount + code.co_kwonlyargcount
    args = [frame.locals[name] for name in code.co_varnames[:count]]
    kwargs = {name: frame.locals[name] for name in code.co_varnames[count:slot]}
    if code.co_flags & inspect.CO_VARARGS:
        variadic = frame.locals[code.co_varnames[slot]]
        assert isinstance(variadic, TupleValue)
        args += variadic.raw_elements()
        slot += 1
    if code.co_flags & inspect.CO_VARKEYWORDS:
        rest = frame.locals[code.co_varnames[slot]]
        assert isinstance(rest, DictValue)
        kwargs |= {key.constant(): value for key, value in rest._entries.values()}
    function = _function(e, frame, code, code.co_freevars)
    named = {name: e.detached(value) for name, value in kwargs.items()}
    e.code += build.call(function, *(e.detached(value) for value in args), kwargs=named or None)


def _emit_suspended(e: Emitting, generator: GeneratorValue) -> None:
    frame = generator.frame
    if frame.handled:
        raise Break(
            "a live generator",
            f"generator `{frame.code.co_qualname}` waits inside an exception handler and would have to leave the graph",
            "finish the generator before the graph break, or turn it into a list",
        )
    program = frame.program
    live = tuple(sorted(name for name in program.live_locals[frame.position] if name in frame.locals))
    stack = [value for value in frame.stack if not isinstance(value, Null)]
    code = _suspended_code(frame, live)
    function = _function(e, frame, code, code.co_freevars)
    arguments: list[Value] = [*stack, *(frame.locals[name] for name in live)]
    e.code += build.call(build.load_const(_start), build.call(function, *(e.detached(value) for value in arguments)))


def _start(made: Any) -> Any:
    next(made)
    return made


def _suspended_code(frame: Frame, live: tuple[str, ...]) -> types.CodeType:
    program, original = frame.program, frame.code
    position = frame.position
    waiting, target = program.instructions[position - 1], program.instructions[position]
    names = [f"__stack_{index}" for index, value in enumerate(frame.stack) if not isinstance(value, Null)]
    freevars = (*original.co_cellvars, *original.co_freevars)
    opening = build.open_frame((), freevars, generator=True)
    remaining = iter(names)
    restore: Code = []
    for value in frame.stack:
        restore += [Instruction("PUSH_NULL")] if isinstance(value, Null) else build.load_fast(next(remaining))
    wait = [
        *build.load_const(None),
        dataclasses.replace(waiting, offset=None),
        Instruction("RESUME", target.value, handler=waiting.handler),
    ]
    prefix = [*opening, *restore, *wait, Instruction("JUMP", target)]
    for instruction in prefix:
        instruction.positions = waiting.positions
    return encode_entered([*prefix, *program.instructions], original, (*names, *live), freevars)
