"""torch's thread-local modes as nodes of captured graphs change them, and the way back.

In:  the modes of a thread, before a captured graph runs.
Out: the same modes after it, also where it raised between entering a scope and leaving it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph

from stoker import torch_private

# How to read a mode, how to set it, and what both take first.
MODES: list[tuple[Callable[..., Any], Callable[..., Any], tuple[Any, ...]]] = [
    (torch.is_grad_enabled, torch_private.set_grad_enabled, ()),
    (torch.get_default_dtype, torch.set_default_dtype, ()),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, ()),
    (torch_private.saved_tensors_hooks_refusal, torch_private.refuse_saved_tensors_hooks, ()),
]
for _device in ("cpu", "cuda"):
    MODES.append((torch.is_autocast_enabled, torch.set_autocast_enabled, (_device,)))
    MODES.append((torch.get_autocast_dtype, torch.set_autocast_dtype, (_device,)))
for _get, _set in torch_private.ATTENTION_SWITCHES.values():
    MODES.append((_get, _set, ()))


class _Scopes(threading.local):
    def __init__(self) -> None:
        self.open: list[Any] = []


_scopes = _Scopes()


def enter_inference_mode(enabled: bool) -> Any:
    """Enter; what is returned is the way out."""
    scope = torch_private.InferenceMode(enabled)
    scope.__enter__()
    _scopes.open.append(scope)
    return scope


def enter_device(device: torch.device) -> Any:
    device.__enter__()
    _scopes.open.append(device)
    return device


def enter_hooks(pack: Callable[..., Any], unpack: Callable[..., Any]) -> Any:
    scope = torch.autograd.graph.saved_tensors_hooks(pack, unpack)
    scope.__enter__()
    _scopes.open.append(scope)
    return scope


class EnterHooks:
    """`saved_tensors_hooks` with functions of the program, as a node's target."""

    def __init__(self, pack: Callable[..., Any], unpack: Callable[..., Any]) -> None:
        self.pack, self.unpack = pack, unpack
        self.__name__ = self.__qualname__ = "enter_hooks"
        self.__module__ = __name__

    def __call__(self) -> Any:
        return enter_hooks(self.pack, self.unpack)


def leave_scope(scope: Any) -> None:
    if scope in _scopes.open:  # one that the graph before a break entered is left by its own code
        _scopes.open.remove(scope)
    scope.__exit__(None, None, None)


def read_modes() -> list[Any]:
    return [get(*first) for get, _, first in MODES]


def set_modes(modes: list[Any]) -> None:
    for (_, set_, first), value in zip(MODES, modes):
        set_(*first, value)


@dataclass(frozen=True, slots=True)
class FoundModes:
    """The modes as they were found."""

    modes: list[Any]
    scopes: int
    nesting: int

    @staticmethod
    def now() -> FoundModes:
        return FoundModes(read_modes(), len(_scopes.open), _nesting())

    def put_back(self) -> None:
        for scope in reversed(_scopes.open[self.scopes :]):
            leave_scope(scope)
        set_modes(self.modes)
        for _ in range(_nesting() - self.nesting):
            torch.autocast_decrement_nesting()


def _nesting() -> int:
    """In how many scopes of autocast a thread is; torch tells it when one more is entered."""
    depth: int = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return depth


SETTERS = frozenset(set_ for _, set_, _ in MODES) | {
    enter_inference_mode, enter_device, torch.autocast_increment_nesting,
}  # fmt: skip
"""What nodes of captured graphs call to change a mode."""


def changes_modes(graph: Graph) -> bool:
    """Does a captured graph change a mode?"""
    return any(node.target in SETTERS or isinstance(node.target, EnterHooks) for node in graph.nodes)
