"""A stand-in for CUDA's calls: it records programs of the processor, and replays them.

A kernel is a Python function of words (addresses and numbers). While recording, `kernel` notes it down; otherwise it runs at once. A
node of an instantiated graph is changed as the driver does it: through a C function that reads a record with pointers to parameters.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from stoker.cudagraph.driver import CannotRecord, GraphNode, Instantiated

_SET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p)
RECORD_BYTES = 72
PARAMETERS_AT, EXTRA_AT = 40, 48


@dataclass
class Step:
    body: Callable[..., None]
    words: list[int]
    extra: bool = False


class StandIn:
    """A device whose memory is the processor's."""

    def __init__(self) -> None:
        self.current_stream = 7
        self.capturing_elsewhere = False
        self.recording = threading.local()
        self.graphs: dict[int, dict[int, Step]] = {}
        self.numbers = itertools.count(1000)
        self.changed: list[int] = []
        self.launches = 0
        self.refuses = False
        self.now = 0.0
        """Its clock, by which ways are chosen: how busy the machine is does not matter."""
        self.kernel_seconds = 0.0005
        self.launch_seconds = 0.0
        self.set_node = _SET(self._set)

    @property
    def tape(self) -> list[Step] | None:
        """What this thread records."""
        return getattr(self.recording, "tape", None)

    def kernel(self, body: Callable[..., None], *words: int, extra: bool = False) -> None:
        """Start a kernel."""
        if self.tape is None:
            self.now += self.kernel_seconds
            body(*words)
        else:
            self.tape.append(Step(body, list(words), extra))

    def wait(self) -> None:
        """What no recording allows."""
        if self.tape is not None:
            raise CannotRecord("operation not permitted while recording")

    def capture(self, run: Callable[[], tuple[Any, ...]]) -> tuple[Instantiated, tuple[Any, ...]]:
        self.recording.tape = []
        try:
            results = run()
            steps = {next(self.numbers): step for step in self.tape}
        finally:
            self.recording.tape = None
        executable = next(self.numbers)
        self.graphs[executable] = {handle: Step(s.body, list(s.words), s.extra) for handle, s in steps.items()}
        address = ctypes.cast(self.set_node, ctypes.c_void_p).value
        nodes = []
        for handle, step in steps.items():
            words = tuple(struct.pack("<Q", word) for word in step.words)
            parameters = (b"".join(words),) if step.extra else words
            nodes.append(GraphNode("kernel", handle, address, 0, bytes(RECORD_BYTES), parameters, step.extra))
        return Instantiated(lambda: self._launch(executable), executable, tuple(nodes)), results

    def _launch(self, executable: int) -> None:
        self.launches += 1
        self.now += self.launch_seconds
        time.sleep(self.launch_seconds)
        for step in self.graphs[executable].values():
            step.body(*step.words)

    def _set(self, executable: int, handle: int, record: int, context: int) -> int:
        if self.refuses:
            return 1
        step = self.graphs[executable][handle]
        self.changed.append(handle)
        if step.extra:
            marks = ctypes.c_void_p.from_address(record + EXTRA_AT).value
            buffer = ctypes.c_void_p.from_address(marks + 8).value
            size = ctypes.c_size_t.from_address(ctypes.c_void_p.from_address(marks + 24).value).value
            step.words = list(struct.unpack(f"<{size // 8}Q", ctypes.string_at(buffer, size)))
            return 0
        pointers = ctypes.c_void_p.from_address(record + PARAMETERS_AT).value
        for number in range(len(step.words)):
            place = ctypes.c_void_p.from_address(pointers + 8 * number).value
            step.words[number] = ctypes.c_uint64.from_address(place).value
        return 0

    def stream(self) -> int:
        return self.current_stream

    def is_capturing(self) -> bool:
        return self.capturing_elsewhere

    def synchronize(self) -> None:
        pass

    @contextmanager
    def random_state_kept(self) -> Iterator[None]:
        state = torch.get_rng_state()
        try:
            yield
        finally:
            torch.set_rng_state(state)


def floats(address: int, count: int) -> np.ndarray:
    return np.ctypeslib.as_array((ctypes.c_float * count).from_address(address))


def add(a: int, b: int, out: int, count: int) -> None:
    floats(out, count)[:] = floats(a, count) + floats(b, count)


def double(a: int, out: int, count: int) -> None:
    floats(out, count)[:] = 2 * floats(a, count)
