"""Keys and values that were repeated for each head of a group: attention reads them as they were, where that is the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule

import stoker
from stoker.passes.heads import share_heads

B, H, KV, S, D = 2, 8, 2, 12, 16
N = H // KV
attention = F.scaled_dot_product_attention


def repeated(x: torch.Tensor, times: int) -> torch.Tensor:
    batch, heads, length, width = x.shape
    x = x[:, :, None, :, :].expand(batch, heads, times, length, width)
    return x.reshape(batch, heads * times, length, width)


def tiled(x: torch.Tensor) -> torch.Tensor:
    """The heads one after the other, again and again: not each next to its copies."""
    return x[:, None].expand(B, N, KV, S, D).reshape(B, H, S, D)


def turned(x: torch.Tensor) -> torch.Tensor:
    return x.transpose(2, 3)[:, :, None].expand(B, KV, N, D, S).reshape(B, H, S, D)


def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    keys = repeated(k, N)
    k.mul_(2)
    return attention(q, keys, repeated(v, N), m)


def cached(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, m: torch.Tensor) -> torch.Tensor:
    k.index_copy_(2, torch.tensor([3]), torch.ones(B, KV, 1, D))
    return attention(q, repeated(k, N), repeated(v, N), m)


SHARED: dict[str, Callable[..., Any]] = {
    "mask": lambda q, k, v, m: attention(q, repeated(k, N), repeated(v, N), attn_mask=m),
    "positional": lambda q, k, v, m: attention(q, repeated(k, N), repeated(v, N), m, 0.0, False),
    "no mask": lambda q, k, v, m: attention(q, repeated(k, N), repeated(v, N), scale=0.5),
    "added": lambda q, k, v, m: attention(q, repeated(k, N), repeated(v, N), torch.where(m, 0.0, -3.0)),
    "narrow mask": lambda q, k, v, m: attention(q, repeated(k, N), repeated(v, N), m[0, 0]),
    "interleaved": lambda q, k, v, m: attention(q, k.repeat_interleave(N, 1), torch.repeat_interleave(v, N, dim=1), m),
    "unsqueezed": lambda q, k, v, m: attention(
        q, k.unsqueeze(2).expand(-1, -1, N, -1, -1).flatten(1, 2), repeated(v, N), m
    ),
    "groups known": lambda q, k, v, m: attention(q, k, v, m, enable_gqa=True),
    "cached": cached,
    "of a part": lambda q, k, v, m: attention(q, repeated(k[:, :, :5], N), repeated(v[:, :, :5], N), m[..., :5]),
}
LEFT: dict[str, Callable[..., Any]] = {
    "tiled": lambda q, k, v, m: attention(q, tiled(k), tiled(v), m),
    "turned": lambda q, k, v, m: attention(q, turned(k), repeated(v, N), m),
    "keys alone": lambda q, k, v, m: attention(q, repeated(k, N), torch.cat([v] * N, 1), m),
    "a mask for each head": lambda q, k, v, m: attention(q, repeated(k, N), repeated(v, N), m.expand(B, H, 1, S)),
    "causal": lambda q, k, v, m: attention(q, repeated(k, N), repeated(v, N), is_causal=True),
    "more rows": lambda q, k, v, m: attention(q.expand(B, H, 3, D), repeated(k, N), repeated(v, N), m),
    "written": written,
    "one head each": lambda q, k, v, m: attention(q, q, q),
}


def inputs() -> list[torch.Tensor]:
    torch.manual_seed(0)
    made = [torch.randn(B, H, 1, D), torch.randn(B, KV, S, D), torch.randn(B, KV, S, D)]
    return [*made, (torch.rand(B, 1, 1, S) > 0.3) | (torch.arange(S) == 0)]


def captured(program: Callable[..., Any], given: list[torch.Tensor]) -> tuple[list[Any], list[GraphModule]]:
    graphs: list[GraphModule] = []

    def backend(module: GraphModule, examples: list[Any]) -> Any:
        graphs.append(share_heads(module))
        assert (graphs[-1] is module) == (program in LEFT.values())
        return graphs[-1].forward

    return stoker.compile(program, backend=backend, fullgraph=True)(*given), graphs


@pytest.mark.parametrize("name", [*SHARED, *LEFT])
def test_a_form(name: str) -> None:
    program = (SHARED | LEFT)[name]
    mine, eager = inputs(), inputs()
    result, _ = captured(program, mine)
    torch.testing.assert_close(result, program(*eager), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(mine, eager)
    stoker.reset()
    given = inputs()
    torch.testing.assert_close(stoker.compile(program)(*given), program(*inputs()), rtol=1e-4, atol=1e-4)


def test_nothing_is_repeated() -> None:
    _, (graph,) = captured(SHARED["mask"], inputs())
    (node,) = [n for n in graph.graph.nodes if n.target is attention]
    assert [n.meta["example_value"].shape for n in (node.kwargs["key"], node.kwargs["value"])] == [(B, KV, S, D)] * 2
    assert not [n for n in graph.graph.nodes if n.target == "expand"]


@pytest.mark.parametrize("name", ["mask", "no mask", "interleaved"])
def test_gradients(name: str) -> None:
    def run(function: Callable[..., Any]) -> list[Any]:
        q, k, v, m = inputs()
        for tensor in (q, k, v):
            tensor.requires_grad_()
        function(q, k, v, m).square().sum().backward()
        return [t.grad for t in (q, k, v)]

    torch.testing.assert_close(run(stoker.compile(SHARED[name])), run(SHARED[name]), rtol=1e-4, atol=1e-4)


def test_changing_sizes_are_left_alone() -> None:
    program = SHARED["mask"]
    compiled = stoker.compile(program, dynamic=True)
    for length in (12, 7):
        q, k, v, m = inputs()
        given = [q, k[:, :, :length], v[:, :, :length], m[..., :length]]
        torch.testing.assert_close(compiled(*given), program(*given), rtol=1e-4, atol=1e-4)
