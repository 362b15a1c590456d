"""Reading and writing by index, in terms of `index`, `index_put`, `gather` and the scatters of views."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import decompose

aten = torch.ops.aten


@decompose("embedding.default")
def embedding(
    weight: Tensor, indices: Tensor, padding: int = -1, scale_by_frequency: bool = False, sparse: bool = False
) -> Tensor:
    return aten.index.Tensor(weight, [indices])


@decompose("embedding_dense_backward.default")
def embedding_backward(gradient: Tensor, indices: Tensor, rows: Any, padding: int, scale_by_frequency: bool) -> Tensor:
    if scale_by_frequency:
        return NotImplemented
    if padding >= 0:
        skipped = (indices == padding).unsqueeze(-1)
        gradient = torch.where(skipped, torch.zeros((), dtype=gradient.dtype, device=gradient.device), gradient)
    base = torch.zeros((rows, gradient.shape[-1]), dtype=gradient.dtype, device=gradient.device)
    return aten.index_put.default(base, [indices], gradient, True)


@decompose("index_select.default")
def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    if not x.dim() or x.is_complex():
        return NotImplemented
    if not index.dim():
        index = index.unsqueeze(0)
    return aten.index.Tensor(x, [None] * (dim % x.dim()) + [index]).contiguous()


def _into_zeros(scatter: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The gradient of a view: zeros around what came."""

    def gradient_of_view(gradient: Tensor, sizes: Any, *place: Any) -> Tensor:
        return scatter(torch.zeros(sizes, dtype=gradient.dtype, device=gradient.device), gradient, *place)

    return gradient_of_view


for _name in ("select", "slice", "diagonal"):
    decompose(f"{_name}_backward.default")(_into_zeros(getattr(aten, f"{_name}_scatter").default))
