"""The table of operations is complete: each has a C++ form, and its meaning takes as many arguments as it says."""

from __future__ import annotations

import torch

from stoker.codegen.cpp.operation import OPERATIONS
from stoker.loop.op import ELEMENTWISE


def test_each_operation_has_cpp() -> None:
    assert set(OPERATIONS) == set(ELEMENTWISE)


def test_arity() -> None:
    for name, operation in ELEMENTWISE.items():
        whole = name.startswith("bitwise") or name.endswith("shift")
        dtype = torch.int64 if whole else torch.float32
        arguments = [torch.ones(2, dtype=dtype) for _ in range(operation.arity)]
        if name == "where":
            arguments[0] = arguments[0].bool()
        assert operation.meaning(*arguments).shape == (2,), name
