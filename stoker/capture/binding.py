"""Parameters to arguments, by CPython's rules and with its words (Python/ceval.c, initialize_locals).

In:  a Python function and the Values it is called with.
Out: its parameters by name, or the TypeError that CPython raises (tests/unit/capture/test_binding.py).
"""

from __future__ import annotations

import inspect

from stoker.capture.machine import Machine, PythonFunction
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Arguments, Keywords, Value


def bind_arguments(m: Machine, function: PythonFunction, args: Arguments, kwargs: Keywords) -> dict[str, Value]:
    """Parameters to values, by CPython's rules."""
    code = function.code
    names = code.co_varnames
    positional, keyword_only = code.co_argcount, code.co_kwonlyargcount
    bound: dict[str, Value] = dict(zip(names[:positional], args))
    slot = positional + keyword_only
    extra = args[positional:]
    if code.co_flags & inspect.CO_VARARGS:
        bound[names[slot]] = TupleValue(list(extra))
        slot += 1
    rest: Keywords = {}
    by_keyword = set(names[code.co_posonlyargcount : positional + keyword_only])
    for name, value in kwargs.items():
        if name in by_keyword and name in bound:
            m.exceptions.raise_(TypeError, f"{_qualname(function)}() got multiple values for argument '{name}'")
        if name in by_keyword:
            bound[name] = value
        elif code.co_flags & inspect.CO_VARKEYWORDS:
            rest[name] = value
        else:
            m.exceptions.raise_(TypeError, _unexpected(function, name, kwargs))
    if extra and not code.co_flags & inspect.CO_VARARGS:
        given = sum(name in kwargs for name in names[positional : positional + keyword_only])
        m.exceptions.raise_(TypeError, too_many(m, function, len(args), given))
    if code.co_flags & inspect.CO_VARKEYWORDS:
        bound[names[slot]] = DictValue({name: (Constant(name), value) for name, value in rest.items()})
    fill_defaults(m, function, bound)
    return bound


def fill_defaults(m: Machine, function: PythonFunction, bound: dict[str, Value]) -> None:
    code = function.code
    names = code.co_varnames
    missing: list[str] = []
    absent = [index for index in range(code.co_argcount) if names[index] not in bound]
    if absent:
        defaults = function.defaults(m)
        first = code.co_argcount - len(defaults)
        for index in absent:
            if index < first:
                missing.append(names[index])
            else:
                bound[names[index]] = m.wrap.force(defaults[index - first])
    if missing:
        m.exceptions.raise_(TypeError, _missing(function, missing, "positional"))
    for name in names[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]:
        if name not in bound:
            default = function.keyword_default(m, name)
            if default is None:
                missing.append(name)
            else:
                bound[name] = default
    if missing:
        m.exceptions.raise_(TypeError, _missing(function, missing, "keyword-only"))


def too_many(m: Machine, function: PythonFunction, given: int, by_keyword: int) -> str:
    most = function.code.co_argcount
    least = most - len(function.defaults(m))
    takes = f"from {least} to {most}" if least != most else str(most)
    plural = "" if takes == "1" else "s"
    verb = "was" if given == 1 and not by_keyword else "were"
    if by_keyword:
        also = f"(and {by_keyword} keyword-only argument{'s' if by_keyword != 1 else ''})"
        verb = f"positional argument{'s' if given != 1 else ''} {also} {verb}"
    return f"{_qualname(function)}() takes {takes} positional argument{plural} but {given} {verb} given"


def _unexpected(function: PythonFunction, name: str, kwargs: Keywords) -> str:
    wrong = [only for only in function.code.co_varnames[: function.code.co_posonlyargcount] if only in kwargs]
    if wrong:
        words = "got some positional-only arguments passed as keyword arguments"
        return f"{_qualname(function)}() {words}: '{', '.join(wrong)}'"
    return f"{_qualname(function)}() got an unexpected keyword argument '{name}'"


def _qualname(function: PythonFunction) -> str:
    return function.real.__qualname__ if function.real is not None else function.code.co_qualname


def _missing(function: PythonFunction, names: list[str], kind: str) -> str:
    quoted = [f"'{name}'" for name in names]
    listed = (
        quoted[0]
        if len(quoted) == 1
        else " and ".join([", ".join(quoted[:-1]) + ("," if len(quoted) > 2 else ""), quoted[-1]])
    )
    plural = "s" if len(names) > 1 else ""
    return f"{_qualname(function)}() missing {len(names)} required {kind} argument{plural}: {listed}"
