"""A graph as it is, operator by operator: what runs where there can be no plan.

In:  a functional graph whose nodes have metadata.
Out: a function of its inputs whose results lie in memory as their metadata says. The other half of a training graph may have
     been compiled, and reads kept tensors by these strides. An operator may lay them out otherwise; one that is not torch's own is looked at
     in the middle of the graph, too, where others take views of its result, or draw numbers in the order in which it lies.

Held by tests/differential/autograd/test_fallback.py.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.fake import FakeTensor
from stoker.graph.boxed import boxed
from stoker.shape.expr import Expr, Symbol
from stoker.shape.symnode import size_of
from stoker.shape.walk import evaluate, free_symbols

Foretold = tuple[tuple[Expr, ...], tuple[Expr, ...]]
"""Sizes and strides."""


def through_aten(module: GraphModule) -> Callable[..., tuple[Any, ...]]:
    """Run the graph's own operators."""
    call = through_aten_boxed(module)
    return lambda *given: call(list(given))


def through_aten_boxed(module: GraphModule) -> Callable[[list[Any]], tuple[Any, ...]]:
    """As `through_aten`, of a list of the inputs, which is emptied: each is freed after its last use."""
    _lay_out(module.graph)
    forward = torch_private.write_code(boxed(module)).forward
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    inputs = [_foretold(n.meta.get("val")) for n in module.graph.nodes if n.op == "placeholder"]
    results = [_foretold(v.meta.get("val") if isinstance(v, Node) else None) for v in output.args[0]]

    def call(given: list[Any]) -> tuple[Any, ...]:
        known: dict[Symbol, int] = {}
        for index, foretold in enumerate(inputs):
            _learn(known, given[index], foretold)
        return tuple(
            value if foretold is None or not isinstance(value, torch.Tensor) else _conformed(value, foretold, known)
            for value, foretold in zip(forward(given), results, strict=True)
        )

    call._boxed_call = True  # type: ignore[attr-defined]  # torch's name for the convention
    return call


EXACT = frozenset({"aten", "prims", "prim", "stoker"})
"""Of operators whose strides are foretold as they are."""


def _lay_out(graph: Graph) -> None:
    """Let results that may lie otherwise than foretold be copied, in place."""
    for node in list(graph.nodes):
        part = node.target is operator.getitem and isinstance(node.args[0], Node)
        made_by = node.args[0].target if part else node.target
        other = isinstance(made_by, torch_private.OpOverload) and made_by.namespace not in EXACT
        value = node.meta.get("val")
        foretold = _foretold(value) if other and isinstance(value, FakeTensor) else None
        if foretold is not None and not any(isinstance(user.target, _Laid) for user in node.users):
            with graph.inserting_after(node):
                laid = graph.call_function(_Laid(foretold), (node,))
            laid.meta = dict(node.meta)
            node.replace_all_uses_with(laid, lambda user, laid=laid: user is not laid)


class _Laid:
    """A tensor as it was foretold."""

    def __init__(self, foretold: Foretold) -> None:
        self.foretold = foretold
        self.__name__ = self.__qualname__ = "laid"

    def __call__(self, value: torch.Tensor) -> torch.Tensor:
        return _conformed(value, self.foretold, {})


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
    # elements that lie in one place are equal
    content = value[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in strides)]
    laid = torch.empty_strided(content.shape, strides, dtype=value.dtype, device=value.device)
    return laid.copy_(content).expand(value.shape)
