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


@decompose("unsafe_split.Tensor", "unsafe_split_with_sizes.default")
def unsafe_split(x: Tensor, sizes: int | list[int], dim: int = 0) -> list[Tensor]:
    """Unsafe for autograd alone, which has passed."""
    return list(x.split(sizes, dim))


@decompose("as_strided_scatter.default")
def as_strided_scatter(
    base: Tensor, source: Tensor, sizes: list[int], strides: list[int], offset: int | None = None
) -> Tensor:
    """By indices into the flat base. Where the base lies in its memory is not the operator's to know: a planned buffer has
    another place than an allocated one, and offsets count from the start of memory."""
    if not base.is_contiguous():
        return NotImplemented
    start = 0 if offset is None else offset - int(base.storage_offset())
    place = torch.full((), start, dtype=torch.int64, device=base.device)
    for dim, (size, stride) in enumerate(zip(sizes, strides)):
        steps = torch.arange(size, dtype=torch.int64, device=base.device) * stride
        place = place + steps.view([-1] + [1] * (len(sizes) - 1 - dim))
    index = place.expand(sizes).reshape(-1)
    values = source.to(base.dtype).expand(sizes).reshape(-1)
    return base.reshape(-1).index_put([index], values).view(base.shape)


@decompose("rot90.default")
def rot90(x: Tensor, times: int = 1, dims: list[int] = (0, 1)) -> Tensor:  # type: ignore[assignment]  # torch's own default
    a, b = dims
    match times % 4:
        case 1:
            return x.flip(b).transpose(a, b)
        case 2:
            return x.flip(a, b)
        case 3:
            return x.flip(a).transpose(a, b)
    return x.clone()


@decompose("narrow_copy.default")
def narrow_copy(x: Tensor, dim: int, start: int, length: int) -> Tensor:
    return x.narrow(dim, start, length).clone()


@decompose("linalg_cross.default")
def cross(x: Tensor, y: Tensor, *, dim: int = -1) -> Tensor:
    if x.is_complex() or x.dtype is not y.dtype:  # which eager refuses
        return NotImplemented
    x, y = torch.broadcast_tensors(x, y)
    return x.roll(-1, dim) * y.roll(-2, dim) - x.roll(-2, dim) * y.roll(-1, dim)
