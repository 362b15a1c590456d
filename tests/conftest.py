"""Defects are errors in tests: capture must not fall back to CPython on a mistake of its own. Kernels are waited for, however slow a machine is."""

import os

os.environ.setdefault("STOKER_STRICT", "1")
os.environ.setdefault("STOKER_PATIENCE", "inf")

os.environ["TRITON_INTERPRET"] = (
    "1"  # read when Triton is imported; what compiles for a GPU runs in processes of its own
)
