"""The one way out of tracing."""

from __future__ import annotations


class CannotTrace(RuntimeError):
    """The program does what a functional graph cannot express; it must run as it was captured."""
