"""Fake tensors that report a CUDA device, against eager on one. Skipped where there is none."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from stoker import torch_private
from stoker.fake import FakeMode

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

BACKENDS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}


def describe(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    strides = tuple(t for s, t in zip(value.shape, value.stride()) if s > 1)
    return value.dtype, tuple(value.shape), strides, value.device, value.requires_grad


def run(function: Any, inputs: list[torch.Tensor]) -> list[Any]:
    result = function(*inputs)
    outputs = list(result) if isinstance(result, (list, tuple)) else [result]
    roots = tuple(o for o in outputs if isinstance(o, torch.Tensor) and o.requires_grad)
    leaves = tuple(i for i in inputs if i.requires_grad)
    gradients: tuple[Any, ...] = ()
    if roots and leaves:
        gradients = torch_private.run_backward(roots, tuple(torch.ones_like(o) for o in roots), leaves)
    return [describe(v) for v in (*outputs, *gradients)]


def compare(function: Any, *inputs: torch.Tensor) -> None:
    mode = FakeMode()
    fakes = [mode.from_real(t) for t in inputs]
    with mode:
        ours = run(function, fakes)
    assert run(function, list(inputs)) == ours


def make(*sizes: int, dtype: torch.dtype = torch.float16, format: Any = torch.contiguous_format) -> torch.Tensor:
    return torch.zeros(sizes, dtype=dtype, device="cuda").to(memory_format=format).requires_grad_()


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"dropout_p": 0.1}], ids=str)
@pytest.mark.parametrize("backend", BACKENDS)
def test_attention(backend: str, options: dict[str, Any], inside: bool) -> None:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(q, k, v, **options)

    sizes = (2, 64, 4, 64) if inside else (2, 4, 64, 64)
    tensors = [torch.zeros(sizes, dtype=torch.float16, device="cuda") for _ in range(3)]
    compare(attend, *((t.transpose(1, 2) if inside else t).requires_grad_() for t in tensors))


@pytest.mark.parametrize("backend", ["efficient", "cudnn", "math"])
def test_attention_with_mask(backend: str) -> None:
    mask = torch.zeros(2, 1, 64, 64, dtype=torch.float16, device="cuda")

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        with sdpa_kernel(BACKENDS[backend]):
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)

    compare(attend, *(make(2, 4, 64, 64) for _ in range(3)))


IMAGES: dict[str, Any] = {
    "conv": lambda x: F.conv2d(x, make(4, 8, 3, 3, dtype=x.dtype), make(4, dtype=x.dtype)),
    "pointwise conv": lambda x: F.conv2d(x, make(4, 8, 1, 1, dtype=x.dtype)),
    "grouped conv": lambda x: F.conv2d(x, make(8, 1, 3, 3, dtype=x.dtype), groups=8),
    "transposed conv": lambda x: F.conv_transpose2d(x, make(8, 4, 3, 3, dtype=x.dtype)),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros(8, device="cuda"), torch.ones(8, device="cuda"), training=True),
    "batch_norm eval": lambda x: F.batch_norm(x, torch.zeros(8, device="cuda"), torch.ones(8, device="cuda")),
    "group_norm": lambda x: F.group_norm(x, 2),
    "max_pool": lambda x: F.max_pool2d(x, 2),
    "avg_pool": lambda x: F.avg_pool2d(x, 2),
    "adaptive_avg_pool": lambda x: F.adaptive_avg_pool2d(x, 2),
    "adaptive_max_pool": lambda x: F.adaptive_max_pool2d(x, 2),
    "nearest": lambda x: F.interpolate(x, scale_factor=2),
    "bilinear": lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"),
    "reflect": lambda x: F.pad(x, (1, 1, 1, 1), mode="reflect"),
    "dropout": lambda x: F.dropout(x, 0.5),
    "pixel_shuffle": lambda x: F.pixel_shuffle(x, 2),
    "logsigmoid": F.logsigmoid,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("format", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("name", IMAGES)
def test_images(name: str, format: Any, dtype: torch.dtype) -> None:
    compare(IMAGES[name], make(2, 8, 16, 16, dtype=dtype, format=format))


ROWS: dict[str, Any] = {
    "layer_norm": lambda x: F.layer_norm(x, (32,)),
    "rms_norm": lambda x: F.rms_norm(x, (32,), make(32, dtype=x.dtype)),
    "linear": lambda x: F.linear(x, make(8, 32, dtype=x.dtype), make(8, dtype=x.dtype)),
    "softmax": lambda x: x.softmax(-1),
    "softmax in float": lambda x: x.softmax(-1, dtype=torch.float32),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.zeros(4, dtype=torch.long, device="cuda")),
    "embedding": lambda x: F.embedding(torch.zeros(3, 4, dtype=torch.long, device="cuda"), x),
    "topk": lambda x: x.topk(2),
    "sort": lambda x: x.sort(-1),
    "cumsum": lambda x: x.cumsum(-1),
    "glu": F.glu,
    "var": lambda x: x.var(-1),
    "cpu number": lambda x: x + torch.tensor(2.0),
    "new on cuda": lambda x: torch.zeros(32, device="cuda") + x,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("name", ROWS)
def test_rows(name: str, dtype: torch.dtype) -> None:
    compare(ROWS[name], make(4, 32, dtype=dtype))
