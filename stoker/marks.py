"""Marks on user code: who asks whether it is being captured, and what goes into graphs unseen."""

from __future__ import annotations

import weakref
from typing import Any, NamedTuple

ALLOWED_IN_GRAPH: dict[int, Any] = {}
"""Functions the user declared to be single nodes, by id: users' objects are not asked whether they are equal."""

APPLIED = "_stoker_applied"
"""The attribute of a node's target that applies an autograd function of the user's: that function."""

DISABLED_BECAUSE: weakref.WeakKeyDictionary[Any, str] = weakref.WeakKeyDictionary()
"""Why functions are disabled, where the user has said it."""

SIZE_RANGES = "_dynamo_dynamic_range"
"""The attribute of a tensor that holds a set of them, as torch's own marks have it."""


class SizeRange(NamedTuple):
    """What a size is known to be, by the user's word."""

    dim: int
    min: int | None
    max: int | None


def why_disabled(function: Any) -> str:
    """Why a disabled function is not part of a graph, in words."""
    words = "it is marked as not to be compiled"
    because = DISABLED_BECAUSE.get(function)
    return words if because is None else f"{words}: {because}"


def is_compiling() -> bool:
    """True in code that is being captured, False when it runs in Python."""
    return False
