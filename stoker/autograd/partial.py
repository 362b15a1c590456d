"""A backward for the case that only some results get a gradient.

In:  how a training graph was traced and cut, and which of its results got a gradient.
Out: the backward traced again for those alone, from what the forward keeps; or None, and the others' gradients are zeros. Where the program
     raises while it is traced, the program as captured is differentiated: it may raise there, too.

The engine goes only where gradients come from: a branch without one is not there at all, where zeros times infinity would be
NaN, and its saved tensors stay as they are.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from stoker import defect
from stoker.autograd.joint import Joint
from stoker.autograd.partition import backward_of
from stoker.autograd.refusal import CannotTrace
from stoker.autograd.relayout import Traced, same_forward
from stoker.collector import collector_paused
from stoker.defect import survive
from stoker.graph.walk import ancestors
from stoker.strict import strict

_EAGERLY = "a backward runs operator by operator, not compiled"
_LIMIT = 8
"""How many sets of results get a backward of their own."""


@dataclass(frozen=True, slots=True)
class Autocast:
    """What autocast was set to, to trace in the same world again."""

    settings: tuple[tuple[str, bool, torch.dtype], ...]

    @staticmethod
    def now() -> Autocast:
        devices = ("cpu", "cuda")
        return Autocast(tuple((d, torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices))

    def again(self) -> contextlib.ExitStack:
        stack = contextlib.ExitStack()
        for device, enabled, dtype in self.settings:
            if enabled != torch.is_autocast_enabled(device) or dtype != torch.get_autocast_dtype(device):
                stack.enter_context(torch.autocast(device, dtype=dtype, enabled=enabled))
        return stack


@dataclass
class WhenCalled:
    """A backward that is compiled when it is first called: of several results, seldom all get a gradient."""

    compile: Callable[[GraphModule], Callable[..., Any]]
    module: GraphModule
    compiled: Callable[..., Any] | None = None
    _boxed_call = True

    def __call__(self, arguments: list[Any]) -> Any:
        if self.compiled is None:
            with torch.inference_mode(False), torch.no_grad(), collector_paused():
                self.compiled = survive(_EAGERLY, self.module, self.compile, lambda module: module.forward)
        return self.compiled(arguments) if getattr(self.compiled, "_boxed_call", False) else self.compiled(*arguments)


@dataclass
class PartialBackwards(Traced):
    """Called with a flag for each tangent: the compiled backward for those that came, and which of the kept tensors it takes."""

    autocast: Autocast
    made: int = 0

    def __call__(self, arrived: tuple[bool, ...]) -> tuple[Callable[..., Any], bool, tuple[int, ...]] | None:
        self.made += 1
        if self.made > _LIMIT:
            return None
        try:
            return self._for(arrived)
        except CannotTrace as reason:
            return functools.partial(_refuse, reason), False, ()
        except Exception as error:
            if strict():
                raise
            defect.tell("a backward takes zeros for the gradients that did not come", self.captured, error)
            return None

    def _for(self, arrived: tuple[bool, ...]) -> tuple[Callable[..., Any], bool, tuple[int, ...]] | None:
        environment = self.inputs.mode.shape_env
        known = len(environment.guards) if environment is not None else 0
        only = frozenset(p for p, came in zip(self.parts.tangents, arrived) if came)
        with torch.inference_mode(False), torch.enable_grad(), self.autocast.again():
            joint = self.again(only=only)
        if environment is not None and len(environment.guards) != known:
            return None  # what is decided here nobody guards
        return self._compiled(joint)

    def _compiled(self, joint: Joint) -> tuple[Callable[..., Any], bool, tuple[int, ...]] | None:
        counterpart = same_forward(self.joint, joint)
        wanted = [joint.gradients[i] for i in self.parts.gradients]
        if counterpart is None or any(
            g is not None for i, g in enumerate(joint.gradients) if i not in self.parts.gradients
        ):
            return None
        _extend(counterpart, joint, [*self.parts.kept, *self.parts.sizes])
        sizes = [counterpart.get(n, n) for n in self.parts.sizes]  # one that nobody reads here keeps its place
        kept = {i: counterpart[n] for i, n in enumerate(self.parts.kept) if n in counterpart}
        needed = _read_back(wanted, frozenset([*kept.values(), *sizes]))
        if needed is None:
            return None
        used = tuple(i for i, n in kept.items() if n in needed)
        module = backward_of(joint, [*(kept[i] for i in used), *sizes], wanted)
        module.meta.update(self.parts.backward.meta)
        backward = self.compile(module)
        return backward, bool(getattr(backward, "_boxed_call", False)), used


def _refuse(reason: CannotTrace, *arguments: Any) -> Any:
    """In place of a backward that cannot be traced: the node differentiates the program as captured."""
    raise CannotTrace(str(reason))


def _extend(counterpart: dict[Node, Node], joint: Joint, kept: list[Node]) -> None:
    """Find the counterparts of kept values that the backward's own formulas compute, such as the cosine for a sine."""
    known = {_key(n): n for n in joint.graph.nodes if n.op == "call_function"}
    for node in sorted(ancestors(kept, frozenset(counterpart)) - counterpart.keys()):
        if (found := known.get(_key(node, counterpart))) is not None:
            counterpart[node] = found


def _key(node: Node, counterpart: dict[Node, Node] | None = None) -> Any:
    """What a call computes, in terms of the nodes of the second graph."""
    named = (lambda n: n.name) if counterpart is None else (lambda n: counterpart[n].name if n in counterpart else None)
    return node.target, repr(torch.fx.node.map_arg((node.args, node.kwargs), named))


def _read_back(wanted: list[Node | None], kept: frozenset[Node]) -> set[Node] | None:
    """What gradients are computed from, going back to kept values; None if an input that was not kept is among it."""
    needed = ancestors([g for g in wanted if g is not None], kept)
    strange = [n for n in needed - kept if n.op == "placeholder" and not n.name.startswith("tangent_")]
    return None if strange else needed
