"""Normalizations and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import (
    Meta,
    Size,
    contiguous_strides,
    formatted_strides,
    like_strides,
    meta_of,
    product,
    same,
    suggests_channels_last,
)
from stoker.fake.rule import IMPURE, Decline, rule
from stoker.fake.tensor import CONTENTS, FakeTensor

_HALF = (torch.float16, torch.bfloat16)


def statistics_dtype(x: FakeTensor, weight: FakeTensor | None) -> torch.dtype:
    """The type of saved means: float for half inputs on an accelerator, or when the CPU's parameters are float."""
    m = x.meta
    if m.dtype not in _HALF:
        return m.dtype
    if m.device.type != "cpu":
        return torch.float32
    return torch.float32 if weight is not None and weight.meta.dtype is torch.float32 else m.dtype


@rule("native_layer_norm")
def layer_norm(
    x: FakeTensor,
    normalized_shape: Sequence[Size],
    weight: FakeTensor | None,
    bias: FakeTensor | None,
    eps: float,
) -> tuple[Meta, Meta, Meta]:
    """The result, means and reciprocal deviations over the last dimensions."""
    m = x.meta
    lead = len(m.sizes) - len(normalized_shape)
    if not normalized_shape or lead < 0 or not same(m.sizes[lead:], normalized_shape):
        raise Decline
    if any(p is not None and not same(p.meta.sizes, normalized_shape) for p in (weight, bias)):
        raise Decline
    stats = (*m.sizes[:lead], *([1] * len(normalized_shape)))
    dtype = statistics_dtype(x, weight if weight is not None else bias)
    saved = meta_of(dtype, stats, None, m.device)
    return meta_of(m.dtype, m.sizes, None, m.device), saved, saved


def _optional(mask: bool, meta: Meta) -> Meta | None:
    return meta if mask else None


@rule("native_layer_norm_backward")
def layer_norm_backward(
    grad: FakeTensor,
    x: FakeTensor,
    normalized_shape: Sequence[Size],
    mean: FakeTensor,
    rstd: FakeTensor,
    weight: FakeTensor | None,
    bias: FakeTensor | None,
    output_mask: Sequence[bool],
) -> tuple[Meta | None, Meta | None, Meta | None]:
    """Gradients of input, weight and bias."""
    m = x.meta
    dtype = weight.meta.dtype if weight is not None else m.dtype
    parameter = meta_of(dtype, normalized_shape, None, m.device)
    return (
        _optional(output_mask[0], meta_of(m.dtype, m.sizes, None, m.device)),
        _optional(output_mask[1] and weight is not None, parameter),
        _optional(output_mask[2] and bias is not None, parameter),
    )


@rule("native_group_norm")
def group_norm(
    x: FakeTensor, weight: Any, bias: Any, N: Size, C: Size, HxW: Size, group: Size, eps: float
) -> tuple[Meta, Meta, Meta]:
    """The result, means and reciprocal deviations of each group."""
    m = x.meta
    if C % group != 0:
        raise Decline
    strides = formatted_strides(m.sizes, m.device.type == "cpu" and suggests_channels_last(m.sizes, m.strides))
    saved = meta_of(statistics_dtype(x, weight), (N, group), None, m.device)
    return meta_of(m.dtype, m.sizes, strides, m.device), saved, saved


@rule("native_group_norm_backward")
def group_norm_backward(
    grad: FakeTensor,
    x: FakeTensor,
    mean: FakeTensor,
    rstd: FakeTensor,
    weight: FakeTensor | None,
    N: Size,
    C: Size,
    HxW: Size,
    group: Size,
    output_mask: Sequence[bool],
) -> tuple[Meta | None, Meta | None, Meta | None]:
    """Gradients of input, weight and bias."""
    m = x.meta
    strides = formatted_strides(m.sizes, m.device.type == "cpu" and suggests_channels_last(m.sizes, m.strides))
    parameter = meta_of(weight.meta.dtype if weight is not None else m.dtype, (C,), None, m.device)
    return (
        _optional(output_mask[0], meta_of(m.dtype, m.sizes, strides, m.device)),
        _optional(output_mask[1], parameter),
        _optional(output_mask[2], parameter),
    )


def _batch_norm_result(x: FakeTensor, by_cudnn: bool = False) -> Meta:
    m = x.meta
    if m.device.type == "cuda" and not by_cudnn:
        return meta_of(m.dtype, m.sizes, like_strides(m.sizes, m.strides), m.device)
    strides = formatted_strides(m.sizes, suggests_channels_last(m.sizes, m.strides))
    return meta_of(m.dtype, m.sizes, strides, m.device)


def _batch_norm(
    x: FakeTensor, weight: FakeTensor | None, running: FakeTensor | None, training: bool
) -> tuple[Meta, Meta, Meta]:
    m = x.meta
    if len(m.sizes) < 2 or product(m.sizes) == 0:
        raise Decline
    channels = m.sizes[1]
    if any(p is not None and not same(p.meta.sizes, (channels,)) for p in (weight, running)):
        raise Decline
    dtype = statistics_dtype(x, weight if weight is not None else running)
    saved = meta_of(dtype, (channels,) if training or m.device.type == "cuda" else (0,), None, m.device)
    return _batch_norm_result(x), saved, saved


@rule("native_batch_norm.default", "cudnn_batch_norm.default", table=IMPURE)
def running_statistics(mode: Any, func: Any, *args: Any) -> Any:
    """It writes to them without saying so."""
    for statistics in args[3:5]:
        if isinstance(statistics, FakeTensor):
            statistics.memory.content = next(CONTENTS)
    return NotImplemented


@rule("native_batch_norm", "_native_batch_norm_legit.default")
def batch_norm(
    x: FakeTensor,
    weight: FakeTensor | None,
    bias: FakeTensor | None,
    running_mean: FakeTensor | None,
    running_var: FakeTensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Meta, Meta, Meta]:
    """The result; means and deviations are saved in training only. Running statistics are written in place."""
    return _batch_norm(x, weight, running_mean, training)


rule("_native_batch_norm_legit.default")(batch_norm)


@rule("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    x: FakeTensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float
) -> tuple[Meta, Meta, Meta]:
    """Without running statistics."""
    return _batch_norm(x, weight, None, training)


@rule("_native_batch_norm_legit_no_training")
def batch_norm_inference(
    x: FakeTensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Meta, Meta, Meta]:
    """With given statistics."""
    return _batch_norm(x, weight, running_mean, False)


@rule("_native_batch_norm_legit_functional")
def batch_norm_functional(
    x: FakeTensor,
    weight: Any,
    bias: Any,
    mean: FakeTensor,
    var: FakeTensor,
    training: bool,
    momentum: float,
    eps: float,
) -> tuple[Meta, ...]:
    """Running statistics returned instead of written."""
    copies = (meta_of(s.meta.dtype, s.meta.sizes, None, s.meta.device) for s in (mean, var))
    return (*_batch_norm(x, weight, mean, training), *copies)


@rule("cudnn_batch_norm")
def cudnn_batch_norm(
    x: FakeTensor, weight: FakeTensor, bias: Any, mean: Any, var: Any, training: bool, factor: float, eps: float
) -> tuple[Meta, ...]:
    """cuDNN's form has a reserve buffer; its size is cuDNN's secret, and only its gradient reads it."""
    _batch_norm(x, weight, mean, training)  # declines what it does not take
    result = _batch_norm_result(x, by_cudnn=True)
    saved = meta_of(weight.meta.dtype, weight.meta.sizes if training else (0,), None, x.meta.device)
    return result, saved, saved, meta_of(torch.uint8, (0,), None, x.meta.device)


@rule("cudnn_batch_norm_backward")
def cudnn_batch_norm_backward(
    x: FakeTensor, grad: FakeTensor, weight: FakeTensor, *rest: Any
) -> tuple[Meta, Meta, Meta]:
    """Gradients of input, weight and bias."""
    parameter = meta_of(weight.meta.dtype, weight.meta.sizes, None, x.meta.device)
    return _batch_norm_result(x, by_cudnn=True), parameter, parameter


@rule("_batch_norm_with_update", "_batch_norm_with_update.default", "_batch_norm_no_update")
def batch_norm_with_update(
    x: FakeTensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, momentum: float, eps: float
) -> tuple[Meta, ...]:
    """The form with a reserve buffer."""
    return (*_batch_norm(x, weight, running_mean, True), meta_of(torch.uint8, (0,), None, x.meta.device))


@rule("native_batch_norm_backward")
def batch_norm_backward(
    grad: FakeTensor,
    x: FakeTensor,
    weight: FakeTensor | None,
    running_mean: Any,
    running_var: Any,
    save_mean: Any,
    save_invstd: Any,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[Meta | None, Meta | None, Meta | None]:
    """Gradients of input, weight and bias."""
    m = x.meta
    parameter = meta_of(weight.meta.dtype if weight is not None else m.dtype, (m.sizes[1],), None, m.device)
    # CUDA's evaluation kernel writes the gradient contiguous, whatever the input's format.
    plain = m.device.type == "cuda" and not train
    return (
        _optional(output_mask[0], meta_of(m.dtype, m.sizes, None, m.device) if plain else _batch_norm_result(x)),
        _optional(output_mask[1], parameter),
        _optional(output_mask[2], parameter),
    )


@rule("_fused_rms_norm")
def rms_norm(x: FakeTensor, normalized_shape: Sequence[Size], weight: Any, eps: Any) -> tuple[Meta, Meta]:
    """The result and reciprocal norms."""
    m = x.meta
    lead = len(m.sizes) - len(normalized_shape)
    stats = (*m.sizes[:lead], *([1] * len(normalized_shape)))
    dtype = torch.float32 if m.dtype in _HALF else m.dtype
    return meta_of(m.dtype, m.sizes, None, m.device), meta_of(dtype, stats, None, m.device)


@rule("_fused_rms_norm_backward")
def rms_norm_backward(
    grad: FakeTensor, x: FakeTensor, shape: Sequence[Size], rstd: Any, weight: FakeTensor | None, mask: Sequence[bool]
) -> tuple[Meta | None, Meta | None]:
    """Gradients of input and weight."""
    m = x.meta
    parameter = meta_of(weight.meta.dtype if weight is not None else m.dtype, shape, None, m.device)
    return _optional(mask[0], meta_of(m.dtype, m.sizes, None, m.device)), _optional(
        mask[1] and weight is not None, parameter
    )


@rule("_weight_norm_interface")
def weight_norm(v: FakeTensor, g: FakeTensor, dim: int = 0) -> tuple[Meta, Meta]:
    """A weight of given norms, and the norms it had."""
    m = v.meta
    norms = meta_of(torch.float32 if m.dtype in _HALF else g.meta.dtype, g.meta.sizes, None, m.device)
    strides = like_strides(m.sizes, m.strides) if m.device.type != "cpu" else contiguous_strides(m.sizes)
    return meta_of(m.dtype, m.sizes, strides, m.device), norms


@rule("_weight_norm_interface_backward")
def weight_norm_backward(grad: Any, v: FakeTensor, g: FakeTensor, norms: Any, dim: int) -> tuple[Meta, Meta]:
    """Gradients of direction and norms."""
    m = v.meta
    return meta_of(m.dtype, m.sizes, like_strides(m.sizes, m.strides), m.device), meta_of(
        g.meta.dtype, g.meta.sizes, None, m.device
    )
