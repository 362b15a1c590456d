"""A graph as it is, operator by operator: what runs where there can be no plan.

In:  a functional graph whose nodes have metadata.
Out: a function of its inputs whose results lie in memory as their metadata says. The other half of a training graph may have
     been compiled, and reads kept tensors by these strides; an operator may lay them out otherwise.

Held by tests/differential/autograd/test_fallback.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule

from stoker import torch_private
from stoker.fake import FakeTensor
from stoker.shape.expr import Expr, Symbol
from stoker.shape.symnode import size_of
from stoker.shape.walk import evaluate, free_symbols

Foretold = tuple[tuple[Expr, ...], tuple[Expr, ...]]
"""Sizes and strides."""


def through_aten(module: GraphModule) -> Callable[..., tuple[Any, ...]]:
    """Run the graph's own operators."""
    forward = torch_private.write_code(module).forward
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    inputs = [_foretold(n.meta.get("val")) for n in module.graph.nodes if n.op == "placeholder"]
    results = [_foretold(v.meta.get("val") if isinstance(v, torch.fx.Node) else None) for v in output.args[0]]

    def call(*given: Any) -> tuple[Any, ...]:
        known: dict[Symbol, int] = {}
        for value, foretold in zip(given, inputs):
            _learn(known, value, foretold)
        return tuple(
            value if foretold is None or not isinstance(value, torch.Tensor) else _conformed(value, foretold, known)
            for value, foretold in zip(forward(*given), results, strict=True)
        )

    return call


def _foretold(value: Any) -> Foretold | None:
    if isinstance(value, FakeTensor):
        return tuple(map(size_of, value.meta.sizes)), tuple(map(size_of, value.meta.strides))
    return ((size_of(value),), ()) if isinstance(value, torch.SymInt) else None


def _learn(known: dict[Symbol, int], value: Any, foretold: Foretold | None) -> None:
    """What a value's sizes tell of symbols."""
    if foretold is None:
        return
    sizes: Sequence[int] = value.shape if isinstance(value, torch.Tensor) else (value,)
    for expr, size in zip(foretold[0], sizes):
        if isinstance(expr, Symbol):
            known.setdefault(expr, int(size))


def _conformed(value: torch.Tensor, foretold: Foretold, known: dict[Symbol, int]) -> torch.Tensor:
    """The tensor with the strides foretold, copied if it has others; as it is where nothing tells them."""
    known = dict(known)
    _learn(known, value, foretold)
    if value.layout is not torch.strided or any(free_symbols(s) - known.keys() for s in foretold[1]):
        return value
    strides = [evaluate(s, known) for s in foretold[1]]
    if not value.numel() or all(a == b or n <= 1 for a, b, n in zip(value.stride(), strides, value.shape)):
        return value
    return torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device).copy_(value)
