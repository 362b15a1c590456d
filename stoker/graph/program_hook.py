"""Hooks of the program that do more than compute, as operators of a graph: autograd calls them, whenever a backward comes by.

A call of a graph has a key for each: a tensor made before it, which the hook is attached to behind it, and which its backward keeps. What
a hook may keep, and what it gives, are tensors of their own: memory of a compiled graph is used again.
"""

from __future__ import annotations

import itertools
import traceback
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakValueDictionary

import torch
from torch.utils.hooks import RemovableHandle

from stoker import torch_private
from stoker.fake import FakeTensor

_numbers = itertools.count()
_attached: WeakValueDictionary[int, OrderedDict[int, Any]] = WeakValueDictionary()
"""The hooks at each key, which holds them."""


def new_key(_: object) -> torch.Tensor:
    return torch.tensor(next(_numbers))


def attach(key: torch.Tensor, hook: Any) -> RemovableHandle:
    """What `register_hook` gives."""
    hooks = key.hooks = _attached[int(key)] = OrderedDict()  # type: ignore[attr-defined]  # ours
    handle = RemovableHandle(hooks)
    hooks[handle.id] = hook
    return handle


class ProgramHook:
    """`Tensor.register_hook` of the hook that will be attached to a key."""

    def __init__(self) -> None:
        self.__name__ = self.__qualname__ = "register_hook_of_program"
        self.__module__ = __name__

    def __call__(self, tensor: torch.Tensor, key: torch.Tensor) -> tuple[()]:
        tensor.register_hook(lambda grad: (call_hooks if isinstance(grad, FakeTensor) else _replaced)(grad, key))
        return ()


def _replaced(gradient: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    for hook in tuple(_attached.get(int(key), {}).values()):
        made = _run(hook, gradient)
        gradient = gradient if made is None else made
    return gradient


def _run(hook: Any, *given: Any) -> Any:
    return hook(*given)


def is_of_hook(error: BaseException) -> bool:
    """Did a hook of the program raise it? To differentiate again would call hooks again."""
    return any(frame.f_code is _run.__code__ for frame, _ in traceback.walk_tb(error.__traceback__))


@torch.library.custom_op("stoker_program::call_hooks", mutates_args=())
def call_hooks(gradient: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    with torch_private.above_autograd():
        made = _replaced(gradient.clone(), key)
    return torch.empty_like(gradient).copy_(made)


@call_hooks.register_fake
def _(gradient: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(gradient)


BEFORE, AFTER = 0, 1
"""The hooks that are called before a module's backward, and those behind it."""


def attach_to_module(key: torch.Tensor, before: Any, after: Any) -> None:
    key.hooks = _attached[int(key)] = OrderedDict({BEFORE: before, AFTER: after})  # type: ignore[attr-defined]  # ours


def module_graph(number: int, places: list[bool]) -> Callable[..., list[torch.Tensor]]:
    """In place of a graph, of the gradients of a module's inputs that need one, of that of its output, and of a key. `places`: which of its
    inputs those are."""

    def called(*given: Any) -> list[torch.Tensor]:
        gradients, key = given[-2:-1] if number == BEFORE else given[:-1], given[-1]
        call = call_module_hooks if isinstance(gradients[0], FakeTensor) else _of_module
        return call(gradients, key, number, places)

    return called


def _replaceable(gradients: Sequence[torch.Tensor], number: int) -> Sequence[torch.Tensor]:
    return gradients if number == BEFORE else gradients[:-1]


def _of_module(
    gradients: Sequence[torch.Tensor], key: torch.Tensor, number: int, places: Sequence[bool]
) -> list[torch.Tensor]:
    *of_inputs, of_output = gradients
    rest, was = iter(of_inputs), _replaceable(gradients, number)
    inputs = [] if number == BEFORE else [tuple(next(rest) if here else None for here in places)]
    made = _run(_attached[int(key)][number], *inputs, (of_output,))
    if made is None:
        return list(was)
    made = made if number == BEFORE else [gradient for gradient, here in zip(made, places) if here]
    return [torch.zeros_like(old) if new is None else new for new, old in zip(made, was)]


@torch.library.custom_op("stoker_program::call_module_hooks", mutates_args=())
def call_module_hooks(
    gradients: Sequence[torch.Tensor], key: torch.Tensor, number: int, places: Sequence[bool]
) -> list[torch.Tensor]:
    with torch_private.above_autograd():
        made = _of_module([gradient.clone() for gradient in gradients], key, number, places)
    return [torch.empty_like(old).copy_(new) for new, old in zip(made, _replaceable(gradients, number))]


@call_module_hooks.register_fake
def _(gradients: Sequence[torch.Tensor], key: torch.Tensor, number: int, places: Sequence[bool]) -> list[torch.Tensor]:
    return [torch.empty_like(gradient) for gradient in _replaceable(gradients, number)]
