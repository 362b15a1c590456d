"""`transpose_tile` moves each element to its place, for each size of element, shape of tile and instruction set."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stoker.codegen.cpp.unit import HEADER
from tests.unit.codegen.isa import build, runnable

KINDS = {1: "int8_t", 2: "bfloat16", 4: "float", 8: "double"}
SOURCE = HEADER.replace("#pragma once\n", "") + "".join(
    f'extern "C" void turn{size}(const {kind}* from, long a, {kind}* to, long b, long rows, long columns)'
    f"{{ transpose_tile(from, a, to, b, rows, columns); }}\n"
    for size, kind in KINDS.items()
)


@pytest.mark.parametrize("isa", runnable())
@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(KINDS)), st.integers(0, 70), st.integers(0, 70), st.integers(0, 5), st.integers(0, 5))
def test_each_element_finds_its_place(isa: str, size: int, rows: int, columns: int, gap: int, other: int) -> None:
    rng = np.random.default_rng(0)
    kind = np.dtype(f"i{size}")
    source = rng.integers(0, 100, (rows, columns + gap)).astype(kind)
    target = np.full((columns, rows + other), -1, kind)
    function = getattr(build(SOURCE, isa), f"turn{size}")
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in (source, target)]
    numbers = [ctypes.c_long(n) for n in (columns + gap, rows + other, rows, columns)]
    function(pointers[0], numbers[0], pointers[1], *numbers[1:])
    assert (target[:, :rows] == source[:, :columns].T).all()
    assert (target[:, rows:] == -1).all()
