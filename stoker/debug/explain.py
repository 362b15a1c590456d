"""`stoker.explain`: run a function once under capture and tell what happened.

In:  something compiled, its configuration, and the arguments of one call.
Out: an `Explanation`: graphs, breaks with reasons and lines, guards, kernels and library calls, and what took long; printing it
     shows the report.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoker.autograd.begun import awaiting
from stoker.bytecode import render
from stoker.errors import BreakReason
from stoker.frame import Frames
from stoker.log import Event, collecting, events
from stoker.runtime.build import COMPILER
from stoker.schedule.summary import Summary
from stoker.took import Took, own_seconds

BUILDS_SHOWN = 3
WORTH_TELLING = 0.1
"""Seconds."""


@dataclass(frozen=True)
class Explanation:
    """What one call led to."""

    graphs: list[Any]
    breaks: list[BreakReason]
    guards: list[str]
    codes: list[Any]
    happened: list[Event]

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def compiled(self) -> list[Summary]:
        """What became of each graph that was compiled: kernels, library calls, and what was not fused."""
        return [e.data for e in self.happened if e.kind == "compiled"]

    @property
    def kernel_count(self) -> int:
        return sum(len(summary.kernels) for summary in self.compiled)

    @property
    def seconds(self) -> dict[str, float]:
        """How long each stage of compilation took, the longest first."""
        return own_seconds([took for took in self._took if took.stage != COMPILER])

    @property
    def slowest_builds(self) -> list[tuple[float, str]]:
        """Seconds that the C++ compiler took for a source, and what is in it, the longest first. Some run at the same time."""
        found = [(took.seconds, took.what) for took in self._took if took.stage == COMPILER]
        return sorted(found, reverse=True)

    @property
    def _took(self) -> list[Took]:
        return [e.data for e in self.happened if e.kind == "took"]

    @property
    def break_count(self) -> int:
        return len(self.breaks)

    def __str__(self) -> str:
        operators = [sum(n.op in ("call_function", "call_method") for n in g.graph.nodes) for g in self.graphs]
        lines = [f"graphs: {len(self.graphs)}"]
        for number, (graph, count) in enumerate(zip(self.graphs, operators), start=1):
            lines.append(f"  {number}. {count} operators: {graph.meta.get('location', '?')}")
        lines.append(f"breaks: {len(self.breaks)}")
        for number, reason in enumerate(self.breaks, start=1):
            lines += [f"  {number}.", reason.render()]
        lines.append(f"guards: {len(self.guards)}")
        lines += [f"  {text}" for text in self.guards[:40]]
        if len(self.guards) > 40:
            lines.append(f"  ... and {len(self.guards) - 40} more")
        for summary in self.compiled:
            lines.append(f"compiled: {summary.headline}")
            lines += [f"  {text}" for text in summary.lines()]
        lines += self._time()
        kinds = ("improved", "skip", "recompile", "limit", "defect", "backend", "as captured", "patience", "cudagraph")
        told = [e for e in self.happened if e.kind in kinds]
        lines += [f"{e.kind}: {e.subject} ({e.location})" + (f": {e.reason}" if e.reason else "") for e in told]
        return "\n".join(lines)

    def _time(self) -> list[str]:
        """What took long: the stages, and the sources that the C++ compiler worked on longest."""
        total = sum(self.seconds.values())
        if total < WORTH_TELLING:
            return []
        stages = ", ".join(
            f"{stage} {seconds:.2f}" for stage, seconds in self.seconds.items() if seconds >= WORTH_TELLING / 10
        )
        builds = self.slowest_builds[:BUILDS_SHOWN]
        found = [
            f"  {seconds:.2f} seconds of the C++ compiler: {what}"
            for seconds, what in builds
            if seconds >= WORTH_TELLING
        ]
        return [f"compiling took {total:.2f} seconds: {stages}", *found]

    def bytecode(self) -> str:
        """The replacement code of every version, as text."""
        return "\n\n".join(f"{code.co_qualname}:\n{render(code)}" for code in self.codes)


def explain_call(compiled: Callable[..., Any], frames: Frames, args: tuple, kwargs: dict[str, Any]) -> Explanation:
    """Call, then read what the call's configuration has captured, at this call and before."""
    during: list[Event] = []
    with collecting(during), awaiting():
        compiled(*args, **kwargs)
    captured = frames.captured
    places = {str(c.graph.meta.get("location")) for c in captured if c.graph is not None}
    recorded = [
        event for event in events("cudagraph") if event.location in places
    ]  # graphs are recorded at a later call
    before = [event for event in (*frames.happened, *recorded) if not any(event is other for other in during)]
    before = list({id(event): event for event in before}.values())
    return Explanation(
        graphs=[c.graph for c in captured if c.graph is not None],
        breaks=list({c.reason.key: c.reason for c in reversed(captured) if c.reason is not None}.values())[::-1],
        guards=[guard.text for c in captured for guard in c.guards],
        codes=[c.code for c in captured],
        happened=before + during,
    )
