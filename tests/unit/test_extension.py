"""An extension that does not belong to its surroundings is told at import, in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import stoker
from stoker import _C, extension

ROOT = Path(stoker.__file__).parent.parent


def checkout(where: Path, *, sources: bool = True, built: bool = True) -> Path:
    """A copy of the parts that an import reads; the Python files are links."""
    package = where / "stoker"
    package.mkdir()
    for path in (ROOT / "stoker").iterdir():
        if built or path.suffix != ".so":
            if path.suffix == ".so" or path.name in ("__init__.py", "extension.py"):
                shutil.copy(path, package)
            else:
                (package / path.name).symlink_to(path)
    if sources:
        shutil.copytree(ROOT / "csrc", where / "csrc")
    return where


def imported(where: Path) -> subprocess.CompletedProcess[str]:
    surroundings = {**os.environ, "PYTHONPATH": str(where), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", "import stoker; print(stoker.__file__)"]
    return subprocess.run(command, env=surroundings, cwd=where, capture_output=True, text=True, timeout=120)


def last_line(where: Path) -> str:
    done = imported(where)
    assert done.returncode == 1, done.stdout
    assert "Traceback" not in done.stderr.split("ImportError")[-1]
    return done.stderr.strip().splitlines()[-1]


def test_the_stamp_is_of_these_sources() -> None:
    assert extension.stamp_of(ROOT / "csrc") == _C.SOURCE_STAMP
    assert extension.torch_release(torch.__version__) == _C.BUILT_FOR_TORCH
    assert extension.load() is _C


@pytest.mark.parametrize("sources", [True, False], ids=["checkout", "wheel"])
def test_what_belongs_together_imports(tmp_path: Path, sources: bool) -> None:
    done = imported(checkout(tmp_path, sources=sources))
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(tmp_path / "stoker" / "__init__.py")
    assert done.stderr == ""


def test_changed_sources_are_told_at_import(tmp_path: Path) -> None:
    where = checkout(tmp_path)
    with (where / "csrc" / "plan_records.h").open("a") as header:
        header.write("// one record more\n")
    assert last_line(where) == (
        f"ImportError: stoker._C was built from other sources than those in {where / 'csrc'}: "
        "build it with `python setup.py build_ext --inplace` (`make` does)."
    )


def test_a_missing_extension_is_told_at_import(tmp_path: Path) -> None:
    assert last_line(checkout(tmp_path, built=False)).startswith(
        "ImportError: stoker._C is missing or cannot be loaded ("
    )


def test_one_that_cannot_be_loaded_is_told_at_import(tmp_path: Path) -> None:
    where = checkout(tmp_path)
    (library,) = (where / "stoker").glob("_C*.so")
    library.write_bytes(b"not a library")
    assert last_line(where).startswith("ImportError: stoker._C is missing or cannot be loaded (")


@pytest.mark.parametrize("change", ["added", "removed", "renamed", "edited"])
def test_any_change_of_the_sources_counts(tmp_path: Path, change: str) -> None:
    sources = tmp_path / "csrc"
    shutil.copytree(ROOT / "csrc", sources)
    header = sources / "ref.h"
    match change:
        case "added":
            (sources / "another.h").write_text("")
        case "removed":
            header.unlink()
        case "renamed":
            header.rename(sources / "reference.h")
        case "edited":
            header.write_text(header.read_text().replace("2", "3", 1) + " ")
    with pytest.raises(ImportError, match="built from other sources"):
        extension.load(sources)


def test_other_files_beside_the_sources_do_not(tmp_path: Path) -> None:
    sources = tmp_path / "csrc"
    shutil.copytree(ROOT / "csrc", sources)
    (sources / ".ref.h.swp").write_text("an editor's")
    assert extension.load(sources) is _C


def test_another_torch_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "2.99.0")
    with pytest.raises(ImportError, match=rf"built for torch {_C.BUILT_FOR_TORCH}, and this is torch 2.99"):
        extension.load()
