"""Measurements. Kernels are waited for, however long they are built; bench/first_calls.py measures what calls do without."""

import os

os.environ.setdefault("STOKER_PATIENCE", "inf")
