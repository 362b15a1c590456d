"""torch's thread-local modes: grad, autocast, default dtype, kernels of attention.

Captured code changes them for real while it is evaluated, so that fake runs see them; they are put back afterwards. In the
graph, changes are nodes. A graph leaves the modes as it found them: what captured code leaves changed, at a break inside
`with torch.no_grad()`, the replacement code sets behind the graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from stoker import torch_private
from stoker.capture.values.constant import Constant

if TYPE_CHECKING:
    from stoker.capture.emit import Emitter
    from stoker.capture.machine import Machine

# How to read a mode, how to set it, and what both take first.
MODES: list[tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
    (torch.is_grad_enabled, torch_private.set_grad_enabled, ()),
    (torch.get_default_dtype, torch.set_default_dtype, ()),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, ()),
]
for _device in ("cpu", "cuda"):
    MODES.append((torch.is_autocast_enabled, torch.set_autocast_enabled, (_device,)))
    MODES.append((torch.get_autocast_dtype, torch.set_autocast_dtype, (_device,)))
for _get, _set in torch_private.ATTENTION_SWITCHES.values():
    MODES.append((_get, _set, ()))


class Modes:
    """The modes of one capture: as they were, as evaluation left them, and how captured code changed them."""

    def __init__(self) -> None:
        self.at_entry = self.at_end = read_modes()
        self.changes = 0
        self.autocast_nesting = 0  # how often captured code entered autocast and has not left it
        self.switched: set[str] = set()  # switches of attention that captured code set
        self.open_scopes: list[Any] = []


def read_modes() -> list[Any]:
    return [get(*first) for get, _, first in MODES]


@contextmanager
def keeping_modes(modes: Modes) -> Iterator[None]:
    """Put the modes back, and remember what evaluation left them at."""
    try:
        yield
        modes.at_end = read_modes()
    finally:
        for (_, set_, first), was in zip(MODES, modes.at_entry):
            set_(*first, was)
        for _ in range(modes.autocast_nesting):
            torch.autocast_decrement_nesting()


def leave_modes(m: Machine, modes: Modes, e: Emitter) -> None:
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


def _node(m: Machine, target: Callable[..., Any], args: tuple[Any, ...]) -> None:
    node = m.record.graph.create_node("call_function", target, args, {})
    node.meta["location"] = m.location()
