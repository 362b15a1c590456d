"""Differential tests run strictly: a defect of capture is an error, never a frame quietly left to CPython."""

import os
import sys
from pathlib import Path

os.environ["STOKER_STRICT"] = "1"
sys.path.insert(0, str(Path(__file__).parent))
