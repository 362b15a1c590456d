"""Autograd's engine as operators of a captured graph: `backward` and `grad` inside a program.

In:  tensors of the program, real ones or fakes.
Out: gradients, as results. The `.grad` of a tensor is an argument and a result, so that a graph changes no tensor's attributes;
     replacement code sets them behind it.

Whoever differentiates a graph runs these on tensors of its own: the formulas of autograd become operators like others.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.hooks import BackwardHook

from stoker import torch_private

Gradients = Sequence[torch.Tensor | None]
Graph = Callable[..., Sequence[torch.Tensor]]


def hooks_of(tensor: torch.Tensor) -> list[Any]:
    """The dictionaries of hooks that the user put on a tensor."""
    return [table for name in HOOK_TABLES if (table := getattr(tensor, name, None))]


HOOK_TABLES = ("_backward_hooks", "_post_accumulate_grad_hooks")


@contextlib.contextmanager
def _silenced(tensors: Sequence[torch.Tensor]) -> Iterator[None]:
    """Hooks that the user put on these tensors are no business of the engine: they are part of the captured program, which calls
    them. Those that the graph itself puts there are."""
    tables = [(table, dict(table)) for tensor in tensors for table in hooks_of(tensor)]
    for table, hooks in tables:
        for key in [key for key, hook in hooks.items() if not isinstance(hook, _GraphOfGradient)]:
            del table[key]
    try:
        yield
    finally:
        for table, hooks in tables:
            table.clear()
            table.update(hooks)


def accumulate(receiver: torch.Tensor, gradient: torch.Tensor, held: torch.Tensor | None) -> torch.Tensor | None:
    """What `.grad` of a leaf is after a backward that brought it this gradient, if it was `held` before."""
    return backward((receiver,), (gradient,), False, False, (), (receiver,), (held,))[0]


def backward(
    tensors: Sequence[torch.Tensor],
    gradients: Gradients,
    keep_graph: bool,
    create_graph: bool,
    inputs: Sequence[torch.Tensor],
    receivers: Sequence[torch.Tensor],
    held: Gradients,
) -> tuple[torch.Tensor | None, ...]:
    """What `.grad` of the receivers is after `torch.autograd.backward`, if it was `held` before. Accumulating writes to these,
    as in eager."""
    with warnings.catch_warnings(
        action="ignore"
    ):  # torch warns of asking tensors in the middle, and it is not the program that asks
        before = [tensor.grad for tensor in receivers]
    for tensor, gradient in zip(receivers, held):
        tensor.grad = gradient
    try:
        with torch.autograd.set_multithreading_enabled(False), _silenced(receivers):
            torch_private.run_backward(
                tuple(tensors),
                _starting(tensors, gradients),
                tuple(inputs),
                keep_graph=keep_graph,
                create_graph=create_graph,
                accumulate=True,
            )
        return tuple(tensor.grad for tensor in receivers)
    finally:
        for tensor, gradient in zip(receivers, before):
            tensor.grad = gradient


def grad(
    outputs: Sequence[torch.Tensor],
    inputs: Sequence[torch.Tensor],
    gradients: Gradients,
    keep_graph: bool,
    create_graph: bool,
    allow_unused: bool,
    materialize: bool,
) -> tuple[torch.Tensor | None, ...]:
    """`torch.autograd.grad`."""
    with torch.autograd.set_multithreading_enabled(False), _silenced(inputs):
        found = torch_private.run_backward(
            tuple(outputs),
            _starting(outputs, gradients),
            tuple(inputs),
            keep_graph=keep_graph,
            create_graph=create_graph,
            allow_unreachable=allow_unused,
        )
    if materialize:
        return tuple(torch.zeros_like(t, requires_grad=create_graph) if g is None else g for t, g in zip(inputs, found))
    return tuple(found)


def _starting(tensors: Sequence[torch.Tensor], gradients: Gradients) -> tuple[torch.Tensor | None, ...]:
    """The gradients that a backward starts with: for a scalar it may be left out."""
    if len(tensors) != len(gradients):
        raise RuntimeError(f"got {len(tensors)} tensors and {len(gradients)} gradients")
    return tuple(_start(tensor, gradient) for tensor, gradient in zip(tensors, gradients))


def _start(tensor: torch.Tensor, gradient: torch.Tensor | None) -> torch.Tensor | None:
    if gradient is not None:
        if gradient.shape != tensor.shape:
            raise RuntimeError(f"Mismatch in shape: a gradient of {gradient.shape} for a tensor of {tensor.shape}")
        return gradient
    if not tensor.requires_grad:
        return None
    if tensor.numel() != 1 or not tensor.dtype.is_floating_point:
        raise RuntimeError("grad can be implicitly created only for real scalar outputs")
    return torch.ones_like(tensor, memory_format=torch.preserve_format)


def receivers_of(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The leaves that a backward from some tensors accumulates into, in the order in which they are met."""
    found: dict[Any, None] = {}
    pending = [t.grad_fn if t.grad_fn is not None else _accumulator(t) for t in reversed(tensors) if t.requires_grad]
    seen = set()
    while pending:
        node = pending.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if hasattr(node, "variable"):
            found[node] = None
        pending += (following for following, _ in reversed(node.next_functions))
    return [node.variable for node in found]


def _accumulator(leaf: torch.Tensor) -> Any:
    """The node that accumulates into a leaf."""
    with torch.enable_grad():
        return leaf.view_as(leaf).grad_fn.next_functions[0][0]  # type: ignore[union-attr]  # a view of a leaf that requires grad


def fill(leaf: torch.Tensor, content: torch.Tensor) -> None:
    with torch.no_grad():
        leaf.copy_(content)


def set_data(tensor: torch.Tensor, new: torch.Tensor) -> None:
    """`tensor.data = new`"""
    tensor.data = new


class Hook:
    """`Tensor.register_hook` of a tensor in the middle of the program: a graph from its gradient to the one that takes its place."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.__name__ = self.__qualname__ = "register_hook"
        self.__module__ = __name__
        self.handles: list[Any] = []

    def __call__(self, tensor: torch.Tensor, operands: Sequence[torch.Tensor], sizes: Sequence[int]) -> tuple[()]:
        self.handles.append(tensor.register_hook(_GraphOfGradient(self.graph, (*operands, *sizes))))
        return ()

    def remove(self) -> None:
        """`handle.remove()`, of the last call."""
        self.handles.pop().remove()


@dataclass(frozen=True, slots=True)
class _GraphOfGradient:
    """What such a hook is while the graph runs."""

    graph: Graph
    operands: tuple[Any, ...]

    def __call__(self, gradient: torch.Tensor) -> torch.Tensor:
        return self.graph(gradient, *self.operands)[0]


class HookedModule:
    """The calls of a module with hooks on its backward that were entered and not left yet."""

    def __init__(self) -> None:
        self.entered: list[tuple[BackwardHook, _HookedCall]] = []


class Entrance:
    """What stands before a module with hooks on its backward: its inputs, behind a node of autograd that calls the hooks."""

    def __init__(self, hooked: HookedModule) -> None:
        self.hooked = hooked
        self.__name__ = self.__qualname__ = "enter_hooked_module"
        self.__module__ = __name__

    def __call__(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
        call = _HookedCall()
        hook = BackwardHook(None, [call.after], [call.before])
        self.hooked.entered.append((hook, call))
        return tuple(hook.setup_input_hook(tuple(tensors)))


class Exit:
    """What stands behind it: `before` is a graph of the gradient of the output, `after` one of those of inputs and of the output's."""

    def __init__(self, hooked: HookedModule, before: Graph | None, after: Graph | None, needed: Sequence[int]) -> None:
        self.hooked, self.before, self.after, self.needed = hooked, before, after, tuple(needed)
        self.__name__ = self.__qualname__ = "leave_hooked_module"
        self.__module__ = __name__

    def __call__(
        self, output: torch.Tensor, operands: Sequence[torch.Tensor], sizes: Sequence[int]
    ) -> tuple[torch.Tensor]:
        hook, call = self.hooked.entered.pop()
        call.exit, call.operands = self, (*operands, *sizes)
        return (hook.setup_output_hook(output),)


class _HookedCall:
    """One call: what its hooks are given besides gradients is known when it is left."""

    exit: Exit
    operands: tuple[Any, ...]

    def before(self, _: None, gradients: Gradients) -> Gradients | None:
        graph = self.exit.before
        return None if graph is None else tuple(graph(*[None] * len(self.exit.needed), *gradients, *self.operands))

    def after(self, _: None, of_inputs: Gradients, of_output: Gradients) -> Gradients | None:
        graph = self.exit.after
        if graph is None:
            return None
        needed = [of_inputs[number] for number in self.exit.needed]
        made = iter(graph(*needed, *of_output, *self.operands))
        return tuple(next(made) if n in self.exit.needed else g for n, g in enumerate(of_inputs))
