"""From C++ source to a loaded library.

In:  source text.
Out: a ctypes library, from the cache if the same source was built before with the same compiler and machine.

Kernels must share torch's OpenMP runtime: the library is linked to libgomp by its soname, and torch, loaded first, has brought
its own copy under that soname.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FLAGS = (
    "-std=c++17", "-O3", "-march=native", "-mprefer-vector-width=512", "-fPIC", "-shared", "-fopenmp", "-fno-math-errno", "-fno-trapping-math",
    "-ffp-contract=off", "-fno-semantic-interposition", "-fvisibility=default", "-Wno-psabi", "-w", "-fno-thread-jumps",
)  # fmt: skip
"""g++ 12 and 13 thread jumps between conditions on one number, turn them into vectors, and read sums that were never set:
tests/stages/test_isa.py."""


class BuildFailed(RuntimeError):
    """The compiler refused a kernel: shows the source, the command and the compiler's words."""

    def __init__(self, source: Path, command: list[str], words: str) -> None:
        super().__init__(
            f"the C++ compiler failed on {source}.\ncommand: {' '.join(command)}\n{words}\n"
            "This is a defect of Stoker's. Report the source file; meanwhile use backend='aot_eager'."
        )


class NoCompiler(RuntimeError):
    """There is no C++ compiler on this machine."""

    def __init__(self) -> None:
        super().__init__(
            "no C++ compiler was found (looked for $CXX, g++, c++, clang++). Install one for compiled kernels; until then "
            "the program runs through ATen."
        )


@functools.cache
def compiler() -> str:
    """The compiler to call."""
    for name in (os.environ.get("CXX"), "g++", "c++", "clang++"):
        if name and (found := shutil.which(name)):
            return found
    raise NoCompiler


@functools.cache
def _machine() -> str:
    """What a built library depends on besides its source."""
    version = subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    features = next((line for line in flags.splitlines() if line.startswith("flags")), "")
    return version + features


def cache_directory() -> Path:
    """Where built libraries are kept."""
    given = os.environ.get("STOKER_CACHE")
    return Path(given) if given else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "stoker"


_loaded: dict[str, ctypes.CDLL] = {}


def load(source: str) -> ctypes.CDLL:
    """The library of a source."""
    key = hashlib.sha256("\0".join((source, *FLAGS, _machine())).encode()).hexdigest()[:32]
    if key not in _loaded:
        library = cache_directory() / key[:2] / f"{key}.so"
        if not library.exists():
            _build(source, library)
        _loaded[key] = ctypes.CDLL(str(library))
    return _loaded[key]


def load_all(sources: Sequence[str]) -> list[ctypes.CDLL]:
    """The libraries of several sources, built at the same time."""
    if len(sources) < 2:
        return [load(source) for source in sources]
    with ThreadPoolExecutor(len(sources)) as pool:
        return list(pool.map(load, sources))


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _build(source: str, library: Path) -> None:
    """Compile next to the target and rename, so that two processes may build the same one."""
    library.parent.mkdir(parents=True, exist_ok=True)
    text = library.with_suffix(".cpp")
    text.write_text(source)
    with tempfile.TemporaryDirectory(dir=library.parent) as directory:
        made = Path(directory) / library.name
        command = [compiler(), *FLAGS, "-o", str(made), str(text)]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            raise BuildFailed(text, command, run.stderr)
        made.replace(library)
