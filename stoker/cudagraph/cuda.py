"""Recording on a CUDA device: graphs of the driver, or of torch where random numbers are drawn, and their nodes."""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from stoker import torch_private
from stoker.cudagraph import fills
from stoker.cudagraph.driver import CannotRecord, GraphNode, Instantiated
from stoker.cudagraph.structures import KernelNode, Pointer, check, kind_of, libcuda, nodes_of

_RECORD_BYTES = 256  # enough for CUDA_MEMCPY3D and CUDA_MEMSET_NODE_PARAMS
_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_THREAD_LOCAL = 1  # CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
_BUFFER, _SIZE = 1, 2  # CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE


class CudaDriver:
    """A CUDA device."""

    def __init__(self, device: int, *, draws: bool) -> None:
        """`draws`: do plans draw from torch's generator? It does so in recordings that torch makes; while one is made, others that draw
        from it, in eager code of other threads as well, fail. So torch makes only those."""
        self.device, self.draws = device, draws

    def capture(self, run: Callable[[], tuple[Any, ...]]) -> tuple[Instantiated, tuple[Any, ...]]:
        return self._capture_drawing(run) if self.draws else self._capture(run)

    def _capture(self, run: Callable[[], tuple[Any, ...]]) -> tuple[Instantiated, tuple[Any, ...]]:
        library, pool, graph = libcuda(), torch.cuda.MemPool(), Pointer()
        torch.cuda.synchronize(self.device)
        side = _side_stream(self.device, self.stream())
        with torch.cuda.stream(side), torch.cuda.use_mem_pool(pool, self.device):
            stream = Pointer(side.cuda_stream)
            check(library.cuStreamBeginCapture_v2(stream, _THREAD_LOCAL), "beginning to record")
            try:
                results = run()
            except RuntimeError as error:
                raise CannotRecord(str(error).splitlines()[0]) from error
            finally:  # a stream that is left capturing takes no other work
                ended = library.cuStreamEndCapture(stream, ctypes.byref(graph))
        check(ended, "recording")
        fills.as_kernels(graph.value or 0, self.device)
        owner = _OwnedGraph(graph, pool)
        return Instantiated(None, owner.executable, _nodes(graph.value or 0), owner), results

    def _capture_drawing(self, run: Callable[[], tuple[Any, ...]]) -> tuple[Instantiated, tuple[Any, ...]]:
        graph = torch.cuda.CUDAGraph(keep_graph=True)
        torch.cuda.synchronize(self.device)
        with torch.cuda.stream(_side_stream(self.device, self.stream())):
            graph.capture_begin(capture_error_mode="thread_local")
            try:
                results = run()
            except RuntimeError as error:
                _end_failed(graph)
                raise CannotRecord(str(error).splitlines()[0]) from error
            except BaseException:  # Ctrl-C, too: a stream that is left capturing takes no other work
                _end_failed(graph)
                raise
            graph.capture_end()
        fills.as_kernels(int(graph.raw_cuda_graph()), self.device)
        try:
            graph.instantiate()
        except RuntimeError as error:
            raise CannotRecord(str(error).splitlines()[0]) from error
        nodes = _nodes(graph.raw_cuda_graph())
        return Instantiated(graph.replay, int(graph.raw_cuda_graph_exec()), nodes, graph), results

    def stream(self) -> int:
        assert torch_private.current_raw_stream is not None
        return int(torch_private.current_raw_stream(self.device))

    def is_capturing(self) -> bool:
        return torch.cuda.is_current_stream_capturing()

    def synchronize(self) -> None:
        torch.cuda.synchronize(self.device)

    @contextmanager
    def random_state_kept(self) -> Iterator[None]:
        if not self.draws:
            yield
            return
        state = torch.cuda.get_rng_state(self.device)
        try:
            yield
        finally:
            torch.cuda.set_rng_state(state, self.device)


class _OwnedGraph:
    """A recorded graph, instantiated; and the memory that was allocated while it was recorded."""

    def __init__(self, graph: Pointer, pool: torch.cuda.MemPool) -> None:
        self.graph, self.pool = graph, pool
        made = Pointer()
        check(libcuda().cuGraphInstantiateWithFlags(ctypes.byref(made), graph, ctypes.c_ulonglong(0)), "making a graph")
        self.executable = made.value or 0

    def __del__(self) -> None:
        if hasattr(self, "executable"):
            libcuda().cuGraphExecDestroy(Pointer(self.executable))
        libcuda().cuGraphDestroy(self.graph)


@functools.cache
def _side_stream(device: int, stream: int) -> torch.cuda.Stream:
    """Where recordings are made that are replayed on a stream. Libraries have workspaces for each stream, which recordings go on using:
    one stream's recordings, which follow each other, may share them; with torch's own streams, which it hands out in turn, they may not.
    """
    made = Pointer()
    with torch.cuda.device(device):
        check(libcuda().cuStreamCreate(ctypes.byref(made), _NON_BLOCKING), "making a stream")
    return torch.cuda.ExternalStream(made.value or 0, device=device)


def _end_failed(graph: torch.cuda.CUDAGraph) -> None:
    """End a capture that is not used."""
    try:
        graph.capture_end()
    except RuntimeError:
        return  # the failure that is on its way says why


def _nodes(graph: int) -> tuple[GraphNode, ...]:
    return tuple(map(_node, nodes_of(graph)))


def _node(handle: int) -> GraphNode:
    kind = kind_of(handle)
    if kind == "kernel":
        return _kernel(handle)
    name = {"copy": "Memcpy", "fill": "Memset"}.get(kind)
    return GraphNode(kind, handle) if name is None else _plain(handle, kind, name)


def _kernel(handle: int) -> GraphNode:
    library, record = libcuda(), KernelNode()
    check(library.cuGraphKernelNodeGetParams_v2(Pointer(handle), ctypes.byref(record)), "reading a kernel's parameters")
    set_node = _address(library.cuGraphExecKernelNodeSetParams_v2)
    if record.parameters:
        sizes = _parameter_sizes(record)
        parameters = tuple(ctypes.string_at(record.parameters[i], size) for i, size in enumerate(sizes))
        return GraphNode("kernel", handle, set_node, 0, bytes(record), parameters)
    if not record.extra:
        return GraphNode("kernel", handle, set_node, 0, bytes(record))
    marks: dict[int, int] = {}
    position = 0
    while record.extra[position]:
        marks[record.extra[position]] = record.extra[position + 1]
        position += 2
    size = ctypes.cast(marks[_SIZE], ctypes.POINTER(ctypes.c_size_t))[0]
    packed = ctypes.string_at(marks[_BUFFER], size)
    return GraphNode("kernel", handle, set_node, 0, bytes(record), (packed,), extra=True)


def _parameter_sizes(record: KernelNode) -> list[int]:
    library = libcuda()
    known = library.cuFuncGetParamInfo if record.function else library.cuKernelGetParamInfo
    about = record.function or record.kernel
    sizes: list[int] = []
    offset, size = ctypes.c_size_t(), ctypes.c_size_t()
    while not known(Pointer(about), ctypes.c_size_t(len(sizes)), ctypes.byref(offset), ctypes.byref(size)):
        sizes.append(size.value)
    return sizes


def _plain(handle: int, kind: str, name: str) -> GraphNode:
    """A node whose record has no pointers to other records."""
    library = libcuda()
    record = ctypes.create_string_buffer(_RECORD_BYTES)
    check(getattr(library, f"cuGraph{name}NodeGetParams")(Pointer(handle), record), f"reading a {kind}")
    context = Pointer()
    check(library.cuCtxGetCurrent(ctypes.byref(context)), "asking for the context")
    set_node = _address(getattr(library, f"cuGraphExec{name}NodeSetParams"))
    return GraphNode(kind, handle, set_node, context.value or 0, record.raw)


def _address(function: Any) -> int:
    return ctypes.cast(function, Pointer).value or 0
