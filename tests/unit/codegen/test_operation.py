"""The table of C++ expressions: every loop operation has one, of all its arguments."""

from __future__ import annotations

import torch

from stoker.codegen.cpp.operation import OPERATIONS, TYPES, operation
from stoker.loop.op import ELEMENTWISE
from stoker.loop.target import LOOP_DTYPES


def test_every_operation_has_an_expression() -> None:
    assert OPERATIONS.keys() == ELEMENTWISE.keys()
    for name, elementwise in ELEMENTWISE.items():
        words = operation(name, torch.float32, torch.float32, [f"v{n}" for n in range(elementwise.arity)])
        assert all(f"v{n}" in words for n in range(elementwise.arity)), name


def test_every_type_has_a_name() -> None:
    assert TYPES.keys() == LOOP_DTYPES
