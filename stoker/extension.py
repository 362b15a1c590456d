"""Does `stoker._C` belong to what lies beside it: the sources in `csrc/`, and the installed torch?

In:  the stamp that `setup.py` compiled into the extension, and, in a checkout, the sources beside the package.
Out: nothing, or an ImportError of one line that says what to do.

Requirements, held by tests/unit/test_extension.py:
  1. An extension that is missing, cannot be loaded, or is of other sources or another torch is told before anything of it runs.
  2. Where there are no sources (a wheel) none are looked for; a checkout reads them once, in about two milliseconds.
  3. This file imports nothing but the standard library when it is read: `setup.py` runs it for `stamp_of`.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import ModuleType

SOURCES = Path(__file__).parent.parent / "csrc"
SUFFIXES = (".cpp", ".h")
BUILD = "build it with `python setup.py build_ext --inplace` (`make` does)"


def stamp_of(sources: Path) -> str:
    """A hash of names and contents."""
    hashed = hashlib.blake2b(digest_size=16)
    for path in sorted(path for path in sources.iterdir() if path.suffix in SUFFIXES):
        text = path.read_bytes()
        hashed.update(f"{path.name} {len(text)} ".encode() + text)
    return hashed.hexdigest()


def torch_release(version: str) -> str:
    """
    What torch keeps its C++ interface within.

    >>> torch_release("2.13.0+cpu")
    '2.13'
    """
    return ".".join(version.split("+")[0].split(".")[:2])


def load(sources: Path = SOURCES) -> ModuleType:
    """Import the extension, or say in one line why not."""
    import torch  # the extension links to its libraries

    try:
        from stoker import _C
    except ImportError as error:
        raise ImportError(f"stoker._C is missing or cannot be loaded ({error}): {BUILD}.") from error
    # An extension that is older than the stamps themselves has none.
    if sources.is_dir() and stamp_of(sources) != getattr(_C, "SOURCE_STAMP", None):
        raise ImportError(f"stoker._C was built from other sources than those in {sources}: {BUILD}.")
    if (installed := torch_release(torch.__version__)) != _C.BUILT_FOR_TORCH:
        raise ImportError(
            f"stoker._C was built for torch {_C.BUILT_FOR_TORCH}, and this is torch {installed}: {BUILD}."
        )
    return _C
