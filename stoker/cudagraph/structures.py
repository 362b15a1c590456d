"""The CUDA driver's graphs as ctypes sees them: the library, its records, and a graph's nodes."""

from __future__ import annotations

import ctypes
import functools

from stoker.cudagraph.driver import CannotRecord

Pointer = ctypes.c_void_p
_KINDS = {0: "kernel", 1: "copy", 2: "fill", 5: "empty"}
"""Types of nodes."""


class KernelNode(ctypes.Structure):
    """CUDA_KERNEL_NODE_PARAMS, version 2."""

    _fields_ = [
        ("function", Pointer),
        *((name, ctypes.c_uint) for name in ("gx", "gy", "gz", "bx", "by", "bz", "shared")),
        ("parameters", ctypes.POINTER(Pointer)),
        ("extra", ctypes.POINTER(Pointer)),
        ("kernel", Pointer),
        ("context", Pointer),
    ]


@functools.cache
def libcuda() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def check(result: int, what: str) -> None:
    if result:
        raise CannotRecord(f"CUDA error {result} while {what}")


def nodes_of(graph: int) -> list[int]:
    """The nodes of a graph, in an order that is the same for two graphs made in the same way."""
    count = ctypes.c_size_t()
    check(libcuda().cuGraphGetNodes(Pointer(graph), None, ctypes.byref(count)), "counting nodes")
    handles = (Pointer * count.value)()
    check(libcuda().cuGraphGetNodes(Pointer(graph), handles, ctypes.byref(count)), "listing nodes")
    return [handle or 0 for handle in handles]


def kind_of(node: int) -> str:
    found = ctypes.c_int()
    check(libcuda().cuGraphNodeGetType(Pointer(node), ctypes.byref(found)), "looking at a node")
    return _KINDS.get(found.value, "opaque")
