"""Which parts of a program's history its results share, as autograd sees it.

In:  results that require a gradient, as autograd's graph of the traced program knows them.
Out: for each set of results that some node with saved tensors lies behind, that set.

A backward without retain_graph frees what the nodes that it passes have saved. So results with no such node in common are
differentiated one after the other, and those with one only together: `stoker._C.TrainingCall` keeps to that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake import FakeStorage, FakeTensor
from stoker.fake.foreign import tensors_in
from stoker.fake.history import names_of_saved, nodes_behind
from stoker.nest import leaves

Histories = tuple[tuple[int, ...], ...]
"""Sets of results, by their position among those that require a gradient."""


def histories(results: Sequence[torch.Tensor]) -> Histories:
    """The sets; none where nothing is saved, and all can be differentiated as often as one likes."""
    behind: dict[Any, list[int]] = {}
    for ordinal, result in enumerate(results):
        for node in nodes_behind(result.grad_fn):
            behind.setdefault(node, []).append(ordinal)
    sets: set[tuple[int, ...]] = set()
    for node, found in behind.items():
        if tuple(found) not in sets and _saves(node):
            sets.add(tuple(found))
    return tuple(sorted(sets))


def computed_from(results: Sequence[torch.Tensor]) -> Histories:
    """For each result, the others that it is computed from, as autograd sees it."""
    behind = [nodes_behind(result.grad_fn) - {result.grad_fn} for result in results]
    return tuple(tuple(i for i, other in enumerate(results) if other.grad_fn in found) for found in behind)


def saved_memories(results: Sequence[FakeTensor]) -> frozenset[FakeStorage]:
    """The memory of the tensors that the nodes behind some results have saved: what the user must not write to."""
    found: set[FakeStorage] = set()
    for node in {n for result in results for n in nodes_behind(result.grad_fn)}:
        for name in names_of_saved(type(node)):  # type: ignore[arg-type]  # a node of autograd
            with contextlib.suppress(RuntimeError):  # one that was written since cannot be shown: backward will say so
                found |= {t.memory for t in tensors_in(getattr(node, name)) if isinstance(t, FakeTensor)}
    return frozenset(found)


def _saves(node: Any) -> bool:
    """Has it saved a tensor? One that was written since cannot be shown, but it has."""
    for name in names_of_saved(type(node)):  # type: ignore[arg-type]  # a node of autograd
        try:
            value = getattr(node, name)
        except RuntimeError:
            return True
        if any(isinstance(leaf, torch.Tensor) for leaf in leaves(value)):
            return True
    return False
