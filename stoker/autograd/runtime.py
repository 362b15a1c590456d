"""Call compiled graphs as the program would have been called: results, writes to inputs, aliasing, and an autograd
node.

In:  a `Joint`'s outcomes, and the compiled forward and backward.
Out: a function of the program's inputs that returns the tuple of its outputs.

A training call is one autograd node. It keeps what the partition chose through `save_for_backward`, so that
saved-tensor hooks and the engine's version checks work. Asked for gradients of gradients, it differentiates the
captured program instead (`stoker.autograd.again`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from stoker import torch_private
from stoker.autograd.again import differentiate_again, snapshot
from stoker.autograd.inputs import shares_written
from stoker.autograd.joint import Joint
from stoker.autograd.outcome import Computed, Fixed, Given, Outcome, Rebuilt, Write
from stoker.autograd.partition import Parts

Compiled = Callable[..., Sequence[Any]]


class Layout(NamedTuple):
    """How a tensor lies in memory."""

    size: Sequence[int]
    stride: Sequence[int]
    dtype: torch.dtype
    device: torch.device


@dataclass(frozen=True, slots=True)
class Training:
    """All a training call needs to know."""

    joint: Joint
    parts: Parts
    forward: Compiled
    backward: Compiled
    captured: Callable[..., Any]
    tangents: tuple[Layout | None, ...]
    silent: tuple[int, ...]
    random: bool


def inference_call(joint: Joint, forward: Compiled) -> Callable[..., tuple[Any, ...]]:
    """A call without an autograd node."""
    finish = _finisher(joint)
    if finish is None:
        return lambda *inputs: tuple(forward(*inputs))
    return lambda *inputs: finish(inputs, forward(*inputs))


def training_call(training: Training) -> Callable[..., tuple[Any, ...]]:
    """A call that leaves an autograd node behind."""
    finish = _finisher(training.joint)
    node = type("CompiledGraph", (_Node,), {"training": training})
    apply = torch_private.function_apply(node)
    transformed = torch_private.functorch_is_active

    def call(*inputs: Any) -> tuple[Any, ...]:
        if transformed():  # under vmap or torch.func.grad tensors are wrapped; the captured program takes those
            return training.captured(*inputs)  # type: ignore[no-any-return]
        results = apply(*inputs)
        return results if finish is None else finish(inputs, results)  # type: ignore[no-any-return]

    return call


def guarded_call(
    joint: Joint, call: Callable[..., tuple[Any, ...]], captured: Callable[..., Any]
) -> Callable[..., tuple[Any, ...]]:
    """The call, or the captured program where an input that the graph writes shares memory with another input.

    The graph was traced for inputs in separate memory, and a write that others see would be lost.
    """
    written = frozenset(w.index for w in joint.writes)
    if not written:
        return call

    def checked(*inputs: Any) -> tuple[Any, ...]:
        return captured(*inputs) if shares_written(inputs, written) else call(*inputs)  # type: ignore[no-any-return]

    return checked


class _Node(torch.autograd.Function):
    """One compiled graph in autograd's. A subclass has the `training` it runs."""

    training: Training

    @classmethod
    def forward(cls, ctx: Any, *inputs: Any) -> tuple[Any, ...]:
        training = cls.training
        ctx.snapshot = snapshot(training, inputs)
        values = training.forward(*inputs)
        count, tensors = len(training.joint.results), training.parts.tensors
        ctx.save_for_backward(*values[count : count + tensors])
        ctx.sizes = values[count + tensors :]
        ctx.layouts = training.tangents
        if None in training.tangents:
            ctx.layouts = tuple(_layout(values[p]) for p in training.parts.tangents)
        ctx.set_materialize_grads(False)
        if training.silent:
            ctx.mark_non_differentiable(*(values[i] for i in training.silent))
        return tuple(values[:count])

    @classmethod
    def backward(cls, ctx: Any, *gradients: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        training = cls.training
        parts = training.parts
        result: list[torch.Tensor | None] = [None] * len(training.joint.inputs)
        missing = frozenset(p for p in parts.tangents if gradients[p] is None)
        if len(missing) == len(parts.tangents):
            return tuple(result)
        if torch.is_grad_enabled():
            return differentiate_again(training, ctx.snapshot, gradients)
        tangents = [_tangent(gradients[p], *like) for p, like in zip(parts.tangents, ctx.layouts)]
        found = training.backward(*ctx.saved_tensors, *ctx.sizes, *tangents)
        for index, gradient, needs in zip(parts.gradients, found, parts.reached_by):
            if not (needs and needs <= missing):
                result[index] = gradient
        return tuple(result)


def _layout(result: torch.Tensor) -> Layout:
    """The layout of a result's gradient, for results of symbolic size (see `joint._tangent`)."""
    stride = result.stride()
    if 0 in stride:
        stride = torch.empty(result.shape, device="meta").stride()
    return Layout(result.shape, stride, result.dtype, result.device)


def _tangent(
    gradient: torch.Tensor | None, size: Any, stride: Any, dtype: torch.dtype, device: torch.device
) -> torch.Tensor:
    """A gradient laid out as it was traced; zeros where there is none."""
    if gradient is None:
        return torch.empty_strided(size, stride, dtype=dtype, device=device).zero_()
    if gradient.stride() == stride and gradient.dtype is dtype:
        return gradient
    if gradient.layout is not torch.strided:
        gradient = gradient.to_dense()
    return torch.empty_strided(size, stride, dtype=dtype, device=device).copy_(gradient)


def _finisher(joint: Joint) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]] | None:
    """What to do after the graph has run; None when its results are the outputs."""
    outcomes, writes, moves = joint.outcomes, joint.writes, joint.moves
    if not writes and not moves and outcomes == tuple(Computed(i) for i in range(len(joint.results))):
        return None

    early, late = [w for w in writes if not w.moved], [w for w in writes if w.moved]

    def finish(inputs: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
        for write in early:
            _write(write, inputs, results)
        outputs = tuple(_output(outcome, inputs, results) for outcome in outcomes)
        for move in moves:
            with torch.set_grad_enabled(move.grad and torch.is_grad_enabled()):
                move.operator(inputs[move.index], *move.args, **move.kwargs)
        for write in late:
            _write(write, inputs, results)
        return outputs

    return finish


def _write(write: Write, inputs: Sequence[Any], results: Sequence[Any]) -> None:
    with torch.set_grad_enabled(write.differentiable and torch.is_grad_enabled()):
        inputs[write.index].copy_(results[write.position])


def _output(outcome: Outcome, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
    match outcome:
        case Computed(position):
            return results[position]
        case Given(index):
            return inputs[index]
        case Fixed(value):
            return value
        case Rebuilt(source, steps):
            value = _output(source, inputs, results)
            for step in steps:
                value = step.apply(value, results)
            return value
