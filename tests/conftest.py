"""Defects are errors in tests: capture must not fall back to CPython on a mistake of its own."""

import os

os.environ.setdefault("STOKER_STRICT", "1")
