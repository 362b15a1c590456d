"""Gradients of gradients: run the captured program once more, under autograd, from the inputs of the first call.

In:  the inputs of a training call as its node remembers them, and gradients of its results.
Out: gradients of its inputs that can be differentiated in turn.

Right or refused: an input that was overwritten since, and that the gradients depend on, is an error, as it is in eager
(the node checks). Random operators draw the same numbers again, from the generators' states at the first call; where
the compiled graph draws others than eager would, gradients of gradients are refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stoker import torch_private
from stoker.autograd.joint import Joint
from stoker.autograd.outcome import GraphResult, Rebuilt
from stoker.autograd.partition import Parts
from stoker.errors import NoSecondGradient

RandomState = tuple[torch.Tensor, ...]


@dataclass(frozen=True, slots=True)
class Training:
    """A program that trains: its joint graph, the cut, the program as captured, and the devices it draws numbers on."""

    joint: Joint
    parts: Parts
    captured: Callable[..., Any]
    random_devices: tuple[torch.device, ...]
    draws_as_eager: bool


def differentiate_again(
    training: Training, inputs: Sequence[Any], state: RandomState | None, gradients: Sequence[torch.Tensor | None]
) -> tuple[torch.Tensor | None, ...]:
    """A gradient for each of `training.parts.gradients`, with a graph behind it where grad mode is on."""
    if training.random_devices and not training.draws_as_eager:
        raise NoSecondGradient()
    written = {w.index for w in training.joint.writes}
    differentiably = torch.is_grad_enabled()
    with torch.enable_grad(), replayed(training.random_devices, state, inputs):
        given = tuple(x.clone() if i in written else x for i, x in enumerate(inputs))
        with torch_private.outside_vmap():  # a batch is of gradients alone
            outputs = training.captured(*given)
        results = _results(training, given, outputs)
        pairs = [(r, g) for r, g in zip(results, gradients) if r is not None and g is not None and r.requires_grad]
        wanted = [i for i in training.parts.gradients if inputs[i].requires_grad]
        roots, tangents = (tuple(pair[n] for pair in pairs) for n in (0, 1))
        ends = tuple(inputs[i] for i in wanted)
        found = torch_private.run_backward(roots, tangents, ends, keep_graph=True, create_graph=differentiably)
    by_input = dict(zip(wanted, found))
    return tuple(by_input.get(i) for i in training.parts.gradients)


def _results(training: Training, given: Sequence[Any], outputs: Sequence[Any]) -> list[torch.Tensor | None]:
    """The tensors of this run that correspond to the results of the compiled graph."""
    results: list[torch.Tensor | None] = [None] * len(training.joint.results)
    for write in training.joint.writes:
        if write.differentiable:
            results[write.position] = given[write.index]
    for outcome, output in zip(training.joint.outcomes, outputs):
        match outcome:
            case GraphResult(position) if isinstance(output, torch.Tensor):
                results[position] = output
            case Rebuilt(GraphResult(position), _) if results[position] is None:
                results[position] = output if output._base is None else output._base
    return results


def random_state(devices: Sequence[torch.device], *inputs: Any) -> RandomState:
    """The states of the generators that a program draws from: those of devices, and those among its inputs."""
    own = (x.get_state() for x in inputs if isinstance(x, torch.Generator))
    return (*(_generators(d).get_rng_state(*_which(d)) for d in devices), *own)


@contextlib.contextmanager
def replayed(devices: Sequence[torch.device], state: RandomState | None, inputs: Sequence[Any]) -> Iterator[None]:
    """The generators as they were; afterwards as they are."""
    if state is None:
        yield
        return
    present = random_state(devices, *inputs)
    try:
        _set_random_state(devices, state, inputs)
        yield
    finally:
        _set_random_state(devices, present, inputs)


def _set_random_state(devices: Sequence[torch.device], state: RandomState, inputs: Sequence[Any]) -> None:
    for device, one in zip(devices, state):
        _generators(device).set_rng_state(one, *_which(device))
    for generator, one in zip((x for x in inputs if isinstance(x, torch.Generator)), state[len(devices) :]):
        generator.set_state(one)


def _generators(device: torch.device) -> Any:
    return torch if device.type == "cpu" else torch.get_device_module(device)


def _which(device: torch.device) -> tuple[torch.device, ...]:
    return () if device.type == "cpu" else (device,)
