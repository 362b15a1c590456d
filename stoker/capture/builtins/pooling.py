"""Pooling of images and signals whose sizes vary: `F.avg_pool2d(x, x.shape[2:])` and its kin, whose windows torch takes as plain numbers."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import pooling, untold
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import SequenceValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break

POOLS: dict[Any, tuple[Any, int]] = {
    F.max_pool2d: (pooling.max_of_all, 2),
    F.max_pool3d: (pooling.max_of_all, 3),
    F.avg_pool1d: (pooling.mean_of_all, 1),
    F.avg_pool2d: (pooling.mean_of_all, 2),
    F.avg_pool3d: (pooling.mean_of_all, 3),
}
"""What each is of a window as large as the image, and of how many dimensions."""


def _covers(m: Machine, input: Value, kernel: Value, rank: int) -> bool:
    """Is a window whose size varies as large as the image, which lies plainly in memory?"""
    kernels = kernel.elements(m) if isinstance(kernel, SequenceValue) else [kernel] * rank
    if not isinstance(input, TensorValue) or not input.fake.is_floating_point() or len(kernels) != rank:
        return False
    if not any(isinstance(size, SymbolicValue) and not size.untold for size in kernels) or input.fake.dim() <= rank:
        return False
    sizes = [m.wrap.number(size) for size in input.fake.shape[-rank:]]
    return input.fake.is_contiguous() and all(
        m.operators.compare("==", size, whole).truth(m) for size, whole in zip(kernels, sizes)
    )


def _register(function: Any, whole: Any, rank: int) -> None:
    @handles(function)
    def pool(m: Machine, input: Value, kernel_size: Value, *args: Value, **kwargs: Value) -> Value:
        if not args and not kwargs and _covers(m, input, kernel_size, rank):
            return m.wrap.object(whole).call(m, [input, Constant(rank)], {})
        return m.record.call(function, [input, kernel_size, *args], kwargs)


for _function, (_whole, _rank) in POOLS.items():
    _register(_function, _whole, _rank)


@handles(F.max_pool1d)
def max_pool1d(m: Machine, input: Value, kernel_size: Value, *args: Value, **kwargs: Value) -> Value:
    """On the processor, eager has a kernel of its own where neither a gradient nor places are asked for."""
    given = [input, kernel_size, *args]
    if not args and not kwargs and _covers(m, input, kernel_size, 1):
        return m.wrap.object(pooling.max_of_all).call(m, [input, Constant(1)], {})
    places = args[4] if len(args) > 4 else kwargs.get("return_indices", Constant(False))
    alone = isinstance(places, Constant) and not places.value
    if not isinstance(input, TensorValue) or input.fake.device.type != "cpu" or not alone or _follows(input):
        return m.wrap.object(untold.max_pool1d).call(m, given, kwargs)
    if not input.fake.is_floating_point():
        raise Break("torch.max_pool1d", f"eager has no kernel for {input.describe()}")
    return m.wrap.object(untold.max_pool1d_dense).call(m, given, kwargs)


def _follows(tensor: TensorValue) -> bool:
    """Does autograd follow it?"""
    return torch.is_grad_enabled() and tensor.fake.requires_grad


@handles(F.affine_grid)
def affine_grid(m: Machine, theta: Value, size: Value, align_corners: Value = Constant(None)) -> Value:  # noqa: B008
    known = isinstance(align_corners, Constant) and align_corners.value is not None
    sizes = size.elements(m) if isinstance(size, SequenceValue) else []
    varies = any(isinstance(part, SymbolicValue) and not part.untold for part in sizes[2:])
    if not known or not varies or not isinstance(theta, TensorValue) or not _turns(m, theta, sizes):
        return m.record.call(F.affine_grid, [theta, size, align_corners], {})
    return m.wrap.object(pooling.affine_grid).call(m, [theta, size, align_corners], {})


def _turns(m: Machine, theta: TensorValue, sizes: list[Value]) -> bool:
    """Is it a batch of matrices for images of these sizes?"""
    rank = len(sizes) - 2
    wanted = [sizes[0], Constant(rank), Constant(rank + 1)]
    if rank not in (2, 3) or theta.fake.dim() != 3 or not theta.fake.is_floating_point():
        return False
    found = [m.wrap.number(size) for size in theta.fake.shape]
    return all(m.operators.compare("==", a, b).truth(m) for a, b in zip(found, wanted))
