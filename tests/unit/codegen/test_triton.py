"""Triton's tables: every loop operation, reduction and scan has its words."""

from __future__ import annotations

import torch

from stoker.codegen.triton.operation import OPERATIONS, POINTERS, TYPES, literal, operation
from stoker.codegen.triton.reduction import SCANS as SCAN_FUNCTIONS
from stoker.codegen.triton.reduction import form_of
from stoker.codegen.triton.target import cuda_target
from stoker.codegen.triton.unit import LIBRARY
from stoker.loop.op import ELEMENTWISE, REDUCTIONS, SCANS
from stoker.loop.target import LOOP_DTYPES


def test_every_operation_has_words() -> None:
    assert OPERATIONS.keys() == ELEMENTWISE.keys()
    for name, elementwise in ELEMENTWISE.items():
        words = operation(name, torch.float32, torch.float32, [f"v{n}" for n in range(elementwise.arity)])
        assert all(f"v{n}" in words for n in range(elementwise.arity)), name


def test_every_type_has_names() -> None:
    assert TYPES.keys() == POINTERS.keys() == LOOP_DTYPES | cuda_target(90, 132).stored_dtypes


def test_every_reduction_and_scan_has_a_function() -> None:
    assert SCAN_FUNCTIONS.keys() == set(SCANS)
    names = [form_of(kind, torch.float32).combine for kind in REDUCTIONS if kind != "xor_sum"]
    for name in (*names, *SCAN_FUNCTIONS.values(), form_of("xor_sum", torch.int64).combine):
        assert f"\ndef {name}(" in LIBRARY, name


def test_constants_are_exact() -> None:
    assert literal(float("-inf"), torch.float32, [1]) == "tl.full([1], float('-inf'), tl.float32)"
    assert literal(True, torch.bool, [1]) == "tl.full([1], 1, tl.int1)"
    assert "0.1," in literal(0.1, torch.float64, [1])
    assert literal(1.0, torch.float8_e4m3fn, [1]) == "tl.full([1], 56, tl.uint8)"


def test_constants_of_bfloat16_are_no_halves() -> None:
    """Triton would make 0 of a number that is too small for float16."""
    for value in (1e-8, 1e-30, 1e30, 0.1, 3.0):
        words = literal(value, torch.bfloat16, [1])
        exact = torch.tensor(value).bfloat16().item()
        assert words == f"tl.full([1], {exact!r}, tl.float32).to(tl.bfloat16)"
