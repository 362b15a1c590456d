"""How results of `torch.cond` and `while_loop` lie in memory: as what a branch computed or a loop carries lies, where that is dense."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker import torch_private


def _channels_last(a: torch.Tensor) -> torch.Tensor:
    return a[None, :, :, None].expand(2, 3, 4, 5).contiguous(memory_format=torch.channels_last)


BRANCHES: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "plain": (lambda a: a * 2, lambda a: a + 1),
    "transposed": (lambda a: a.t() * 2, lambda a: a.t() + 1),
    "channels last": (lambda a: _channels_last(a) * 2, lambda a: _channels_last(a).sin()),
    "permuted": (lambda a: (a[None] * 2).permute(2, 0, 1) + 1, lambda a: a[None].permute(2, 0, 1) * 3),
    "a product": (lambda a: (a @ a.t()).t().clone(), lambda a: (a @ a.t() * 2).t().clone()),
    "nested": (lambda a: {"x": a.t() * 2, "y": (a + 1,)}, lambda a: {"x": a.t() + 1, "y": (a * 2,)}),
    "one column": (lambda a: a[:, :1].t() * 2, lambda a: a[:, :1].t() + 1),
    "no dimensions": (lambda a: a.sum(), lambda a: a.mean()),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("name", BRANCHES)
def test_layouts(name: str, backend: str, dynamic: bool | None) -> None:
    branches = BRANCHES[name]

    def program(chosen: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.cond(chosen, *branches, (x,))

    compiled = stoker.compile(program, backend=backend, dynamic=dynamic, fullgraph=True)
    for chosen in (True, False):
        for x in (torch.randn(3, 4), torch.randn(3, 4, requires_grad=True)):
            found = torch.utils._pytree.tree_leaves(compiled(torch.tensor(chosen), x))
            wanted = torch.utils._pytree.tree_leaves(branches[not chosen](x))
            torch.testing.assert_close(found, wanted)
            assert [t.stride() for t in found] == [t.stride() for t in wanted]
            if x.requires_grad:
                mine, theirs = (
                    torch.autograd.grad(sum((t * t).sum() for t in results), x) for results in (found, wanted)
                )
                torch.testing.assert_close(mine, theirs)


def test_gaps_are_closed() -> None:
    compiled = stoker.compile(
        lambda p, x: torch.cond(p, lambda a: a[:, ::2] * 1, lambda a: a[:, 1::2] * 2, (x,)), fullgraph=True
    )
    assert compiled(torch.tensor(True), torch.ones(3, 4)).is_contiguous()


def test_branches_that_lie_differently() -> None:
    """torch refuses them, and says so."""
    branches = (lambda a: a.t() * 2, lambda a: a.t().contiguous() + 1)
    compiled = stoker.compile(lambda p, x: torch.cond(p, *branches, (x,)), fullgraph=True)
    with pytest.raises(stoker.errors.GraphBreakError, match="lie in memory in different orders"):
        compiled(torch.tensor(True), torch.randn(3, 4))


CARRIED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: x * 1,
    "transposed": lambda x: x.t(),
    "channels last": _channels_last,
    "permuted": lambda x: x[None].permute(2, 0, 1) * 3,
    "with gaps": lambda x: x[:, ::2],
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("name", CARRIED)
def test_loops(name: str, backend: str) -> None:
    def program(x: torch.Tensor, steps: torch.Tensor) -> Any:
        def body(i: Any, a: Any, b: Any) -> Any:
            return i - 1, a * 2 + i, b + a.sum()

        given = (steps, CARRIED[name](x), x + 1)
        return torch_private.while_loop(lambda i, a, b: i > 0, body, given)

    def plain(x: torch.Tensor, steps: torch.Tensor) -> Any:
        i, a, b = steps, CARRIED[name](x), x + 1
        while i > 0:
            i, a, b = i - 1, a * 2 + i, b + a.sum()
        return i, a, b

    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for steps in (3, 0, 1):
        for grad in (False, True):
            x = torch.randn(3, 4, requires_grad=grad)
            mine, theirs = compiled(x, torch.tensor(steps)), plain(x, torch.tensor(steps))
            torch.testing.assert_close(mine, theirs)
            if name != "with gaps":
                assert mine[1].stride() == theirs[1].stride()
            if grad:
                mine, theirs = (torch.autograd.grad(r[1].pow(2).sum() + r[2].sum(), x) for r in (mine, theirs))
                torch.testing.assert_close(mine, theirs)
