"""The table of lowerings: operator to a function that says how its result is computed.

A lowering is called with the builder, the metadata of its result, and the operator's own arguments, where tensors are
`stoker.loop.view` tensors and symbolic sizes are expressions. It returns tensors, or raises `Decline` for arguments it leaves
to the library.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stoker.loop.layout import Sizes

Lowering = Callable[..., Any]

LOWERINGS: dict[Any, Lowering] = {}
"""Filled by the families of this package."""


class Decline(Exception):
    """These arguments are better served by the library; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Result:
    """What is known of a result: eager's type, device, sizes and strides."""

    dtype: torch.dtype
    device: torch.device
    sizes: Sizes
    strides: Sizes


def find(name: str) -> Any:
    """The operator "name.overload" of ATen, or None if this version of torch lacks it."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


CALLS: set[Any] = set()
"""Operators whose lowering prepares a library call: they read memory, not loops."""


def lower(*names: str, calls: bool = False) -> Callable[[Lowering], Lowering]:
    """Register a lowering for "name.overload"s of ATen; one that `calls` ends in a library call."""

    def register(function: Lowering) -> Lowering:
        for name in names:
            operator = find(name)
            if operator is not None:
                LOWERINGS[operator] = function
                if calls:
                    CALLS.add(operator)
        return function

    return register
