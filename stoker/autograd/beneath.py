"""Results that are computed from each other: whose gradient lies beneath whose, and the gradients of one that stop at others.

In:  a training program and, when it runs backward, a gradient of one of its results, and other results whose gradients somebody looks at: by a
     hook, by `retain_grad`, or by `torch.autograd.grad`.
Out: what these get through that one result, and what inputs get of it otherwise.

One node stands for all results of a compiled graph, and what flows between them inside is not seen from outside. So results that are computed
from each other have nodes of their own (`CompiledResult` in csrc/autograd_node.cpp). They hand gradients to the one node, unless somebody
looks: then the program is run again, operator by operator, and cut there.

What must hold (tests/differential/autograd/test_beneath.py): hooks see eager's gradients, once, and what they return goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter, Node

from stoker import torch_private
from stoker.autograd.double_backward import RandomState, Training, replayed
from stoker.autograd.outcome import GraphResult
from stoker.errors import NoWholeGradient
from stoker.nest import leaves

Beneath = tuple[tuple[int, ...], ...]
"""For each tangent, those of the results that its own is computed from; none at all where there is one result."""


def beneath(training: Training) -> Beneath:
    """Which gradients of results lie beneath which, where the program can be cut there."""
    found = training.joint.beneath
    if len(found) < 2:
        return ()
    if not any(found) or _program(training.captured) is None or _differs(training):
        return ((),) * len(found)
    ours = _nodes(training)
    seen = [position in ours for position in training.parts.tangents]
    return tuple(tuple(i for i in below if seen[i]) if seen[k] else () for k, below in enumerate(found))


def _differs(training: Training) -> bool:
    """Would the program, run again, compute something else: draw other numbers, or cast otherwise?"""
    casts = any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
    return casts or bool(training.random_devices and not training.draws_as_eager)


def _program(captured: Callable[..., Any]) -> GraphModule | None:
    owner = getattr(captured, "__self__", None)
    return owner if isinstance(owner, GraphModule) else None


def _nodes(training: Training) -> dict[int, Node]:
    """The nodes of the captured program that give results, by position."""
    program = _program(training.captured)
    assert program is not None
    (outputs,) = next(n for n in reversed(program.graph.nodes) if n.op == "output").args
    pairs = zip(training.joint.outcomes, outputs)  # type: ignore[arg-type]  # fx types arguments loosely: here they are a tuple
    return {o.position: node for o, node in pairs if isinstance(o, GraphResult) and isinstance(node, Node)}


def differentiate_apart(
    training: Training,
    inputs: Sequence[Any],
    state: RandomState | None,
    position: int,
    stops: Sequence[int],
    gradient: torch.Tensor,
) -> tuple[torch.Tensor | None, ...]:
    """Gradients of one result with respect to those at `stops`, and to inputs (`training.parts.gradients`), not through these."""
    program, nodes = _program(training.captured), _nodes(training)
    assert program is not None
    written = {w.index for w in training.joint.writes}
    wanted = [i for i in training.parts.gradients if inputs[i].requires_grad]
    differentiably = torch.is_grad_enabled()
    with torch.enable_grad(), replayed(training.random_devices, state, inputs):
        given = [x.clone() if i in written else x for i, x in enumerate(inputs)]
        cut = _Cut(program, {nodes[stop]: stop for stop in stops if stop != position})
        result = cut.result(nodes[position], given)
        ends = (*(cut.known[stop].used for stop in stops), *(inputs[i] for i in wanted))
        found = torch_private.run_backward((result,), (gradient,), ends, keep_graph=True, create_graph=differentiably)
    for known in cut.known.values():
        known.gate.is_open = True
    by_input = dict(zip(wanted, found[len(stops) :]))
    return (*found[: len(stops)], *(by_input.get(i) for i in training.parts.gradients))


@dataclass
class _Gate:
    """Do gradients pass? Those of gradients do."""

    is_open: bool = False


class _Gated(torch.autograd.Function):
    """The same value, to which gradients come, and behind which they go on where a gate is open."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor, gate: _Gate) -> torch.Tensor:  # type: ignore[override]  # of these arguments
        ctx.gate = gate
        return value.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, None]:  # type: ignore[override]  # of one result
        return gradient if ctx.gate.is_open else None, None


@dataclass
class _Replaced:
    """A value, what the rest of the program uses in its place, and the versions of both."""

    value: torch.Tensor
    used: torch.Tensor
    gate: _Gate
    versions: tuple[int, int]


class _Cut(Interpreter):
    """A program, run with a gate behind some of its values: each as it is once the program has written to it for the last time."""

    def __init__(self, program: GraphModule, places: Mapping[Node, int]) -> None:
        super().__init__(program)
        self.places = places
        self.known: dict[int, _Replaced] = {}

    def result(self, node: Node, inputs: Sequence[Any]) -> torch.Tensor:
        """The value of a node."""
        outputs = self.run(*inputs)
        (nodes,) = next(n for n in reversed(self.graph.nodes) if n.op == "output").args
        return outputs[nodes.index(node)]  # type: ignore[no-any-return, union-attr]  # fx types arguments loosely: here they are a tuple

    def run_node(self, n: Node) -> Any:
        value = super().run_node(n)
        for place, known in self.known.items():
            if (known.value._version, known.used._version) != known.versions:
                known.gate.is_open = True
                self._replace(place, known.used, written=known)
        if n in self.places:
            self._replace(self.places[n], value)
            return self.known[self.places[n]].used
        return value

    def _replace(self, place: int, value: torch.Tensor, written: _Replaced | None = None) -> None:
        """Let what follows use a copy of a value. Other memory of it than its own must not be in use."""
        alone = all(view._base is not value for view in leaves(self.env) if isinstance(view, torch.Tensor))
        if written is not None and (written.value._version != written.versions[0] or not alone):
            raise NoWholeGradient()
        gate = _Gate()
        used = _Gated.apply(value, gate)
        self.known[place] = _Replaced(value, used, gate, (value._version, used._version))
        for other, known in self.env.items():
            if known is value:
                self.env[other] = used
