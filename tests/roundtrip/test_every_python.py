"""Run the tests of stoker.bytecode under each other supported Python on this machine.

Those have neither pytest nor torch. pytest is pure Python, so they borrow this interpreter's; and `stoker` is replaced
by an empty package at the same path, so that its `__init__` does not run.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SUITES = ["tests/unit/bytecode", "tests/roundtrip/test_stdlib.py"]
VERSIONS = ["3.11", "3.12", "3.13"]

RUN = """
import sys, types
package = types.ModuleType("stoker")
package.__path__ = [sys.argv[1]]
sys.modules["stoker"] = package
sys.path.append(sys.argv[2])
import pytest
sys.exit(pytest.main(["-p", "no:cacheprovider", *sys.argv[3:]]))
"""


def interpreter(version: str) -> Path | None:
    """A Python of a version: from pyenv, where it is surely a CPython of ours, else from the path."""
    own = sorted((Path.home() / ".pyenv" / "versions").glob(f"{version}.*/bin/python"))
    found = shutil.which(f"python{version}")
    return own[-1] if own else Path(found) if found else None


@pytest.mark.parametrize("version", VERSIONS)
def test_under(version: str) -> None:
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return
    python = interpreter(version)
    if python is None:
        warnings.warn(f"there is no Python {version} here: its bytecode is not tested", stacklevel=1)
        return
    borrowed = str(Path(pytest.__file__).parents[1])
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    command = [str(python), "-c", RUN, str(ROOT / "stoker"), borrowed, *SUITES]
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
