"""Matrix products: fresh contiguous results, all operands of one type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, iterator_strides, meta_of, same
from stoker.fake.promote import broadcast, common_device, result_dtype
from stoker.fake.rule import Decline, rule
from stoker.fake.tensor import FakeTensor


def _check(rank: int, *tensors: FakeTensor) -> torch.device:
    first = tensors[0].meta
    if any(len(t.meta.sizes) != rank or t.meta.dtype is not first.dtype for t in tensors):
        raise Decline
    if any(t.meta.device != first.device for t in tensors):
        raise Decline
    return first.device


@rule("mm")
def mm(a: FakeTensor, b: FakeTensor, out_dtype: torch.dtype | None = None) -> Meta:
    """(n, k) x (k, m)."""
    device = _check(2, a, b)
    (n, k), (k2, m) = a.meta.sizes, b.meta.sizes
    if k is not k2 and k != k2:
        raise Decline
    return meta_of(out_dtype or a.meta.dtype, (n, m), None, device)


def _added(x: FakeTensor, product: Meta) -> Meta:
    """A term that must broadcast to the product and share its type."""
    if x.meta.dtype is not product.dtype or x.meta.device != product.device:
        raise Decline
    if len(x.meta.sizes) > len(product.sizes) or not same(broadcast([x.meta.sizes, product.sizes]), product.sizes):
        raise Decline
    return product


@rule("addmm", "_addmm_activation")
def addmm(x: FakeTensor, a: FakeTensor, b: FakeTensor, *rest: Any, **scales: Any) -> Meta:
    """x + a @ b."""
    return _added(x, mm(a, b))


@rule("bmm")
def bmm(a: FakeTensor, b: FakeTensor, out_dtype: torch.dtype | None = None) -> Meta:
    """A batch of products."""
    device = _check(3, a, b)
    (batch, n, k), (batch2, k2, m) = a.meta.sizes, b.meta.sizes
    if batch != batch2 or k != k2:
        raise Decline
    return meta_of(out_dtype or a.meta.dtype, (batch, n, m), None, device)


@rule("baddbmm")
def baddbmm(x: FakeTensor, a: FakeTensor, b: FakeTensor, *rest: Any, **scales: Any) -> Meta:
    """x + a @ b, in batches."""
    return _added(x, bmm(a, b))


@rule("addbmm")
def addbmm(x: FakeTensor, a: FakeTensor, b: FakeTensor, **scales: Any) -> Meta:
    """x + the sum of a batch of products."""
    product = bmm(a, b)
    return _added(x, meta_of(product.dtype, product.sizes[1:], None, product.device))


@rule("mv")
def mv(a: FakeTensor, v: FakeTensor) -> Meta:
    """(n, k) x (k)."""
    if len(a.meta.sizes) != 2 or len(v.meta.sizes) != 1 or a.meta.dtype is not v.meta.dtype:
        raise Decline
    if a.meta.sizes[1] != v.meta.sizes[0] or a.meta.device != v.meta.device:
        raise Decline
    return meta_of(a.meta.dtype, a.meta.sizes[:1], None, a.meta.device)


@rule("addmv")
def addmv(x: FakeTensor, a: FakeTensor, v: FakeTensor, **scales: Any) -> Meta:
    """x + a @ v."""
    return _added(x, mv(a, v))


@rule("dot", "vdot")
def dot(a: FakeTensor, b: FakeTensor) -> Meta:
    """A sum of products."""
    device = _check(1, a, b)
    if a.meta.sizes[0] != b.meta.sizes[0]:
        raise Decline
    return meta_of(a.meta.dtype, (), None, device)


@rule("addr")
def addr(x: FakeTensor, a: FakeTensor, b: FakeTensor, **scales: Any) -> Meta:
    """x + an outer product."""
    _check(1, a, b)
    shape = (a.meta.sizes[0], b.meta.sizes[0])
    if not same(broadcast([x.meta.sizes, shape]), shape):
        raise Decline
    column, row = ((shape[0], 1), (a.meta.strides[0], 0)), ((1, shape[1]), (0, b.meta.strides[0]))
    strides = iterator_strides(shape, [(x.meta.sizes, x.meta.strides), column, row])
    return meta_of(result_dtype((x, a, b)), shape, strides, common_device([a, b]))


@rule("_int_mm")
def int_mm(a: FakeTensor, b: FakeTensor) -> Meta:
    """int8 products summed in int32."""
    product = mm(a, b)
    return meta_of(torch.int32, product.sizes, None, product.device)


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
    if any(len(t.meta.sizes) + len(dims) != rank or t.meta.dtype is not a.meta.dtype for t, dims in operands):
        raise Decline
    sizes = [list(t.meta.sizes) for t, _ in operands]
    for found, (_, dims) in zip(sizes, operands):
        for dim in sorted(dims):
            found.insert(dim, 1)
    summed = {dim % rank for dim in sumdim}
    whole = broadcast([tuple(found) for found in sizes])
    return meta_of(a.meta.dtype, [s for dim, s in enumerate(whole) if dim not in summed], None, a.meta.device)
