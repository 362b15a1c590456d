"""Build the extension with the address sanitizer and run its tests; run them under valgrind, too.

    PYTHONPATH=. python tools/sanitize.py [--only asan|valgrind] [test ...]

What is found is printed, and the exit status tells. Leaks are not looked for: CPython and torch keep what they have made until the
process ends; tests/differential/test_dropped.py looks for ours. Valgrind takes minutes to load torch, and reports only what has a
line of the extension in it.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
TESTS = (
    "tests/unit/csrc",
    "tests/unit/guard",
    "tests/unit/cudagraph",
    "tests/unit/frame",
    "tests/tables/test_plan_records.py",
    "tests/differential/test_control.py",
    "tests/differential/test_dropped.py",
    "tests/differential/autograd/test_engine.py",
    "tests/differential/autograd/test_given_gradients.py",
    "tests/differential/autograd/test_histories.py",
    "tests/differential/autograd/test_shared_gradients.py",
)
"""Of guards, trails, the frame hook, plans, recordings, control flow, the autograd node, and what must be freed."""
PRELOADED = ("libasan.so", "libstdc++.so.6")
"""The sanitizer looks for what throws C++'s exceptions when the process begins, and Python itself has none of it."""
SUPPRESSIONS = """
{
   reads beyond the end that libraries make on purpose
   Memcheck:Addr32
   fun:__memcpy_avx*
}
{
   an int that CPython read from bytes (int.from_bytes, marshal): which of the small ones it is depends on a digit that was not set
   Memcheck:Value8
   ...
   fun:PyLong_AsLongLong
}
"""


def asan(tests: list[str]) -> bool:
    """A copy of the package with an extension that checks each access."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        ignored = shutil.ignore_patterns("*.so", ".git", ".venv", "build", "__pycache__")
        shutil.copytree(ROOT, tree, ignore=ignored, symlinks=True)
        build = (sys.executable, "setup.py", "--quiet", "build_ext", "--inplace")
        subprocess.run(build, cwd=tree, env=os.environ | {"STOKER_SANITIZE": "1"}, check=True)
        options = "detect_leaks=0:abort_on_error=0:verify_asan_link_order=0:detect_odr_violation=0"
        checked = {
            "LD_PRELOAD": " ".join(map(_library, PRELOADED)),
            "ASAN_OPTIONS": options,
            "PYTHONPATH": str(tree),
            "PYTHONMALLOC": "malloc",
        }
        return _run(
            (sys.executable, "-m", "pytest", "-q", "-s", "-n", "0", "-p", "no:cacheprovider", *tests), tree, checked
        )


def _library(name: str) -> str:
    """Where g++ has a library."""
    asked = ("g++", f"-print-file-name={name}")
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def valgrind(tests: list[str]) -> bool:
    """The extension as it is, every access of the process watched."""
    with tempfile.TemporaryDirectory() as folder:
        told, known = Path(folder) / "told", Path(folder) / "known"
        known.write_text(SUPPRESSIONS)
        command = (
            "valgrind", "--error-limit=no", f"--log-file={told}", f"--suppressions={known}", "--num-callers=12",
            sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests,
        )  # fmt: skip
        good = _run(command, ROOT, {"PYTHONPATH": str(ROOT), "PYTHONMALLOC": "malloc"})
        blocks = re.split(r"\n==\d+== \n", told.read_text())
        ours = [block for block in blocks if "_C.cpython" in block or "csrc/" in block]
        print("\n".join(ours) or "valgrind: nothing in the extension")
        return good and not ours


def _run(command: tuple[str, ...], folder: Path, more: dict[str, str]) -> bool:
    environment = os.environ | {"STOKER_STRICT": "1", "OMP_NUM_THREADS": "1"} | more
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode == 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=("asan", "valgrind"))
    parser.add_argument("tests", nargs="*", default=TESTS)
    options = parser.parse_args()
    wanted = [f for f in (asan, valgrind) if options.only in (None, f.__name__)]
    raise SystemExit(not all([check(list(options.tests)) for check in wanted]))  # noqa: C419  (all of them run)


if __name__ == "__main__":
    main()
