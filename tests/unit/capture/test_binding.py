"""Binding parameters: what CPython binds, and its words where it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def plain(a: Any, b: Any) -> Any:
    return a, b


def defaults(a: Any, b: Any = 2, c: Any = 3) -> Any:
    return a, b, c


def positional_only(a: Any, b: Any = 5, /, c: Any = 6) -> Any:
    return a, b, c


def keyword_only(a: Any, *, b: Any, c: Any = 7) -> Any:
    return a, b, c


def variadic(a: Any, *rest: Any, b: Any = 8, **named: Any) -> Any:
    return a, rest, b, sorted(named.items())


def swallow(first: Any, /, **named: Any) -> Any:
    return first, sorted(named.items())


FUNCTIONS = [plain, defaults, positional_only, keyword_only, variadic, swallow]
CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((), {}),
    ((1,), {}),
    ((1, 2), {}),
    ((1, 2, 3), {}),
    ((1, 2, 3, 4), {}),
    ((1,), {"b": 2}),
    ((1,), {"a": 2}),
    ((), {"a": 1, "b": 2}),
    ((1,), {"c": 3}),
    ((1, 2), {"c": 3}),
    ((1,), {"z": 9}),
    ((1, 2, 3, 4), {"b": 1}),
    ((), {"b": 1, "c": 2}),
    ((1,), {"first": 2}),
]


def outcome(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Callable[..., Any]:
    def call(x: Any) -> Any:
        try:
            return x + 1, function(*args, **kwargs)
        except TypeError as error:
            return x + 1, str(error)

    return call


@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.__name__)
def test_every_call(function: Callable[..., Any]) -> None:
    for args, kwargs in CALLS:
        call = outcome(function, args, kwargs)
        compiled = stoker.compile(call, backend="eager", fullgraph=True)
        assert compiled(torch.ones(2))[1] == call(torch.ones(2))[1], (args, kwargs)


def test_unpacked_arguments_of_values() -> None:
    def call(x: Any, xs: Any, named: Any) -> Any:
        return variadic(x, *xs, **named)

    compiled = stoker.compile(call, backend="eager", fullgraph=True)
    assert compiled(1, (2, 3), {"b": 4, "z": 5}) == call(1, (2, 3), {"b": 4, "z": 5})
