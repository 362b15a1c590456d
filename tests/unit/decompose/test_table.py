"""The table: it ends in prims, agrees with eager, and its page is fresh."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import aot
from stoker.decompose import OURS, PRIMS, table

ROOT = Path(__file__).parents[3]

PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "activations": (
        lambda x: (F.silu(x) + F.gelu(x) + F.gelu(x, approximate="tanh") + F.hardswish(x) + F.mish(x) + F.elu(x),),
        [(4, 6)],
    ),
    "more activations": (
        lambda x: (F.leaky_relu(x) + F.softplus(x) + F.hardsigmoid(x) + F.relu(x) + F.hardtanh(x) + F.logsigmoid(x),),
        [(4, 6)],
    ),
    "layer norm": (lambda x, w, b: (F.layer_norm(x, (6,), w, b),), [(4, 6), (6,), (6,)]),
    "group norm": (lambda x, w, b: (F.group_norm(x, 2, w, b),), [(2, 4, 3), (4,), (4,)]),
    "batch norm": (lambda x, w, b: (F.batch_norm(x, None, None, w, b, True),), [(5, 4, 3), (4,), (4,)]),
    "softmax": (lambda x: (F.softmax(x, 1) * F.log_softmax(x, 0) + torch.logsumexp(x, 1, True),), [(4, 6)]),
    "moments": (lambda x: (x.mean(1) + x.var(1) + x.std(0).sum() + x.mean(),), [(4, 6)]),
    "losses": (
        lambda x, y: (F.mse_loss(x, y) + F.smooth_l1_loss(x, y) + F.huber_loss(x, y, delta=0.3),),
        [(4, 6), (4, 6)],
    ),
    "pieces": (lambda x: (torch.stack([x[0], x[1:3, ::2].sum(1).repeat(3), x.diagonal()[:1].repeat(6)]),), [(4, 6)]),
    "arithmetic": (
        lambda x, y: (torch.addcmul(x, x, y) + torch.lerp(x, y, 0.3) + (1 - x) + x.frac(),),
        [(4, 6), (4, 6)],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_agrees_and_ends_in_prims(name: str, dtype: torch.dtype) -> None:
    function, shapes = PROGRAMS[name]
    torch.manual_seed(0)
    inputs = [torch.randn(*s, dtype=dtype, requires_grad=True) for s in shapes]
    reached: set[Any] = set()

    def note(module: torch.fx.GraphModule, fakes: list[Any]) -> Any:
        reached.update(n.target for n in module.graph.nodes if isinstance(n.target, torch._ops.OpOverload))
        return module.forward

    graph = torch.fx.symbolic_trace(function)
    ours = aot(graph, inputs, forward_compiler=note, decompositions=table())(*inputs)[0]
    theirs = function(*inputs)[0]
    close = {} if dtype is torch.float64 else {"rtol": 5e-2, "atol": 5e-2}
    torch.testing.assert_close(ours, theirs, **close)
    seed = torch.randn_like(ours)
    for a, b in zip(torch.autograd.grad(ours, inputs, seed), torch.autograd.grad(theirs, inputs, seed)):
        torch.testing.assert_close(a, b, **close)
    assert not reached & set(OURS), "left although the table has it"


def test_prims_and_decompositions_are_apart() -> None:
    assert not PRIMS & set(OURS)


def test_page_is_fresh() -> None:
    page = ROOT / "docs" / "ir" / "prims.md"
    before = page.read_text()
    subprocess.run([sys.executable, str(ROOT / "tools" / "write_prims_page.py")], check=True)
    assert page.read_text() == before


def test_common_operators_stay_ours() -> None:
    """Decomposing them must not load torch's table, which loads Dynamo."""
    program = """
import sys, torch, torch.nn.functional as F
from stoker.autograd import aot, run_eagerly
from stoker.decompose import table
f = lambda x, w: (F.cross_entropy(F.layer_norm(F.gelu(x @ w), (8,)), torch.zeros(4, dtype=torch.long)),)
args = [torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True)]
aot(torch.fx.symbolic_trace(f), args, forward_compiler=run_eagerly, decompositions=table())(*args)[0].backward()
bad = [m for m in ("torch._dynamo", "torch._inductor", "sympy") if m in sys.modules]
assert not bad, bad
"""
    subprocess.run([sys.executable, "-c", program], check=True, cwd=ROOT)
