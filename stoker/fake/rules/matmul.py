"""Matrix products: fresh contiguous results, all operands of one type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, dense, iterator_strides, meta_of, same
from stoker.fake.promote import broadcast, common_device, result_dtype
from stoker.fake.rule import decline_if, rule
from stoker.fake.tensor import FakeTensor


def _check(rank: int, *tensors: FakeTensor) -> torch.device:
    first = tensors[0].meta
    decline_if(any(len(t.meta.sizes) != rank or t.meta.dtype is not first.dtype for t in tensors))
    decline_if(any(t.meta.device != first.device for t in tensors))
    return first.device


@rule("mm")
def mm(a: FakeTensor, b: FakeTensor, out_dtype: torch.dtype | None = None) -> Meta:
    device = _check(2, a, b)
    (n, k), (k2, m) = a.meta.sizes, b.meta.sizes
    decline_if(k is not k2 and k != k2)
    return meta_of(out_dtype or a.meta.dtype, (n, m), None, device)


def _added(x: FakeTensor, product: Meta) -> Meta:
    """A term that must broadcast to the product and share its type."""
    decline_if(x.meta.dtype is not product.dtype or x.meta.device != product.device)
    decline_if(len(x.meta.sizes) > len(product.sizes))
    decline_if(not same(broadcast([x.meta.sizes, product.sizes]), product.sizes))
    return product


@rule("bmm")
def bmm(a: FakeTensor, b: FakeTensor, out_dtype: torch.dtype | None = None) -> Meta:
    device = _check(3, a, b)
    (batch, n, k), (batch2, k2, m) = a.meta.sizes, b.meta.sizes
    decline_if(batch != batch2 or k != k2)
    return meta_of(out_dtype or a.meta.dtype, (batch, n, m), None, device)


def _register_added(product: Callable[..., Meta], *names: str) -> None:
    def function(x: FakeTensor, a: FakeTensor, b: FakeTensor, *rest: Any, **scales: Any) -> Meta:
        return _added(x, product(a, b))

    rule(*names)(function)


@rule("addbmm")
def addbmm(x: FakeTensor, a: FakeTensor, b: FakeTensor, **scales: Any) -> Meta:
    product = bmm(a, b)
    return _added(x, dense(product, product.sizes[1:]))


@rule("mv")
def mv(a: FakeTensor, v: FakeTensor) -> Meta:
    decline_if(len(a.meta.sizes) != 2 or len(v.meta.sizes) != 1 or a.meta.dtype is not v.meta.dtype)
    decline_if(a.meta.sizes[1] != v.meta.sizes[0] or a.meta.device != v.meta.device)
    return dense(a.meta, a.meta.sizes[:1])


_register_added(mm, "addmm", "_addmm_activation")
_register_added(bmm, "baddbmm")
_register_added(mv, "addmv")


@rule("dot", "vdot")
def dot(a: FakeTensor, b: FakeTensor) -> Meta:
    device = _check(1, a, b)
    decline_if(a.meta.sizes[0] != b.meta.sizes[0])
    return meta_of(a.meta.dtype, (), None, device)


@rule("addr")
def addr(x: FakeTensor, a: FakeTensor, b: FakeTensor, **scales: Any) -> Meta:
    _check(1, a, b)
    shape = (a.meta.sizes[0], b.meta.sizes[0])
    decline_if(not same(broadcast([x.meta.sizes, shape]), shape))
    column, row = ((shape[0], 1), (a.meta.strides[0], 0)), ((1, shape[1]), (0, b.meta.strides[0]))
    strides = iterator_strides(shape, [(x.meta.sizes, x.meta.strides), column, row])
    return meta_of(result_dtype((x, a, b)), shape, strides, common_device([a, b]))


@rule("_int_mm")
def int_mm(a: FakeTensor, b: FakeTensor) -> Meta:
    """int8 products summed in int32."""
    return dense(mm(a, b), dtype=torch.int32)


@rule("_trilinear.default")
def trilinear(
    a: FakeTensor,
    b: FakeTensor,
    c: FakeTensor,
    expand1: Sequence[int],
    expand2: Sequence[int],
    expand3: Sequence[int],
    sumdim: Sequence[int],
    unroll_dim: int = 1,
) -> Meta:
    """The product of three that are given dimensions of one element each, summed over some: a bilinear layer."""
    operands = list(zip((a, b, c), (expand1, expand2, expand3)))
    rank = len(a.meta.sizes) + len(expand1)
    decline_if(any(len(t.meta.sizes) + len(dims) != rank or t.meta.dtype is not a.meta.dtype for t, dims in operands))
    sizes = [list(t.meta.sizes) for t, _ in operands]
    for found, (_, dims) in zip(sizes, operands):
        for dim in sorted(dims):
            found.insert(dim, 1)
    summed = {dim % rank for dim in sumdim}
    whole = broadcast([tuple(found) for found in sizes])
    return dense(a.meta, [s for dim, s in enumerate(whole) if dim not in summed])
