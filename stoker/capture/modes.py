"""torch's thread-local modes: grad, autocast, default dtype, kernels of attention.

Captured code changes them for real while it is evaluated, so that fake runs see them; they are put back afterwards. In the
graph, changes are nodes. A graph leaves the modes as it found them: what captured code leaves changed, at a break inside
`with torch.no_grad()`, the replacement code sets behind the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from stoker import torch_private
from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.graph.modes import MODES, read_modes, set_modes


class Modes:
    """The modes of one capture: as they were, as evaluation left them, and how captured code changed them."""

    def __init__(self) -> None:
        self.at_entry = self.at_end = read_modes()
        self.changes = 0
        self.autocast_nesting = 0  # how often captured code entered autocast and has not left it
        self.switched: set[str] = set()  # switches that captured code set
        self.open_scopes: list[Any] = []
        self.told_compiling = False  # has captured code heard that it is compiled?
        self.context: Any = None  # of contextvars: the one that captured code made and runs in


@contextmanager
def keeping_modes(modes: Modes) -> Iterator[None]:
    """Put the modes back, and remember what evaluation left them at."""
    try:
        yield
        modes.at_end = read_modes()
    finally:
        set_modes(modes.at_entry)
        for _ in range(modes.autocast_nesting):
            torch.autocast_decrement_nesting()


def leave_modes(m: Machine, modes: Modes, e: Emitting) -> None:
    """End the graph with the modes it began with; behind it, set those that captured code leaves changed."""
    for (_, set_, first), was, now in zip(MODES, modes.at_entry, modes.at_end):
        if was != now:
            _node(m, set_, (*first, was))
            e.call_function(set_, [Constant(value) for value in (*first, now)])
            e.pop()
    for _ in range(modes.autocast_nesting):
        _node(m, torch.autocast_decrement_nesting, ())
        e.call_function(torch.autocast_increment_nesting, [])
        e.pop()


def needs_grad(m: Machine, modes: Modes) -> bool:
    """Was the frame entered without grad, and does captured code switch it on?"""
    switch = torch_private.set_grad_enabled
    return not modes.at_entry[0] and any(n.target is switch and n.args == (True,) for n in m.record.graph.nodes)


def under_grad(m: Machine) -> None:
    """Rewrite the graph to begin and end with grad on: whoever differentiates it looks at the mode it is called in."""
    first = next(node for node in m.record.graph.nodes if node.op != "placeholder")
    with m.record.graph.inserting_before(first):
        _node(m, torch_private.set_grad_enabled, (False,))
    _node(m, torch_private.set_grad_enabled, (True,))


def calling_with_grad(compiled: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        with torch.enable_grad():
            return compiled(*args)

    return call


def labelled(compiled: Callable[..., Any], labels: Sequence[str]) -> Callable[..., Any]:
    """A graph that shows the program's labels to a profiler that is on, each once."""

    def call(*args: Any) -> Any:
        if not torch_private.profiler_enabled():
            return compiled(*args)
        with contextlib.ExitStack() as around:
            for label in labels:
                around.enter_context(torch.profiler.record_function(label))
            return compiled(*args)

    return call


def _node(m: Machine, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
    node = m.record.graph.create_node("call_function", target, args, {})
    node.meta["location"] = m.location()
