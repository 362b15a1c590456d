"""Marks on user code: who asks whether it is being captured."""

from __future__ import annotations


def is_compiling() -> bool:
    """True in code that is being captured, False when it runs in Python."""
    return False
