"""Functions of torch that warn about their arguments: instead of warning while they run on fakes, they tell capture that they would.

In:  a Python function of torch that is one node of a graph.
Out: the same function in surroundings of its own, where `warnings` is another module: it raises `Warns`, and is entered instead, so that
     the warning is the program's, with the line and as often as in eager.

Nothing that others see is replaced: other threads may warn meanwhile.
"""

from __future__ import annotations

import functools
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

from stoker.errors import Break

WARNING = ("torch.nn._reduction", "torch.nn.functional", "torch.functional")
"""Modules of torch whose functions warn. Names of one in another are those of its copy."""


class Warns(Break):
    """A function warns of the arguments it is given."""


def _warn(message: Any, *_: Any, **__: Any) -> None:
    raise Warns("a function of torch", f"it warns: {message}", "do as it says")


@functools.cache
def _copies() -> dict[str, dict[str, Any]]:
    """The globals of each module, with a copy of each of its functions."""
    telling: Any = types.SimpleNamespace(**{**vars(warnings), "warn": _warn})
    copies: dict[str, dict[str, Any]] = {}
    for name in WARNING:
        own = vars(sys.modules[name])
        copied = copies[name] = {**own, "warnings": telling}
        for key, value in own.items():
            if isinstance(value, types.FunctionType) and value.__globals__ is own:
                copied[key] = _with_globals(value, copied)
            elif isinstance(value, types.ModuleType) and value.__name__ in copies:
                copied[key] = types.SimpleNamespace(**copies[value.__name__])
    return copies


def _with_globals(function: types.FunctionType, surroundings: dict[str, Any]) -> types.FunctionType:
    made = types.FunctionType(
        function.__code__, surroundings, function.__name__, function.__defaults__, function.__closure__
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def telling(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that raises `Warns` where this one warns; itself where it is not one of those."""
    if not isinstance(function, types.FunctionType) or function.__module__ not in WARNING:
        return function
    found = _copies()[function.__module__].get(function.__name__)
    return found if isinstance(found, types.FunctionType) and found.__code__ is function.__code__ else function
