"""torch.autograd.Function and torch.utils.checkpoint.

A Function is one node of the graph: whoever differentiates the graph meets the user's own backward. Its Python code is
first evaluated on the side, forward and backward, so that what it depends on is guarded and what it changes is known.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.utils.checkpoint

from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import context
from stoker.capture.subgraph import needing
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import InstanceValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break, Raised
from stoker.marks import APPLIED


@handles(torch.autograd.Function.apply.__func__)  # type: ignore[attr-defined]  # a classmethod
def apply(m: Machine, cls: Value, *args: Value) -> Value:
    assert isinstance(cls, ClassValue)
    rehearse(m, cls, list(args))
    return m.record.call(_node_of(cls.real), list(args), {}, keep=True)


def _node_of(cls: type) -> Any:
    """`cls.apply` under a name of its own; the same object for the same class, so that equal graphs are equal."""
    found = vars(cls).get("_stoker_apply")
    if found is None:

        def found(*args: Any) -> Any:
            return cls.apply(*args)  # type: ignore[attr-defined]  # a subclass of Function

        found.__name__ = found.__qualname__ = f"{cls.__name__}_apply"
        setattr(found, APPLIED, cls)
        cls._stoker_apply = staticmethod(found)  # type: ignore[attr-defined]  # kept on the class
        return found
    return found.__func__


def rehearse(m: Machine, cls: ClassValue, args: list[Value]) -> None:
    """Evaluate forward and backward, keep the guards, drop the nodes; effects outside `ctx` are a break."""
    known = set(m.record.graph.nodes)
    effects = (set(m.effects.mutated), len(m.effects.deferred))
    ctx = InstanceValue(context.Context)
    ctx.set_attribute(m, "needs_input_grad", TupleValue([Constant(_needs_grad(a)) for a in args]))
    separate = m.attributes.class_lookup(cls.real, "setup_context") is not m.attributes.class_lookup(
        torch.autograd.Function, "setup_context"
    )
    forward = cls.attribute(m, "forward")
    clones = [m.record.method(a, "clone", [], {}) if isinstance(a, TensorValue) else a for a in args]
    differentiated = torch.is_grad_enabled() and any(_needs_grad(a) for a in args)
    with torch.no_grad():  # as autograd calls both
        if separate:
            outputs = forward.call(m, clones, {})
            cls.attribute(m, "setup_context").call(m, [ctx, TupleValue(list(clones)), outputs], {})
        else:
            outputs = forward.call(m, [ctx, *clones], {})
        if differentiated:
            results = outputs.items_list(m) if isinstance(outputs, TupleValue) else [outputs]
            _rehearse_backward(m, cls, ctx, [m.wrap.force(r) for r in results])
    met = [value for _, value in m.record.tensor_of_fake.values() if isinstance(value, TensorValue)]
    tagged = any(v.extra for v in met if v.node not in known)  # these stand for the caller's tensors, and for results
    if tagged or (set(m.effects.mutated), len(m.effects.deferred)) != effects:
        raise Break(
            f"autograd function `{cls.real.__qualname__}`",
            "its forward or backward changes something besides ctx",
            "return what changes as an output instead",
        )
    for node in reversed(needing([n for n in m.record.graph.nodes if n not in known and n.op != "placeholder"])):
        m.record.graph.erase_node(node)


def _rehearse_backward(m: Machine, cls: ClassValue, ctx: InstanceValue, results: list[Value]) -> None:
    """Evaluate backward, with results in place of their gradients. A backward that applies its own function, or one that
    leads back to it, as those that can be differentiated many times do, is evaluated once."""
    if cls.real in m.record.rehearsed or not any(isinstance(r, TensorValue) for r in results):
        return
    without = [m.wrap.force(v) for v in ctx.attribute(m, "non_differentiable").items_list(m)]
    if ctx.attribute(m, "materializes_grads").truth(m):
        without = []  # they are given zeros
    given = [r if isinstance(r, TensorValue) and r not in without else Constant(None) for r in results]
    m.record.rehearsed.append(cls.real)
    try:
        _backward_of(m, cls).call(m, [ctx, *given], {})
    except Raised as error:
        raise Break(
            f"autograd function `{cls.real.__qualname__}`",
            "its backward raises, which autograd does when it reaches it",
            "let it return gradients for what its forward returns here",
        ) from error
    finally:
        m.record.rehearsed.pop()


def _backward_of(m: Machine, cls: ClassValue) -> Value:
    """The user's backward. What `once_differentiable` puts around it matters to autograd alone."""
    backward = cls.attribute(m, "backward")
    real: Any = getattr(backward, "real", None)
    return m.wrap.object(real.__wrapped__) if getattr(real, "__code__", None) is ONCE else backward


ONCE = torch.autograd.function.once_differentiable(lambda ctx: None).__code__


def _needs_grad(value: Value) -> bool:
    return isinstance(value, TensorValue) and value.fake.requires_grad


@handles(torch.utils.checkpoint.checkpoint)
def checkpoint(m: Machine, function: Value, *args: Value, use_reentrant: Value | None = None, **kwargs: Value) -> Value:
    """The function's nodes, marked in torch's words, which its printers and partitioners know: they are computed again in the backward."""
    if use_reentrant is None or (isinstance(use_reentrant, Constant) and use_reentrant.value is None):
        raise Break("torch.utils.checkpoint", "it warns that use_reentrant is not given", "pass use_reentrant=False")
    if use_reentrant.truth(m) and not any(_needs_grad(m.wrap.force(a)) for a in args):
        raise Break(
            "torch.utils.checkpoint with use_reentrant=True",
            "none of its arguments needs a gradient: it warns, and gives none to parameters",
            "pass use_reentrant=False",
        )
    for name in ("preserve_rng_state", "context_fn", "determinism_check", "debug", "early_stop"):
        kwargs.pop(name, None)
    known = set(m.record.graph.nodes)
    result = function.call(m, list(args), kwargs)
    region = next(m.counter)
    for node in m.record.graph.nodes:
        if node not in known:
            node.meta.setdefault("recompute", torch.utils.checkpoint.CheckpointPolicy.PREFER_RECOMPUTE)
            node.meta["ac_graph_id"] = (
                region  # the outermost: what lies inside is not there before it is computed again
            )
    return result
