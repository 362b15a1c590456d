"""A backward for gradients that lie in memory otherwise than it was traced for.

In:  how a training graph was traced and cut, and the strides of the gradients that came.
Out: the backward traced again for those, from what the forward keeps; or None, and the gradients are copied.

Eager's formulas look at the strides of what comes in, and round accordingly: a graph traced for others is right, but not
bit for bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from stoker.autograd.inputs import Inputs
from stoker.autograd.joint import Joint, trace_joint
from stoker.autograd.partition import Parts, backward_of
from stoker.autograd.trace import Decompositions

_LIMIT = 4
"""How many layouts of the gradients of one graph get a backward of their own."""

Strides = tuple[tuple[int, ...], ...]


@dataclass
class Traced:
    """How a training graph was traced and cut: what it takes to trace it again."""

    captured: GraphModule
    inputs: Inputs
    decompositions: Decompositions | None
    joint: Joint
    parts: Parts
    compile: Callable[[GraphModule], Callable[..., Any]]

    def again(self, **how: Any) -> Joint:
        return trace_joint(self.captured, self.inputs.anew(), self.decompositions, grad=True, **how)


@dataclass
class ByLayout(Traced):
    """A compiled backward that is boxed, and further ones by the strides of its gradients."""

    traced: Callable[..., Any]
    others: dict[Strides, Callable[..., Any] | None] = field(default_factory=dict)
    _boxed_call = True

    def __call__(self, arguments: list[Any]) -> Sequence[Any]:
        first = len(arguments) - len(self.parts.tangents)
        given = arguments[first:]
        expected = [self.joint.tangents[p].meta["val"] for p in self.parts.tangents]  # type: ignore[union-attr]  # of tangents that are used
        if all(g is None or _lies_as(g, e) for g, e in zip(given, expected)):
            return self.traced(arguments)
        strides = tuple(tuple(e.stride() if g is None else g.stride()) for g, e in zip(given, expected))
        backward = self._for(strides)
        if backward is not None:
            return backward(arguments)
        arguments[first:] = [None if g is None else _copied(g, e) for g, e in zip(given, expected)]
        del given
        return self.traced(arguments)

    def _for(self, strides: Strides) -> Callable[..., Any] | None:
        if strides not in self.others:
            few = len(self.others) < _LIMIT and not any(0 in s for s in strides)
            module = self._traced_for(strides) if few else None
            self.others[strides] = None if module is None else self.compile(module)
        return self.others[strides]

    def _traced_for(self, strides: Strides) -> GraphModule | None:
        with torch.inference_mode(False), torch.enable_grad():
            joint = self.again(strides=dict(zip(self.parts.tangents, strides)))
        kept = same_forward(self.joint, joint)
        if kept is None or not kept.keys() >= set(self.parts.all_kept):
            return None
        if [g is None for g in joint.gradients] != [g is None for g in self.joint.gradients]:
            return None
        return backward_of(joint, [kept[n] for n in self.parts.all_kept])


def same_forward(first: Joint, again: Joint) -> dict[Node, Node] | None:
    """Each forward node of one trace and its counterpart, if the other trace met the same world: autocast may have
    ended."""
    theirs, ours = ([n for n in j.graph.nodes if n.meta["phase"] == "forward"] for j in (first, again))
    if len(theirs) != len(ours):
        return None
    pairs = dict(zip(theirs, ours))
    for a, b in pairs.items():
        if a.target is not b.target and a.target != b.target or not _alike(a.meta["val"], b.meta["val"]):
            return None
    return pairs


def _alike(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_alike, a, b))
    return not isinstance(a, torch.Tensor) or a.meta is b.meta  # type: ignore[attr-defined]  # of tangents that are used


def _lies_as(given: torch.Tensor, expected: torch.Tensor) -> bool:
    """Strides of dimensions of one element say nothing."""
    have, want = given.stride(), expected.stride()
    return have == want or all(h == w or s == 1 for h, w, s in zip(have, want, given.shape))


def _copied(given: torch.Tensor, expected: torch.Tensor) -> torch.Tensor:
    if _lies_as(given, expected):
        return given
    made = torch.empty_strided(given.shape, expected.stride(), dtype=given.dtype, device=given.device)
    return made.copy_(given)
