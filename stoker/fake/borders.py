"""`torch.nn.functional.pad` that takes borders away, how much varies: a slice.

In:  a call of it, on fake tensors.
Out: `sliced(function, args, kwargs)`: a function to call in its place; None where the call must go its own way.

Eager's gradient of a border is the opposite border, and how that lies in memory depends on whether it is none. The gradient of a slice is laid
out alike whatever is cut off, so that one version serves both (tests/differential/test_slices_that_vary.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.fake.tensor import FakeTensor


def sliced(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[..., torch.Tensor] | None:
    """What to call in place of `function(*args, **kwargs)`, with the same arguments and results."""
    if function is not torch.nn.functional.pad or len(args) < 2 or not isinstance(args[0], FakeTensor):
        return None
    mode = args[2] if len(args) > 2 else kwargs.get("mode", "constant")
    borders = args[1]
    if mode != "constant" or len(borders) % 2 or len(borders) > 2 * args[0].dim():
        return None
    varies = any(isinstance(border, torch.SymInt) and border.node.has_hint() for border in borders)
    return _cut if varies and all(border <= 0 for border in borders) else None


def _cut(x: torch.Tensor, borders: Sequence[Any], *rest: Any, **others: Any) -> torch.Tensor:
    for place, (before, after) in enumerate(zip(borders[::2], borders[1::2])):
        dim = x.dim() - 1 - place
        x = x.narrow(dim, -before, x.shape[dim] + before + after)
    return x.clone()
