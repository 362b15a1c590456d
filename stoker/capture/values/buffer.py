"""io.StringIO made by captured code: a real one, which captured code alone can see, stands for it."""

from __future__ import annotations

import io
from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod
from stoker.capture.values.value import Value


class BufferValue(Value):
    """Text that is written, and read again. What is written must be known."""

    def __init__(self, contents: io.StringIO) -> None:
        self.contents = contents

    def python_type(self) -> type:
        return io.StringIO

    def attribute(self, m: Machine, name: str) -> Value:
        return BuiltinMethod(self, name)

    def run(self, m: Machine, name: str, *args: Value) -> Value:
        m.effects.will_mutate(self)
        given = [m.concrete.constant(value, f"{name}()") for value in args]
        return m.wrap.constant(m.concrete.run(getattr(self.contents, name), *given))

    def method_write(self, m: Machine, text: Value) -> Value:
        return self.run(m, "write", text)

    def method_read(self, m: Machine, *size: Value) -> Value:
        return self.run(m, "read", *size)

    def method_readline(self, m: Machine, *size: Value) -> Value:
        return self.run(m, "readline", *size)

    def method_seek(self, m: Machine, *place: Value) -> Value:
        return self.run(m, "seek", *place)

    def method_tell(self, m: Machine) -> Value:
        return self.run(m, "tell")

    def method_truncate(self, m: Machine, *size: Value) -> Value:
        return self.run(m, "truncate", *size)

    def method_getvalue(self, m: Machine) -> Value:
        return self.run(m, "getvalue")

    def method_writelines(self, m: Machine, lines: Value) -> Value:
        for line in lines.items_list(m):
            self.run(m, "write", line)
        return Constant(None)

    def emit(self, e: Emitting) -> None:
        e.call_function(_rebuilt, [Constant(self.contents.getvalue()), Constant(self.contents.tell())])


def _rebuilt(text: str, position: int) -> Any:
    made = io.StringIO()
    made.write(text)
    made.seek(position)
    return made
