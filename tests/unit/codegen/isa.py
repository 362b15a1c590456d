"""Build a source for one instruction set, whatever the machine would choose."""

from __future__ import annotations

import ctypes
import hashlib
import subprocess
from pathlib import Path

from stoker.runtime.build import FLAGS, cache_directory, compiler

ISAS = {
    "scalar": ("-march=x86-64", "-mno-avx"),
    "avx2": ("-march=haswell",),
    "avx512": ("-march=skylake-avx512", "-mprefer-vector-width=512"),
}


def runnable() -> list[str]:
    """The instruction sets that this machine has."""
    words = Path("/proc/cpuinfo").read_text().split()
    needs = {"scalar": "sse2", "avx2": "avx2", "avx512": "avx512f"}
    return [name for name in ISAS if needs[name] in words]


def build(source: str, isa: str) -> ctypes.CDLL:
    """The library of a source, kept as other built libraries are."""
    flags = [f for f in FLAGS if not f.startswith(("-march", "-mprefer"))] + list(ISAS[isa])
    key = hashlib.sha256("\0".join((source, *flags)).encode()).hexdigest()[:32]
    library = cache_directory() / "isa" / f"{key}.so"
    if not library.exists():
        library.parent.mkdir(parents=True, exist_ok=True)
        text = library.with_suffix(".cpp")
        text.write_text(source)
        subprocess.run([compiler(), *flags, "-o", str(library), str(text)], check=True)
    return ctypes.CDLL(str(library))
