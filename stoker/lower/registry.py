"""The table of lowerings: operator to a function that says how its result is computed.

A lowering is called with the builder, the metadata of its result, and the operator's own arguments, where tensors are
`stoker.loop.view` tensors and symbolic sizes are expressions. It returns tensors, or raises `LeftToLibrary` for arguments it leaves
to the library.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import isfunction
from typing import Any, TypeAlias

from stoker.decompose.registry import find
from stoker.loop.layout import Layout
from stoker.loop.view import Tensor
from stoker.shape.expr import Expr

Lowering = Callable[..., Any]

Operand: TypeAlias = Tensor | Expr | int | float
"""What an elementwise operator may be given; a bool is an int."""
Size: TypeAlias = int | Expr
Dims: TypeAlias = Sequence[int] | int | None
Numbers: TypeAlias = Sequence[Size] | Size
"""One for each dimension, or one for all."""
Bound: TypeAlias = Size | None
"""Where something begins or ends, if that is said."""

LOWERINGS: dict[Any, Lowering] = {}
"""Filled by the families of this package."""


class CannotLower(Exception):
    """The graph holds something that a program cannot express. The reason is for the user."""


class LeftToLibrary(Exception):
    """These arguments are better served by the library; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def leave_if(other_case: Any, reason: str) -> None:
    """Leave arguments of which this holds to the library."""
    if other_case:
        raise LeftToLibrary(reason)


Result = Layout
"""What is known of a result: eager's type, device, sizes and strides."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What a lowering may know of the place it is used at."""

    operator: Any = None
    operands: Any = ()
    """The operator's own arguments, as fake tensors, for type promotion."""
    used_in_loops: bool = False
    """Is every use of the operator's result by an operator that becomes loops?"""
    returned: bool = False
    """Does the graph give back the operator's result, or a view of it?"""
    unread: frozenset[int] = frozenset()
    """Which of the operator's results nobody reads, if it has several."""
    outside: frozenset[int] = frozenset()
    """Which of the operator's arguments lie in memory of an input or a constant, in eager."""

    @property
    def origin(self) -> str:
        """The operator's name, for the nodes that its lowering makes."""
        return str(getattr(self.operator, "__name__", "")) if isfunction(self.operator) else str(self.operator or "")


CALLS: set[Any] = set()
"""Operators whose lowering prepares a library call: they read memory, not loops."""


def lower(*names: str, calls: bool = False, **variant: Any) -> Callable[[Lowering], Lowering]:
    """Register a lowering for "name.overload"s of ATen; one that `calls` ends in a library call.

    What tells one operator of a family from another is given to the function as keywords: the `variant`.
    """

    def register(function: Lowering) -> Lowering:
        for name in names:
            if (operator := find(name)) is not None:
                LOWERINGS[operator] = functools.partial(function, **variant) if variant else function
                if calls:
                    CALLS.add(operator)
        return function

    return register
