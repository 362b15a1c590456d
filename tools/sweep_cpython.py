"""Run CPython's own tests through capture, and write docs/coverage/cpython.md.

    python tools/sweep_cpython.py                # an hour: every module of MODULES, then the page
    python tools/sweep_cpython.py test_raise     # some of them: their rows of the page are renewed

Each method of a test module runs once as it is and once inside of a compiled function, between two operations on a tensor, with the default
back end and STOKER_STRICT=1. A module runs in processes of its own: a method that ends one, or takes too long, is a row like any other.

In:  the `test` package of the interpreter that runs this.
Out: docs/coverage/cpython.json, and the page that is made of it.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "coverage" / "cpython.md"
RESULTS = ROOT / "docs" / "coverage" / "cpython.json"
METHOD_SECONDS = 20
MODULE_SECONDS = 300
ENDED = "ended the process"
MODULES = [
    "test_augassign",
    "test_baseexception",
    "test_binop",
    "test_bisect",
    "test_bool",
    "test_bytes",
    "test_call",
    "test_class",
    "test_collections",
    "test_compare",
    "test_complex",
    "test_context",
    "test_contextlib",
    "test_copy",
    "test_dataclasses",
    "test_defaultdict",
    "test_deque",
    "test_descr",
    "test_dict",
    "test_dictcomps",
    "test_dictviews",
    "test_enum",
    "test_enumerate",
    "test_except_star",
    "test_exception_group",
    "test_exceptions",
    "test_extcall",
    "test_float",
    "test_fractions",
    "test_fstring",
    "test_functools",
    "test_generator_stop",
    "test_generators",
    "test_genexps",
    "test_heapq",
    "test_int",
    "test_isinstance",
    "test_iter",
    "test_itertools",
    "test_keywordonlyarg",
    "test_list",
    "test_listcomps",
    "test_named_expressions",
    "test_operator",
    "test_ordered_dict",
    "test_patma",
    "test_positional_only_arg",
    "test_property",
    "test_raise",
    "test_random",
    "test_range",
    "test_richcmp",
    "test_scope",
    "test_set",
    "test_setcomps",
    "test_slice",
    "test_statistics",
    "test_string",
    "test_super",
    "test_tuple",
    "test_types",
    "test_unicode",
    "test_unpack",
    "test_unpack_ex",
    "test_userdict",
    "test_userlist",
    "test_userstring",
    "test_weakref",
    "test_with",
]


class TooLong(BaseException):
    """Raised by the alarm: no `except Exception` of a test takes it."""


class Outcome(unittest.TestResult):
    """What one method came to, in words."""

    words = "passed"

    def addError(self, test: Any, err: Any) -> None:
        self.words = f"{err[0].__name__}: {str(err[1])[:200]}"

    addFailure = addError

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.addError(test, err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.words = "skipped"


def copied(name: str, directory: str) -> ModuleType:
    """A test module, loaded from a copy: functions of the standard library are not captured when CPython calls them."""
    package = importlib.util.find_spec("test")
    assert package is not None and package.origin is not None
    folder = Path(package.origin).with_name(name)
    if folder.is_dir():
        copy = shutil.copytree(folder, Path(directory, name)) / "__init__.py"
    else:
        copy = Path(shutil.copy(folder.with_suffix(".py"), directory))
    spec = importlib.util.spec_from_file_location(f"test.{name}", copy)
    assert spec is not None and spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def methods(suite: Any) -> Iterator[unittest.TestCase]:
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from methods(part)
        else:
            yield part


def call_compiled(method: Callable[[], Any]) -> None:
    """Run a test's method as a part of a compiled function."""
    import torch

    import stoker

    def body(x: Any) -> Any:
        y = x + 1
        method()
        return y * 2

    stoker.reset()
    assert torch.equal(stoker.compile(body)(torch.ones(3)), torch.full((3,), 4.0))


def run_module(
    name: str, compiled: bool, skipped: frozenset[str] = frozenset(), seconds: int = 0
) -> Iterator[tuple[str, str]]:
    """The methods of a module, each first with ENDED, which holds if nothing comes after it, then with what it came to in so many seconds
    (0: in any time)."""
    with tempfile.TemporaryDirectory() as directory:
        for test in methods(unittest.TestLoader().loadTestsFromModule(copied(name, directory))):
            label = test.id().removeprefix(f"test.{name}.")
            if label in skipped:
                continue
            yield label, ENDED
            if compiled:
                vars(test)["_callTestMethod"] = call_compiled
            yield label, _outcome(test, seconds)


def _outcome(test: unittest.TestCase, seconds: int) -> str:
    result, quiet = Outcome(), io.StringIO()
    previous = signal.signal(signal.SIGALRM, _too_long)
    signal.alarm(seconds)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(quiet), contextlib.redirect_stderr(quiet):
            unittest.TestSuite([test]).run(result)
    except TooLong:
        return "too long"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)
    return result.words


def _too_long(*_: Any) -> None:
    raise TooLong


def child(name: str, way: str, skipped: frozenset[str]) -> None:
    for label, words in run_module(name, way == "compiled", skipped, METHOD_SECONDS):
        print(json.dumps([label, words]), file=sys.__stdout__, flush=True)


def outcomes(name: str, way: str) -> dict[str, str]:
    """What the methods of a module come to, in processes of their own."""
    found: dict[str, str] = {}
    while True:
        before = len(found)
        command = [sys.executable, __file__, "--child", way, name, *found]
        environment = {**os.environ, "STOKER_STRICT": "1", "PYTHONPATH": str(ROOT)}
        with tempfile.TemporaryFile("w+") as said:
            try:
                ended = subprocess.call(
                    command, stdout=said, stderr=subprocess.DEVNULL, timeout=MODULE_SECONDS, env=environment
                )
            except subprocess.TimeoutExpired:
                ended = 1
            said.seek(0)
            found.update(json.loads(line) for line in said if line.startswith("[") and line.endswith("]\n"))
        if ended == 0 or len(found) == before:
            return found


def measured(name: str) -> dict[str, Any]:
    plain, compiled = outcomes(name, "plain"), outcomes(name, "compiled")
    passing = [label for label, words in plain.items() if words == "passed"]
    return {
        "methods": len(passing),
        "differ": {m: compiled.get(m, ENDED) for m in passing if compiled.get(m) != "passed"},
    }


def page(results: dict[str, Any]) -> str:
    lines = [
        "# CPython's own tests",
        "",
        "Written by `python tools/sweep_cpython.py`: methods of the interpreter's test modules that pass as they are, run inside of a compiled",
        "function, between two operations on a tensor. They *agree* where they pass there, too. What looks at reference counts, at the",
        "sizes of objects, at the moment when an object dies, or puts functions of its own into `builtins` sees that it is compiled;",
        f"a method has {METHOD_SECONDS} seconds.",
        "",
        "| module | methods | agree | commit |",
        "|---|---|---|---|",
    ]
    for name, row in sorted(results.items()):
        lines.append(f"| {name} | {row['methods']} | {row['methods'] - len(row['differ'])} | {row['commit']} |")
    lines += ["", "## Where they differ", ""]
    for name, row in sorted(results.items()):
        lines += [f"- {name}: {label}" for label in row["differ"]]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("modules", nargs="*")
    parser.add_argument("--child", choices=("plain", "compiled"))
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.modules[0], arguments.child, frozenset(arguments.modules[1:]))
        return
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    commit = subprocess.check_output(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, text=True).strip()
    for name in arguments.modules or MODULES:
        results[name] = {**measured(name), "commit": commit}
        print(name, results[name]["methods"], "methods,", len(results[name]["differ"]), "differ", flush=True)
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(page(results))


if __name__ == "__main__":
    main()
