"""Activations and their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import Decomposition, decompose, decompose_all, in_float, widened


def _zero(like: Tensor) -> Tensor:
    return torch.zeros((), dtype=like.dtype, device=like.device)


@decompose("silu_backward.default")
@in_float
def silu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    s = torch.sigmoid(x)
    return gradient * s * (1 + x * (1 - s))


@decompose("gelu.default")
@in_float
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return 0.5 * x * (1 + torch.tanh(_tanh_argument(x)))
    return x * 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))


def _tanh_argument(x: Tensor) -> Tensor:
    return math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)


@decompose("gelu_backward.default")
@in_float
def gelu_backward(gradient: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        t = torch.tanh(_tanh_argument(x))
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x * x)
        return gradient * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * slope)
    below = 0.5 * (1 + torch.erf(x * math.sqrt(0.5)))
    density = torch.exp(x * x * -0.5) * (1 / math.sqrt(2 * math.pi))
    return gradient * (below + x * density)


@decompose("hardtanh.default")
def hardtanh(x: Tensor, low: Any = -1, high: Any = 1) -> Tensor:
    if not x.is_floating_point():
        low, high = int(low), int(high)
    return torch.clamp(x, low, high)


@decompose("elu_backward.default")
@in_float
def elu_backward(gradient: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor) -> Tensor:
    below = gradient * input_scale
    negative = below * (x + alpha * scale) if is_result else below * (alpha * scale) * torch.exp(x * input_scale)
    return torch.where(x <= 0, negative, gradient * scale)


@decompose("softplus_backward.default")
@in_float
def softplus_backward(gradient: Tensor, x: Tensor, beta: Any, threshold: Any) -> Tensor:
    z = torch.exp(x * beta)
    return torch.where(x * beta > threshold, gradient, gradient * z / (z + 1))


@decompose("log_sigmoid_forward.default")
def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = widened(x)
    small = torch.exp(-wide.abs())
    out = torch.clamp(wide, max=0) - torch.log1p(small)
    return out.to(x.dtype), small.to(x.dtype) if x.device.type == "cpu" else x.new_zeros((0,))


@decompose("log_sigmoid_backward.default")
@in_float
def log_sigmoid_backward(gradient: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    small = torch.exp(-x.abs())
    slope = torch.where(x < 0, torch.ones((), dtype=x.dtype, device=x.device), _zero(x))
    sign = torch.where(x < 0, 1.0, -1.0).to(x.dtype)
    return gradient * (slope - sign * (small / (1 + small)))


@decompose("glu.default")
@in_float
def glu(x: Tensor, dim: int = -1) -> Tensor:
    a, b = torch.chunk(x, 2, dim)
    return a * torch.sigmoid(b)


@decompose("glu_backward.default")
@in_float
def glu_backward(gradient: Tensor, x: Tensor, dim: int) -> Tensor:
    value, gate = x.chunk(2, dim)
    opened = torch.sigmoid(gate)
    return torch.cat([opened * gradient, (1 - opened) * opened * gradient * value], dim)


@decompose("mish_backward.default")
@in_float
def mish_backward(gradient: Tensor, x: Tensor) -> Tensor:
    bent = torch.tanh(torch.nn.functional.softplus(x))
    return gradient * (bent + x * torch.sigmoid(x) * (1 - bent * bent))


_IN_FLOAT: dict[str, Decomposition] = {
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "mish": lambda x: x * torch.tanh(torch.nn.functional.softplus(x)),
    "sigmoid_backward": lambda g, y: NotImplemented if y.is_complex() else g * ((1 - y) * y),
    "tanh_backward": lambda g, y: NotImplemented if y.is_complex() else g * (1 - y * y),
    "elu": lambda x, alpha=1, scale=1, input_scale=1: torch.where(
        x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale)
    ),
    "softplus": lambda x, beta=1, threshold=20: torch.where(
        x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta
    ),
    "hardsigmoid": lambda x: torch.clamp(x + 3, 0, 6) / 6,
    "hardsigmoid_backward": lambda g, x: torch.where((x > -3) & (x < 3), g * (1 / 6), _zero(g)),
    "hardswish": lambda x: x * torch.clamp(x + 3, 0, 6) / 6,
    "hardswish_backward": lambda g, x: torch.where(x <= -3, _zero(g), torch.where(x < 3, g * (x / 3 + 0.5), g)),
}
decompose_all({name: in_float(formula) for name, formula in _IN_FLOAT.items()})
decompose_all(
    {
        "threshold": lambda x, threshold, value: torch.where(
            x <= threshold, torch.full((), value, dtype=x.dtype, device=x.device), x
        ),
        "threshold_backward": lambda g, x, threshold: torch.where(x <= threshold, _zero(g), g),
        "hardtanh_backward": lambda g, x, low, high: torch.where((x <= low) | (x >= high), _zero(g), g),
        "leaky_relu": lambda x, slope=0.01: torch.where(x > 0, x, x * slope),
        "leaky_relu_backward": lambda g, x, slope, is_result: torch.where(x > 0, g, g * slope),
        "celu": lambda x, alpha=1.0: (
            torch.ops.aten.elu.default(x, alpha, 1.0, 1.0 / alpha) if alpha else NotImplemented
        ),
    }
)
