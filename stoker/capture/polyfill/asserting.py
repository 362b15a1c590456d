"""Functions of torch that are statements of Python."""

from __future__ import annotations


def assert_(condition, message):
    """`torch._assert`."""
    if not condition:
        raise AssertionError(message)
