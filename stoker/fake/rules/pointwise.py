"""Element-wise operators: one iterator, one promotion, four tables of names."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.fake.meta import (
    Meta,
    alike,
    dense,
    formatted_strides,
    iterator_strides,
    like_strides,
    meta_of,
    same,
    suggests_channels_last,
)
from stoker.fake.promote import REAL_OF, broadcast, common_device, complex_of, float_dtype, number_dtype, result_dtype
from stoker.fake.rule import decline_if, rule
from stoker.fake.tensor import FakeTensor

_SAME = """
sgn sign square relu6 silu gelu hardswish hardsigmoid mish elu celu leaky_relu softplus
hardshrink softshrink threshold ceil floor round trunc frac bitwise_not positive conj_physical fix
"""
_FLOAT = """
exp exp2 expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh sigmoid erf
erfc erfinv reciprocal lgamma digamma i0 sinc logit special_entr special_i0e special_i1
special_i1e special_ndtri special_log_ndtr special_erfcx special_airy_ai special_bessel_j0 special_bessel_j1
special_bessel_y0 special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0
special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1
special_spherical_bessel_j0
"""
_TRUTH = "logical_not isnan isinf isfinite isposinf isneginf signbit"
_BINARY = """
mul fmod remainder floor_divide bitwise_and bitwise_or bitwise_xor
bitwise_left_shift bitwise_right_shift __lshift__ __rshift__ pow hypot nextafter gcd lcm logaddexp logaddexp2
_add_relu
"""
_BINARY_FLOAT = """
atan2 xlogy special_xlog1py special_zeta igamma igammac copysign
special_chebyshev_polynomial_t special_chebyshev_polynomial_u special_chebyshev_polynomial_v
special_chebyshev_polynomial_w special_hermite_polynomial_h special_hermite_polynomial_he special_laguerre_polynomial_l
special_legendre_polynomial_p special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w
"""
_COMPARE = "eq ne lt le gt ge logical_and logical_or logical_xor"
_BACKWARD = """
gelu_backward silu_backward sigmoid_backward tanh_backward elu_backward
hardtanh_backward hardsigmoid_backward hardswish_backward softplus_backward hardshrink_backward softshrink_backward
logit_backward mish_backward
"""


_NUMBER = ((), ())
"""A Python number as the iterator sees it: a tensor without dimensions."""


def _as_cast(meta: Meta, common: torch.dtype | None) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    """An operand's sizes and strides as the iterator sees them: on a processor, one of another type was converted before."""
    if common is None or meta.dtype is common or meta.device.type != "cpu" or not meta.sizes:
        return meta.sizes, meta.strides
    return meta.sizes, like_strides(meta.sizes, meta.strides)


def elementwise(operands: tuple[Any, ...], dtype: torch.dtype, common: torch.dtype | None = None) -> Meta:
    """A fresh result of the element-wise iterator over tensors and numbers, which it computes with in a common type."""
    tensors = [o for o in operands if isinstance(o, FakeTensor)]
    numbers = [_NUMBER] * (len(operands) - len(tensors))
    decline_if(not tensors)
    metas = [t.meta for t in tensors]
    first = metas[0]
    if len(metas) == 1:
        strides = iterator_strides(first.sizes, [(first.sizes, first.strides), *numbers])
        return meta_of(dtype, first.sizes, strides, first.device)
    device = common_device(tensors)
    shape = broadcast([m.sizes for m in metas])
    strides = iterator_strides(shape, [*(_as_cast(m, common) for m in metas), *numbers])
    return meta_of(dtype, shape, strides, device)


Type = Callable[[torch.dtype], torch.dtype]


def _register(names: str, count: int, convert: Type, refuses: Callable[[torch.dtype], bool] | None = None) -> None:
    def function(*args: Any, **kwargs: Any) -> Meta:
        operands = args[:count]
        dtype = result_dtype(operands)
        decline_if(refuses is not None and refuses(dtype))
        made = convert(dtype)
        return elementwise(operands, made, dtype if made is torch.bool else made)

    rule(*names.split())(function)


def _truth(dtype: torch.dtype) -> torch.dtype:
    return torch.bool


def _unchanged(dtype: torch.dtype) -> torch.dtype:
    return dtype


_register(_SAME, 1, _unchanged)
_register(_FLOAT, 1, float_dtype)
_register(_TRUTH, 1, _truth)
_register(_BINARY, 2, _unchanged)
_register(_BINARY_FLOAT, 2, float_dtype)
_register(_COMPARE, 2, _truth)
_register("neg relu", 1, _unchanged, lambda dtype: dtype is torch.bool)
_register("maximum minimum fmax fmin", 2, _unchanged, lambda dtype: dtype.is_complex)


@rule("hardtanh", "_conj_physical", "nan_to_num")
def written_alike(x: FakeTensor, *numbers: Any, **keywords: Any) -> Meta:
    """What eager computes into a tensor that it made like this one first: strides of dimensions of one element are kept, too."""
    return alike(x.meta)


@rule("deg2rad", "rad2deg")
def converted_angle(x: FakeTensor) -> Meta:
    decline_if(x.meta.dtype.is_complex)
    return alike(x.meta, float_dtype(x.meta.dtype))


@rule("add")
def add(x: Any, y: Any, alpha: Any = 1) -> Meta:
    dtype = result_dtype((x, y))
    decline_if(not _may_scale(alpha, dtype))
    return elementwise((x, y), dtype, dtype)


def _may_scale(alpha: Any, dtype: torch.dtype) -> bool:
    """Does eager multiply by this number before it adds? By a truth value only what is true or false, by a fraction no integers."""
    kind = number_dtype(alpha)
    if kind is torch.bool:
        return dtype is torch.bool
    if kind.is_complex:
        return dtype.is_complex
    return not kind.is_floating_point or dtype.is_floating_point or dtype.is_complex


@rule("rsub")
def subtract_from(x: Any, y: Any, alpha: Any = 1) -> Meta:
    """The other way round, in the iterator, too."""
    return subtract(y, x, alpha)


@rule("sub")
def subtract(x: Any, y: Any, alpha: Any = 1) -> Meta:
    """Of anything but truth values, even if the other is a number."""
    decline_if(any((o.meta.dtype if isinstance(o, FakeTensor) else number_dtype(o)) is torch.bool for o in (x, y)))
    return add(x, y, alpha)


@rule("heaviside")
def heaviside(x: FakeTensor, values: FakeTensor) -> Meta:
    """Of one real type."""
    decline_if(x.meta.dtype is not values.meta.dtype or x.meta.dtype.is_complex)
    return elementwise((x, values), x.meta.dtype)


@rule("pow.Tensor_Scalar")
def power(x: FakeTensor, exponent: Any) -> Meta:
    """The exponent takes part in promotion, but not in the iterator."""
    dtype = result_dtype((x, exponent))
    negative = isinstance(exponent, int) and exponent < 0
    decline_if(negative and not (dtype.is_floating_point or dtype.is_complex))
    return elementwise((x,), dtype)


@rule("pow.Scalar")
def power_of_number(base: Any, x: FakeTensor) -> Meta:
    """Contiguous, whatever the exponents are: no iterator is asked."""
    return dense(x.meta, dtype=result_dtype((base, x)))


@rule("rrelu_with_noise.default")
def leaky_by_chance(x: FakeTensor, noise: FakeTensor, *rest: Any, **others: Any) -> Meta:
    """Contiguous, too."""
    decline_if(x.meta.dtype is not noise.meta.dtype or not x.meta.dtype.is_floating_point)
    return dense(x.meta)


@rule(*_BACKWARD.split())
def gradient(*args: Any, **kwargs: Any) -> Meta:
    """Gradients of activations: of the tensors given, whatever the numbers."""
    operands = tuple(a for a in (*args, *kwargs.values()) if isinstance(a, FakeTensor))
    dtype = result_dtype(operands)
    return elementwise(operands, dtype, dtype)


@rule("threshold_backward", "leaky_relu_backward")
def gradient_beyond(grad: FakeTensor, x: FakeTensor, *numbers: Any, **keywords: Any) -> Meta:
    """The iterator is given what was activated first."""
    return gradient(x, grad)


@rule("abs")
def magnitude(x: FakeTensor) -> Meta:
    """Real, even of a complex tensor."""
    return elementwise((x,), REAL_OF.get(x.meta.dtype, x.meta.dtype))


@rule("angle")
def angle(x: FakeTensor) -> Meta:
    return elementwise((x,), REAL_OF.get(x.meta.dtype, float_dtype(x.meta.dtype)))


@rule("div")
def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Meta:
    """True division is never integral; a rounding mode keeps the type."""
    dtype = result_dtype((x, y))
    dtype = dtype if rounding_mode is not None else float_dtype(dtype)
    return elementwise((x, y), dtype, dtype)


@rule("clamp")
def clamp(x: FakeTensor, min: Any = None, max: Any = None) -> Meta:
    """Bounds take part in promotion; tensor bounds in broadcasting."""
    decline_if(min is None and max is None)
    bounds = tuple(b for b in (min, max) if isinstance(b, FakeTensor))
    dtype = _ordered(result_dtype((x, min, max)))
    return elementwise((x, *bounds), dtype, dtype)


def _ordered(dtype: torch.dtype) -> torch.dtype:
    """Complex numbers have no order."""
    decline_if(dtype.is_complex)
    return dtype


@rule("clamp_min", "clamp_max")
def clamp_one(x: FakeTensor, bound: Any) -> Meta:
    operands = (x, bound) if isinstance(bound, FakeTensor) else (x,)
    dtype = _ordered(result_dtype((x, bound)))
    return elementwise(operands, dtype, dtype)


@rule("where.self")
def where(condition: FakeTensor, x: Any, y: Any) -> Meta:
    """The condition counts for the layout, not for the type."""
    decline_if(condition.meta.dtype not in (torch.bool, torch.uint8))
    return elementwise((condition, x, y), result_dtype((x, y)))


@rule("addcmul", "addcdiv")
def addc(x: FakeTensor, a: FakeTensor, b: FakeTensor, *, value: Any = 1) -> Meta:
    dtype = result_dtype((x, a, b))
    return elementwise((x, a, b), dtype, dtype)


@rule("lerp")
def lerp(start: FakeTensor, end: FakeTensor, weight: Any) -> Meta:
    """All of one type; a tensor weight broadcasts."""
    weights = (weight,) if isinstance(weight, FakeTensor) else ()
    decline_if(any(t.meta.dtype is not start.meta.dtype for t in (end, *weights)))
    return elementwise((start, end, *weights), start.meta.dtype)


@rule("masked_fill")
def masked_fill(x: FakeTensor, mask: FakeTensor, value: Any) -> Meta:
    """Keeps x's type; x may broadcast to the mask. The fresh copy is contiguous."""
    decline_if(mask.meta.dtype not in (torch.bool, torch.uint8) or (isinstance(value, FakeTensor) and value.meta.sizes))
    return meta_of(x.meta.dtype, broadcast([x.meta.sizes, mask.meta.sizes]), None, common_device([x, mask]))


@rule("native_dropout")
def native_dropout(x: FakeTensor, p: float, train: Any) -> tuple[Meta, Meta]:
    """The result, and which elements stayed."""
    m = x.meta
    return elementwise((x,), m.dtype), alike(m, torch.bool)


@rule("native_dropout_backward")
def native_dropout_backward(grad: FakeTensor, mask: FakeTensor, scale: float) -> Meta:
    """grad * mask * scale, which is a float. A GPU's kernel writes it in the gradient's memory format."""
    m = grad.meta
    dtype = m.dtype if m.dtype.is_floating_point or m.dtype.is_complex else torch.get_default_dtype()
    if m.device.type == "cuda":
        strides = formatted_strides(m.sizes, suggests_channels_last(m.sizes, m.strides))
        return meta_of(dtype, m.sizes, strides, m.device)
    return elementwise((grad, mask), dtype)


@rule("log_sigmoid_forward")
def log_sigmoid_forward(x: FakeTensor) -> tuple[Meta, Meta]:
    """The result and a buffer, which the CPU fills; there both are contiguous."""
    m = x.meta
    if m.device.type == "cpu":
        return dense(m), dense(m)
    return elementwise((x,), m.dtype), dense(m, (0,))


@rule("log_sigmoid_backward")
def log_sigmoid_backward(grad: FakeTensor, x: FakeTensor, buffer: FakeTensor) -> Meta:
    """The buffer takes part on the CPU only, and neither it nor x in the layout."""
    return alike(grad.meta)


@rule("glu")
def glu(x: FakeTensor, dim: int = -1) -> Meta:
    m = x.meta
    decline_if(not m.sizes)
    dim %= len(m.sizes)
    decline_if(m.sizes[dim] % 2 != 0)
    shape = (*m.sizes[:dim], m.sizes[dim] // 2, *m.sizes[dim + 1 :])
    return meta_of(m.dtype, shape, iterator_strides(shape, [(shape, m.strides)]), m.device)


@rule("complex", "polar")
def make_complex(real: FakeTensor, imaginary: FakeTensor) -> Meta:
    decline_if(real.meta.dtype is not imaginary.meta.dtype or not real.meta.dtype.is_floating_point)
    return elementwise((real, imaginary), complex_of(real.meta.dtype))


@rule("_prelu_kernel")
def prelu(x: FakeTensor, weight: FakeTensor) -> Meta:
    decline_if(not same(broadcast([x.meta.sizes, weight.meta.sizes]), x.meta.sizes))
    return alike(x.meta)


@rule("_prelu_kernel_backward")
def prelu_backward(grad: FakeTensor, x: FakeTensor, weight: FakeTensor) -> tuple[Meta, Meta]:
    """Gradients of the input and of the broadcast weight."""
    return elementwise((grad, x, weight), x.meta.dtype), elementwise((grad, x, weight), x.meta.dtype)


@rule("copy")
def copy(x: FakeTensor, source: FakeTensor, non_blocking: bool = False) -> Meta:
    """As x lies in its memory, gaps and all, unless several of its elements are one; the source broadcasts."""
    m = x.meta
    if any(type(t) is int and t == 0 and s != 1 for s, t in zip(m.sizes, m.strides)):
        return alike(m)
    return meta_of(m.dtype, m.sizes, m.strides, m.device, m.offset)
