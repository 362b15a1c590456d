"""operator.itemgetter, attrgetter and methodcaller."""

from __future__ import annotations

import operator
from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Arguments, IdentityKey, Keywords, Value
from stoker.guard.source import Source


class GetterValue(Value):
    """A function that takes something out of its argument."""

    def __init__(self, kind: type, args: Arguments, kwargs: Keywords, source: Source | None = None) -> None:
        self.kind, self.args, self.kwargs, self.source = kind, args, kwargs, source

    def python_type(self) -> type:
        return self.kind

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        (subject,) = args
        if self.kind is operator.methodcaller:
            name = m.concrete.constant(self.args[0], "a method name")
            return subject.attribute(m, name).call(m, self.args[1:], self.kwargs)
        found = [self.get(m, subject, key) for key in self.args]
        return found[0] if len(found) == 1 else TupleValue(found)

    def get(self, m: Machine, subject: Value, key: Value) -> Value:
        if self.kind is operator.itemgetter:
            return m.operators.item(subject, key)
        for name in m.concrete.constant(key, "an attribute name").split("."):
            subject = subject.attribute(m, name)
        return subject

    def hash_key(self, m: Machine) -> Any:
        return IdentityKey(self)

    def emit(self, e: Emitting) -> None:
        e.call_function(self.kind, self.args, self.kwargs)
