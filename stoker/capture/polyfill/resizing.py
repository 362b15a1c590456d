"""`interpolate` by a scale that varies from call to call: along one dimension after the other, as ATen/native/UpSample.h maps places."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F

_OF_PLAIN_SCALES = {
    1: torch.ops.aten.upsample_nearest1d,
    2: torch.ops.aten.upsample_nearest2d,
    3: torch.ops.aten.upsample_nearest3d,
}
"""For images as large as before, or twice as large: some of eager's kernels copy there, whatever the scale is."""


def interpolate(
    input,
    size=None,
    scale_factor=None,
    mode="nearest",
    align_corners=None,
    recompute_scale_factor=None,
    antialias=False,
):
    count = input.dim() - 2
    scales = scale_factor if isinstance(scale_factor, (list, tuple)) else [scale_factor] * count
    sizes = [math.floor(float(length) * scale) for length, scale in zip(input.shape[2:], scales)]
    if recompute_scale_factor or align_corners or mode == "area":
        return F.interpolate(input, sizes, None, mode, align_corners)
    if mode == "nearest" and any(length in (n, 2 * n) for length, n in zip(sizes, input.shape[2:])):
        return _OF_PLAIN_SCALES[count].vec(input, None, scales)
    wide = input.float() if input.dtype in (torch.float16, torch.bfloat16) else input
    along = {"nearest": _nearest, "nearest-exact": _nearest_exact, "bicubic": _cubic}.get(mode, _linear)
    for dim, (length, scale) in enumerate(zip(sizes, scales), 2):
        if along is not _linear or length != input.shape[dim]:
            half = 0.0 if along is _nearest else 0.5
            places = (torch.arange(length, dtype=wide.dtype, device=input.device) + half) * (1.0 / scale)
            wide = along(wide, dim, places)
    return (wide.clone() if wide is input else wide).to(input.dtype)


def _at(input, dim, places):
    """The elements at some places; those outside are the ones at the edge."""
    return input.index_select(dim, places.long().clamp(0, input.shape[dim] - 1))


def _across(weight, input, dim):
    return weight.reshape([-1] + [1] * (input.dim() - 1 - dim))


def _nearest(input, dim, places):
    return _at(input, dim, places.floor())


def _nearest_exact(input, dim, places):
    return _at(input, dim, ((places - 0.5).clamp(min=0) + 0.5).floor())


def _linear(input, dim, places):
    places = (places - 0.5).clamp(min=0)
    low = places.floor().clamp(max=input.shape[dim] - 1)
    right = _across((places - low).clamp(0, 1), input, dim)
    return _at(input, dim, low) * (1 - right) + _at(input, dim, low + 1) * right


_CUBIC = -0.75
"""Of Keys (1981): the slope of the kernel at 1."""


def _cubic(input, dim, places):
    places = places - 0.5
    low = places.floor()
    part = places - low
    total = None
    for step in (-1, 0, 1, 2):
        apart = (part - step).abs()
        if step in (0, 1):
            weight = ((_CUBIC + 2) * apart - (_CUBIC + 3)) * apart * apart + 1
        else:
            weight = ((_CUBIC * apart - 5 * _CUBIC) * apart + 8 * _CUBIC) * apart - 4 * _CUBIC
        term = _at(input, dim, low + step) * _across(weight, input, dim)
        total = term if total is None else total + term
    return total
