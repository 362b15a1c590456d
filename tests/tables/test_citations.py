"""Documents cannot lie: every file, test and name of ours that a docstring, a comment or a document cites exists.

Cited are: paths below a folder of this repository (`tests/unit/csrc/test_guards.py`), names of files in backticks
(`pipeline.py`), dotted names of the package (`stoker.guard.program`), and names of tests (`test_no_private_name_outside`).
Decisions and results of measurements tell of a day, and are not held to the names of another.
"""

from __future__ import annotations

import ast
import functools
import importlib
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("stoker", "csrc", "tests", "tools", "bench", "docs")
PATH = re.compile(rf"(?<![\w/.-])((?:{'|'.join(FOLDERS)})/[\w./*-]*[\w*/])")
FILE = re.compile(r"`([\w*-]+\.(?:py|cpp|h|md|toml|pyi))`")
DOTTED = re.compile(r"(?<![\w./-])(stoker(?:\.[A-Za-z_]\w*)+)")
TEST = re.compile(r"`(test_\w+)`")
PAST = ("docs/decisions/", "docs/benchmarks.md", "docs/coverage/")


@functools.cache
def files() -> tuple[str, ...]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    found = tuple(line for line in listed.stdout.splitlines() if (ROOT / line).exists())
    return found or tuple(str(p.relative_to(ROOT)) for folder in FOLDERS for p in (ROOT / folder).rglob("*"))


@functools.cache
def known_tests() -> frozenset[str]:
    found = set()
    for name in files():
        if name.startswith("tests/") and name.endswith(".py"):
            tree = ast.parse((ROOT / name).read_text())
            found |= {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    return frozenset(found)


def prose(name: str) -> str:
    """What of a file is words: a document whole, the docstrings and comments of code."""
    text = (ROOT / name).read_text()
    if name.endswith(".py"):
        tree = ast.parse(text)
        documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
        words = [ast.get_docstring(node) or "" for node in ast.walk(tree) if isinstance(node, documented)]
        return "\n".join([*words, *(line.partition("#")[2] for line in text.splitlines() if "#" in line)])
    if name.endswith((".cpp", ".h")):
        return "\n".join(line.partition("//")[2] for line in text.splitlines())
    return text


def missing(words: str) -> list[str]:
    found = [path for path in PATH.findall(words) if not exists(path)]
    found += [name for name in FILE.findall(words) if not any(Path(f).match(name) for f in files())]
    found += [name for name in DOTTED.findall(words) if not is_name(name)]
    return found + [name for name in TEST.findall(words) if name not in known_tests() and not is_file(name)]


def exists(path: str) -> bool:
    return (ROOT / path).exists() if "*" not in path else any(ROOT.glob(path))


def is_file(name: str) -> bool:
    return any(Path(f).stem == name for f in files())


def is_name(dotted: str) -> bool:
    """Does an import, or an attribute of one, have this name? A folder of modules counts; so does an option of a command."""
    parts = dotted.split(".")
    for end in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError:
            continue
        for part in parts[end:]:
            if not hasattr(found, part):
                return False
            found = getattr(found, part)
        return True
    return False


SPOKEN = [
    name
    for name in files()
    if name.endswith((".py", ".md", ".cpp", ".h")) and not name.startswith(PAST) and "/corpus" not in name
]


@pytest.mark.parametrize("name", SPOKEN)
def test_what_is_cited_exists(name: str) -> None:
    assert missing(prose(name)) == []


@pytest.mark.parametrize(
    ("words", "count"),
    [
        ("held by tests/unit/no_such_test.py", 1),
        ("see `no_such_file.py`", 1),
        ("`stoker.capture.no_such_module`", 1),
        ("`test_that_is_nowhere`", 1),
        ("tests/tables/test_citations.py, `pipeline.py`, stoker.guard.program, `test_what_is_cited_exists`", 0),
    ],
)
def test_the_finder_finds(words: str, count: int) -> None:
    assert len(missing(words)) == count


def test_the_glossary_has_each_word_once_and_every_component() -> None:
    rows = [line.split("|") for line in (ROOT / "GLOSSARY.md").read_text().splitlines() if line.startswith("| ")]
    assert all(len(row) == 5 for row in rows)
    words = [word.strip() for row in rows for word in row[1].split(",")]
    assert len(words) == len(set(words))
    assert {"wrap", "guard", "effect", "override", "mode", "concrete", "policy"} <= set(words)
