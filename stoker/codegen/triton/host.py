"""Kernels as the host program calls them: by Triton's own launcher on a device, by its interpreter on the processor."""

from __future__ import annotations

import functools
import importlib.util
import linecache
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

from stoker.codegen.backend import HostKernel
from stoker.codegen.triton.batch import places
from stoker.codegen.triton.target import FLOAT8
from stoker.codegen.triton.unit import Unit
from stoker.errors import OUTSIDE
from stoker.shape.expr import symbol
from stoker.shape.walk import evaluate


def host_kernel(unit: Unit, libdevice: Any = None) -> HostKernel:
    """A function of buffers and sizes. The interpreter cannot call the device's mathematics library: it is given one."""
    if unit.batched:
        return _host_batch(unit, libdevice)

    def call(buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> int:
        programs = evaluate(unit.programs, {symbol(f"n{i}"): size for i, size in enumerate(sizes)})
        flags = torch.zeros(len(OUTSIDE), dtype=torch.int32, device=_device(unit, buffers))
        given = [bits_of(b) if size else _as_bits(b) for b, size in zip(buffers, unit.value_bytes)]
        if programs:
            _function(unit.source, unit.name, libdevice)[(programs,)](
                *given, *sizes, *([flags] if unit.watches else []), num_warps=unit.warps, num_stages=unit.stages
            )
        return sum(1 << family for family, bad in enumerate(flags.tolist()) if bad)

    return call


def _host_batch(unit: Unit, libdevice: Any) -> HostKernel:
    """A function of the buffers of all rows, one row after the other, and of the rows' lengths."""

    def call(buffers: Sequence[torch.Tensor], sizes: Sequence[int]) -> int:
        device, width = _device(unit, buffers), len(unit.value_bytes)
        words = [bits_of(b) if unit.value_bytes[n % width] else b.data_ptr() for n, b in enumerate(buffers)]
        table = torch.tensor(words, device=device)
        owners, *others = places(sizes, unit.points_each, device)
        function = _function(unit.source, unit.name, libdevice)
        function[(len(owners),)](table, owners, *others, num_warps=unit.warps, num_stages=unit.stages)
        return 0

    return call


def _device(unit: Unit, buffers: Sequence[torch.Tensor]) -> torch.device:
    return next(b.device for b, size in zip(buffers, unit.value_bytes) if not size)


def _as_bits(buffer: torch.Tensor) -> torch.Tensor:
    """Triton's own launcher has other names for numbers of 8 bits with a point, which kernels take as bits."""
    return buffer.view(torch.uint8) if buffer.dtype in FLOAT8 else buffer


def bits_of(number: torch.Tensor) -> int:
    """The bits of a tensor of one element, as a whole number with a sign."""
    return int.from_bytes(number.flatten()[:1].view(torch.uint8).numpy().tobytes(), "little", signed=True)


@functools.cache
def _function(source: str, entry: str, libdevice: Any) -> Any:
    """The launchable function of a source, which Triton finds the text of by its file's name."""
    name = f"<stoker kernel {len(_names)}>"
    _names.append(name)
    linecache.cache[name] = (len(source), None, source.splitlines(keepends=True), name)
    module = ModuleType(name)
    module.__file__ = name
    module.__spec__ = importlib.util.spec_from_loader(name, loader=None)
    exec(compile(source, name, "exec"), module.__dict__)  # noqa: S102  (our own text)
    if libdevice is not None:
        module.__dict__["libdevice"] = libdevice
    return getattr(module, entry)


_names: list[str] = []
