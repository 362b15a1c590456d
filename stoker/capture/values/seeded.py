"""Generators of random numbers that captured code makes of a known seed: a real one, which captured code alone can see, stands for it.

What it draws is known while capturing. Where it is seen later, by other code or behind a break, one in the same state is made.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stoker.capture.values.constant import Constant
from stoker.capture.values.function import BuiltinMethod
from stoker.capture.values.value import Value

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine


@dataclass(frozen=True, slots=True, eq=False)
class Maker:
    """How a kind of generator is made, how it tells its state, and how it is given it."""

    make: Callable[[], Any]
    read: Callable[[Any], Any]
    write: Callable[[Any, Any], None]

    def again(self, state: Any) -> Any:
        made = self.make()
        self.write(made, state)
        return made


class SeededValue(Value):
    """A generator of Python or numpy."""

    def __init__(self, generator: Any, maker: Maker) -> None:
        self.generator, self.maker = generator, maker

    def python_type(self) -> type:
        return type(self.generator)

    def describe(self) -> str:
        return f"the {type(self.generator).__name__} that captured code made"

    def truth(self, m: Machine) -> bool:
        return True

    def attribute(self, m: Machine, name: str) -> Value:
        return BuiltinMethod(self, name)

    def draw(self, m: Machine, step: Callable[[Any], Any]) -> Any:
        """What it gives now; it moves on."""
        m.effects.will_mutate(self)
        return m.concrete.run(step, self.generator)

    def emit(self, e: Emitter) -> None:
        e.call_function(self.maker.again, [Constant(self.maker.read(self.generator))])
