"""Hooks of tensors that a backward inside captured code calls, as autograd's engine does, without grad; and hooks of modules."""

from __future__ import annotations

from typing import Any

import torch


def replaced(gradient: Any, hooks: Any) -> Any:
    """What a tensor's hooks make of its gradient."""
    with torch.no_grad():
        for hook in hooks:
            made = hook(gradient)
            if made is not None:
                gradient = made
    return gradient


def told(tensor: Any, hooks: Any) -> None:
    """Hooks that are called once the gradient is in `.grad`."""
    with torch.no_grad():
        for hook in hooks:
            hook(tensor)


def before_module(module: Any, hooks: Any, gradients: Any) -> Any:
    """What the hooks before a module's backward make of the gradient of its output; nothing, if they leave it."""
    found = gradients
    for hook in hooks:
        made = hook(module, found)
        if made is not None:
            found = _all_of(made, found, "Backward pre hook returned an invalid number of grad_output")
    return None if found is gradients else found


def after_module(module: Any, hooks: Any, of_inputs: Any, of_output: Any) -> Any:
    """What a module's full backward hooks make of the gradients of its inputs; nothing, if they leave them."""
    found = of_inputs
    for hook in hooks:
        made = hook(module, found, of_output)
        if made is not None:
            found = _all_of(made, found, "Backward hook returned an invalid number of grad_input")
    return None if found is of_inputs else found


def _all_of(made: Any, given: Any, words: str) -> Any:
    if len(made) != len(given):
        raise RuntimeError(f"{words}, got {len(made)}, but expected {len(given)}")
    return made


def packed_and_unpacked(pack: Any, unpack: Any, tensor: Any) -> Any:
    """What hooks on saved tensors make of one."""
    return unpack(pack(tensor))
