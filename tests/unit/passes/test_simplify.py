"""Operators that change nothing are gone, those that only seem to stay, and every value is eager's bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.passes.simplify import RULES, holds, simplify

aten = torch.ops.aten
SPECIAL = [0.0, -0.0, 1.5, -2.5, float("inf"), float("-inf"), float("nan"), 3e-39]


def values(dtype: torch.dtype = torch.float32) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.tensor(SPECIAL, dtype=dtype).view(2, 4)
    return torch.tensor([0, 1, -1, 5, 100, -100, 7, 0]).to(dtype).view(2, 4)


def bits(x: torch.Tensor) -> list[Any]:
    """What eager's result is, -0.0 and what is no number included."""
    return [("nan" if v != v else str(v)) for v in x.flatten().tolist()]


VANISH: list[tuple[str, Callable[[Any], Any], torch.dtype]] = [
    ("whole + 0", lambda x: aten.add.Tensor(x, 0) * 2, torch.int64),
    ("+ -0.0", lambda x: aten.add.Tensor(x, -0.0) * 2, torch.float32),
    ("- 0", lambda x: (x - 0) * 2, torch.float32),
    ("- a filled tensor", lambda x: (x - torch.zeros(2, 4)) * 2, torch.float32),
    ("* 1", lambda x: (x * 1) * 2, torch.float32),
    ("* ones", lambda x: (torch.ones(4) * x) * 2, torch.float32),
    ("/ 1", lambda x: (x / 1) * 2, torch.float32),
    ("whole // 1", lambda x: torch.div(x, 1, rounding_mode="floor") * 2, torch.int64),
    ("** 1", lambda x: (x**1) * 2, torch.float32),
    ("neg neg", lambda x: x.neg().neg() * 2, torch.float32),
    ("not not", lambda x: (x > 0).logical_not().logical_not() * 2, torch.float32),
    ("~ ~", lambda x: (~~x) * 2, torch.int64),
    ("flip flip", lambda x: x.flip(1).flip(1) * 2, torch.float32),
    ("where same", lambda x: torch.where(x > 0, x, x) * 2, torch.float32),
    ("where true", lambda x: torch.where(torch.ones(2, 4, dtype=torch.bool), x, -x) * 2, torch.float32),
    ("maximum with itself", lambda x: torch.maximum(x, x) * 2, torch.float32),
    ("clone", lambda x: x.clone() * 2, torch.float32),
    ("to float64 and back", lambda x: x.double().float() * 2, torch.float32),
    ("to float32 and back", lambda x: x.float().bfloat16() * 2, torch.bfloat16),
    ("t t", lambda x: x.t().t() * 2, torch.float32),
    ("permute back", lambda x: x[None].permute(2, 0, 1).permute(1, 2, 0).squeeze(0) * 2, torch.float32),
    ("view back", lambda x: x.view(8).view(4, 2).view(2, 4) * 2, torch.float32),
    ("slice of all", lambda x: aten.slice.Tensor(x, 1, 0, 9) * 2, torch.float32),
    ("expand to itself", lambda x: x.expand(2, 4) * 2, torch.float32),
]
STAY: list[tuple[str, Callable[[Any], Any], torch.dtype, str]] = [
    ("+ 0", lambda x: (x + 0) * 2, torch.float32, "add"),
    ("- -0.0", lambda x: aten.sub.Tensor(x, -0.0) * 2, torch.float32, "sub"),
    ("to a wider type", lambda x: (x * 1.0) * 2, torch.int64, "mul"),
    ("broadcast", lambda x: (x * torch.ones(3, 2, 4)).sum(), torch.float32, "mul"),
    ("floor / 1", lambda x: torch.div(x, 1, rounding_mode="floor") * 2, torch.float32, "div"),
    ("to float16 and back", lambda x: x.half().float() * 2, torch.float32, "_to_copy"),
    ("other strides", lambda x: x.t().clone(memory_format=torch.contiguous_format) * 2, torch.float32, "clone"),
    ("an output", lambda x: x * 1, torch.float32, "mul"),
    ("by place in memory", lambda x: (x[1:] * 1).as_strided((2,), (2,), 1) * 2, torch.float32, "mul.Tensor"),
    ("t", lambda x: x.view(4, 2).t() * 2, torch.float32, "view"),
]


@pytest.mark.parametrize(("name", "program", "dtype"), VANISH, ids=[v[0] for v in VANISH])
def test_what_changes_nothing_is_gone(
    functional: Any, operators: Any, name: str, program: Any, dtype: torch.dtype
) -> None:
    x = values(dtype)
    module = functional(program, x)
    before = operators(module)
    held = simplify(module.graph)
    module.graph.eliminate_dead_code()
    assert held.total() >= 1 and len(operators(module)) < len(before)
    assert set(operators(module)) <= {"mul.Tensor", "gt.Scalar"}
    module.recompile()
    assert bits(module(x)[0]) == bits(program(x))


@pytest.mark.parametrize(("name", "program", "dtype", "kept"), STAY, ids=[v[0] for v in STAY])
def test_what_changes_something_stays(
    functional: Any, operators: Any, name: str, program: Any, dtype: torch.dtype, kept: str
) -> None:
    x = values(dtype)
    module = functional(program, x)
    simplify(module.graph)
    assert any(o.startswith(kept) for o in operators(module))
    with torch.no_grad():
        found, expected = stoker.compile(program)(x), program(x)
    assert found.dtype == expected.dtype and found.stride() == expected.stride()
    assert bits(found) == bits(expected)
    assert found.untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


@pytest.mark.parametrize("program", [v[1] for v in VANISH], ids=[v[0] for v in VANISH])
@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(program: Any, dynamic: bool) -> None:
    dtype = next(v[2] for v in VANISH if v[1] is program)
    x = values(dtype)
    stoker.reset()
    assert bits(stoker.compile(program, dynamic=dynamic)(x)) == bits(program(x))
    if dtype is torch.float32:
        x, y = values().requires_grad_(), values().requires_grad_()
        out, expected = stoker.compile(program, dynamic=dynamic)(x), program(y)
        if expected.requires_grad:
            out.sum().backward()
            expected.sum().backward()
            assert bits(x.grad) == bits(y.grad)


def test_conversions_without_loss_are_known_by_trying() -> None:
    """Every number of a narrow type survives the way to a wide one and back, if the table says so, and only then."""
    every = {
        torch.bool: torch.tensor([False, True]),
        torch.uint8: torch.arange(256).to(torch.uint8),
        torch.int8: torch.arange(-128, 128).to(torch.int8),
        torch.int16: torch.arange(-(1 << 15), 1 << 15).to(torch.int16),
        torch.int32: torch.tensor([0, 1, -1, (1 << 31) - 1, -(1 << 31), (1 << 24) + 1], dtype=torch.int32),
        torch.int64: torch.tensor([0, 1, -1, (1 << 63) - 1, -(1 << 63), (1 << 53) + 1]),
        torch.float16: torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.float16),
        torch.bfloat16: torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(torch.bfloat16),
        torch.float32: torch.tensor([0.0, 1e-45, 3e38, 1 + 2**-23, 70000.0]),
        torch.float64: torch.tensor([0.0, 5e-324, 1e308, 1 + 2**-52], dtype=torch.float64),
    }
    for narrow, numbers in every.items():
        numbers = numbers[~numbers.isnan()] if narrow.is_floating_point else numbers
        for wide in every:
            survives = torch.equal(numbers.to(wide).to(torch.float64), numbers.to(torch.float64)) and torch.equal(
                numbers.to(wide).to(narrow), numbers
            )
            assert not holds(wide, narrow) or survives, (wide, narrow)
            whole_in_float = wide.is_floating_point and not narrow.is_floating_point
            if not survives and not whole_in_float:
                assert not holds(wide, narrow)


def test_every_rule_has_an_example(functional: Any) -> None:
    held = set()
    for _, program, dtype in VANISH:
        held.update(simplify(functional(program, values(dtype)).graph))
    twice = functional(lambda x: x.relu().relu() * 2, values())
    held.update(simplify(twice.graph))
    assert held == {words for rules in RULES.values() for words, _ in rules}


def test_explain_says_what_went() -> None:
    with torch.no_grad():
        told = str(stoker.explain(lambda x: x.t().t() * 1 + 1, torch.randn(3, 4)))
    assert "improved: 2 operators are gone" in told
    assert "a view of everything (1), x * 1 is x (1)" in told
