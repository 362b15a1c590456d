"""Processes that compile Triton sources side by side.

They start with the first GPU graph and end with this process, because their input does. One that dies is replaced, and its job done
again once.
"""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from stoker.runtime.build import cores

MOST_WORKERS = 16
WORKER = Path(__file__).parent / "triton_worker.py"
SECONDS_FOR_ONE = 120.0


class WorkerDied(RuntimeError):
    """A compiling process ended, or gave no answer in time."""


class _Worker:
    """One process. Used by one thread at a time."""

    def __init__(self) -> None:
        settings = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=settings
        )

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None and self.process.stdout is not None
        timer = threading.Timer(SECONDS_FOR_ONE, self.process.kill)
        timer.start()
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except OSError as error:
            raise WorkerDied(str(error)) from error
        finally:
            timer.cancel()
        if not answer:
            raise WorkerDied(f"it ended with code {self.process.wait()}")
        return json.loads(answer)


class Pool:
    """A worker for each processor, started when they are first needed."""

    def __init__(self) -> None:
        self.size = min(cores(), MOST_WORKERS)
        self._idle: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        self._threads: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()

    def start(self) -> None:
        """Start the workers; they import Triton while others work."""
        with self._lock:
            if self._threads is None:
                self._threads = ThreadPoolExecutor(self.size, "stoker-triton")
                for _ in range(self.size):
                    self._idle.put(_Worker())

    def run(self, jobs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to jobs, in their order."""
        self.start()
        assert self._threads is not None
        return list(self._threads.map(self._one, jobs))

    def _one(self, job: dict[str, Any]) -> dict[str, Any]:
        worker = self._idle.get()
        try:
            return worker.run(job)
        except WorkerDied:
            return _Worker().run(job)
        finally:
            self._idle.put(worker)
