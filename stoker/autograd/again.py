"""Gradients of gradients: run the captured program once more, under autograd, from the inputs of the first call.

In:  what a training call noted of its inputs, and gradients of its results.
Out: gradients of its inputs that can be differentiated in turn.

Right or refused: an input that was overwritten since, and that the gradients depend on, is an error, as it is in
eager; random operators draw the same numbers again, from the generator's state at the first call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from stoker import torch_private
from stoker.autograd.outcome import Computed, Rebuilt
from stoker.autograd.partition import ancestors

if TYPE_CHECKING:
    from stoker.autograd.runtime import Training


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The inputs of a call, the versions they were at, and the random state."""

    inputs: tuple[Any, ...]
    versions: tuple[int, ...]
    random_state: torch.Tensor | None


def snapshot(training: Training, inputs: tuple[Any, ...]) -> Snapshot:
    """Note what `differentiate_again` will need. Inputs that are written are not held as they are: that would be a
    cycle."""
    if training.joint.writes:
        written = {w.index for w in training.joint.writes}
        inputs = tuple(x.detach() if i in written else x for i, x in enumerate(inputs))
    versions = tuple([x._version if isinstance(x, torch.Tensor) else 0 for x in inputs])
    return Snapshot(inputs, versions, torch.get_rng_state() if training.random else None)


def differentiate_again(
    training: Training, taken: Snapshot, gradients: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor | None, ...]:
    """The gradients of the inputs, with a graph behind them."""
    joint = training.joint
    written = {w.index for w in joint.writes}
    for index, (value, version) in enumerate(zip(taken.inputs, taken.versions)):
        if not isinstance(value, torch.Tensor) or value._version == version:
            continue
        if joint.gradients[index] is not None or _matters(training, index):
            raise RuntimeError(
                "one of the variables needed for gradient computation has been modified by an inplace operation: an "
                f"input of shape {list(value.shape)} of a compiled graph was overwritten; create_graph=True needs it."
            )
    with torch.enable_grad(), _random_state(taken.random_state):
        given = tuple(x.clone() if i in written else x for i, x in enumerate(taken.inputs))
        outputs = training.captured(*given)
        results = _results(training, given, outputs)
        pairs = [(r, g) for r, g in zip(results, gradients) if r is not None and g is not None and r.requires_grad]
        wanted = [i for i in training.parts.gradients if taken.inputs[i].requires_grad]
        found = torch_private.run_backward(
            tuple(r for r, _ in pairs),
            tuple(g for _, g in pairs),
            tuple(taken.inputs[i] for i in wanted),
            keep_graph=True,
            create_graph=True,
        )
    answer: list[torch.Tensor | None] = [None] * len(joint.inputs)
    for index, gradient in zip(wanted, found):
        answer[index] = gradient
    return tuple(answer)


def _matters(training: Training, index: int) -> bool:
    """Do the gradients depend on this input?"""
    needed = ancestors(g for g in training.joint.gradients if g is not None)
    return training.joint.inputs[index] in needed


def _results(training: Training, given: Sequence[Any], outputs: Sequence[Any]) -> list[torch.Tensor | None]:
    """The tensors of this run that correspond to the results of the compiled graph."""
    results: list[torch.Tensor | None] = [None] * len(training.joint.results)
    for write in training.joint.writes:
        if write.differentiable:
            results[write.position] = given[write.index]
    for outcome, output in zip(training.joint.outcomes, outputs):
        match outcome:
            case Computed(position) if isinstance(output, torch.Tensor):
                results[position] = output
            case Rebuilt(Computed(position), _) if results[position] is None:
                results[position] = output if output._base is None else output._base
    return results


@contextlib.contextmanager
def _random_state(state: torch.Tensor | None) -> Iterator[None]:
    if state is None:
        yield
        return
    with torch.random.fork_rng(devices=[]):
        torch.set_rng_state(state)
        yield
