"""Call compiled graphs as the program would have been called: results, writes to inputs, aliasing, and an autograd
node.

In:  a `Joint`'s outcomes, and the compiled forward and backward.
Out: a function of the program's inputs that returns the tuple of its outputs.

A training call is one autograd node, `stoker._C.TrainingCall` (csrc/training_call.cpp). Here is worked out, once, what it
must know. Asked for gradients of gradients, it differentiates the captured program instead (`stoker.autograd.double_backward`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker import _C, torch_private
from stoker.autograd.beneath import beneath, differentiate_apart
from stoker.autograd.double_backward import Training, differentiate_again, random_state, replayed
from stoker.autograd.joint import Joint
from stoker.autograd.outcome import ConstantResult, Given, GraphResult, MadeLeaf, Outcome, Rebuilt, Write
from stoker.autograd.refusal import CannotTrace
from stoker.defect import contradicted, may_be_defect
from stoker.errors import NoSecondGradient
from stoker.graph.program_hook import is_of_hook
from stoker.graph.undo import Undoable, can_run_again, has_written, is_untouched, mark_untouched, unmark
from stoker.graph.walk import ancestors, descendants

Compiled = Callable[..., Sequence[Any]]


def inference_call(
    joint: Joint, forward: Compiled, captured: Compiled, *, inputs_require_grad: bool
) -> Callable[..., tuple[Any, ...]]:
    """A call without an autograd node. Its results require no gradient, though its inputs may.

    What raises before anything is written leads to the program as captured. Raises that too, its error is marked (`UNTOUCHED` in
    csrc/dispatch.h), and the frame runs in CPython; if it does not, ours was a defect, which is told. What raises later is the call's error.
    """
    if inputs_require_grad:
        forward = _without_gradients(forward)
    finish = finisher(joint) or (lambda inputs, results: tuple(results))
    forward = _counting_writes(joint, forward)

    def call(*inputs: Any) -> tuple[Any, ...]:
        if torch_private.forward_mode_active():
            return tuple(captured(*inputs))
        try:
            results = forward(*inputs)
        except Exception as error:
            if not can_run_again(error):
                raise
            return as_captured(error, inputs)
        return finish(inputs, results)

    def as_captured(error: Exception, inputs: Sequence[Any]) -> tuple[Any, ...]:
        try:
            results = tuple(captured(*inputs))
        except Exception as own:
            if not joint.writes:
                mark_untouched(own)
            raise own from None
        contradicted(error, captured)
        return results

    return call


def _counting_writes(joint: Joint, call: Callable[..., Any]) -> Callable[..., Any]:
    """A call that counts the writes of one that fails after it has written: whoever kept such an input for a gradient learns of it."""
    written = [w.index for w in joint.writes if w.versions]
    if not written:
        return call

    def counting(*inputs: Any) -> Any:
        try:
            return call(*inputs)
        except Exception as error:
            if has_written(error):
                torch.autograd.graph.increment_version([inputs[index] for index in written])
            raise

    return counting


def _without_gradients(forward: Compiled) -> Compiled:
    """What it gives are tensors like others: views made without gradients must not be written where they are on."""

    def call(*inputs: Any) -> Sequence[Any]:
        with torch.no_grad():
            results = forward(*inputs)
        return [r.detach() if isinstance(r, torch.Tensor) and torch_private.is_view(r) else r for r in results]

    return call


def _as_captured(training: Training, program: Undoable, error: Exception, inputs: Sequence[Any]) -> tuple[Any, ...]:
    """What to do where a compiled forward raised and has written to nothing: the program as captured; ours was a defect, which is told.
    Raises that too, CPython runs the frame. What a program does to its inputs cannot all be taken back, so that it is tried on copies."""
    joint = training.joint
    touched = {w.index for w in joint.writes} | {m.index for m in joint.moves} | {index for index, _ in joint.rebound}
    touched |= {*joint.detached, *joint.switched}
    if not may_be_defect(error):
        raise error
    try:
        devices = training.random_devices
        with replayed(devices, random_state(devices, *inputs) if touched else None, inputs):
            results = program(*(_copy(x) if index in touched else x for index, x in enumerate(inputs)))
    except Exception:  # whatever it is: CPython will meet it
        raise error from None
    unmark(error)
    contradicted(error, program)
    return tuple(program(*inputs) if touched else results)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Another tensor that may be written in its place: a leaf where it is one."""
    return tensor.detach().clone().requires_grad_(tensor.requires_grad) if tensor.is_leaf else tensor.clone()


def training_call(
    training: Training,
    forward: Compiled,
    backward: Compiled,
    program: Undoable,
    partial: Callable[[tuple[bool, ...]], Any] | None = None,
    *,
    as_given: bool = False,
) -> Callable[..., tuple[Any, ...]]:
    """A call that leaves an autograd node behind. A backward takes gradients `as_given`, or laid out as traced. `partial` makes
    backwards for the case that not all come (`stoker.autograd.partial`). Where the forward fails, the `program` runs as captured; where
    the backward does, it is differentiated.

    A backward with a true attribute `_boxed_call` (torch's name for the convention) takes its arguments in one list, and
    empties it, so that each is freed after its last use.
    """
    joint, parts = training.joint, training.parts
    ordinals = {position: ordinal for ordinal, position in enumerate(parts.tangents)}
    indices = {node: index for index, node in enumerate(joint.inputs)}
    call: Callable[..., Any] = _C.TrainingCall(
        forward=forward,
        backward=(backward, bool(getattr(backward, "_boxed_call", False)), tuple(range(len(parts.kept)))),
        captured=training.captured,
        again=functools.partial(_again, training),
        random_state=functools.partial(random_state, training.random_devices) if training.random_devices else None,
        results=len(joint.results),
        partial=partial,
        kept=tuple(-1 if n in parts.copied else indices.get(n, -1) for n in parts.kept),
        readers=_readers(training),
        histories=joint.histories,
        beneath=beneath(training),
        apart=functools.partial(differentiate_apart, training),
        tangents=tuple((p, bool(joint.tangents[p].users), _layout(joint.tangents[p])) for p in parts.tangents),  # type: ignore[union-attr, arg-type]  # of the tangents that are used
        gradients=tuple((i, tuple(ordinals[p] for p in reach)) for i, reach in zip(parts.gradients, parts.reached_by)),
        inputs=_memories(training),
        as_given=as_given,
    )
    finish = finisher(joint)
    call = _counting_writes(joint, call)

    def trained(*inputs: Any) -> tuple[Any, ...]:
        try:
            results = call(*inputs)
        except Exception as error:
            if not is_untouched(error):
                raise
            return _as_captured(training, program, error, inputs)
        return results if finish is None else finish(inputs, results)

    return trained


def _again(
    training: Training, inputs: Any, state: Any, gradients: Any, failed: BaseException | None
) -> tuple[Any, ...]:
    """`differentiate_again`, also in place of a compiled backward that failed: a defect if the program's does not, which is told."""
    if failed is None:
        return differentiate_again(training, inputs, state, gradients)
    if not isinstance(failed, Exception) or is_of_hook(failed):
        raise failed
    try:
        found = differentiate_again(training, inputs, state, gradients)
    except NoSecondGradient:
        raise failed from None
    except Exception as own:
        raise own from None
    if not isinstance(failed, CannotTrace):
        contradicted(failed, training.captured)
    return found


def _readers(training: Training) -> tuple[tuple[int, ...], ...]:
    """For each kept tensor the tangents, by their order, whose way back may read it."""
    joint, parts = training.joint, training.parts
    read = [ancestors(descendants([joint.tangents[p]])) for p in parts.tangents]  # type: ignore[list-item]  # of the tangents that are used
    return tuple(tuple(i for i, way in enumerate(read) if n in way) for n in parts.kept)


def _layout(tangent: torch.fx.Node) -> tuple[Any, ...] | None:
    """How a gradient must be laid out; None if its sizes are symbolic."""
    value = tangent.meta["val"]
    if value.meta.symbolic:
        return None
    return tuple(value.shape), tuple(value.stride()), value.dtype, value.device


def _memories(training: Training) -> str:
    """A letter for each input: what the node remembers of it (`Memory` in csrc/training_plan.h)."""
    joint = training.joint
    matter = ancestors(g for g in joint.gradients if g is not None)
    written = {joint.inputs[w.index] for w in joint.writes}
    kept = frozenset(training.parts.kept) - training.parts.copied
    letters = []
    for node in joint.inputs:
        if not isinstance(node.meta["val"], torch.Tensor):
            letters.append("o")
        elif node not in matter:
            letters.append("s")
        elif node in written:
            letters.append("w")
        else:
            letters.append("k" if node in kept else "h")
    return "".join(letters)


def finisher(joint: Joint) -> Callable[[Sequence[Any], Sequence[Any]], tuple[Any, ...]] | None:
    """What to do after the graph has run; None when its results are the outputs."""
    outcomes, writes, moves = joint.outcomes, joint.writes, joint.moves
    changes = any((writes, moves, joint.detached, joint.spent, joint.rebound, joint.switched))
    if not changes and outcomes == tuple(GraphResult(i) for i in range(len(joint.results))):
        return None

    plain = [w for w in writes if not w.moved and not w.differentiable]
    early, late = [w for w in writes if not w.moved and w.differentiable], [w for w in writes if w.moved]

    def finish(inputs: Sequence[Any], results: Sequence[Any]) -> tuple[Any, ...]:
        if joint.spent:
            results = [_Spent.apply(_anchor, r) if p in joint.spent else r for p, r in enumerate(results)]
        counted: list[torch.Tensor] = []
        with torch.no_grad():
            for write in plain:
                target, written = inputs[write.index], results[write.position]
                if written is target:  # the graph itself has written there
                    counted += [target] * write.versions
                    continue
                inference = target.is_inference() or torch.is_inference_mode_enabled()
                # to leave inference mode is to turn gradients on
                with torch.inference_mode(inference), torch.no_grad():
                    (target if write.versions else target.data).copy_(written)
                _count(write, target)
        if counted:
            torch.autograd.graph.increment_version(counted)
        for index in joint.detached:
            inputs[index].detach_()
        for index, position in joint.rebound:
            inputs[index].data = results[position]
        for index in joint.switched:
            inputs[index].requires_grad_(not inputs[index].requires_grad)
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


_anchor = torch.empty(0, requires_grad=True)


class _Spent(torch.autograd.Function):
    """A tensor whose history was used up: it requires a gradient, and to ask for one is the error that it is in eager."""

    @staticmethod
    def forward(ctx: Any, anchor: torch.Tensor, result: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(result)
        return result

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[None, None]:
        with torch.enable_grad():
            leaf = torch.ones((), requires_grad=True)
            used_up = leaf * leaf
        for _ in range(2):  # torch's own words for it
            torch.autograd.grad(used_up, leaf)
        return None, None


def _write(write: Write, inputs: Sequence[Any], results: Sequence[Any]) -> None:
    with torch.set_grad_enabled(write.differentiable and torch.is_grad_enabled()):
        inputs[write.index].copy_(results[write.position])
    _count(write, inputs[write.index])


def _count(write: Write, target: torch.Tensor) -> None:
    """A copy counts as one write; the program may have written more often."""
    for _ in range(write.versions - 1):
        torch.autograd.graph.increment_version(target)


def _output(outcome: Outcome, inputs: Sequence[Any], results: Sequence[Any]) -> Any:
    match outcome:
        case GraphResult(position):
            return results[position]
        case MadeLeaf(position):
            return results[position].requires_grad_()
        case Given(index):
            return inputs[index]
        case ConstantResult(value):
            return value
        case Rebuilt(source, steps):
            value = _output(source, inputs, results)
            for step in steps:
                value = step.apply(value, results)
            return value
