"""Operators that stay library calls although they could be taken apart: the library's kernel is better."""

from __future__ import annotations

from stoker.lower.registry import find

_NAMES = """
embedding_dense_backward.default
"""
LIBRARY = frozenset(operator for name in _NAMES.split() if (operator := find(name)) is not None)
