"""From C++ source to a loaded library.

In:  source text.
Out: a ctypes library, from the cache if the same source was built before with the same compiler and machine.

The compiler is somebody else's program: it may be missing, fail, be killed, or not come back. Each of these is an exception of this
module, and a compiler that cannot do the least thing is not asked again. It runs in the background (stoker/runtime/background.py), and ends
with this process.

Kernels must share torch's OpenMP runtime: the library is linked to libgomp by its soname, and torch, loaded first, has brought
its own copy under that soname.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import NoReturn

from stoker import log
from stoker.cache import cache_directory, is_whole, private_directory, seal, why_not_trusted
from stoker.runtime import background
from stoker.took import Took, tell

FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-fwrapv", "-fno-semantic-interposition", "-fvisibility=default", "-Wno-psabi", "-w", "-fno-thread-jumps",
    "-fno-tree-slp-vectorize", "--param=iv-max-considered-uses=60",
)  # fmt: skip
"""Whole numbers wrap around, as eager's do. Kernels have their vectors written out: looking for more among statements, and weighing hundreds of induction variables, was a third
of g++'s time for the kernels of densenet121, which read up to 24 tensors each. g++ 12 and 13 thread jumps between conditions on one number, turn them into vectors, and read sums that were never set:
tests/stages/test_isa.py."""
ONLY_GCC = (
    "-fno-loop-interchange", "-fno-loop-unroll-and-jam", "-fno-version-loops-for-strides", "-fno-split-paths", "-fno-split-loops",
    "-fno-gcse-after-reload", "-fno-ipa-cp-clone", "-fno-tree-loop-distribution",
)  # fmt: skip
"""Passes of -O3 that find nothing to do in kernels, whose loops come in the order they are to run in, and cost a tenth of g++'s time. Other
compilers refuse names that they do not know."""


class BuildFailed(RuntimeError):
    """The compiler refused a kernel: shows the source, the command and the compiler's words."""

    def __init__(self, source: Path, command: Sequence[str], words: str) -> None:
        super().__init__(
            f"the C++ compiler failed on {source}.\ncommand: {' '.join(command)}\n{words}\n"
            "This is a defect of Stoker's. Report the source file; meanwhile use backend='aot_eager'."
        )


class NoCompiler(RuntimeError):
    """There is no C++ compiler on this machine, or none that works."""

    def __init__(self, reason: str = "none was found (looked for $CXX, g++, c++, clang++)") -> None:
        super().__init__(
            f"no C++ compiler: {reason}. Install one for compiled kernels; until then programs run through ATen."
        )


COMPILER = "C++ compiler"
"""What the report calls the time of one library. Several are built at once."""
SECONDS_FOR_ONE = 180.0
"""A compiler that takes longer hangs."""
_broken: dict[str, str] = {}
"""Compilers that did not do the least thing, and what they did instead."""


def compiler() -> str:
    """The compiler to call."""
    found = _compiler()
    if found in _broken:
        raise NoCompiler(f"{found} {_broken[found]}")
    return found


@functools.cache
def _compiler() -> str:
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if name and (found := shutil.which(name)):
            return found
    raise NoCompiler


@functools.cache
def _machine() -> str:
    """What a built library depends on besides its source."""
    asked = _run([compiler(), "--version"], 20.0)
    if asked.returncode:
        _give_up(f"does not tell its version: {asked.stderr.strip()[:200]}")
    try:
        flags = Path("/proc/cpuinfo").read_text()
    except OSError:
        flags = ""
    features = next((line for line in flags.splitlines() if line.startswith("flags")), "")
    return asked.stdout + features


def flags() -> tuple[str, ...]:
    """What the compiler is called with."""
    return FLAGS if "clang" in _machine() else (*FLAGS, *ONLY_GCC)


def _give_up(reason: str) -> NoReturn:
    """This compiler is of no use to this process."""
    _broken[_compiler()] = reason
    raise NoCompiler(f"{_compiler()} {reason}")


def _run(command: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
    """Run a compiler and, where it hangs, end it with all that it has started."""
    try:
        return background.run(command, seconds)
    except OSError as error:
        _give_up(f"cannot be run: {error}")
    except subprocess.TimeoutExpired:
        _give_up(f"gave no answer within {seconds:g} seconds")


_loaded: dict[str, ctypes.CDLL] = {}


def load(source: str, missed: Callable[[], object] = lambda: None) -> ctypes.CDLL:
    """The library of a source; `missed` is called if it must be built."""
    key = hashlib.sha256("\0".join((source, *flags(), _machine())).encode()).hexdigest()[:32]
    if key not in _loaded:
        _loaded[key] = _library(source, key, missed)
    return _loaded[key]


def _library(source: str, key: str, missed: Callable[[], object]) -> ctypes.CDLL:
    """From the cache, or built; next to the cache where that is full or nothing can be run from it."""
    usual = cache_directory()
    try:
        return _from(usual, source, key, missed)
    except OSError as error:
        if usual == private_directory():
            raise
        log.tell_once(f"the cache {usual} is not used: {error}. Kernels are built again in each process.")
    return _from(private_directory(), source, key, missed)


def _from(directory: Path, source: str, key: str, missed: Callable[[], object]) -> ctypes.CDLL:
    library = directory / key[:2] / f"{key}.so"
    library.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if (reason := why_not_trusted(library.parent)) is not None:
        raise PermissionError(f"{library.parent}: {reason}")
    if not is_whole(library):
        missed()
        _build(source, library)
    return ctypes.CDLL(str(library))


class Loading:
    """Libraries of several sources, all of which are looked for in the cache, or built, at the same time."""

    def __init__(self, sources: Sequence[str], words: Sequence[str]) -> None:
        self.sources, self.words = sources, words
        self._begin()

    def _begin(self) -> None:
        self.process, self.start = os.getpid(), time.perf_counter()
        self.sought = [threading.Event() for _ in self.sources]
        self.begun = [_begun(source, event.set) for source, event in zip(self.sources, self.sought)]

    def __call__(self) -> list[ctypes.CDLL]:
        """Wait for them."""
        self._begin_after_fork()
        found = [library.result() for library in self.begun]
        for (_, start, end), what in zip(found, self.words, strict=True):
            tell(Took(COMPILER, start, end, what))
        return [library for library, _, _ in found]

    def built_by(self, moment: float) -> bool:
        """Is nothing being built, or not after this moment of `time.perf_counter`? What the cache has is always waited for."""
        self._begin_after_fork()
        for event, library in zip(self.sought, self.begun):
            event.wait(max(max(moment, self.start + SECONDS_TO_SEEK) - time.perf_counter(), 0.0))
            try:
                library.exception(max(moment - time.perf_counter(), 0.0))
            except TimeoutError:
                background.step_back()
                return False
        return True

    def _begin_after_fork(self) -> None:
        if self.process != os.getpid():  # which has none of its parent's threads
            self._begin()


SECONDS_TO_SEEK = 1.0
"""A compiler that takes longer to tell its version, by which libraries are named, is not waited for."""


def begin_loading(sources: Sequence[str], words: Sequence[str]) -> Loading:
    """Begin to load, or build, libraries. What is in each, in words, is for the report of what took long."""
    return Loading(sources, words)


def _begun(source: str, sought: Callable[[], None]) -> Future[tuple[ctypes.CDLL, float, float]]:
    """A library, and when it was begun and ready. `sought` is called when the cache has been asked for it."""
    start = time.perf_counter()

    def work() -> tuple[ctypes.CDLL, float, float]:
        try:
            return load(source, sought), start, time.perf_counter()
        finally:
            sought()

    return background.begin(work)


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _build(source: str, library: Path) -> None:
    """Compile next to the target and rename, so that two processes may build the same one."""
    text = library.with_suffix(".cpp")
    text.write_text(source)
    with tempfile.TemporaryDirectory(dir=library.parent, ignore_cleanup_errors=True) as directory:
        made = Path(directory) / library.name
        command = [compiler(), *flags(), "-o", str(made), str(text)]
        run = _run(command, SECONDS_FOR_ONE)
        if run.returncode or not made.is_file():
            _look_into(Path(directory), run)
            raise BuildFailed(text, command, run.stderr)
        seal(made)
        made.replace(library)


def _look_into(directory: Path, failed: subprocess.CompletedProcess[str]) -> None:
    """A build failed: because of the disk, the compiler, or the source? Returns if it is the source."""
    if "No space left on device" in failed.stderr:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    least = directory / "least.cpp"
    least.write_text('extern "C" int least() { return 0; }\n')
    made = directory / "least.so"
    tried = _run([compiler(), *flags(), "-o", str(made), str(least)], SECONDS_FOR_ONE)
    if tried.returncode or not made.is_file():
        words = failed.stderr.strip().splitlines() or [f"it ended with code {failed.returncode}"]
        _give_up(f"cannot compile anything: {words[-1][:200]}")
