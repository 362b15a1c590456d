"""Masks that are constants: what they hide is seen when the graph is compiled."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker.passes.mask import settle_masks


def attention(q: torch.Tensor, mask: Any, **others: Any) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q, mask, **others)


def positional(q: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, q, q, torch.ones(5, 5, dtype=torch.bool).tril(), 0.0)


def added(q: torch.Tensor) -> torch.Tensor:
    hidden = torch.arange(5)[None, :] > torch.arange(5)[:, None]
    return attention(q, torch.zeros(5, 5).masked_fill(hidden, float("-inf")))


def expanded(q: torch.Tensor) -> torch.Tensor:
    return attention(q, (torch.arange(5) >= 0)[None, None, :, None].expand(2, 1, 5, 5))


def finite(q: torch.Tensor) -> torch.Tensor:
    hidden = torch.arange(5)[None, :] > torch.arange(5)[:, None]
    return attention(q, torch.zeros(5, 5).masked_fill(hidden, -1e9))


def written(q: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[:, 2] = False
    return attention(q, mask)


def written_later(q: torch.Tensor) -> torch.Tensor:
    mask = torch.ones(5, 5)
    view = mask[:, 2]
    view.mul_(-2)
    return attention(q, mask)


def window(q: torch.Tensor) -> torch.Tensor:
    near = (torch.arange(5)[None, :] - torch.arange(5)[:, None]).abs() < 2
    return attention(q, near)


def of_input(q: torch.Tensor) -> torch.Tensor:
    return attention(q, q[0, 0, :, :1].abs() >= 0)


CASES = {
    positional: (None, True),
    added: (None, True),
    expanded: (None, False),
    finite: ("kept", False),
    written: ("kept", False),
    written_later: ("kept", False),
    window: ("kept", False),
    of_input: ("kept", False),
}


@pytest.mark.parametrize("program", CASES, ids=lambda p: p.__name__)
def test_masks(program: Any) -> None:
    found: list[tuple[Any, Any]] = []

    def look(module: Any, inputs: Any) -> Any:
        settled = settle_masks(module)
        (node,) = (n for n in settled.graph.nodes if n.target is F.scaled_dot_product_attention)
        mask = node.args[3] if len(node.args) > 3 else node.kwargs.get("attn_mask")
        found.append(("kept" if mask is not None else None, bool(node.kwargs.get("is_causal", False))))
        return settled.forward

    q = torch.randn(2, 3, 5, 8)
    torch.testing.assert_close(stoker.compile(program, backend=look)(q), program(q))
    assert found == [CASES[program]]
    stoker.reset()
    torch.testing.assert_close(stoker.compile(program)(q), program(q))
