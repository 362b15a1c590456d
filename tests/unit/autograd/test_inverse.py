"""Writing through each kind of view changes the base as eager does."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from stoker.autograd import aot_eager, inverse

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda x: x.view(4, 6),
    "t": lambda x: x.view(4, 6).t(),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "negative permute": lambda x: x.permute(-1, 0, 1),
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:1].squeeze(),
    "squeeze dim": lambda x: x[:1].squeeze(0),
    "squeeze dims": lambda x: x[:1, :, :1].squeeze((0, 2)),
    "slice": lambda x: x[:, 1:3, ::2],
    "negative slice": lambda x: x[:, -2:, :-1],
    "select": lambda x: x[1, -1],
    "diagonal": lambda x: x.diagonal(1, 0, 2),
    "split": lambda x: x.split(2, 1)[1],
    "split with sizes": lambda x: x.split([1, 2], -1)[1],
    "unbind": lambda x: x.unbind(1)[2],
    "chunk": lambda x: x.chunk(2, 1)[0],
    "as_strided": lambda x: x.as_strided((2, 3), (7, 2), 1),
    "as_strided of a view": lambda x: x[1].as_strided((2, 3), (7, 2), 1),
    "unfold": lambda x: x.view(-1).unfold(0, 3, 5),
    "view as integers": lambda x: x.view(torch.int32),
    "detach": lambda x: x.detach(),
    "complex": lambda x: torch.view_as_complex(x.view(-1, 2)),
    "real part": lambda x: torch.view_as_complex(x.view(-1, 2)).real,
    "imaginary part": lambda x: torch.view_as_complex(x.view(-1, 2)).imag,
    "conjugate": lambda x: torch.view_as_complex(x.view(-1, 2)).conj(),
    "chain": lambda x: x.transpose(0, 1)[1:].permute(1, 2, 0)[..., 0],
    "expand": lambda x: x.expand(2, 4, 3),
}


@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("written", ["base", "input"])
def test_write_through(name: str, written: str) -> None:
    view = VIEWS[name]

    def program(x: Tensor) -> tuple[Tensor, ...]:
        base = x if written == "input" else x + 1
        other = base[0]
        view(base).mul_(3)
        return base * 2, other + 1, view(base) + 1

    graph = torch.fx.symbolic_trace(program)
    ours, theirs = torch.arange(24.0).view(2, 4, 3), torch.arange(24.0).view(2, 4, 3)
    compiled = aot_eager(graph, [ours])
    assert compiled is not graph
    found, expected = compiled(ours), program(theirs)
    assert torch.equal(ours, theirs)
    for a, b in zip(found, expected):
        assert torch.equal(a, b)


def test_every_inverse_is_written_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table names operators that the programs above reach; one that is added needs a program."""
    reached = set()
    for op, function in inverse._INVERSES.items():
        monkeypatch.setitem(inverse._INVERSES, op, lambda *a, op=op, f=function: reached.add(op) or f(*a))
    for name in VIEWS:
        test_write_through(name, "base")
    rare = {
        torch.ops.aten._unsafe_view.default,
        torch.ops.aten._reshape_alias.default,
        torch.ops.aten._neg_view.default,
    }
    rare |= {torch.ops.aten.lift_fresh.default, torch.ops.aten.alias.default}
    assert set(inverse._INVERSES) - reached <= rare
