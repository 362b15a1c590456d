"""Attention kernels: the results of each fused form that eager may pick, with the layouts those kernels write."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.fake.meta import Meta, Size, alike, dense, meta_of, strides_in_order
from stoker.fake.rule import decline_if, rule
from stoker.fake.tensor import FakeTensor

_HEADS_INSIDE = (0, 2, 1, 3)
"""Memory order batch, sequence, heads, features: what the flash kernels write."""


def _inside(meta: Meta, sizes: tuple[Size, ...]) -> Meta:
    return meta_of(meta.dtype, sizes, strides_in_order(sizes, _HEADS_INSIDE), meta.device)


def _like(meta: Meta, sizes: tuple[Size, ...]) -> Meta:
    """What `empty_like` of the query makes, seen through the kernel's transpose: the query's own order of memory."""
    return alike(meta) if sizes == meta.sizes else _inside(meta, sizes)


@rule("_scaled_dot_product_flash_attention_for_cpu")
def flash_cpu(q: FakeTensor, k: FakeTensor, v: FakeTensor, *rest: Any, **others: Any) -> tuple[Meta, Meta]:
    """The result and the logarithm of each row's sum."""
    m = q.meta
    batch, heads, length, _ = m.sizes
    saved = torch.float64 if m.dtype is torch.float64 else torch.float32
    sums = meta_of(saved, (batch, heads, length), (length * heads, 1, heads), m.device)  # heads lie inside
    return _like(m, (batch, heads, length, v.meta.sizes[3])), sums


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
    result, sums = _like(m, (batch, heads, length, v.meta.sizes[3])), dense(m, (batch, heads, length), torch.float32)
    state = dense(m, (2,), torch.uint64), dense(m, (), torch.uint64)
    return result, sums, None, None, length, keys, *state, dense(m, debug)


@rule("_scaled_dot_product_efficient_attention")
def efficient(
    q: FakeTensor, k: FakeTensor, v: FakeTensor, attn_bias: Any, compute_log_sumexp: bool, *rest: Any, **others: Any
) -> tuple[Meta, ...]:
    """Result, row sums padded to 32 (only for a gradient), and the random seed and offset."""
    m = q.meta
    batch, heads, length, _ = m.sizes
    padded = (length + 31) // 32 * 32 if compute_log_sumexp else 0
    seed = dense(m, (), torch.int64)
    result, sums = _inside(m, (batch, heads, length, v.meta.sizes[3])), dense(m, (batch, heads, padded), torch.float32)
    return result, sums, seed, seed


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
        strides = dense(b, (*b.sizes[:-1], width)).strides
        bias = meta_of(b.dtype, b.sizes, strides, b.device)
    return (*(_inside(t.meta, t.meta.sizes) for t in (q, k, v)), bias)


@rule("_scaled_dot_product_cudnn_attention")
def cudnn(
    q: FakeTensor, k: FakeTensor, v: FakeTensor, attn_bias: Any, compute_log_sumexp: bool, *rest: Any, **others: Any
) -> tuple[Any, ...]:
    """Result laid out like the query, row sums, lengths, random state, debug mask."""
    m = q.meta
    batch, heads, length, _ = m.sizes
    sizes = (batch, heads, length, v.meta.sizes[3])
    result = _inside(m, sizes) if m.strides[1] < m.strides[2] else dense(m, sizes)
    sums = dense(m, (batch, heads, length, 1) if compute_log_sumexp else (0,), torch.float32)
    state = dense(m, (), torch.int64)
    return result, sums, None, None, length, k.meta.sizes[2], state, state, dense(m, (0,))


def _register_gradients(name: str, laid: Callable[[Meta], Meta]) -> None:
    def gradients(grad: Any, q: FakeTensor, k: FakeTensor, v: FakeTensor, *rest: Any, **o: Any) -> tuple[Meta, ...]:
        return tuple(laid(t.meta) for t in (q, k, v))

    rule(f"_scaled_dot_product_{name}_backward")(gradients)


_register_gradients("flash_attention_for_cpu", lambda m: _inside(m, m.sizes))
_register_gradients("flash_attention", alike)
_register_gradients("cudnn_attention", alike)


@rule("_scaled_dot_product_fused_attention_overrideable_backward")
def overrideable_backward(grad: Any, *rest: Any, **others: Any) -> tuple[Meta | None, ...]:
    """Of query, key, value and bias, each laid out like what it is the gradient of."""
    return tuple(None if t is None else alike(t.meta) for t in rest[:4])


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
    decline_if(need_weights)
    m = q.meta
    return dense(m, (*m.sizes[:2], proj_weight.meta.sizes[0])), None


@rule("_transformer_encoder_layer_fwd")
def encoder_layer(x: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """All of a layer of an encoder: contiguous, whatever it is given."""
    decline_if(len(x.meta.sizes) != 3)
    return dense(x.meta)
