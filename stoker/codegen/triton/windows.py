"""A convolution as a matrix product whose left factor is never in memory: windows of images are read where they lie.

The loop goes from point to point of the convolution's kernel, and at each through the channels, tile by tile. A row of the tile is a place
of the result; what it reads at a point lies at the same distance for all channels, and is 0 outside the image.
"""

from __future__ import annotations

from stoker.codegen.writer import Writer
from stoker.schedule.product import Factor, Windows


def sum_windows(out: Writer, left: Windows, right: Factor, step: int) -> None:
    """Adds to `total`; reads `near_rows`, `k` and `right`, which points to the first channels at the first point of the kernel."""
    turns, across = -(-left.channels // step), left.kernel[1]
    _corners(out, left)
    with out.indented(f"for turn in range({left.kernel[0] * across * turns}):"):
        out.line(f"down_by = turn // {turns} // {across}")
        out.line(f"across_by = turn // {turns} % {across}")
        out.line(f"k_start = turn % {turns} * {step}")
        out.line(f"high = top + down_by * {left.dilation[0]}")
        out.line(f"wide = side + across_by * {left.dilation[1]}")
        inside, enough = _inside(left), left.channels % step == 0
        if not enough:
            out.line(f"k_inside = k < {left.channels} - k_start")
            inside.append("k_inside[None, :]")
        mask = f", {' & '.join(inside)}, other=0" if inside else ""
        there = f"high * {left.strides[0]} + wide * {left.strides[1]} + k_start * {left.channel}"
        out.line(f"seen = tl.load(left + ({there}){mask})")
        down, beside = left.right_strides
        there = f"down_by * {down} + across_by * {beside} + k_start * {right.strides[1]}"
        out.line(f"weights = tl.load(right + ({there}){'' if enough else ', k_inside[:, None], other=0'})")
        out.line("total = tl.dot(seen, weights, total)")


def _corners(out: Writer, left: Windows) -> None:
    """Where the window of each row begins, and where its image lies."""
    high, wide = left.places
    image = f"near_rows // {high * wide} * {left.image}" + (f" + rest * {left.group}" if left.group else "")
    out.line(f"left = a{left.argument} + ({image} + k[None, :] * {left.channel} + {left.offset})")
    out.line(f"top = near_rows // {wide} % {high} * {left.step[0]} - {left.padding[0]}")
    out.line(f"side = near_rows % {wide} * {left.step[1]} - {left.padding[1]}")


def _inside(left: Windows) -> list[str]:
    """Conditions of a point to be one of the image; a window without padding never leaves it."""
    named = (("high", left.size[0], left.padding[0]), ("wide", left.size[1], left.padding[1]))
    return [words for name, size, padding in named if padding for words in (f"({name} >= 0)", f"({name} < {size})")]
