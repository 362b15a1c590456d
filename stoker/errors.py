"""Every error's words, of kernels too, and the signals the evaluator uses inside.

Errors that a user sees derive from `StokerError` and say what happened, where in the user's source, and what to do.
`Break` and `Raised` never leave the capture package.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


class StokerError(RuntimeError):
    """Base of the errors that reach users."""


class BadArgument(StokerError, ValueError):
    """`stoker.compile` was called with something it cannot take."""


class UnknownBackend(BadArgument):
    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f"no back end is called {name!r}. Known ones: {', '.join(known)}. Pass one of these names, or a function "
            "(graph_module, example_inputs) -> callable."
        )


class UnknownMode(BadArgument):
    def __init__(self, mode: str, known: list[str]) -> None:
        super().__init__(f"no mode is called {mode!r}. Known ones: {', '.join(known)}.")


class UnknownOption(BadArgument):
    def __init__(self, name: str, known: list[str], instead: str | None = None) -> None:
        words = (
            f"torch.compile's option {name!r} has no counterpart: {instead}"
            if instead
            else f"no option is called {name!r}"
        )
        super().__init__(f"{words}. Known ones: {', '.join(known)}.")


class NotCallable(BadArgument, TypeError):
    def __init__(self, value: Any) -> None:
        super().__init__(
            f"stoker.compile takes a function, a method, a callable object or an nn.Module, not {type(value).__name__}."
        )


class BackendFailed(StokerError):
    """A back end raised, or returned something that cannot be called. The cause is chained."""

    def __init__(self, backend: str, why: str, location: str) -> None:
        super().__init__(
            f"the back end {backend} failed on the graph captured at {location}: {why}. The function itself is "
            'unharmed: compile it with backend="eager" to run it without this back end.'
        )


class GraphBreakError(StokerError):
    """`fullgraph=True`, and the function cannot be one graph."""

    def __init__(self, reason: BreakReason) -> None:
        super().__init__(f"fullgraph=True, but this function does not capture as one graph.\n{reason.render()}")
        self.reason = reason


class NoSecondGradient(StokerError, RuntimeError):
    """Gradients of gradients would need random numbers that cannot be drawn again."""

    def __init__(self) -> None:
        super().__init__(
            "create_graph=True runs the captured program again, which draws other random numbers than the compiled graph "
            "did. Compile this function with backend='aot_eager', or differentiate it twice without random operators."
        )


class NoWholeGradient(StokerError, RuntimeError):
    """Somebody looks at the gradient of a result that the program wrote to after another result was computed from it."""

    def __init__(self) -> None:
        super().__init__(
            "the gradient of a result of a compiled function is looked at (by a hook, retain_grad or torch.autograd.grad), and the function "
            "wrote to that result in place while it computed others from it. Do not write to it in place, or look at its gradient in eager."
        )


class VersionLimitError(StokerError):
    """`fullgraph=True`, and the function kept needing new versions."""


class RecompileForbidden(StokerError):
    """`stoker.stance("fail_on_recompile")`, and a call would be compiled."""

    def __init__(self, subject: str, location: str, why: str) -> None:
        super().__init__(
            f"{subject} ({location}) would be compiled, and the stance is fail_on_recompile: {why}. Call it this way once "
            "before the stance, or make sizes dynamic with dynamic=True or stoker.mark_dynamic."
        )


class CaptureBug(StokerError):
    """Capture contradicted itself: a defect of Stoker's, reported instead of a wrong answer."""


@dataclass(frozen=True)
class BreakReason:
    """Why capture stopped: the construct, the reason, one fix, the user's line."""

    construct: str
    reason: str
    fix: str
    location: str = ""
    line: str = ""
    inside: str = ""
    """The library's line, where it is not the user's own."""

    @property
    def key(self) -> tuple[str, str]:
        """What makes it this break, whoever met it: its own place, and the construct."""
        return self.inside or self.location, self.construct

    def render(self) -> str:
        shown = f"\n      {self.line}" if self.line else ""
        shown += f"\n  inside:    {self.inside}" if self.inside else ""
        return (
            f"  where:     {self.location}{shown}\n"
            f"  construct: {self.construct}\n"
            f"  reason:    {self.reason}\n"
            f"  fix:       {self.fix}"
        )


DEFAULT_FIX = "move it out of the compiled function, or mark the function with stoker.disable"


class Break(Exception):
    """Capture cannot go past the current instruction."""

    def __init__(self, construct: str, reason: str, fix: str = DEFAULT_FIX) -> None:
        super().__init__(f"{construct}: {reason}")
        self.construct, self.reason, self.fix = construct, reason, fix
        self.location = self.line = self.inside = ""
        self.is_end = False  # does the instruction end the call, so that no graph comes after it?


class EffectInside(Break):
    """Captured code that a graph runs inside of itself changes something outside of it."""


class BeginAnew(Exception):
    """Capture has done what the program does once, for good: what it looked at so far is no longer so."""


class StepBreak(Exception):
    """The root instruction with this number cannot be executed symbolically."""

    def __init__(self, step: int, reason: Break) -> None:
        super().__init__(str(reason))
        self.step, self.reason = step, reason


class Raised(Exception):
    """The captured program raised: carries the symbolic exception value."""

    def __init__(self, value: Any) -> None:
        super().__init__(value)
        self.value = value


class SkipFrame(Exception):
    """This frame is better run by CPython as it is; what it calls may still be captured, unless it is `deep`."""

    def __init__(self, reason: str, *, deep: bool = False) -> None:
        super().__init__(reason)
        self.reason, self.deep = reason, deep


OUTSIDE: dict[str, tuple[type[Exception], str]] = {
    "index": (IndexError, "index is out of bounds for its dimension"),
    "row": (IndexError, "index out of range in self"),
    "target": (IndexError, "Target is out of bounds."),
    "element": (RuntimeError, "index is out of bounds for its dimension"),
}
"""What an index out of range raises, by the family of the operator: indexing, rows of a table, labels of a loss, gather and
scatter. A kernel gives back a number with the bit of each family that failed; `csrc/plan_executor.cpp` has the same table."""


def is_outside_error(error: Exception) -> bool:
    """Is it what a kernel raises of an index?"""
    return any(isinstance(error, kind) and str(error).startswith(words) for kind, words in OUTSIDE.values())
