"""The steps of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stoker.loop.layout import Layout
from stoker.loop.node import tensors_in
from stoker.loop.text import argument_text, layout_text
from stoker.shape.expr import Symbol


@dataclass(frozen=True, slots=True)
class Allocate:
    """Memory for a buffer that outlives the call."""

    buffer: str
    layout: Layout


@dataclass(frozen=True, slots=True)
class Run:
    """Call a kernel of the plan on buffers and sizes."""

    kernel: int
    buffers: tuple[str, ...]
    sizes: tuple[Symbol, ...]
    vetted: bool = False
    """Were the places that it computes found to be in range by an earlier step (`stoker.schedule.vet`)?"""


@dataclass(frozen=True, slots=True)
class Row:
    """What a kernel of a batch is called on, and how often its loop runs."""

    buffers: tuple[str, ...]
    points: int


@dataclass(frozen=True, slots=True)
class Batch:
    """Call a kernel of the plan on each row, all at once (`stoker.schedule.batch`)."""

    kernel: int
    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Library:
    """Call an ATen operator; its results are buffers."""

    operator: Any
    arguments: tuple[Any, ...]
    keywords: tuple[tuple[str, Any], ...]
    results: tuple[str | None, ...]
    layouts: tuple[Layout | None, ...]
    """What the results are expected to be; one that differs is copied."""
    several: bool
    """Does the operator return a tuple?"""
    aliases: bool
    """May a result share memory with an argument?"""

    @property
    def given(self) -> list[str]:
        """The buffers among its arguments."""
        return [t.buffer for t in tensors_in((self.arguments, [v for _, v in self.keywords]))]

    @property
    def made(self) -> list[str]:
        return [r for r in self.results if r is not None]


@dataclass(frozen=True, slots=True)
class Free:
    """A buffer is not needed any more."""

    buffer: str


Step = Allocate | Run | Batch | Library | Free
Steps = Sequence[Step]


def uses(step: Step) -> list[str]:
    """The buffers a step reads and writes."""
    match step:
        case Run():
            return list(step.buffers)
        case Library():
            return step.given + step.made
        case Batch():
            return [name for row in step.rows for name in row.buffers]
    return []


def step_text(step: Step) -> str:
    """One line."""
    match step:
        case Allocate():
            return f"allocate {step.buffer}: {layout_text(step.layout)}"
        case Run():
            sizes = f" sizes {', '.join(str(s) for s in step.sizes)}" if step.sizes else ""
            return f"run kernel {step.kernel} on {', '.join(step.buffers)}{sizes}"
        case Batch():
            rows = "; ".join(f"{', '.join(row.buffers)} ({row.points})" for row in step.rows)
            return f"run kernel {step.kernel} on each of {rows}"
        case Library():
            arguments = [argument_text(a) for a in step.arguments]
            arguments += [f"{name}={argument_text(value)}" for name, value in step.keywords]
            results = ", ".join(str(r) for r in step.results)
            return f"{results + ' = ' if results else ''}{step.operator}({', '.join(arguments)})"
        case Free():
            return f"free {step.buffer}"
