"""Attention kernels: the results of each fused form that eager may pick, with the layouts those kernels write."""

from __future__ import annotations

from typing import Any

import torch

from stoker.fake.meta import Meta, Size, like_strides, meta_of, strides_in_order
from stoker.fake.rule import Decline, rule
from stoker.fake.tensor import FakeTensor

_HEADS_INSIDE = (0, 2, 1, 3)
"""Memory order batch, sequence, heads, features: what the flash kernels write."""


def _inside(meta: Meta, sizes: tuple[Size, ...]) -> Meta:
    return meta_of(meta.dtype, sizes, strides_in_order(sizes, _HEADS_INSIDE), meta.device)


def _random_state(meta: Meta, *sizes: Size) -> Meta:
    return meta_of(torch.uint64, sizes, None, meta.device)


def _like(meta: Meta, sizes: tuple[Size, ...]) -> Meta:
    """What `empty_like` of the query makes, seen through the kernel's transpose: the query's own order of memory."""
    if sizes == meta.sizes:
        return meta_of(meta.dtype, sizes, like_strides(sizes, meta.strides), meta.device)
    return _inside(meta, sizes)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def flash_cpu(q: FakeTensor, k: FakeTensor, v: FakeTensor, *rest: Any, **others: Any) -> tuple[Meta, Meta]:
    """The result and the logarithm of each row's sum."""
    m = q.meta
    batch, heads, length, _ = m.sizes
    saved = torch.float64 if m.dtype is torch.float64 else torch.float32
    rows = (batch, length, heads)
    sums = meta_of(saved, (batch, heads, length), _transposed(rows), m.device)
    return _like(m, (batch, heads, length, v.meta.sizes[3])), sums


def _transposed(rows: tuple[Size, ...]) -> tuple[Size, ...]:
    """Strides of (batch, heads, length) stored as (batch, length, heads)."""
    batch, length, heads = rows
    return (length * heads, 1, heads)


@rule("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_cpu_backward(
    grad: Any, q: FakeTensor, k: FakeTensor, v: FakeTensor, *rest: Any, **o: Any
) -> tuple[Meta, ...]:
    """Gradients in the kernel's own layout."""
    return tuple(_inside(t.meta, t.meta.sizes) for t in (q, k, v))


@rule("_scaled_dot_product_flash_attention")
def flash(
    q: FakeTensor,
    k: FakeTensor,
    v: FakeTensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    **others: Any,
) -> tuple[Any, ...]:
    """Result, row sums, cumulative lengths (none), longest lengths, random state, debug mask."""
    m = q.meta
    batch, heads, length, _ = m.sizes
    keys = k.meta.sizes[2]
    debug: tuple[Size, ...] = (0,)
    if return_debug_mask:
        block = 64 if m.sizes[3] > 64 else 128
        width = (keys + block - 1) // block * block
        debug = (batch, heads, (length + 127) // 128 * 128, 128 if keys <= 128 else torch.sym_max(width, 256))
    return (
        _like(m, (batch, heads, length, v.meta.sizes[3])),
        meta_of(torch.float32, (batch, heads, length), None, m.device),
        None,
        None,
        length,
        keys,
        _random_state(m, 2),
        _random_state(m),
        meta_of(m.dtype, debug, None, m.device),
    )


@rule("_scaled_dot_product_flash_attention_backward")
def flash_backward(grad: Any, q: FakeTensor, k: FakeTensor, v: FakeTensor, *rest: Any, **o: Any) -> tuple[Meta, ...]:
    """Each gradient is laid out as its tensor."""
    return tuple(_like(t.meta, t.meta.sizes) for t in (q, k, v))


@rule("_scaled_dot_product_efficient_attention")
def efficient(
    q: FakeTensor,
    k: FakeTensor,
    v: FakeTensor,
    attn_bias: FakeTensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    **others: Any,
) -> tuple[Meta, ...]:
    """Result, row sums padded to 32 (only for a gradient), and the random seed and offset."""
    m = q.meta
    batch, heads, length, _ = m.sizes
    padded = (length + 31) // 32 * 32 if compute_log_sumexp else 0
    seed = meta_of(torch.int64, (), None, m.device)
    return (
        _inside(m, (batch, heads, length, v.meta.sizes[3])),
        meta_of(torch.float32, (batch, heads, padded), None, m.device),
        seed,
        seed,
    )


@rule("_scaled_dot_product_efficient_attention_backward")
def efficient_backward(
    grad: Any,
    q: FakeTensor,
    k: FakeTensor,
    v: FakeTensor,
    attn_bias: FakeTensor | None,
    out: Any,
    logsumexp: Any,
    seed: Any,
    offset: Any,
    dropout_p: float,
    grad_input_mask: Any,
    *rest: Any,
    **others: Any,
) -> tuple[Meta | None, ...]:
    """Gradients of query, key, value and bias."""
    bias = None
    if attn_bias is not None and grad_input_mask[3]:
        b = attn_bias.meta
        width = (b.sizes[-1] + 15) // 16 * 16
        strides = meta_of(b.dtype, (*b.sizes[:-1], width), None, b.device).strides
        bias = meta_of(b.dtype, b.sizes, strides, b.device)
    return (*(_inside(t.meta, t.meta.sizes) for t in (q, k, v)), bias)


@rule("_scaled_dot_product_cudnn_attention")
def cudnn(
    q: FakeTensor,
    k: FakeTensor,
    v: FakeTensor,
    attn_bias: FakeTensor | None,
    compute_log_sumexp: bool,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    return_debug_mask: bool = False,
    **others: Any,
) -> tuple[Any, ...]:
    """Result laid out like the query, row sums, lengths, random state, debug mask."""
    m = q.meta
    batch, heads, length, _ = m.sizes
    sizes = (batch, heads, length, v.meta.sizes[3])
    result = meta_of(m.dtype, sizes, _ordered_like(m, sizes), m.device)
    sums = (batch, heads, length, 1) if compute_log_sumexp else (0,)
    state = meta_of(torch.int64, (), None, m.device)
    return (
        result,
        meta_of(torch.float32, sums, None, m.device),
        None,
        None,
        length,
        k.meta.sizes[2],
        state,
        state,
        meta_of(m.dtype, (0,), None, m.device),
    )


def _ordered_like(meta: Meta, sizes: tuple[Size, ...]) -> tuple[Size, ...]:
    """Dense strides with the query's order of dimensions."""
    inside = meta.strides[1] < meta.strides[2]
    return strides_in_order(sizes, _HEADS_INSIDE if inside else (0, 1, 2, 3))


@rule("_scaled_dot_product_cudnn_attention_backward")
def cudnn_backward(grad: Any, q: FakeTensor, k: FakeTensor, v: FakeTensor, *rest: Any, **o: Any) -> tuple[Meta, ...]:
    """Gradients laid out like what they are gradients of."""
    return tuple(
        meta_of(t.meta.dtype, t.meta.sizes, like_strides(t.meta.sizes, t.meta.strides), t.meta.device)
        for t in (q, k, v)
    )


@rule("_scaled_dot_product_fused_attention_overrideable_backward")
def overrideable_backward(
    grad: Any, q: FakeTensor, k: FakeTensor, v: FakeTensor, bias: Any, *rest: Any, **o: Any
) -> Any:
    """Gradients laid out like what they are gradients of."""
    given = (q, k, v, bias)
    return tuple(
        None
        if t is None
        else meta_of(t.meta.dtype, t.meta.sizes, like_strides(t.meta.sizes, t.meta.strides), t.meta.device)
        for t in given
    )


@rule("_native_multi_head_attention")
def native(
    q: FakeTensor,
    k: FakeTensor,
    v: FakeTensor,
    embed_dim: int,
    num_head: int,
    qkv_weight: FakeTensor,
    qkv_bias: FakeTensor,
    proj_weight: FakeTensor,
    proj_bias: FakeTensor,
    mask: FakeTensor | None = None,
    need_weights: bool = True,
    *rest: Any,
    **others: Any,
) -> tuple[Meta, None]:
    """Without weights there is no second result, where torch's own metadata has a tensor without elements."""
    if need_weights:
        raise Decline
    m = q.meta
    return meta_of(m.dtype, (*m.sizes[:2], proj_weight.meta.sizes[0]), None, m.device), None


@rule("_transformer_encoder_layer_fwd")
def encoder_layer(x: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """All of a layer of an encoder: contiguous, whatever it is given."""
    if len(x.meta.sizes) != 3:
        raise Decline
    return meta_of(x.meta.dtype, x.meta.sizes, None, x.meta.device)
