"""What functools.lru_cache keeps, looked at without being counted; and calls that leave a cache as the program's own would.

In:  a real cached function, and the arguments of a call.
Out: the result that its cache holds, or MISSING. The cache is found as the garbage collector finds it: `gc.get_referents` gives, in
     CPython 3.11 to 3.13, keys and results from the oldest to the newest where its size is bounded, then the dictionary.
"""

from __future__ import annotations

import functools
import gc
import itertools
import types
from collections.abc import Callable
from typing import Any

from stoker import _C

Cached = type(functools.lru_cache(int))
Arguments = tuple[Any, ...]
Named = dict[str, Any]
MISSING = object()
FOR_EACH = 3
"""Objects that an entry of a bounded cache shows: its key, its result and its type."""


def cache_parameters(cached: Any) -> dict[str, Any]:
    """How large a cache may become, and whether it tells types apart."""
    return dict(cached.cache_parameters())


def info_of(cached: Any) -> Any:
    return Cached.cache_info(cached)  # type: ignore[attr-defined]  # typeshed does not know the class


def hits_of(cached: Any) -> int:
    return int(info_of(cached).hits)


def misses_of(cached: Any) -> int:
    return int(info_of(cached).misses)


def size_of(cached: Any) -> int:
    return int(info_of(cached).currsize)


def _table_and_order(cached: Any) -> tuple[dict[Any, Any], list[Any]]:
    """The dictionary of a cache; and its keys from the oldest to the newest, where its size is bounded."""
    held, info = gc.get_referents(cached), info_of(cached)
    place = 1 + (FOR_EACH * info.currsize if info.maxsize else 0)
    return held[place], held[1:place:FOR_EACH]


def _find_mark() -> Any:
    """The object that stands between positional and named arguments in the keys of all caches."""
    probe = functools.lru_cache(maxsize=None)(lambda **named: None)
    probe(a=1)
    (key,) = _table_and_order(probe)[0]
    return key[0]


MARK = _find_mark()


def key_of(typed: bool, args: Arguments, named: Named) -> Any:
    """The key under which a cache keeps the result of a call (Modules/_functoolsmodule.c, lru_cache_make_key)."""
    if not named and not typed:
        return args[0] if len(args) == 1 and type(args[0]) in (int, str) else args
    marked = (MARK, *itertools.chain.from_iterable(named.items())) if named else ()
    types_of = (*map(type, args), *map(type, named.values())) if typed else ()
    return (*args, *marked, *types_of)


def find(cached: Any, typed: bool, args: Arguments, named: Named) -> Any:
    """The result that a cache holds for a call, or MISSING."""
    table, order = _table_and_order(cached)
    found = table.get(key_of(typed, args, named), MISSING)
    return _C.remembered(found) if order and found is not MISSING else found


def survives(cached: Any, typed: bool, newer: int, args: Arguments, named: Named) -> bool:
    """Does a cache still hold the result of a call once so many others were added, or used?"""
    info, (table, order) = info_of(cached), _table_and_order(cached)
    if info.maxsize is None or info.currsize + newer <= info.maxsize:
        return True
    entry = table[key_of(typed, args, named)]
    stored = next(key for key, held in table.items() if held is entry)
    age = next(index for index, key in enumerate(order) if key is stored)
    return age >= info.currsize + newer - info.maxsize


def code_behind(function: Any) -> types.CodeType | None:
    """The code that runs first when a wrapped function is called."""
    match function:
        case types.FunctionType():
            return function.__code__
        case types.MethodType():
            return code_behind(function.__func__)
        case functools.partial():
            return code_behind(function.func)
    return None


# What replacement code calls.


def call_again(cached: Callable[..., Any], args: Arguments, named: Named) -> None:
    """Count a call whose result the cache holds."""
    cached(*args, **named)


def fill(cached: Callable[..., Any], args: Arguments, named: Named, code: types.CodeType, result: Any) -> None:
    """Make a call whose result was computed already."""
    _C.call_answered(cached, args, named, code, result, False)


class Failed(Exception):
    """Stands for what the wrapped function raised."""


def fail(cached: Callable[..., Any], args: Arguments, named: Named, code: types.CodeType) -> None:
    """Make a call that raises, which a cache counts."""
    try:
        _C.call_answered(cached, args, named, code, Failed(), True)
    except Failed:
        return


class Again:
    """Counts calls whose result the cache holds, but for the first: capture has made that one itself."""

    def __init__(self, result: Any) -> None:
        self.identity, self.is_first = id(result), True

    def __call__(self, cached: Callable[..., Any], args: Arguments, named: Named) -> None:
        if not self.is_first:
            cached(*args, **named)
        self.is_first = False
