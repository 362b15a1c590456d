"""Upsampling: which element of the image an element of the result is made of. Gradients are library calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from stoker.loop.view import Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import require_supported
from stoker.lower.registry import Decline, Result, lower
from stoker.shape.expr import Expr


def _sources(size: int, wanted: int, scale: float | None, exact: bool) -> list[int]:
    """For each element along one dimension of the result: eager's choice, in eager's arithmetic."""
    ratio = torch.tensor(1.0 / scale if scale else size / wanted, dtype=torch.float32)
    places = torch.arange(wanted, dtype=torch.float32)
    found = (places + 0.5 if exact else places) * ratio
    return [min(int(i), size - 1) for i in found.floor().tolist()]


def _choice(size: Expr, wanted: Expr, scale: float | None, exact: bool) -> Callable[[Expr], Expr]:
    """The choice as arithmetic on whole numbers."""
    if size.value is None or wanted.value is None:
        raise Decline("the ratio depends on symbols")
    n, m = size.value, wanted.value
    found = _sources(n, m, scale, exact)
    if found == [i * n // m for i in range(m)]:
        return lambda i: (i * n) // m
    if found == [(2 * i + 1) * n // (2 * m) for i in range(m)]:
        return lambda i: ((2 * i + 1) * n) // (2 * m)
    raise Decline("a ratio that rounds")


def _nearest(builder: Builder, out: Result, x: Tensor, size: Any, *scales: Any) -> Tensor:
    require_supported(x.dtype)
    if any(s.value == 0 for s in (*x.sizes, *out.sizes)):
        raise Decline("an empty image")
    given = [*scales, *[None] * (len(out.sizes) - 2)]
    exact = "exact" in builder.origin
    choices = [_choice(*pair, given[d], exact) for d, pair in enumerate(zip(x.sizes[2:], out.sizes[2:]))]

    def element(at: Index) -> Any:
        return x.at((*at[:2], *(choose(i) for choose, i in zip(choices, at[2:]))))

    return builder.compute(out, element, [x], cost=3)


for _rank in ("1d", "2d", "3d"):
    lower(f"upsample_nearest{_rank}.default", f"_upsample_nearest_exact{_rank}.default")(_nearest)
