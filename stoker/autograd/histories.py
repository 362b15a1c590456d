"""Which parts of a program's history its results share, as autograd sees it.

In:  results that require a gradient, as autograd's graph of the traced program knows them.
Out: for each set of results that some node with saved tensors lies behind, that set.

A backward without retain_graph frees what the nodes that it passes have saved. So results with no such node in common are
differentiated one after the other, and those with one only together: `stoker._C.TrainingCall` keeps to that.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake import FakeStorage, FakeTensor
from stoker.fake.foreign import tensors_in
from stoker.nest import leaves

Histories = tuple[tuple[int, ...], ...]
"""Sets of results, by their position among those that require a gradient."""


def histories(results: Sequence[torch.Tensor]) -> Histories:
    """The sets; none where nothing is saved, and all can be differentiated as often as one likes."""
    behind: dict[Any, list[int]] = {}
    for ordinal, result in enumerate(results):
        for node in _nodes_behind(result.grad_fn):
            behind.setdefault(node, []).append(ordinal)
    sets: set[tuple[int, ...]] = set()
    for node, found in behind.items():
        if tuple(found) not in sets and _saves(node):
            sets.add(tuple(found))
    return tuple(sorted(sets))


FREED = "Trying to backward through the graph a second time"
"""In the message of torch's error for a history that an earlier backward used up."""


def is_spent(result: torch.Tensor) -> bool:
    """Has a backward freed what some node behind a result had saved? Then there can be no other one."""
    return any(_is_freed(node) for node in _nodes_behind(result.grad_fn))


def _is_freed(node: Any) -> bool:
    for name in _names_of_saved(type(node)):  # type: ignore[arg-type]  # a node of autograd
        try:
            getattr(node, name)
        except RuntimeError as error:
            return FREED in str(error)
    return False


def saved_memories(results: Sequence[FakeTensor]) -> frozenset[FakeStorage]:
    """The memory of the tensors that the nodes behind some results have saved: what the user must not write to."""
    found: set[FakeStorage] = set()
    for node in {n for result in results for n in _nodes_behind(result.grad_fn)}:
        for name in _names_of_saved(type(node)):  # type: ignore[arg-type]  # a node of autograd
            with contextlib.suppress(RuntimeError):  # one that was written since cannot be shown: backward will say so
                found |= {t.memory for t in tensors_in(getattr(node, name)) if isinstance(t, FakeTensor)}
    return frozenset(found)


def _nodes_behind(node: Any) -> set[Any]:
    found, pending = set(), [node]
    while pending:
        node = pending.pop()
        if node is not None and node not in found:
            found.add(node)
            pending += (following for following, _ in node.next_functions)
    return found


def _saves(node: Any) -> bool:
    """Has it saved a tensor? One that was written since cannot be shown, but it has."""
    for name in _names_of_saved(type(node)):  # type: ignore[arg-type]  # a node of autograd
        try:
            value = getattr(node, name)
        except RuntimeError:
            return True
        if any(isinstance(leaf, torch.Tensor) for leaf in leaves(value)):
            return True
    return False


@functools.cache
def _names_of_saved(kind: type) -> tuple[str, ...]:
    return tuple(name for name in dir(kind) if name.startswith("_saved_") or name == "saved_tensors")
