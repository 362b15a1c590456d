"""STOKER_STRICT=1: a defect of Stoker's own is looked for, and raises. Without it, users' programs run on, and are told."""

from __future__ import annotations

import os


def strict() -> bool:
    return os.environ.get("STOKER_STRICT") == "1"
