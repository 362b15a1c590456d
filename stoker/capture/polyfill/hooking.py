"""Hooks of tensors that a backward inside captured code calls, as autograd's engine does: without grad."""

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
