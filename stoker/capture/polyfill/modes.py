"""Context managers that turn a mode of torch's on or off for a while."""

from __future__ import annotations

from collections.abc import Iterator

from stoker import torch_private


def without_saved_tensors_hooks(words: str) -> Iterator[None]:
    """The generator behind `torch.autograd.graph.disable_saved_tensors_hooks`."""
    before = torch_private.saved_tensors_hooks_refusal()
    torch_private.refuse_saved_tensors_hooks(words)
    try:
        yield
    finally:
        torch_private.refuse_saved_tensors_hooks(before)
