"""What belongs to the thread or the context that runs the program: `threading.local`, and variables and contexts of `contextvars`.

All are asked anew before each run. What captured code leaves in a variable is set behind the graph; a token that outlives the
captured code needs a variable that was really set: the break is before the instruction that set it. A context that captured code makes
differs from the one it runs in by variables that captured code has met.
"""

from __future__ import annotations

import contextvars
import threading
from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinValue
from stoker.capture.values.instance import InstanceValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.value import Arguments, Keywords, Value
from stoker.errors import Break, StepBreak
from stoker.guard.guard import Is
from stoker.guard.source import Asked, Attribute, Source


class ThreadLocalValue(InstanceValue):
    """A threading.local: its dictionary is another in each thread. One that captured code made keeps what it was made with: in each
    other thread, it is initialized anew."""

    made_with: tuple[Arguments, Keywords] = ([], {})

    def emit_empty(self, e: Emitting) -> None:
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

    def attribute(self, m: Machine, name: str) -> Value:
        return Constant(self.real.name) if name == "name" else m.attributes.builtin(self, name)

    def method_get(self, m: Machine, *default: Value) -> Value:
        found = self.current or (default[0] if default else self.missing)
        if found is None:
            m.exceptions.raise_(LookupError, self)
        return found

    def method_set(self, m: Machine, value: Value) -> Value:
        m.effects.will_mutate(self)
        token = TokenValue(self, self.current, m.step, m.modes.context)
        self.current = value
        return token

    def method_reset(self, m: Machine, token: Value) -> Value:
        if not isinstance(token, TokenValue) or token.variable is not self or token.used:
            raise Break("ContextVar.reset()", "its token was made before the call, or is used a second time")
        if token.context is not m.modes.context:
            raise Break("ContextVar.reset()", "its token was made in another context")
        token.used, self.current = True, token.before
        return Constant(None)

    def write_back(self, e: Emitting) -> None:
        if self.current is not self.before:
            assert self.current is not None
            e.method_call(self, contextvars.ContextVar.set, [self.current])


class TokenValue(Value):
    """What a variable was before captured code set it."""

    def __init__(self, variable: VariableValue, before: Value | None, step: int, context: ContextValue | None) -> None:
        self.variable, self.before, self.step, self.context = variable, before, step, context
        self.used = False

    def python_type(self) -> type:
        return contextvars.Token

    def attribute(self, m: Machine, name: str) -> Value:
        match name:
            case "var":
                return self.variable
            case "old_value":
                return self.before or m.wrap.object(contextvars.Token.MISSING)
        return super().attribute(m, name)

    def emit(self, e: Emitting) -> None:
        reason = Break("ContextVar.set()", f"the token of {self.variable.describe()} outlives the captured code")
        e.m.blame(reason)
        raise StepBreak(self.step, reason)


class ContextValue(Value):
    """A context that captured code made: what variables are in it, where that is not what they were before the call. `is_empty`: there, no
    variable is set but those."""

    def __init__(self, held: dict[VariableValue, Value | None], is_empty: bool = False) -> None:
        self.held, self.is_empty, self.is_entered = held, is_empty, False

    def python_type(self) -> type:
        return contextvars.Context

    def truth(self, m: Machine) -> bool:
        raise Break("the truth value of a context", "which variables are set outside is not known")

    def attribute(self, m: Machine, name: str) -> Value:
        return m.attributes.builtin(self, name)

    def content(self, variable: VariableValue) -> Value | None:
        return self.held.get(variable, None if self.is_empty else variable.before)

    def method_run(self, m: Machine, function: Value, *args: Value, **kwargs: Value) -> Value:
        if self.is_entered:
            raise Break("Context.run()", "the context is entered already")
        outside = {variable: variable.current for variable in variables(m)}
        for variable in outside:
            variable.current = self.content(variable)
        self.is_entered, m.modes.context, around = True, self, m.modes.context
        try:
            return function.call(m, list(args), kwargs)
        finally:
            self.is_entered, m.modes.context = False, around
            for variable in variables(m):
                self.held[variable] = variable.current
                variable.current = outside[variable] if variable in outside else self.first_met(variable, around)

    def first_met(self, variable: VariableValue, around: ContextValue | None) -> Value | None:
        """What a variable that was met inside is outside, where nobody has looked at it."""
        return around.content(variable) if around is not None else variable.before

    def method_copy(self, m: Machine) -> Value:
        return ContextValue(dict(self.held), self.is_empty)

    def method_get(self, m: Machine, variable: Value, default: Value = Constant(None)) -> Value:  # noqa: B008
        return self.content(_variable(m, variable)) or default

    def item(self, m: Machine, key: Value) -> Value:
        found = self.content(_variable(m, key))
        if found is None:
            m.exceptions.raise_(KeyError, key)
        return found

    def contains(self, m: Machine, item: Value) -> Value:
        return Constant(self.content(_variable(m, item)) is not None)

    def emit(self, e: Emitting) -> None:
        known = variables(e.m)
        if any(self.content(v) is None and (v.before or v.current) is not None for v in known) and not self.is_empty:
            self.unsupported("a context without a variable that is set outside")
        e.call_function(contextvars.Context if self.is_empty else contextvars.copy_context, [])
        e.name_top(self)
        for variable in known:
            content = self.content(variable)
            if content is not None and (
                self.is_empty or content is not variable.before or variable.current is not content
            ):
                e.load(self)
                e.call_method_on_top("run", [BuiltinValue(contextvars.ContextVar.set), variable, content])
                e.pop()


def variables(m: Machine) -> list[VariableValue]:
    """The variables that captured code has met."""
    return [value for value, _ in m.wrap.known.values() if isinstance(value, VariableValue)]


def _variable(m: Machine, key: Value) -> VariableValue:
    if not isinstance(key, VariableValue):
        m.exceptions.raise_(TypeError, f"a ContextVar key was expected, got {m.text.convert(key, 2).constant()}")
    return key
