"""eval, exec and compile of text that is known: the code made of it is entered, with the names it may see."""

from __future__ import annotations
import __future__

import builtins
import types
from typing import Any

from stoker.capture.frame import Frame, program_of
from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.value import Value
from stoker.errors import Break

NONE = Constant(None)
BUILTINS = Constant("__builtins__")
FEATURES = 0
for _name in __future__.all_feature_names:
    FEATURES |= getattr(__future__, _name).compiler_flag


@handles(compile)
def compile_(
    m: Machine,
    source: Value,
    filename: Value,
    mode: Value,
    flags: Value = Constant(0),  # noqa: B008
    dont_inherit: Value = Constant(False),  # noqa: B008
    optimize: Value = Constant(-1),  # noqa: B008
) -> Value:
    text, file, kind, wanted, alone, level = (
        m.concrete.constant(part, "compile()") for part in (source, filename, mode, flags, dont_inherit, optimize)
    )
    inherited = 0 if alone else _features(m)
    made = m.concrete.run(lambda: compile(text, file, kind, wanted | inherited, True, level))
    if not isinstance(made, types.CodeType):
        raise Break("compile()", f"it gives a {type(made).__qualname__}")
    return Constant(made)


@handles(eval)
def eval_(m: Machine, source: Value, globals: Value = NONE, locals: Value = NONE, /) -> Value:
    code = _code(m, source, "eval")
    if _is_none(globals) and _is_none(locals):
        return _run(m, code, m.current.globals, _visible(m, m.current))
    return _run(m, code, *_namespaces(m, globals, locals))


@handles(exec)
def exec_(m: Machine, source: Value, globals: Value = NONE, locals: Value = NONE, /) -> Value:
    if _is_none(globals) and _is_none(locals):
        raise Break("exec()", "it may change the variables of the function that calls it", "give it a dictionary")
    _run(m, _code(m, source, "exec"), *_namespaces(m, globals, locals))
    return NONE


def _code(m: Machine, source: Value, mode: str) -> types.CodeType:
    text = m.concrete.constant(source, f"{mode}()")
    if isinstance(text, str):
        text = text.lstrip(" \t") if mode == "eval" else text
        text = m.concrete.run(lambda: compile(text, "<string>", mode, _features(m), True))
    if not isinstance(text, types.CodeType) or text.co_freevars:
        raise Break(f"{mode}()", f"it is given a {type(text).__qualname__}, or code with free variables")
    return text


def _features(m: Machine) -> int:
    """What the calling code imported from `__future__` holds in the code it compiles, too."""
    return m.current.code.co_flags & FEATURES


def _namespaces(m: Machine, globals_: Value, locals_: Value) -> tuple[DictValue, DictValue]:
    outer = m.current.globals if _is_none(globals_) else globals_
    inner = outer if _is_none(locals_) else locals_
    if not (isinstance(outer, DictValue) and isinstance(inner, DictValue) and outer.cls is inner.cls is dict):
        raise Break("eval() and exec()", "their namespaces are not plain dictionaries")
    given = outer.lookup(m, BUILTINS)
    if given is None:
        outer.store(m, BUILTINS, m.wrap.object(vars(builtins)))
    elif getattr(given, "real", None) not in (builtins, vars(builtins)):
        raise Break("eval() and exec()", "they are given built-in functions of their own")
    return outer, inner


def _visible(m: Machine, frame: Frame) -> DictValue:
    """The variables of a frame, as `locals()` has them."""
    found: dict[str, Any] = dict(frame.locals)
    found |= {name: cell.get(m) for name, cell in frame.cells.items()}
    return DictValue({name: (Constant(name), value) for name, value in found.items() if value is not None})


def _run(m: Machine, code: types.CodeType, globals_: DictValue, names: DictValue) -> Value:
    frame = Frame(program_of(code), globals_, m.current)
    frame.names = names
    return m.calls.run(frame)


def _is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is None
