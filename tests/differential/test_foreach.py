"""Operators on lists of tensors: what they give, in place and not, and that they are fused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.decompose.registry import OURS

PROGRAMS: dict[str, Callable[..., Any]] = {
    "of one": lambda a, b: [torch._foreach_exp(a), torch._foreach_neg(b), torch._foreach_sqrt(torch._foreach_abs(a))],
    "numbers": lambda a, b: [torch._foreach_add(a, 2), torch._foreach_mul(a, 1.5), torch._foreach_div(b, 3)],
    "several numbers": lambda a, b: [torch._foreach_sub(a, [1, 2, 3]), torch._foreach_pow(a, [2.0, 1.0, 3.0])],
    "lists": lambda a, b: [torch._foreach_add(a, b, alpha=3), torch._foreach_maximum(a, b), torch._foreach_mul(a, b)],
    "a tensor for all": lambda a, b: [torch._foreach_mul(a, b[2]), torch._foreach_add(a, b[2], alpha=2)],
    "limits": lambda a, b: [torch._foreach_clamp_min(a, 0.1), torch._foreach_minimum(a, [0.1, 0.2, 0.3])],
    "of three": lambda a, b: [torch._foreach_addcmul(a, b, a, 0.5), torch._foreach_addcdiv(a, b, b, [1.0, 2.0, 3.0])],
    "lerp": lambda a, b: [torch._foreach_lerp(a, b, 0.3), torch._foreach_lerp(a, b, b), torch._foreach_lerp(a, b, 0.8)],
    "powers of a number": lambda a, b: torch._foreach_pow(0.9, b),
    "norms": lambda a, b: torch._foreach_norm(a),
}


def inputs(dtype: torch.dtype) -> list[list[torch.Tensor]]:
    torch.manual_seed(0)
    return [[(torch.rand(s) + 0.5).to(dtype) for s in ((3, 4), (5,), ())] for _ in range(2)]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, dtype: torch.dtype, backend: str) -> None:
    program, given = PROGRAMS[name], inputs(dtype)
    mine = stoker.compile(program, backend=backend, fullgraph=True)(*given)
    tolerance: dict[str, Any] = {"rtol": 2e-2, "atol": 1e-2} if dtype is torch.bfloat16 else {}
    torch.testing.assert_close(mine, program(*given), **tolerance)


def test_whole_numbers() -> None:
    given = [[torch.arange(4), torch.arange(3) + 1]]
    program = lambda a: [torch._foreach_add(a, 2), torch._foreach_add(a, 1.5), torch._foreach_div(a, 2)]  # noqa: E731
    torch.testing.assert_close(stoker.compile(program)(*given), program(*given))


def test_in_place() -> None:
    def program(a: list[torch.Tensor], b: list[torch.Tensor]) -> None:
        torch._foreach_mul_(a, 0.9)
        torch._foreach_addcmul_(a, b, b, 0.1)
        torch._foreach_zero_(b)

    mine, eager = inputs(torch.float32), inputs(torch.float32)
    stoker.compile(program, fullgraph=True)(*mine)
    program(*eager)
    torch.testing.assert_close(mine, eager)


def test_gradients() -> None:
    def program(a: list[torch.Tensor]) -> torch.Tensor:
        return sum(t.sum() for t in torch._foreach_mul(torch._foreach_exp(a), a))

    (mine, _), (eager, _) = inputs(torch.float64), inputs(torch.float64)
    for tensor in (*mine, *eager):
        tensor.requires_grad_()
    stoker.compile(program, fullgraph=True)(mine).backward()
    program(eager).backward()
    torch.testing.assert_close([t.grad for t in mine], [t.grad for t in eager])


def test_a_list_is_taken_apart() -> None:
    """A chain of operators on lists is a kernel for each tensor, without library calls."""
    found = stoker.explain(lambda a, b: torch._foreach_add(torch._foreach_mul(a, b), 1), *inputs(torch.float32))
    assert not [line for compiled in found.compiled for line in compiled.lines() if line.startswith("library")]


def test_every_functional_list_operator_is_known() -> None:
    """All but those that end in a number for each tensor, that multiply matrices, or that read numbers out of a tensor."""
    left = {"_foreach_norm", "_foreach_powsum", "_foreach_max", "_foreach_mm", "_foreach_copy"}
    names = [n.removeprefix("aten::") for n in torch._C._dispatch_get_all_op_names() if n.startswith("aten::_foreach")]
    for name in names:
        packet, _, overload = name.partition(".")
        if (
            packet.endswith("_")
            or "out" in overload
            or packet in left
            or name in ("_foreach_addcmul.Tensor", "_foreach_addcdiv.Tensor")
        ):
            continue
        assert getattr(getattr(torch.ops.aten, packet), overload or "default") in OURS, name


@pytest.mark.parametrize(
    "name", ["add", "clamp_max", "clamp_max_", "maximum", "minimum_", "lerp", "sqrt_", "norm", "pow"]
)
def test_sizes_that_change_are_compiled_twice(name: str) -> None:
    """Also of operators that torch has no rule for which counts with symbols: their kernels are written with others."""
    others = {"lerp": lambda a: (a, 0.5), "sqrt_": lambda a: (), "norm": lambda a: ()}.get(name, lambda a: (0.5,))

    def program(tensors: list[torch.Tensor]) -> Any:
        copies = [t.clone() for t in tensors]
        return getattr(torch, f"_foreach_{name}")(copies, *others(tensors)), copies

    stoker.reset()
    compiled = stoker.compile(program, fullgraph=True)
    for rows in (2, 3, 4, 5, 6):
        given = [torch.rand(3), torch.rand(rows, 2)]
        torch.testing.assert_close(compiled(given), program(given))
    assert len([e for e in stoker.events("captured") if e.subject.endswith("program")]) == 2
