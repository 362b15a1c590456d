"""Marks on user code: who asks whether it is being captured, and what goes into graphs unseen."""

from __future__ import annotations

from typing import Any

ALLOWED_IN_GRAPH: dict[int, Any] = {}
"""Functions the user declared to be single nodes, by id: users' objects are not asked whether they are equal."""

APPLIED = "_stoker_applied"
"""The attribute of a node's target that applies an autograd function of the user's: that function."""


def is_compiling() -> bool:
    """True in code that is being captured, False when it runs in Python."""
    return False
