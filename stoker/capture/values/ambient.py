"""What belongs to the thread or the context that runs the program: `threading.local` and `contextvars.ContextVar`.

Both are asked anew before each run. What captured code leaves in a variable is set behind the graph; a token that outlives the
captured code needs a variable that was really set: the break is before the instruction that set it.
"""

from __future__ import annotations

import contextvars
import threading
from typing import TYPE_CHECKING, Any

from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import InstanceValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.value import Arguments, Keywords, Value
from stoker.errors import Break, StepBreak
from stoker.guard.guard import Is
from stoker.guard.source import Asked, Attribute, Source

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine


class ThreadLocalValue(InstanceValue):
    """A threading.local: its dictionary is another in each thread. One that captured code made keeps what it was made with: in each
    other thread, it is initialized anew."""

    made_with: tuple[Arguments, Keywords] = ([], {})

    def emit_empty(self, e: Emitter) -> None:
        args, kwargs = self.made_with
        e.call_function(threading.local.__new__, [Constant(self.cls), *args], kwargs)

    def attributes(self, m: Machine) -> DictValue | None:
        if self._attributes is None and self.source is None:
            self._attributes = DictValue()
        elif self._attributes is None:
            assert self.source is not None
            self._attributes = m.wrap.dictionary(self.real.__dict__, Attribute(self.source, "__dict__"))
            self._attributes.owner = self.cls
        return self._attributes


class _Unset:
    pass


UNSET = _Unset()


def _content(variable: contextvars.ContextVar) -> Any:
    return variable.get(UNSET)


def _default(variable: contextvars.ContextVar) -> Any:
    """What it gives where it is not set; UNSET if it has no default."""
    try:
        return contextvars.Context().run(variable.get)
    except LookupError:
        return UNSET


class VariableValue(Value):
    """A ContextVar."""

    def __init__(self, m: Machine, real: contextvars.ContextVar, source: Source) -> None:
        self.real, self.source = real, source
        self.before = self.current = self.looked_at(m, _content)
        self.missing = self.looked_at(m, _default)

    def looked_at(self, m: Machine, question: Any) -> Value | None:
        assert self.source is not None
        answer, place = question(self.real), Asked(self.source, question)
        if answer is UNSET:
            m.guards.add(place, Is(UNSET))
            return None
        return m.wrap.at(answer, place)

    def python_type(self) -> type:
        return contextvars.ContextVar

    def truth(self, m: Machine) -> bool:
        return True

    def attribute(self, m: Machine, name: str) -> Value:
        return Constant(self.real.name) if name == "name" else m.attributes.builtin(self, name)

    def method_get(self, m: Machine, *default: Value) -> Value:
        found = self.current or (default[0] if default else self.missing)
        if found is None:
            m.exceptions.raise_(LookupError, self)
        return found

    def method_set(self, m: Machine, value: Value) -> Value:
        m.effects.will_mutate(self)
        token = TokenValue(self, self.current, m.step)
        self.current = value
        return token

    def method_reset(self, m: Machine, token: Value) -> Value:
        if not isinstance(token, TokenValue) or token.variable is not self or token.used:
            raise Break("ContextVar.reset()", "its token was made before the call, or is used a second time")
        token.used, self.current = True, token.before
        return Constant(None)

    def write_back(self, e: Emitter) -> None:
        if self.current is not self.before:
            assert self.current is not None
            e.method_call(self, contextvars.ContextVar.set, [self.current])


class TokenValue(Value):
    """What a variable was before captured code set it."""

    def __init__(self, variable: VariableValue, before: Value | None, step: int) -> None:
        self.variable, self.before, self.step = variable, before, step
        self.used = False

    def python_type(self) -> type:
        return contextvars.Token

    def truth(self, m: Machine) -> bool:
        return True

    def attribute(self, m: Machine, name: str) -> Value:
        match name:
            case "var":
                return self.variable
            case "old_value":
                return self.before or m.wrap.object(contextvars.Token.MISSING)
        return super().attribute(m, name)

    def emit(self, e: Emitter) -> None:
        reason = Break("ContextVar.set()", f"the token of {self.variable.describe()} outlives the captured code")
        e.m.blame(reason)
        raise StepBreak(self.step, reason)
