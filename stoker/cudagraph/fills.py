"""Fills of memory in a recorded graph, made kernels.

A graph of kernels alone is handed to the device as one piece; every other node cuts it, and a launch takes the longer for each piece.
Libraries fill a few bytes before many of their kernels.
"""

from __future__ import annotations

import ctypes
import functools

from stoker import _C
from stoker.cudagraph.structures import KernelNode, Pointer, check, kind_of, libcuda, nodes_of

THREADS = 256
SOURCE = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry stoker_fill(.param .u64 to, .param .u32 word, .param .u32 count)
{
  .reg .pred %past;
  .reg .b32 %r<6>;
  .reg .b64 %d<4>;
  ld.param.u64 %d1, [to];
  ld.param.u32 %r1, [word];
  ld.param.u32 %r2, [count];
  mov.u32 %r3, %ctaid.x;
  mov.u32 %r4, %ntid.x;
  mov.u32 %r5, %tid.x;
  mad.lo.u32 %r3, %r3, %r4, %r5;
  setp.ge.u32 %past, %r3, %r2;
  @%past bra DONE;
  cvta.to.global.u64 %d1, %d1;
  mul.wide.u32 %d2, %r3, 4;
  add.u64 %d3, %d1, %d2;
  st.global.u32 [%d3], %r1;
DONE:
  ret;
}
"""


class _Fill(ctypes.Structure):
    """CUDA_MEMSET_NODE_PARAMS."""

    _fields_ = [
        ("to", ctypes.c_uint64),
        ("pitch", ctypes.c_size_t),
        ("value", ctypes.c_uint32),
        ("element_bytes", ctypes.c_uint32),
        ("width", ctypes.c_size_t),
        ("height", ctypes.c_size_t),
    ]

    @property
    def words(self) -> int | None:
        """How many words of four bytes are filled; None if they are not whole, or not one piece."""
        size = self.element_bytes * self.width
        return None if self.height != 1 or self.to % 4 or size % 4 or size >= 1 << 32 else size // 4

    @property
    def word(self) -> int:
        bits = 8 * self.element_bytes
        one = self.value & ((1 << bits) - 1)
        return int(sum(one << shift for shift in range(0, 32, bits)))


@functools.cache
def _function(device: int) -> int:
    return _C.load_kernel(device, SOURCE, "stoker_fill", 0)


def as_kernels(graph: int, device: int) -> None:
    """Put a kernel in the place of each fill, if it can be one."""
    for node in nodes_of(graph):
        if kind_of(node) == "fill":
            fill = _Fill()
            check(libcuda().cuGraphMemsetNodeGetParams(Pointer(node), ctypes.byref(fill)), "reading a fill")
            if fill.words:
                _replace(graph, node, fill, fill.words, device)


def _replace(graph: int, node: int, fill: _Fill, words: int, device: int) -> None:
    library = libcuda()
    earlier, later = (
        _neighbours(node, ask) for ask in (library.cuGraphNodeGetDependencies, library.cuGraphNodeGetDependentNodes)
    )
    if earlier is None or later is None:
        return
    given = (ctypes.c_uint64(fill.to), ctypes.c_uint32(fill.word), ctypes.c_uint32(words))
    parameters = (Pointer * len(given))(*(ctypes.addressof(g) for g in given))
    record = KernelNode(_function(device), -(-words // THREADS), 1, 1, THREADS, 1, 1, 0, parameters)
    made = Pointer()
    waits, count = (Pointer * len(earlier))(*earlier), ctypes.c_size_t(len(earlier))
    check(
        library.cuGraphAddKernelNode_v2(ctypes.byref(made), Pointer(graph), waits, count, ctypes.byref(record)),
        "adding a kernel",
    )
    first, second = (Pointer * len(later))(*[made.value] * len(later)), (Pointer * len(later))(*later)
    if later:
        check(library.cuGraphAddDependencies(Pointer(graph), first, second, ctypes.c_size_t(len(later))), "adding it")
    check(library.cuGraphDestroyNode(Pointer(node)), "removing a fill")


def _neighbours(node: int, ask: ctypes._NamedFuncPointer) -> list[int] | None:
    """Whom a node waits for, or who waits for it; None where there is more to say of that than that."""
    count = ctypes.c_size_t()
    if ask(Pointer(node), None, ctypes.byref(count)):
        return None
    found = (Pointer * count.value)()
    if count.value and ask(Pointer(node), found, ctypes.byref(count)):
        return None
    return [handle or 0 for handle in found]
