"""Pooling over windows as large as the image, and where the pixels of an image that is turned come from, whatever its size."""

from __future__ import annotations

import torch

from stoker.capture.polyfill.indexing import linspace


def max_of_all(input, rank):
    """The largest of each channel. Its gradient goes to the first that is as large, as that of a window does."""
    return input.flatten(-rank).max(-1).values[(..., *[None] * rank)]


def mean_of_all(input, rank):
    return input.mean(tuple(range(-rank, 0)), keepdim=True)


def affine_grid(theta, size, align_corners):
    """Of pixels, or voxels, that lie evenly between -1 and 1 (ATen/native/AffineGridGenerator.cpp)."""
    spaces = list(size[2:])
    options = {"dtype": theta.dtype, "device": theta.device}
    places = [_evenly(steps, align_corners, options) for steps in spaces]
    along = [place.view([-1] + [1] * (len(spaces) - 1 - dim)).expand(spaces) for dim, place in enumerate(places)]
    base = torch.stack([*along[::-1], torch.ones(spaces, **options)], -1)
    rows = base.view(1, -1, len(spaces) + 1).expand(theta.shape[0], -1, -1)
    return rows.bmm(theta.transpose(1, 2)).view(theta.shape[0], *spaces, len(spaces))


def _evenly(steps, align_corners, options):
    if steps == 1:
        return torch.zeros(1, **options)
    places = linspace(-1, 1, steps, options)
    return places if align_corners else places * (steps - 1) / steps
