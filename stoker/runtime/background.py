"""Work beside the program: threads, and the processes they wait for.

In:  a function, or a command.
Out: a future, or what the command has said. When this process ends, commands that run are ended with all that they have started, and the
     threads that wait for them come to their end, with the files they have opened.

Held by tests/unit/runtime/test_background.py.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.util import Finalize
from typing import TypeVar

SECONDS_TO_END = 5.0
NICENESS = 5
"""Of commands that nobody waits for: Linux gives them a quarter of a processor that the program wants as well."""
T = TypeVar("T")


class Ended(RuntimeError):
    """This process ends: nothing is begun any more."""


class _Beside:
    """What runs beside one process."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.commands: set[subprocess.Popen[str]] = set()
        self.threads: weakref.WeakSet[threading.Thread] = weakref.WeakSet()
        self.ended = False
        self.at_exit: Finalize | None = None

    def start(self, command: Sequence[str]) -> subprocess.Popen[str]:
        with self.lock:
            if self.ended:
                raise Ended
            if self.at_exit is None:  # unlike atexit's, also called where a process of multiprocessing ends
                self.at_exit = Finalize(None, self.end, exitpriority=100)
            process = subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                process_group=0,  # not a session, between which Linux divides processors whatever their niceness
            )
            self.commands.add(process)
            return process

    def step_back(self) -> None:
        with self.lock:
            for process in self.commands:
                with contextlib.suppress(OSError):  # it has ended, or this system knows no priorities
                    os.setpriority(os.PRIO_PGRP, process.pid, NICENESS)

    def end(self) -> None:
        with self.lock:
            self.ended = True
            for process in self.commands:
                _kill(process)
        for thread in list(self.threads):
            thread.join(SECONDS_TO_END)


_beside = _Beside()


def _forget() -> None:
    """A process that was forked has nothing beside it; what its parent has is the parent's."""
    global _beside
    _beside = _Beside()


os.register_at_fork(after_in_child=_forget)


def begin(work: Callable[[], T]) -> Future[T]:
    """Work in a thread of its own, which does not keep the process alive: one of a pool would."""
    future: Future[T] = Future()

    def run() -> None:
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)

    thread = threading.Thread(target=run, name="stoker builds", daemon=True)
    _beside.threads.add(thread)
    thread.start()
    return future


def run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Wait for a command; where it hangs, it is ended with all that it has started, and the error is `subprocess.TimeoutExpired`."""
    beside = _beside
    process = beside.start(command)
    try:
        output, words = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(process)
        process.wait()
        raise
    finally:
        with beside.lock:
            beside.commands.discard(process)
    if beside.ended:  # what it has said is of no use, and its files may be gone
        raise Ended
    return subprocess.CompletedProcess(command, process.returncode, output, words)


def step_back() -> None:
    """Let the program go before commands that run: nobody waits for them any more."""
    _beside.step_back()


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process, and those it has started, unless it has ended by itself."""
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
