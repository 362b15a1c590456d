"""The nodes behind torch.SymInt: everything C++ may call exists, and floats of sizes wait for a question."""

from __future__ import annotations

import math
import re
from pathlib import Path

import torch

from stoker.shape import ShapeEnv
from stoker.shape.symnode import BoolNode, FloatNode, IntNode, expr_of, symint

HEADER = Path(torch.__file__).parent / "include/torch/csrc/utils/python_symnode.h"
NOT_FOR_INT = {
    "bool_",
    "guard_or_false",
    "guard_or_true",
    "guard_size_oblivious",
    "statically_known_true",
    "expect_true",
}
NOT_FOR_INT |= {"sym_and", "sym_or", "sym_ite", "sym_not", "float_truediv", "float_pow"}


def test_every_method_of_the_header_exists() -> None:
    source = HEADER.read_text()
    named = set(re.findall(r'attr\("(\w+)"\)', source)) | set(re.findall(r"SymNode (\w+)\(.*?override", source))
    named |= set(re.findall(r"TORCH_SYMNODE_SIZES_STRIDES\((is_\w+)\)", source)) - {"n"}
    named -= {"n"}
    everything = set(dir(IntNode)) | set(dir(BoolNode)) | set(dir(FloatNode))
    assert named - everything == set()
    assert {n for n in named if n not in NOT_FOR_INT} - set(dir(IntNode)) == set()
    assert {n for n in NOT_FOR_INT if not n.startswith("float")} - set(dir(BoolNode)) == set()


def make(hint: int = 8) -> tuple[ShapeEnv, torch.SymInt]:
    env = ShapeEnv()
    return env, symint(env, env.new_symbol(hint))


def test_constants_are_ints() -> None:
    env, s = make()
    assert type(symint(env, 3)) is int
    assert type(s - s) is int and type((s * 4) // s) is int and (s * 4) % 4 == 0
    assert expr_of(s) is env.symbols[0] and expr_of(5).value == 5


def test_comparisons_and_truth() -> None:
    env, s = make()
    assert s > 1 and bool(s) and s != 0
    assert env.guards == []
    assert s == 8 and int(s) == 8 and range(s)[-1] == 7
    assert [str(g) for g in env.guards] == ["s0 == 8"]


def test_floats_of_sizes_are_lazy() -> None:
    env, s = make()
    half = s / 2
    assert isinstance(half, torch.SymFloat) and env.guards == []
    assert str(math.floor(half)) == "s0 // 2" and str(torch.sym_int(half)) == "s0 // 2"
    scale = 1.0 / torch.sym_sqrt(s) * 2
    assert isinstance(scale, torch.SymFloat) and env.guards == []
    assert math.isclose(float(scale), 2 / math.sqrt(8))
    assert [str(g) for g in env.guards] == ["s0 == 8"]


def test_math_sqrt_specializes() -> None:
    env, s = make(9)
    assert math.sqrt(s) == 3.0
    assert [str(g) for g in env.guards] == ["s0 == 9"]


def test_powers_shifts_and_bits() -> None:
    env, s = make()
    assert str(s**2) == "s0*s0" and str(s << 1) == "2*s0" and str(s >> 1) == "s0 // 2"
    assert env.guards == []
    assert s & 12 == 8 and len(env.guards) == 1


def test_min_max_and_sums() -> None:
    env, s = make()
    assert torch.sym_max(s, 1) is not None and str(torch.sym_max(s, 1)) == "s0"
    assert str(torch.sym_min(s, 64)) == "min(64, s0)"
    assert str(torch.sym_sum([s, s, 1])) == "2*s0 + 1"
    assert env.guards == []
