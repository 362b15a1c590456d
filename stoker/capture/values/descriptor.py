"""What an object of a Python subclass of `property` holds in its built-in part."""

from __future__ import annotations

from stoker.capture.machine import Emitting
from stoker.capture.values.constant import Constant
from stoker.capture.values.value import Value

NONE = Constant(None)
FIELDS = ("fget", "fset", "fdel", "__doc__")


class PropertyFields(Value):
    """The functions that read, write and delete, and a docstring."""

    def __init__(self) -> None:
        self.fields: dict[str, Value] = dict.fromkeys(FIELDS, NONE)

    def python_type(self) -> type:
        return property

    def fill(self, e: Emitting) -> None:
        e.method_call(self, property.__init__, list(self.fields.values()))
