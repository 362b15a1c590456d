"""Write docs/coverage/python.md: every construct that tests/differential holds, and what capture makes of it.

python tools/coverage_python.py          write the page
python tools/coverage_python.py --check  exit 1 if the page is not current
"""

from __future__ import annotations

import importlib
import os
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "differential"
PAGE = ROOT / "docs" / "coverage" / "python.md"
KINDS = ("one graph", "break", "unsupported")


def modules() -> list[ModuleType]:
    """The test modules that declare programs, in the order of their files."""
    os.environ.setdefault("STOKER_STRICT", "1")
    for path in (str(ROOT), str(TESTS)):
        if path not in sys.path:
            sys.path.insert(0, path)
    return [importlib.import_module(path.stem) for path in sorted(TESTS.glob("test_*.py"))]


def page() -> str:
    """The page as text."""
    sections, total = [], Counter[str]()
    for module in modules():
        programs = [test.program for test in vars(module).values() if hasattr(test, "program")]
        if not programs:
            continue
        total.update(p.expect for p in programs)
        title = (module.__doc__ or module.__name__).strip().splitlines()[0]
        rows = [f"| {p.construct.replace('|', chr(92) + '|')} | {p.expect} |" for p in programs]
        sections.append(f"## {title}\n\n| construct | capture |\n|---|---|\n" + "\n".join(rows))
    counts = ", ".join(f"{total[kind]} {kind}" for kind in KINDS)
    head = (
        "# What capture makes of Python\n\n"
        "Written by `tools/coverage_python.py` from `tests/differential`; each row is a program that runs eagerly and compiled\n"
        "and must agree on result, output, exception, gradients, and every change it makes.\n\n"
        "- **one graph**: captured whole; `fullgraph=True` succeeds.\n"
        "- **break**: what comes before is a graph, one instruction runs in CPython, capture goes on behind it. An error\n"
        "  that C code raises and nobody catches is of this kind: CPython raises it.\n"
        "- **unsupported**: the function is left to CPython, with a reason; functions it calls are still captured.\n\n"
        f"{sum(total.values())} programs: {counts}.\n"
    )
    return head + "\n" + "\n\n".join(sections) + "\n"


def main() -> int:
    text = page()
    if "--check" in sys.argv[1:]:
        return 0 if PAGE.exists() and PAGE.read_text() == text else 1
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
