"""Views in terms of `permute`, `view`, `slice`, `select` and `expand`; joins in terms of `cat`."""

from __future__ import annotations

import torch
from torch import Tensor

from stoker.decompose.registry import decompose

aten = torch.ops.aten


@decompose("stack.default")
def stack(tensors: list[Tensor], dim: int = 0) -> Tensor:
    dim = dim % (tensors[0].dim() + 1)
    return torch.cat([t.unsqueeze(dim) for t in tensors], dim)


@decompose("copy.default")
def copy(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """The source as the target is. Laid out otherwise, it is left to the operator itself."""
    if source.device != target.device:
        return NotImplemented
    made = source.to(target.dtype).expand(target.shape)
    return made.clone() if made.stride() == target.stride() else NotImplemented
