"""Products whose rows are not aligned: padded for the GPU, equal to eager, under Triton's interpreter."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule

from stoker.autograd import aot
from stoker.lower import matmul
from stoker.pipeline import decompositions
from tests.stages.interpreted import compile_interpreted


def linear(x: Any, w: Any, b: Any) -> Any:
    return (F.linear(x, w, b),)


def by_columns(x: Any, w: Any, b: Any) -> Any:
    return (torch.addmm(b, x, w.t().contiguous()), x @ (w * 2).t())


def loss(x: Any, w: Any, b: Any) -> Any:
    return (F.linear(x, w).float().log_softmax(-1).sum(),)


def gradient(x: Any, w: Any, b: Any) -> Any:
    return (torch.softmax(F.linear(x, w), -1) @ w,)


def gradients(x: Any, w: Any, b: Any) -> Any:
    """Of a product with odd rows: one sums over them, the other has as many rows; returned, and read by others."""
    tangent = F.linear(x, w)
    return (tangent @ w, tangent.t() @ x, (tangent.t() @ x) + w, torch.addmm(x[0], tangent.t(), x))


def by_rows(x: Any, w: Any, b: Any) -> Any:
    """Operands that lie by columns where the odd length is summed over."""
    return (w.t() @ w, (w * 2).t() @ w.abs(), w.t().contiguous() @ w)


@pytest.mark.parametrize("program", [linear, by_columns, loss, gradient, gradients, by_rows], ids=lambda p: p.__name__)
@pytest.mark.parametrize("rows", [64, 100])
def test_padded(program: Any, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "LARGE", 100)
    monkeypatch.setattr(matmul, "PIECE_ROWS", (8, 4))
    monkeypatch.setattr(matmul, "WHOLE_BYTES", 0)
    monkeypatch.setattr(matmul, "LAST_BYTES", 8 * 16 * 2)
    monkeypatch.setattr(matmul, "FEW", 1)
    monkeypatch.setattr(matmul, "WIDE", 1)
    torch.manual_seed(0)
    inputs = [torch.randn(s).to(torch.bfloat16) for s in ((rows, 16), (21, 16), (21,))]
    sources: list[str] = []

    def compiler(module: GraphModule, fakes: list[Any]) -> Any:
        sources.append(str(module.graph))
        return compile_interpreted(module, fakes)

    compiled = aot(torch.fx.symbolic_trace(program), inputs, forward_compiler=compiler, decompositions=decompositions())
    for mine, eager in zip(compiled(*inputs), program(*inputs), strict=True):
        torch.testing.assert_close(mine, eager, rtol=2e-2, atol=2e-2)
        assert mine.stride() == eager.stride()


@pytest.mark.parametrize("columns", [5001, 30522, 50257])
@pytest.mark.parametrize("rows", [1, 63, 64, 65, 100, 128, 129, 1000, 4096])
def test_parts_fit_behind_themselves(rows: int, columns: int) -> None:
    aligned = columns - columns % 8
    parts = list(matmul._heights(rows, columns, aligned, 2))
    assert sum(parts) == rows and all(parts)
    most = matmul.WHOLE_BYTES if len(parts) == 1 else matmul.LAST_BYTES
    assert parts[-1] * aligned * 2 <= most
    left = rows
    for count in parts[:-1]:
        left -= count
        assert left * columns - 64 >= count * aligned - (columns - aligned)
    assert len(parts) <= (1 if rows * aligned * 2 <= matmul.WHOLE_BYTES else 12)


@pytest.mark.parametrize("columns", [1, 5, 7])
def test_few_columns(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matmul, "LARGE", 100)
    x, w = torch.randn(64, 16).to(torch.bfloat16), torch.randn(columns, 16).to(torch.bfloat16)
    module = torch.fx.symbolic_trace(lambda x, w: (F.linear(x, w),))
    compiled = aot(module, [x, w], forward_compiler=compile_interpreted, decompositions=decompositions())
    torch.testing.assert_close(compiled(x, w)[0], F.linear(x, w), rtol=2e-2, atol=2e-2)
