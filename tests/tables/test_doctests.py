"""Examples in docstrings and documents run, and packages say in which order to read them."""

from __future__ import annotations

import ast
import doctest
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from stoker.bytecode.versions import VERSION
from tools.figures import ROOT, modules

KNOWN = modules()
WITH_EXAMPLES = [name for name, module in KNOWN.items() if ">>> " in module.path.read_text()]
DOCUMENTS = [p for p in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]) if ">>> " in p.read_text()]
WHOLE = ("stoker.capture", "stoker.capture.values", "stoker.autograd", "stoker.guard")  # whose order names each module
PACKAGES = [module for module in KNOWN.values() if module.is_package]


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_module(name: str) -> None:
    module = importlib.import_module(name)
    runner, parser = doctest.DocTestRunner(), doctest.DocTestParser()
    for node in ast.walk(KNOWN[name].tree):
        words = ast.get_docstring(node) if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) else None
        if words and ">>> " in words:
            runner.run(parser.get_doctest(words, dict(vars(module)), name, str(KNOWN[name].path), 0))
    assert runner.tries and not runner.failures


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_document(path: Path) -> None:
    """In a process of its own: an example may register a handler."""
    if path.name == "tour.md" and (VERSION != (3, 11) or not torch.__version__.startswith("2.13")):
        pytest.skip("the tour shows bytecode and graphs of CPython 3.11 and torch 2.13")
    done = subprocess.run([sys.executable, "-m", "doctest", path], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, f"{done.stdout}\nif this is right: python tools/renew_examples.py {path}"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_package_opens_its_chapter(package) -> None:  # type: ignore[no-untyped-def]
    words = ast.get_docstring(package.tree)
    assert words, "a package says what it is for"
    order = words.partition("Reading order")[2]
    children = {path.stem for path in package.path.parent.iterdir()}
    named = set(re.findall(r"\w+", order))
    assert [name for name in re.findall(r"`(\w+)`", order) if name not in children] == []
    if package.name in WHOLE:
        assert {name for name in children if not name.startswith("_")} - named == set(), "it names each module"


SHARED_HEADERS = {"guard_walk.h", "tensor_check.h"}
"""Declarations that several files of csrc share, told by those."""


def test_the_layout_has_a_place_for_everything() -> None:
    page = (ROOT / "docs" / "layout.md").read_text()
    there = [path for path in (ROOT / "stoker").iterdir() if not path.name.startswith("_")]
    assert [p.name for p in there if (f"{p.name}/" if p.is_dir() else p.name) not in page] == []
    sources = {path.name for path in (ROOT / "csrc").iterdir()}
    alone = {name for name in sources if name.endswith(".cpp") or f"{Path(name).stem}.cpp" not in sources}
    assert {name for name in alone if f"`{name}`" not in page} - SHARED_HEADERS == set()
