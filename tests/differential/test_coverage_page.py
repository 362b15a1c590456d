"""The coverage page says what the programs declare."""

import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parent.parent.parent / "tools" / "coverage_python.py"


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the page says what Python 3.11 does")
def test_page_is_current():
    done = subprocess.run([sys.executable, str(TOOL), "--check"], check=False)
    assert done.returncode == 0, "run tools/coverage_python.py and commit docs/coverage/python.md"
