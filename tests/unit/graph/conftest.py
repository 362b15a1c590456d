"""The functional graphs of the passes' tests."""

from tests.unit.passes.conftest import functional, operators

__all__ = ["functional", "operators"]
