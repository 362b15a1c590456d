"""Rounding to few values as quantization would, in floating point; beside the result, where the gradient passes."""

from __future__ import annotations

from typing import Any

import torch

from stoker.fake.meta import Meta, like_strides, meta_of
from stoker.fake.rule import rule
from stoker.fake.tensor import FakeTensor


@rule(
    "fake_quantize_per_tensor_affine_cachemask",
    "fake_quantize_per_channel_affine_cachemask",
    "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
)
def fake_quantize(x: FakeTensor, *rest: Any, **more: Any) -> tuple[Meta, Meta]:
    m = x.meta
    strides = like_strides(m.sizes, m.strides)
    return meta_of(m.dtype, m.sizes, strides, m.device), meta_of(torch.bool, m.sizes, strides, m.device)
