"""Functions of torch that warn about their arguments: instead of warning while they run on fakes, they tell capture that they would.

In:  a Python function of torch that is one node of a graph; or an operator, on fakes.
Out: the same function in surroundings of its own, where `warnings` is another module: it raises `Warns`, and is entered instead, so that
     the warning is the program's, with the line and as often as in eager. An operator that warns at each call, but not in a kernel of
     ours, raises `Warns`, too: nothing can be entered, and the graph breaks.

Nothing that others see is replaced: other threads may warn meanwhile.
"""

from __future__ import annotations

import functools
import math
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from stoker.errors import Break
from stoker.fake import FakeMode
from stoker.fake.tensor import DataDependent

WARNING = ("torch.nn._reduction", "torch.nn.functional", "torch.functional")
"""Modules of torch whose functions warn. Names of one in another are those of its copy."""


class Warns(Break):
    """A function warns of the arguments it is given."""


def _warn(message: Any, *_: Any, **__: Any) -> None:
    raise Warns("a function of torch", f"it warns: {message}", "do as it says")


class TellingMode(FakeMode):
    """Fakes of a capture: operators that would warn of what they are given raise `Warns`."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in SPREADS and _spreads_too_few(*args, **(kwargs or {})):
            raise Warns(
                f"`{func.overloadpacket.__name__}`", "it warns: degrees of freedom is <= 0", "give it more elements"
            )
        if func in INDEXES and any(isinstance(i, torch.Tensor) and i.dtype is torch.uint8 for i in args[1]):
            raise Warns("an index of bytes", "it warns: indexing with uint8 is deprecated", "use a mask of bools")
        out: Any = (kwargs or {}).get("out")
        had = out.shape if isinstance(out, torch.Tensor) else ()
        made = super().__torch_dispatch__(func, types, args, kwargs)
        if had and 0 not in had and out.shape != had:
            raise Warns("`out=`", "it warns: a tensor that has elements is resized", "give it one of the right size")
        return made

    def written_late(self) -> None:
        if not self.is_capturing:
            return
        raise Break(
            "a write to a tensor of inference mode", "eager refuses it outside of that mode", "write to a clone of it"
        )


INDEXES = frozenset({torch.ops.aten.index.Tensor, torch.ops.aten.index_put.default, torch.ops.aten.index_put_.default})
SPREADS = frozenset(getattr(torch.ops.aten, name).correction for name in ("var", "std", "var_mean", "std_mean"))


def _spreads_too_few(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> bool:
    """Is a spread found of no more elements than its correction?"""
    rank = x.dim()
    chosen = {d % rank for d in ((dim,) if isinstance(dim, int) else dim or ())} if rank else set()
    reduced = [x.shape[d] for d in chosen or range(rank)]
    kept = [x.shape[d] for d in range(rank) if chosen and d not in chosen]
    try:
        return bool(math.prod(reduced) <= (1 if correction is None else correction) or 0 in kept)
    except DataDependent:  # eager warns, or not, when the size is known
        return False


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
