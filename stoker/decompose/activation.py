"""Activations and their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import decompose, in_float


@decompose("silu.default")
@in_float
def silu(x: Tensor) -> Tensor:
    return x / (1 + torch.exp(-x))


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


@decompose("sigmoid_backward.default")
@in_float
def sigmoid_backward(gradient: Tensor, output: Tensor) -> Tensor:
    if output.is_complex():
        return NotImplemented
    return gradient * ((1 - output) * output)


@decompose("tanh_backward.default")
@in_float
def tanh_backward(gradient: Tensor, output: Tensor) -> Tensor:
    if output.is_complex():
        return NotImplemented
    return gradient * (1 - output * output)


@decompose("threshold_backward.default")
def threshold_backward(gradient: Tensor, x: Tensor, threshold: Any) -> Tensor:
    return torch.where(x <= threshold, torch.zeros((), dtype=gradient.dtype, device=x.device), gradient)


@decompose("threshold.default")
def threshold(x: Tensor, threshold: Any, value: Any) -> Tensor:
    return torch.where(x <= threshold, torch.full((), value, dtype=x.dtype, device=x.device), x)


@decompose("hardtanh.default")
def hardtanh(x: Tensor, low: Any = -1, high: Any = 1) -> Tensor:
    if not x.is_floating_point():
        low, high = int(low), int(high)
    return torch.clamp(x, low, high)


@decompose("hardtanh_backward.default")
def hardtanh_backward(gradient: Tensor, x: Tensor, low: Any, high: Any) -> Tensor:
    zero = torch.zeros((), dtype=gradient.dtype, device=x.device)
    return torch.where((x <= low) | (x >= high), zero, gradient)


@decompose("leaky_relu.default")
def leaky_relu(x: Tensor, slope: Any = 0.01) -> Tensor:
    return torch.where(x > 0, x, x * slope)


@decompose("leaky_relu_backward.default")
def leaky_relu_backward(gradient: Tensor, x: Tensor, slope: Any, is_result: bool) -> Tensor:
    return torch.where(x > 0, gradient, gradient * slope)


@decompose("elu.default")
@in_float
def elu(x: Tensor, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Tensor:
    return torch.where(x > 0, x * scale, torch.expm1(x * input_scale) * (alpha * scale))


@decompose("elu_backward.default")
@in_float
def elu_backward(gradient: Tensor, alpha: Any, scale: Any, input_scale: Any, is_result: bool, x: Tensor) -> Tensor:
    negative = (
        gradient * input_scale * (x + alpha * scale)
        if is_result
        else gradient * input_scale * (alpha * scale) * torch.exp(x * input_scale)
    )
    return torch.where(x <= 0, negative, gradient * scale)


@decompose("softplus.default")
@in_float
def softplus(x: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    return torch.where(x * beta > threshold, x, torch.log1p(torch.exp(x * beta)) / beta)


@decompose("softplus_backward.default")
@in_float
def softplus_backward(gradient: Tensor, x: Tensor, beta: Any, threshold: Any) -> Tensor:
    z = torch.exp(x * beta)
    return torch.where(x * beta > threshold, gradient, gradient * z / (z + 1))


@decompose("hardsigmoid.default")
@in_float
def hardsigmoid(x: Tensor) -> Tensor:
    return torch.clamp(x + 3, 0, 6) / 6


@decompose("hardsigmoid_backward.default")
@in_float
def hardsigmoid_backward(gradient: Tensor, x: Tensor) -> Tensor:
    zero = torch.zeros((), dtype=gradient.dtype, device=x.device)
    return torch.where((x > -3) & (x < 3), gradient * (1 / 6), zero)


@decompose("hardswish.default")
@in_float
def hardswish(x: Tensor) -> Tensor:
    return x * torch.clamp(x + 3, 0, 6) / 6


@decompose("hardswish_backward.default")
@in_float
def hardswish_backward(gradient: Tensor, x: Tensor) -> Tensor:
    zero = torch.zeros((), dtype=gradient.dtype, device=x.device)
    return torch.where(x <= -3, zero, torch.where(x < 3, gradient * (x / 3 + 0.5), gradient))


@decompose("mish.default")
@in_float
def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(torch.nn.functional.softplus(x))


@decompose("log_sigmoid_forward.default")
def log_sigmoid_forward(x: Tensor) -> tuple[Tensor, Tensor]:
    wide = x.float() if x.dtype in (torch.float16, torch.bfloat16) else x
    small = torch.exp(-wide.abs())
    out = torch.clamp(wide, max=0) - torch.log1p(small)
    return out.to(x.dtype), small.to(x.dtype) if x.device.type == "cpu" else x.new_zeros((0,))


@decompose("log_sigmoid_backward.default")
@in_float
def log_sigmoid_backward(gradient: Tensor, x: Tensor, buffer: Tensor) -> Tensor:
    small = torch.exp(-x.abs())
    slope = torch.where(
        x < 0, torch.ones((), dtype=x.dtype, device=x.device), torch.zeros((), dtype=x.dtype, device=x.device)
    )
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


@decompose("celu.default")
def celu(x: Tensor, alpha: Any = 1.0) -> Tensor:
    return torch.ops.aten.elu.default(x, alpha, 1.0, 1.0 / alpha) if alpha else NotImplemented
