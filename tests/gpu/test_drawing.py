"""Random numbers that kernels draw on a CUDA device are eager's, bit by bit, and leave the generator where eager leaves it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker.codegen.triton.stream import drawing_threads

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def agree(program: Callable[..., Any], *inputs: torch.Tensor, calls: int = 2, **how: Any) -> None:
    stoker.reset()
    compiled = stoker.compile(program, fullgraph=True, **how)
    torch.cuda.manual_seed(7)
    wanted = [program(*inputs) for _ in range(calls)]
    state = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(7)
    for eager in wanted:
        found = compiled(*inputs)
        for mine, theirs in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (found, eager)), strict=True):
            assert torch.equal(mine, theirs)
            assert mine.stride() == theirs.stride()
    assert torch.equal(torch.cuda.get_rng_state(), state)


def test_eager_deals_as_foretold() -> None:
    assert drawing_threads() > 0, stoker.events("backend")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64], ids=str)
@pytest.mark.parametrize("shape", [(1,), (4,), (6,), (33, 31), (64, 1000), (8192, 1024)], ids=str)
def test_dropout(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.randn(shape, device="cuda", dtype=dtype)
    agree(lambda x: F.dropout(x, 0.3), x)
    agree(lambda x: F.dropout(x.abs(), 0.1) + 1, x)


def test_dropout_of_memory_that_is_not_aligned() -> None:
    base = torch.randn(4100, device="cuda", dtype=torch.float16)
    for x in (base[1:4097], base[2:4098], base[4:4100], base[8:4096].view(8, 511).t()):
        agree(lambda x: F.dropout(x, 0.5), x)


@pytest.mark.parametrize("shape", [(3,), (100, 100), (1 << 20,)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64], ids=str)
def test_distributions(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    x = torch.zeros(shape, device="cuda", dtype=dtype)
    agree(lambda x: torch.rand_like(x), x)
    agree(lambda x: torch.randn_like(x), x)
    agree(lambda x: torch.empty_like(x).bernoulli_(0.3), x)
    agree(lambda x: (torch.randn(5, device="cuda"), torch.randperm(7, device="cuda"), torch.rand_like(x)), x)


def test_training_with_dropout() -> None:
    torch.manual_seed(0)
    layers = [
        torch.nn.Linear(64, 64),
        torch.nn.GELU(),
        torch.nn.Dropout(0.2),
        torch.nn.LayerNorm(64),
        torch.nn.Dropout(0.1),
    ]
    model = torch.nn.Sequential(*layers).cuda()
    compiled, x = stoker.compile(model), torch.randn(256, 64, device="cuda")
    torch.cuda.manual_seed(3)
    model(x).square().sum().backward()
    wanted = [p.grad.clone() for p in model.parameters() if p.grad is not None]
    model.zero_grad()
    torch.cuda.manual_seed(3)
    compiled(x).square().sum().backward()
    for mine, eager in zip((p.grad for p in model.parameters()), wanted, strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-3, atol=1e-3)


def test_recorded() -> None:
    """Replays draw on where the last call stopped."""
    x = torch.randn(512, 512, device="cuda")
    agree(lambda x: F.dropout(x * 2, 0.3) + torch.rand(512, device="cuda"), x, calls=8, options={"cudagraphs": True})


def test_recorded_by_the_program() -> None:
    """A compiled function inside of a graph that the program records draws as eager does there."""
    x = torch.randn(512, 512, device="cuda")

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.dropout(x * 2, 0.3).tanh(), 0.1) + torch.rand(512, device="cuda")

    def replayed(function: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        for _ in range(3):
            function(x)
        torch.cuda.synchronize()
        torch.cuda.manual_seed(7)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = function(x)
        found = []
        for _ in range(3):
            graph.replay()
            found.append(made.clone())
        return [*found, function(x)]

    wanted, mine = replayed(program), replayed(stoker.compile(program))
    for eager, ours in zip(wanted, mine, strict=True):
        torch.testing.assert_close(ours, eager)
    assert not torch.equal(mine[0], mine[1])
