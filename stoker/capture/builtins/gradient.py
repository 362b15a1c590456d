"""Autograd's engine inside captured code: `backward()`, `torch.autograd.grad`, `retain_grad`.

A backward pass is one node of the graph (`stoker.capture.engine`). The gradients that it leaves in `.grad` are its results;
which tensors receive them is known from the history of the fakes.
"""

from __future__ import annotations

from collections.abc import Collection

import torch

from stoker.capture import engine
from stoker.capture.handlers import handles, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.polyfill import hooking
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import pairs_of
from stoker.capture.values.sequence import ListValue, SequenceValue, TupleValue
from stoker.capture.values.subclass import SubclassValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.fake.history import nodes_behind
from stoker.guard.source import Attribute

NONE = Constant(None)
FALSE = Constant(False)


@handles(torch.autograd.backward)
def backward(
    m: Machine,
    tensors: Value,
    grad_tensors: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = FALSE,
    grad_variables: Value = NONE,
    inputs: Value = NONE,
) -> Value:
    if not _is_none(grad_variables):
        raise Break("torch.autograd.backward", "grad_variables is deprecated", "use grad_tensors")
    results = _tensors(m, tensors)
    reached = [m.wrap.force(v) for v in _tensors(m, inputs)] if not _is_none(inputs) else _receivers(m, results)
    receivers = [v for v in dict.fromkeys(reached) if isinstance(v, TensorValue)]
    if any(isinstance(v, SubclassValue) for v in receivers):
        raise Break("backward()", "the gradient of a tensor subclass is not captured")
    create = create_graph.truth(m)
    given = _is_none(inputs)
    _call_watchers(m, results, _gradients(m, grad_tensors, len(results)))
    if any(hooks_on(m, receiver, name) for receiver in receivers for name in engine.HOOK_TABLES):
        keep = Constant(create if _is_none(retain_graph) else retain_graph.truth(m))
        _with_hooks(m, results, _gradients(m, grad_tensors, len(results)), keep, create, receivers)
        return NONE
    held = [receiver.gradient(m) for receiver in receivers]
    made = m.record.call(
        engine.backward,
        [
            TupleValue(results),
            TupleValue(_gradients(m, grad_tensors, len(results))),
            Constant(create if _is_none(retain_graph) else retain_graph.truth(m)),
            Constant(create),
            TupleValue([] if given else list(receivers)),
            TupleValue(list(receivers)),
            TupleValue(held),
        ],
        {},
        keep=True,
    )
    for receiver, gradient in zip(receivers, made.items_list(m)):
        receiver.set_gradient(m, gradient)
    return NONE


def _call_watchers(m: Machine, results: list[Value], gradients: list[Value]) -> None:
    """Call the hooks in the middle that do more than compute, the last tensor's first. They may look at gradients, not replace them."""
    if _behind(m.record.called_later, results):
        raise Break("a hook", "one on the way does more than compute, and is called by code behind the graph")
    order = {node: number for number, node in enumerate(m.record.graph.nodes)}
    for tensor in sorted(_behind(m.record.watched, results), key=lambda t: -order[t.node]):
        flags = [Constant(True), FALSE, FALSE, FALSE]
        asked = [TupleValue(results), TupleValue([tensor]), TupleValue(gradients), *flags]
        (gradient,) = m.record.call(engine.grad, asked, {}, keep=True).items_list(m)
        memory = gradient.fake.memory  # type: ignore[attr-defined]  # a tensor
        content, hooks = memory.content, ListValue(tensor.hooks["_backward_hooks"])
        made = m.wrap.object(hooking.replaced).call(m, [gradient, hooks], {})
        if made is not gradient or memory.content != content:
            raise Break("register_hook()", "the hook changes something besides the gradient that it returns")


def _behind(tensors: Collection[TensorValue], results: list[Value]) -> list[TensorValue]:
    """Those of some tensors in the middle that a backward from the results passes."""
    if not tensors:
        return []
    behind = set().union(*(nodes_behind(r.fake.grad_fn) for r in results))  # type: ignore[attr-defined]  # tensors
    return [tensor for tensor in tensors if tensor.fake.grad_fn in behind]


def _with_hooks(
    m: Machine, results: list[Value], gradients: list[Value], keep: Value, create: bool, receivers: list[TensorValue]
) -> None:
    """A backward to leaves with hooks: the gradients first, then for each leaf what its hooks make of it."""
    if create:
        raise Break("backward()", "hooks on leaves are called with create_graph=True")
    if any(isinstance(user.target, engine.Hook) for receiver in receivers for user in receiver.node.users):
        raise Break("backward()", "a tensor in the middle keeps its gradient and has a hook, as leaves have")
    flags = [keep, FALSE, Constant(True), FALSE]
    made = m.record.call(
        engine.grad, [TupleValue(results), TupleValue(list(receivers)), TupleValue(gradients), *flags], {}, keep=True
    )
    for receiver, gradient in zip(receivers, made.items_list(m)):
        if _is_none(gradient):
            continue
        before, after = (ListValue(hooks_on(m, receiver, name)) for name in engine.HOOK_TABLES)
        gradient = m.wrap.object(hooking.replaced).call(m, [gradient, before], {})
        if not receiver.fake.is_leaf:
            held = receiver.gradient(m)
            receiver.set_gradient(m, gradient if _is_none(held) else m.record.binary("+", held, gradient))
            continue
        receiver.set_gradient(m, m.record.call(engine.accumulate, [receiver, gradient, receiver.gradient(m)], {}))
        m.wrap.object(hooking.told).call(m, [receiver, after], {})


def hooks_on(m: Machine, tensor: Value, table: str) -> list[Value]:
    """The hooks of a leaf, or of a tensor from outside, that a backward calls: those it came with, then those put on it here."""
    assert isinstance(tensor, TensorValue)
    here = list(tensor.hooks.get(table, ()))
    if tensor.source is None or tensor.real is None:
        return here
    found = m.wrap.force(m.wrap.at(getattr(tensor.real, table), Attribute(tensor.source, table)))
    return [*(value for _, value in pairs_of(m, found)), *here] if not _is_none(found) else here


@handles(torch.autograd.grad)
def grad(
    m: Machine,
    outputs: Value,
    inputs: Value,
    grad_outputs: Value = NONE,
    retain_graph: Value = NONE,
    create_graph: Value = FALSE,
    only_inputs: Value = Constant(True),  # noqa: B008
    allow_unused: Value = NONE,
    is_grads_batched: Value = FALSE,
    materialize_grads: Value = FALSE,
) -> Value:
    if is_grads_batched.truth(m):
        raise Break("torch.autograd.grad", "is_grads_batched maps the backward over a dimension")
    results, asked = _tensors(m, outputs), _tensors(m, inputs)
    create, materialize = create_graph.truth(m), materialize_grads.truth(m)
    if _behind([*m.record.watched, *m.record.called_later], results):
        raise Break("torch.autograd.grad", "a hook on its way does more than compute a gradient")
    if _behind(m.record.retained, results):
        raise Break("torch.autograd.grad", "a tensor on its way keeps its gradient: retain_grad()", "use backward()")
    made = m.record.call(
        engine.grad,
        [
            TupleValue(results),
            TupleValue(list(asked)),
            TupleValue(_gradients(m, grad_outputs, len(results))),
            Constant(create if _is_none(retain_graph) else retain_graph.truth(m)),
            Constant(create),
            Constant(materialize if _is_none(allow_unused) else allow_unused.truth(m)),
            Constant(materialize),
        ],
        {},
        keep=True,
    )
    found = zip(asked, made.items_list(m))
    return TupleValue([_after_hooks(m, tensor, gradient, create) for tensor, gradient in found])


def _after_hooks(m: Machine, tensor: Value, gradient: Value, create: bool) -> Value:
    hooks = hooks_on(m, tensor, "_backward_hooks")
    if not hooks or _is_none(gradient):
        return gradient
    if create:
        raise Break("torch.autograd.grad", "hooks on its inputs are called with create_graph=True")
    return m.wrap.object(hooking.replaced).call(m, [gradient, ListValue(hooks)], {})


@tensor_special("retain_grad")
def retain_grad(m: Machine, value: TensorValue) -> Value:
    """The gradient of a tensor that is no leaf is kept, too."""
    if isinstance(value, SubclassValue):
        value.unsupported("retain_grad()")
    m.record.method(value, "retain_grad", [], {})
    if not value.fake.is_leaf and value not in m.record.retained:
        m.record.retained.append(value)
    return NONE


def _is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is None


def _tensors(m: Machine, value: Value) -> list[Value]:
    """One tensor, or a sequence of them."""
    value = m.wrap.force(value)
    if isinstance(value, TensorValue):
        return [value]
    found = [m.wrap.force(v) for v in value.items_list(m)]
    if not all(isinstance(v, TensorValue) for v in found):
        raise Break("autograd's engine", "it is given something other than tensors")
    return found


def _gradients(m: Machine, value: Value, count: int) -> list[Value]:
    if _is_none(value):
        return [NONE] * count
    return [m.wrap.force(v) for v in value.items_list(m)] if isinstance(value, SequenceValue) else [value]


def _receivers(m: Machine, results: list[Value]) -> list[Value]:
    """The tensors whose `.grad` a backward changes: leaves, and those that retain it."""
    found = [m.record.tensor_of_fake.get(id(leaf)) for leaf in engine.receivers_of([r.fake for r in results])]  # type: ignore[attr-defined]  # tensors
    if any(known is None for known in found):
        raise Break(
            "backward()",
            "it reaches beyond the compiled function: an argument has a history of its own",
            "detach the argument, or call backward() outside",
        )
    return [known[1] for known in found if known is not None] + list(m.record.retained)
