"""What a plan does, in words: how many kernels, what is fused in each, which library calls and why, what was not fused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stoker.schedule.plan import Plan
from stoker.schedule.step import Batch, Library, Run
from stoker.shape.expr import text


@dataclass(frozen=True, slots=True)
class Summary:
    """One compiled graph. Kernels and calls come with how often a call of the graph runs them."""

    kernels: tuple[tuple[tuple[str, ...], int], ...]
    calls: tuple[tuple[str, int, str], ...]
    """(operator, how often, why it is not a kernel)"""
    refusals: tuple[tuple[str, str, str], ...]
    memory: tuple[str, ...] = ()
    """What was decided about memory, in words."""

    @classmethod
    def of(cls, plan: Plan, declined: Sequence[tuple[str, str]]) -> Summary:
        runs = Counter(step.kernel for step in plan.steps if isinstance(step, (Run, Batch)))
        calls = Counter(str(step.operator) for step in plan.steps if isinstance(step, Library))
        reasons = {_packet(name): reason for name, reason in declined}
        return cls(
            tuple((origins, runs[number]) for number, origins in enumerate(plan.origins)),
            tuple((name, count, reasons.get(_packet(name), "")) for name, count in calls.items()),
            plan.refusals,
            _memory(plan),
        )

    @property
    def fused(self) -> int:
        """Operators that run inside kernels."""
        return sum(len(origins) * runs for origins, runs in self.kernels)

    @property
    def headline(self) -> str:
        runs, calls = sum(r for _, r in self.kernels), sum(c for _, c, _ in self.calls)
        return f"{len(self.kernels)} kernels run {runs} times for {self.fused} operators, and {calls} library calls"

    def lines(self) -> list[str]:
        """The report, a line each."""
        found = [f"kernel, {runs}x: {', '.join(map(_short, origins))}" for origins, runs in self.kernels]
        found += [f"library, {count}x: {_short(name)}{f' ({why})' if why else ''}" for name, count, why in self.calls]
        found += [f"memory: {words}" for words in self.memory]
        found += [f"not fused: {_words(a)} and {_words(b)}: {why}" for a, b, why in self.refusals]
        return found


def _memory(plan: Plan) -> tuple[str, ...]:
    found = []
    for arena in plan.arenas:
        where = "" if arena.device.type == "cpu" else f" on {arena.device}"
        found.append(f"{len(arena.offsets)} temporaries in an arena of {text(arena.size_bytes)} bytes{where}")
    home = sum(below in plan.inputs for _, below in plan.over)
    if home:
        found.append(f"{home} results written to inputs by kernels")
    if len(plan.over) > home:
        found.append(f"{len(plan.over) - home} results written over buffers that die there")
    name, peak, own = plan.order
    if name != "program":
        found.append(f"order {name!r}: about {peak:,} bytes at the peak, {own:,} in the program's order")
    return tuple(found)


def _packet(name: str) -> str:
    """The operator without its overload: a plan may call another one, with memory for the result."""
    return ".".join(name.split(".")[:2])


def _short(name: str) -> str:
    return name.removeprefix("aten.").removesuffix(".default")


def _words(origins: str) -> str:
    return "[" + ", ".join(_short(o) for o in origins.split(", ")) + "]"
