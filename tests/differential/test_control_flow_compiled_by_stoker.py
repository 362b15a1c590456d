"""Control flow outside of compiled code asks `torch.compile` to compile its operator. Where that is Stoker's, results and gradients
are those of the functions themselves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stoker
from stoker import torch_private

WEIGHT = torch.linspace(-1, 1, 4, requires_grad=True)


@pytest.fixture(autouse=True)
def compiled_by_stoker(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(torch, "compile", stoker.compile)
    yield
    stoker.reset()


def _loop(x: torch.Tensor) -> torch.Tensor:
    zero = torch.tensor(0)
    return torch_private.while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a * 2 + i), (zero, x.detach()))[1]


PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cond": (
        lambda x: torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x,)),
        lambda x: x.sin() if x.sum() > 0 else x.cos(),
    ),
    "cond with closures": (
        lambda x: torch.cond(x.sum() > 0, lambda a: a.sin() * WEIGHT, lambda a: a.cos() + WEIGHT, (x,)),
        lambda x: x.sin() * WEIGHT if x.sum() > 0 else x.cos() + WEIGHT,
    ),
    "cond without operands": (
        lambda x: torch.cond(x.sum() > 0, lambda: x.exp(), lambda: x - 1),
        lambda x: x.exp() if x.sum() > 0 else x - 1,
    ),
    "nested operands": (
        lambda x: torch.cond(x.sum() > 0, lambda a: {"t": [a["x"] + 1]}, lambda a: {"t": [a["x"] * 3]}, ({"x": x},)),
        lambda x: {"t": [x + 1]} if x.sum() > 0 else {"t": [x * 3]},
    ),
    "cond in cond": (
        lambda x: torch.cond(
            x.sum() > 0,
            lambda a: torch.cond(a.sum() > 5, lambda b: b * 2, lambda b: b * 3, (a,)),
            lambda a: a + 1,
            (x,),
        ),
        lambda x: (x * 2 if x.sum() > 5 else x * 3) if x.sum() > 0 else x + 1,
    ),
    "map": (
        lambda x: torch_private.map_(lambda row, w: row.sin() * w, x, WEIGHT),
        lambda x: torch.stack([row.sin() * WEIGHT for row in x]),
    ),
    "while_loop": (_loop, lambda x: x.detach() * 8 + 4),
}


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("name", PROGRAMS)
def test_control_flow_outside(name: str, sign: int) -> None:
    def observed(function: Callable[..., Any]) -> Any:
        x = (sign * torch.linspace(-1, 2, 12).reshape(3, 4)).requires_grad_()
        leaves = torch.utils._pytree.tree_leaves(function(x))
        loss = sum((leaf * leaf).sum() for leaf in leaves)
        wanted = [x, WEIGHT] if loss.requires_grad else []
        gradients = torch.autograd.grad(loss, wanted, allow_unused=True) if wanted else []
        return [leaf.detach() for leaf in leaves], [torch.zeros(()) if g is None else g for g in gradients]

    mine, plain = PROGRAMS[name]
    torch.testing.assert_close(observed(mine), observed(plain))
