"""From a captured graph to a function that trains: trace, cut, compile both halves, wrap.

In:  a captured graph module, its example inputs, and compilers `(graph module, fake inputs) -> callable`.
Out: a callable with the captured program's own inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from stoker import torch_private
from stoker.autograd.begun import Awaited, Begun, finished, unboxed
from stoker.autograd.double_backward import Training
from stoker.autograd.inputs import make_inputs
from stoker.autograd.joint import Joint, trace_joint
from stoker.autograd.keep import min_cut
from stoker.autograd.overlap import WrittenOverlap
from stoker.autograd.partial import Autocast, PartialBackwards, WhenCalled
from stoker.autograd.partition import Chooser, Parts, forward_only, split
from stoker.autograd.refusal import CannotTrace
from stoker.autograd.relayout import ByLayout
from stoker.autograd.runtime import finisher, inference_call, training_call
from stoker.autograd.trace import Decompositions
from stoker.autograd.variants import NOT_TRACED, as_captured, by_overlap
from stoker.fake.foreign import tensors_in
from stoker.fake.history import may_refuse_write
from stoker.graph.boxed import boxed
from stoker.graph.facts import HOMES
from stoker.graph.modes import enter_inference_mode
from stoker.graph.undo import Undoable, drawing_once
from stoker.graph.walk import is_random

Compiler = Callable[[GraphModule, list[Any]], Callable[..., Any] | Begun]
Change = Callable[[GraphModule, int], Callable[[GraphModule], None] | None]
"""Changes a forward part, so many of whose results are the program's; what it keeps for the backward may lie otherwise in memory, and a
function is given that changes a backward accordingly."""


def aot(
    graph_module: GraphModule,
    example_inputs: Sequence[Any],
    *,
    forward_compiler: Compiler,
    backward_compiler: Compiler | None = None,
    partition: str | Chooser = "min-cut",
    decompositions: Decompositions | None = None,
    memory_budget: float = 1.0,
    draws_as_eager: bool = True,
    gradients_as_given: bool = False,
    captured: Callable[..., Any] | None = None,
    change: Change | None = None,
) -> Callable[..., tuple[Any, ...]]:
    """Compile a captured program for training, or for inference when nothing in it requires a gradient.

    A compiler whose random operators draw other numbers than eager's says `draws_as_eager=False`: gradients of gradients
    run the captured program again, and are refused where that would draw other numbers than the first call did.
    Gradients that lie in memory otherwise than traced are copied; with `gradients_as_given` the backward is traced, and
    compiled, once more for them. That needs a backward compiler whose callables are boxed.
    Where the graph is no longer the program as captured, that is given as `captured`: gradients of gradients are its.
    """
    backward, choose = backward_compiler or forward_compiler, _chooser(partition, memory_budget)
    programs = {} if captured is None else {graph_module: captured}
    how = _How(forward_compiler, backward, choose, decompositions, draws_as_eager, gradients_as_given, programs, change)
    try:
        call, written = _compile(graph_module, example_inputs, how)
    except WrittenOverlap as overlap:
        return by_overlap(graph_module, how.compile, overlap.written, overlap.placed, {}, example_inputs)
    except NOT_TRACED as error:
        return as_captured(graph_module, error)
    if not written:
        return call
    return by_overlap(graph_module, how.compile, written, frozenset(), {(): call}, example_inputs)


@dataclass(frozen=True, slots=True)
class _How:
    """What `aot` was asked for."""

    forward: Compiler
    backward: Compiler
    choose: Chooser
    decompositions: Decompositions | None
    draws_as_eager: bool
    gradients_as_given: bool
    captured: Mapping[GraphModule, Callable[..., Any]]
    """For graphs that are not the program as captured: that program."""
    change: Change | None

    def backward_of(self, parts: Parts) -> Compiler:
        """The compiler of the backward, after the parts are changed, if they are to be."""
        results = len(results_of(parts.forward)) - len(parts.all_kept)
        change = None if self.change is None else self.change(parts.forward, results)
        if change is None:
            return self.backward

        def changed(module: GraphModule, fakes: list[Any]) -> Callable[..., Any] | Begun:
            change(module)
            return self.backward(module, fake_inputs(module))

        return changed

    def compile(self, graph_module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
        return _compile(graph_module, example_inputs, self)[0]


def _compile(
    graph_module: GraphModule, example_inputs: Sequence[Any], how: _How
) -> tuple[Callable[..., tuple[Any, ...]], frozenset[int]]:
    """The call for inputs that share no memory with those that are written, and which these are."""
    grad = torch.is_grad_enabled()
    if torch.is_inference_mode_enabled() and any(n.target is enter_inference_mode for n in graph_module.graph.nodes):
        raise CannotTrace("it turns inference mode off, inside inference mode")
    with torch.inference_mode(False), torch.set_grad_enabled(grad):
        inputs = make_inputs(graph_module, example_inputs)
        joint = trace_joint(graph_module, inputs, how.decompositions, grad=grad)
        written = frozenset(w.index for w in joint.writes)
        if not joint.differentiable:
            module = forward_only(joint)
            module.meta.update(graph_module.meta)
            _tell_homes(module, joint)
            forward = _as_traced(finished(how.forward(module, fake_inputs(module))))
            if joint.inference:
                forward = torch.inference_mode()(forward)
            entered = grad and any(leaf is not None for leaf in inputs.leaves)
            forward = drawing_once(forward, _random_devices(joint))
            again = Undoable(graph_module)
            call = inference_call(joint, forward, again, inputs_require_grad=entered)
            return _anchored(_allowed(call, joint, again), joint, again), written
        parts = split(joint, how.choose)
        kept = frozenset(parts.kept) - parts.copied
        if any(joint.inputs[move.index] in kept for move in joint.moves):
            raise CannotTrace("an input is given other sizes in place, and kept for the gradient")
        if any(joint.inputs[w.index] in kept and w.index not in joint.saved for w in joint.writes):
            raise CannotTrace("an input is written, and a copy of what it held is kept for the gradient")
        for part in (parts.forward, parts.backward):
            part.meta.update(graph_module.meta)
        _tell_homes(parts.forward, joint)
        devices = _random_devices(joint)
        begin_backward = how.backward_of(parts)
        compile_backward = lambda module: finished(begin_backward(module, fake_inputs(module)))  # noqa: E731
        several = len(parts.tangents) > 1 and not how.gradients_as_given
        begun = how.forward(parts.forward, fake_inputs(parts.forward))  # built while the backward is prepared
        later = None if several else begin_backward(parts.backward, fake_inputs(parts.backward))
        forward = drawing_once(_as_traced(finished(begun)), devices)
        backward: Any = WhenCalled(compile_backward, parts.backward) if later is None else later
        if isinstance(later, Begun):
            backward = Awaited(later) if later.can_wait else finished(later)
    as_given = how.gradients_as_given and not any(n.meta["val"].meta.symbolic for n in joint.tangents if n is not None)
    some = len(parts.tangents) > 1
    untouched = inputs.anew() if as_given or some else inputs
    world = (graph_module, untouched, how.decompositions, joint, parts, compile_backward)
    if as_given:
        backward = ByLayout(*world, backward)
    captured = how.captured.get(graph_module, graph_module.forward)
    partial = PartialBackwards(*world, Autocast.now()) if some else None
    training = Training(joint, parts, captured, devices, how.draws_as_eager)
    program = Undoable(graph_module)
    call = training_call(training, forward, backward, program, partial, as_given=as_given)
    return _anchored(_allowed(call, joint, program), joint, captured), written


def _tell_homes(module: GraphModule, joint: Joint) -> None:
    """Tell a compiler which results become the content of inputs (`stoker.graph.facts.homes_of`)."""
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    output.meta[HOMES] = {w.position: w.index for w in joint.writes if not w.moved and not w.differentiable}


def aot_inside(
    graph_module: GraphModule, example_inputs: Sequence[Any], compiler: Compiler, decompositions: Decompositions | None
) -> Callable[..., Any]:
    """Compile a graph inside an operator, which writes to none of its inputs and is not differentiated: what the compiler makes,
    as it is, where its results are the graph's outputs."""
    with torch.inference_mode(False), torch.no_grad():
        inputs = make_inputs(graph_module, example_inputs)
        try:
            joint = trace_joint(graph_module, inputs, decompositions, grad=False)
        except NOT_TRACED as error:
            return _above_autograd(as_captured(graph_module, error))
        module = forward_only(joint)
        forward = _as_traced(finished(compiler(module, fake_inputs(module))))
    plain = finisher(joint) is None
    return forward if plain else inference_call(joint, forward, graph_module.forward, inputs_require_grad=False)


def _above_autograd(call: Callable[..., Any]) -> Callable[..., Any]:
    """A program as captured, where a plan runs: below autograd, which the program may use inside."""

    def above(*inputs: Any) -> Any:
        with torch.no_grad(), torch_private.above_autograd():
            return call(*inputs)

    return above


def _anchored(call: Callable[..., Any], joint: Joint, captured: Callable[..., Any]) -> Callable[..., Any]:
    """The call where inputs begin where they did in memory, if that matters; otherwise the program as captured."""
    if not joint.anchored:
        return call

    def checked(*inputs: Any) -> Any:
        same = all(inputs[index].storage_offset() == offset for index, offset in joint.anchored)
        return (call if same else captured)(*inputs)

    return checked


def _allowed(call: Callable[..., Any], joint: Joint, captured: Callable[..., Any]) -> Callable[..., Any]:
    """The call where autograd lets inputs be written; otherwise the program as captured. The call writes when all is computed, and what
    the program does before the write that is refused would be lost."""
    written = {w.index for w in joint.writes if w.differentiable} | {m.index for m in joint.moves if m.grad}
    if not written:
        return call

    def checked(*inputs: Any) -> Any:
        refused = torch.is_grad_enabled() and any(may_refuse_write(inputs[index]) for index in written)
        return (captured if refused else call)(*inputs)

    return checked


def _as_traced(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """A graph has its casts written out. Where autocast is on around it, it must not cast again."""
    forward = unboxed(compiled)
    if not any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda")):
        return forward

    def call(*inputs: Any) -> Any:
        with torch_private.DisableAutocast():
            return forward(*inputs)

    return call


def aot_eager(graph_module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., tuple[Any, ...]]:
    """Run the functional graphs as they are: the proof of this layer."""
    return aot(
        graph_module, example_inputs, forward_compiler=run_eagerly, backward_compiler=run_boxed, gradients_as_given=True
    )


def run_boxed(module: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """As `run_eagerly`, taking the arguments in a list that it empties: each is freed after its last use."""
    boxed(module).recompile()
    forward = run_eagerly(module, inputs)
    forward.__func__._boxed_call = True  # type: ignore[attr-defined]  # the name of the convention, on a function
    return forward


def run_eagerly(module: GraphModule, inputs: list[Any]) -> Callable[..., Any]:
    """The compiler that compiles nothing."""
    return torch_private.write_code(module).forward


def results_of(module: GraphModule) -> list[Any]:
    """What a graph gives back."""
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    return list(output.args[0])  # type: ignore[arg-type]  # a list


def fake_inputs(module: GraphModule) -> list[Any]:
    """What the placeholders of a graph hold."""
    return [n.meta["val"] for n in module.graph.nodes if n.op == "placeholder"]


def _chooser(partition: str | Chooser, memory_budget: float) -> Chooser:
    if partition == "min-cut":
        return min_cut(memory_budget)
    if isinstance(partition, str):
        raise ValueError(f"no partition is called {partition!r}; use 'min-cut', or a function from a Joint to nodes")
    return partition


def _random_devices(joint: Joint) -> tuple[torch.device, ...]:
    """The devices whose generators are drawn from. For tensors that hold nothing no number is drawn."""
    found = {t.device for n in joint.graph.nodes if is_random(n) for t in tensors_in(n.meta["val"])}
    return tuple(sorted((device for device in found if device.type != "meta"), key=str))
