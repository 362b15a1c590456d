"""Raising, handling, and `with`."""

from __future__ import annotations

from stoker.bytecode import Instruction
from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.polyfill import groups
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ExceptionValue, PreviousException
from stoker.capture.values.sequence import SequenceValue
from stoker.capture.values.value import Value
from stoker.errors import Raised


def RAISE_VARARGS(m: Machine, f: Frame, i: Instruction) -> None:
    if i.value == 0:
        handled = m.exceptions.current()
        if handled is None:
            m.exceptions.raise_(RuntimeError, "No active exception to reraise")
        raise Raised(handled)
    cause = m.exceptions.as_cause(f.pop()) if i.value == 2 else None
    value = m.exceptions.as_exception(f.pop())
    if cause is not None and isinstance(value, ExceptionValue):
        value.link(m, "__cause__", cause)
        value.link(m, "__suppress_context__", Constant(True))
    if isinstance(value, ExceptionValue):
        handled = m.exceptions.current()
        if handled is not None:
            m.exceptions.set_context(value, handled)
        value.by_program = value.by_program or (value.source is None and not value.trail)
    raise Raised(value)


def PUSH_EXC_INFO(m: Machine, f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.push(PreviousException(f.handled[-1] if f.handled else None))
    f.push(value)
    f.handled.append(value)


def POP_EXCEPT(m: Machine, f: Frame, i: Instruction) -> None:
    f.pop()
    f.handled.pop()


def RERAISE(m: Machine, f: Frame, i: Instruction) -> None:
    raise Raised(f.pop())


def _matches(m: Machine, value: Value, pattern: Value) -> bool:
    if isinstance(pattern, SequenceValue):
        return any(_matches(m, value, part) for part in pattern.items_list(m))
    cls = m.concrete.constant(pattern, "an except clause")
    if not isinstance(cls, type) or not issubclass(cls, BaseException):
        m.exceptions.raise_(TypeError, "catching classes that do not inherit from BaseException is not allowed")
    return cls in value.python_type().__mro__  # whatever `__subclasscheck__` says


def CHECK_EXC_MATCH(m: Machine, f: Frame, i: Instruction) -> None:
    pattern = f.pop()
    f.push(Constant(_matches(m, f.stack[-1], pattern)))


def CHECK_EG_MATCH(m: Machine, f: Frame, i: Instruction) -> None:
    """Stack: what is left of the exception so far, the clause's classes. What is caught is what `raise` raises again."""
    rest, found = m.wrap.object(groups.caught).call(m, f.pop_many(2), {}).items_list(m)
    f.push(rest)
    f.push(found)
    if isinstance(found, ExceptionValue):
        f.handled[-1] = found


def PREP_RERAISE_STAR(m: Machine, f: Frame, i: Instruction) -> None:
    """Stack: the exception that `except*` clauses have looked at, a list of what they raised and of what they left."""
    f.push(m.wrap.object(groups.raised_at_end).call(m, f.pop_many(2), {}))


def BEFORE_WITH(m: Machine, f: Frame, i: Instruction) -> None:
    manager = m.operators.as_scope(f.pop())
    enter, leave = m.operators.context_method(manager, "__enter__"), m.operators.context_method(manager, "__exit__")
    f.push(leave)
    f.push(enter.call(m, [], {}))


def WITH_EXCEPT_START(m: Machine, f: Frame, i: Instruction) -> None:
    """Stack: exit, lasti, previous, exception (3.11 to 3.13)."""
    error, leave = f.stack[-1], f.stack[-4]
    kind = m.wrap.object(error.python_type())
    f.push(leave.call(m, [kind, error, error.attribute(m, "__traceback__")], {}))


def CLEANUP_THROW(m: Machine, f: Frame, i: Instruction) -> None:
    """Stack: sub-iterator, last sent value, exception: a StopIteration ends `yield from`, anything else goes on."""
    error = f.stack[-1]
    if not issubclass(error.python_type(), StopIteration):
        raise Raised(error)
    f.pop_many(3)
    f.push(Constant(None))
    f.push(error.attribute(m, "value"))
