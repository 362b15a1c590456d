"""Exception groups: exceptions that hold others."""

from __future__ import annotations

from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ExceptionValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Value
from stoker.guard.source import Attribute, Source


class GroupValue(ExceptionValue):
    """A group keeps its message and, as a tuple, the exceptions that it was made of, whatever becomes of `args`."""

    def __init__(
        self,
        cls: type,
        args: list[Value],
        members: list[Value] | None = None,
        source: Source | None = None,
        real: Any = None,
    ) -> None:
        super().__init__(cls, args, source, real)
        self.kept = {"message": args[0], "exceptions": TupleValue(members)} if members is not None else {}

    def emit_empty(self, e: Emitting) -> None:
        assert isinstance(self.storage, TupleValue)
        e.call_function(BaseExceptionGroup.__new__, [Constant(self.cls), *self.kept.values()])
        e.name_top(self)
        e.method_call(self, BaseException.__init__, self.storage.raw_elements())

    def own_attribute(self, m: Machine, name: str) -> Value | None:
        if name in ("message", "exceptions") and name not in self.kept:
            assert self.source is not None
            self.kept[name] = m.wrap.at(getattr(self.real, name), Attribute(self.source, name))
        return self.kept.get(name) or super().own_attribute(m, name)
