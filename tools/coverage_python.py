"""Write docs/coverage/python.md: every construct that tests/differential holds, and what capture makes of it.

python tools/coverage_python.py          write the page
python tools/coverage_python.py --check  exit 1 if the page is not current
python tools/coverage_python.py --run    minutes: run every program with the default back end into python.json, then write the page
"""

from __future__ import annotations

import contextlib
import importlib
import json
import math
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "differential"
PAGE = ROOT / "docs" / "coverage" / "python.md"
OUTCOMES = ROOT / "docs" / "coverage" / "python.json"
KINDS = ("one graph", "break", "unsupported")
SECONDS = 120  # for one program


def modules() -> list[ModuleType]:
    """The test modules that declare programs, in the order of their files."""
    os.environ.setdefault("STOKER_STRICT", "1")
    for path in (str(ROOT), str(TESTS)):
        if path not in sys.path:
            sys.path.insert(0, path)
    return [importlib.import_module(path.stem) for path in sorted(TESTS.glob("test_*.py"))]


def programs(module: ModuleType) -> list[Any]:
    return [test.program for test in vars(module).values() if hasattr(test, "program")]


def name_of(module: ModuleType, program: Any) -> str:
    return f"{module.__name__}.{program.function.__name__}"


def run() -> dict[str, str]:
    """Every program, eager against the default back end: `equal`, `close` (kernels may round otherwise), or how it differs."""
    found = {}
    for module in modules():
        for program in programs(module):
            found[name_of(module, program)] = outcome(program)
            print(name_of(module, program), found[name_of(module, program)][:200], flush=True)
    return found


def outcome(program: Any) -> str:
    from harness import Runner  # type: ignore[import-not-found]

    import stoker

    eager, compiled = Runner(program, lambda f: f), Runner(program, lambda f: stoker.compile(f))
    verdict = "equal"
    try:
        with limited():
            for seed in (0, 0, 1):
                wanted, given = eager(seed), compiled(seed)
                if repr(wanted) == repr(given):
                    continue
                if not close(vars(wanted), vars(given)):
                    return "differs"
                verdict = "close"
    except Exception as error:  # noqa: BLE001
        return f"{type(error).__name__}: {error}".splitlines()[0]
    return verdict


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise TimeoutError(f"it took longer than {SECONDS} s")

    signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)


def close(wanted: Any, found: Any) -> bool:
    """The same structure, with numbers that differ by rounding alone."""
    if isinstance(wanted, float) and isinstance(found, float):
        return math.isclose(wanted, found, rel_tol=1e-4, abs_tol=1e-5) or (math.isnan(wanted) and math.isnan(found))
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [*wanted] == [*found] and close([*wanted.values()], [*found.values()])
    if isinstance(wanted, (list, tuple)) and type(wanted) is type(found):
        return len(wanted) == len(found) and all(map(close, wanted, found))
    return repr(wanted) == repr(found)


def default_back_end(names: list[str]) -> str:
    """A sentence about what `--run` found of these programs."""
    known = json.loads(OUTCOMES.read_text()) if OUTCOMES.exists() else {}
    ran = [known[name] for name in names if name in known]
    counts = Counter(found if found in ("equal", "close") else "differ" for found in ran)
    return (
        f"With the default back end (`docs/coverage/python.json`), of {len(ran)} that were run {counts['equal']} agree with eager bit for"
        f" bit, {counts['close']} but for rounding in kernels, {counts['differ']} differ.\n"
    )


def page() -> str:
    """The page as text."""
    sections, total, names = [], Counter[str](), list[str]()
    for module in modules():
        declared = programs(module)
        if not declared:
            continue
        total.update(p.expect for p in declared)
        names += [name_of(module, p) for p in declared]
        title = (module.__doc__ or module.__name__).strip().splitlines()[0]
        rows = [f"| {p.construct.replace('|', chr(92) + '|')} | {p.expect} |" for p in declared]
        sections.append(f"## {title}\n\n| construct | capture |\n|---|---|\n" + "\n".join(rows))
    counts = ", ".join(f"{total[kind]} {kind}" for kind in KINDS)
    head = (
        "# What capture makes of Python\n\n"
        "Written by `tools/coverage_python.py` from `tests/differential`; each row is a program that runs eagerly and compiled\n"
        "and must agree on result, output, exception, gradients, and every change it makes.\n\n"
        "- **one graph**: captured whole; `fullgraph=True` succeeds.\n"
        "- **break**: what comes before is a graph, one instruction runs in CPython, capture goes on behind it.\n"
        "- **unsupported**: the function is left to CPython, with a reason; functions it calls are still captured.\n\n"
        f"{sum(total.values())} programs: {counts}.\n\n{default_back_end(names)}"
    )
    return head + "\n" + "\n\n".join(sections) + "\n"


def main() -> int:
    if "--run" in sys.argv[1:]:
        OUTCOMES.write_text(json.dumps(run(), indent=1) + "\n")
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text() == text else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
