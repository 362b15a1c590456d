"""What plans share on a CUDA device: the stream they run on, and flags for indices out of range. And how long something takes there.

A kernel that meets an index out of range sets the flag of its family, in memory of the host that the device can write. Nobody waits for
it: the next call of a plan that watches reads the flags and raises. (Eager's own kernels fail an assertion on the device, which is told
as late, and ends the use of the device.)
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
from collections.abc import Callable

import torch

from stoker import _C, torch_private

FAMILIES = 4


@functools.cache
def index_flags() -> torch.Tensor:
    """One number for each family, in the order of `stoker.errors.OUTSIDE`."""
    return torch.zeros(FAMILIES, dtype=torch.int32).pin_memory()


@functools.cache
def prepare_launching() -> None:
    """Tell the executor where torch's current stream is found."""
    torch.cuda.init()
    assert torch_private.current_raw_stream is not None
    _C.set_stream_source(torch_private.current_raw_stream)


def elapsed(run: Callable[[], object]) -> float:
    """Milliseconds on the device."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def surroundings() -> list[object]:
    """What times on the current device depend on besides the programs that are timed."""
    device = torch.cuda.get_device_properties(torch.cuda.current_device())
    triton = importlib.metadata.version("triton") if importlib.util.find_spec("triton") else None
    versions = [torch.__version__, torch.version.cuda, triton]
    return [device.name, device.multi_processor_count, device.total_memory, *versions]
