"""Normalizations and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, Size, alike, dense, in_format, product, same
from stoker.fake.rule import IMPURE, decline_if, rule
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
    x: FakeTensor, normalized_shape: Sequence[Size], weight: FakeTensor | None, bias: FakeTensor | None, eps: float
) -> tuple[Meta, Meta, Meta]:
    """The result, means and reciprocal deviations over the last dimensions."""
    m = x.meta
    lead = len(m.sizes) - len(normalized_shape)
    decline_if(not normalized_shape or lead < 0 or not same(m.sizes[lead:], normalized_shape))
    decline_if(any(p is not None and not same(p.meta.sizes, normalized_shape) for p in (weight, bias)))
    stats = (*m.sizes[:lead], *([1] * len(normalized_shape)))
    dtype = statistics_dtype(x, weight if weight is not None else bias)
    saved = dense(m, stats, dtype)
    return dense(m), saved, saved


def _parameter(x: FakeTensor, weight: FakeTensor | None, sizes: Sequence[Size]) -> Meta:
    """The gradient of a parameter, which is of the weight's type."""
    return dense(x.meta, sizes, None if weight is None else weight.meta.dtype)


def _wanted(mask: Sequence[Any], *metas: Meta) -> tuple[Meta | None, ...]:
    """The gradients that are asked for."""
    return tuple(meta if want else None for want, meta in zip(mask, metas, strict=True))


def _grouped(x: FakeTensor) -> Meta:
    """Norms of groups keep the memory format on the processor."""
    return in_format(x.meta) if x.meta.device.type == "cpu" else dense(x.meta)


@rule("native_layer_norm_backward")
def layer_norm_backward(
    grad: Any, x: FakeTensor, shape: Sequence[Size], mean: Any, rstd: Any, weight: Any, bias: Any, mask: Sequence[bool]
) -> tuple[Meta | None, ...]:
    parameter, there = _parameter(x, weight, shape), (True, weight is not None, bias is not None)
    return _wanted([a and b for a, b in zip(mask, there)], dense(x.meta), parameter, parameter)


@rule("native_group_norm")
def group_norm(
    x: FakeTensor, weight: Any, bias: Any, N: Size, C: Size, HxW: Size, group: Size, eps: float
) -> tuple[Meta, Meta, Meta]:
    """The result, means and reciprocal deviations of each group."""
    decline_if(C % group != 0)
    saved = dense(x.meta, (N, group), statistics_dtype(x, weight))
    return _grouped(x), saved, saved


@rule("native_group_norm_backward")
def group_norm_backward(
    grad: Any, x: FakeTensor, mean: Any, rstd: Any, weight: Any, N: Size, C: Size, HxW: Size, group: Size, mask: Any
) -> tuple[Meta | None, ...]:
    parameter = _parameter(x, weight, (C,))
    return _wanted(mask, _grouped(x), parameter, parameter)


def _batch_norm_result(x: FakeTensor, by_cudnn: bool = False) -> Meta:
    return alike(x.meta) if x.meta.device.type == "cuda" and not by_cudnn else in_format(x.meta)


def _batch_norm(
    x: FakeTensor, weight: FakeTensor | None, running: FakeTensor | None, training: bool
) -> tuple[Meta, Meta, Meta]:
    m = x.meta
    decline_if(len(m.sizes) < 2 or product(m.sizes) == 0)
    channels = m.sizes[1]
    decline_if(any(p is not None and not same(p.meta.sizes, (channels,)) for p in (weight, running)))
    dtype = statistics_dtype(x, weight if weight is not None else running)
    saved = dense(m, (channels,) if training or m.device.type == "cuda" else (0,), dtype)
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
    x: FakeTensor, weight: Any, bias: Any, mean: Any, var: Any, training: bool, momentum: float, eps: float
) -> tuple[Meta, Meta, Meta]:
    """The result; means and deviations are saved in training only. Running statistics are written in place."""
    return _batch_norm(x, weight, mean, training)


@rule("_native_batch_norm_legit.no_stats")
def batch_norm_without_statistics(
    x: FakeTensor, weight: Any, bias: Any, training: bool, *rest: Any
) -> tuple[Meta, ...]:
    return _batch_norm(x, weight, None, training)


@rule("_native_batch_norm_legit_no_training")
def batch_norm_inference(x: FakeTensor, weight: Any, bias: Any, mean: Any, *rest: Any) -> tuple[Meta, Meta, Meta]:
    return _batch_norm(x, weight, mean, False)


@rule("_native_batch_norm_legit_functional")
def batch_norm_functional(x: FakeTensor, weight: Any, bias: Any, mean: Any, var: Any, *rest: Any) -> tuple[Meta, ...]:
    """Running statistics returned instead of written."""
    return (*_batch_norm(x, weight, mean, rest[0]), dense(mean.meta), dense(var.meta))


@rule("cudnn_batch_norm")
def cudnn_batch_norm(
    x: FakeTensor, weight: FakeTensor, bias: Any, mean: Any, var: Any, training: bool, factor: float, eps: float
) -> tuple[Meta, ...]:
    """cuDNN's form has a reserve buffer; its size is cuDNN's secret, and only its gradient reads it."""
    _batch_norm(x, weight, mean, training)  # declines what it does not take
    result = _batch_norm_result(x, by_cudnn=True)
    saved = dense(x.meta, weight.meta.sizes if training else (0,), weight.meta.dtype)
    return result, saved, saved, dense(x.meta, (0,), torch.uint8)


@rule("cudnn_batch_norm_backward")
def cudnn_batch_norm_backward(
    x: FakeTensor, grad: FakeTensor, weight: FakeTensor, *rest: Any
) -> tuple[Meta, Meta, Meta]:
    parameter = dense(x.meta, weight.meta.sizes, weight.meta.dtype)
    return _batch_norm_result(x, by_cudnn=True), parameter, parameter


@rule("_batch_norm_with_update", "_batch_norm_with_update.default", "_batch_norm_no_update")
def batch_norm_with_update(x: FakeTensor, weight: Any, bias: Any, mean: Any, *rest: Any) -> tuple[Meta, ...]:
    """The form with a reserve buffer."""
    return (*_batch_norm(x, weight, mean, True), dense(x.meta, (0,), torch.uint8))


@rule("native_batch_norm_backward")
def batch_norm_backward(grad: Any, x: FakeTensor, weight: FakeTensor | None, *rest: Any) -> tuple[Meta | None, ...]:
    *_, train, _, mask = rest
    parameter = _parameter(x, weight, x.meta.sizes[1:2])
    # CUDA's evaluation kernel writes the gradient contiguous, whatever the input's format.
    plain = x.meta.device.type == "cuda" and not train
    return _wanted(mask, dense(x.meta) if plain else _batch_norm_result(x), parameter, parameter)


@rule("_fused_rms_norm")
def rms_norm(x: FakeTensor, normalized_shape: Sequence[Size], weight: Any, eps: Any) -> tuple[Meta, Meta]:
    """The result and reciprocal norms."""
    m = x.meta
    lead = len(m.sizes) - len(normalized_shape)
    stats = (*m.sizes[:lead], *([1] * len(normalized_shape)))
    return dense(m), dense(m, stats, torch.float32 if m.dtype in _HALF else m.dtype)


@rule("_fused_rms_norm_backward")
def rms_norm_backward(
    grad: Any, x: FakeTensor, shape: Sequence[Size], rstd: Any, weight: FakeTensor | None, mask: Sequence[bool]
) -> tuple[Meta | None, ...]:
    return _wanted((mask[0], mask[1] and weight is not None), dense(x.meta), _parameter(x, weight, shape))


@rule("_weight_norm_interface")
def weight_norm(v: FakeTensor, g: FakeTensor, dim: int = 0) -> tuple[Meta, Meta]:
    """A weight of given norms, and the norms it had."""
    m = v.meta
    norms = dense(m, g.meta.sizes, torch.float32 if m.dtype in _HALF else g.meta.dtype)
    return dense(m) if m.device.type == "cpu" else alike(m), norms


@rule("_weight_norm_interface_backward")
def weight_norm_backward(grad: Any, v: FakeTensor, g: FakeTensor, norms: Any, dim: int) -> tuple[Meta, Meta]:
    """Gradients of direction and norms."""
    return alike(v.meta), dense(v.meta, g.meta.sizes, g.meta.dtype)
