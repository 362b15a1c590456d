"""Which code generator serves which device."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Iterable, Mapping

import torch

from stoker.codegen.backend import Backend


class NoGenerator(RuntimeError):
    """Kernels cannot be made for a device; the words say why."""


class NoKernels(RuntimeError):
    """A device has no kernels, and needs none."""


def generators(devices: Iterable[str]) -> Mapping[str, Backend]:
    """The code generators for some types of devices. The processor is always among them: numbers and masks live there."""
    return {device: generator(device) for device in dict.fromkeys(("cpu", *devices))}


@functools.cache
def generator(device: str) -> Backend:
    """The code generator for a type of device."""
    match device:
        case "cpu":
            from stoker.codegen.cpp.backend import CppBackend

            return CppBackend()
        case "cuda":
            if importlib.util.find_spec("triton") is None:
                raise NoGenerator("kernels for CUDA are made with Triton, which is not installed (pip install triton)")
            from stoker.codegen.triton.backend import TritonBackend

            return TritonBackend(*_capability())
        case "meta":
            raise NoKernels("tensors on the meta device hold nothing")
    raise NoGenerator(f"no code generator makes kernels for {device}")


def _capability() -> tuple[int, int]:
    """Compute capability and multiprocessors of the current device."""
    facts = torch.cuda.get_device_properties(torch.cuda.current_device())
    return facts.major * 10 + facts.minor, facts.multi_processor_count
