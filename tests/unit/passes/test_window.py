"""Attention within small windows goes to another kernel, which is given the same."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
from torch.fx import GraphModule, Node

from stoker.passes.window import EFFICIENT, attend_in_windows
from tests.unit.passes.devices import Written

aten = torch.ops.aten
CUDNN = aten._scaled_dot_product_cudnn_attention.default
Shape = tuple[int, ...]


def written(query: Shape, keys: Shape, bias: Shape | None = None, *rest: Any, turned: bool = False) -> GraphModule:
    """A graph of one attention; `turned`: its query has heads inside, as a projection leaves it."""
    w = Written()
    q, k, v = (w.input(*s, dtype=torch.float16) for s in (query, keys, keys))
    if turned:
        b, h, n, d = query
        q = w.call(aten.transpose.int, w.input(b, n, h, d, dtype=torch.float16), 1, 2)
    mask = None if bias is None else w.input(*bias, dtype=torch.float16)
    made = w.call(CUDNN, q, k, v, mask, False, *rest, scale=0.5)
    return w.output(w.call(operator.getitem, made, 0))


def calls(module: GraphModule) -> list[Node]:
    return [n for n in module.graph.nodes if n.target is EFFICIENT]


def result(module: GraphModule) -> Any:
    (output,) = (n for n in module.graph.nodes if n.op == "output")
    return output.args[0][0].meta["val"].meta


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("bias", [None, (6, 3, 49, 49), (1, 3, 49, 49), (6, 1, 49, 49)])
def test_what_it_is_given(bias: Shape | None, turned: bool) -> None:
    module = written((6, 3, 49, 32), (6, 3, 49, 32), bias, turned=turned)
    before = result(module)
    assert attend_in_windows(module.graph) == 1
    after = result(module)
    assert (after.sizes, after.strides, after.dtype) == (before.sizes, before.strides, before.dtype)
    (call,) = calls(module)
    assert call.kwargs == {"scale": 0.5}
    if bias is not None:
        given = call.args[3].meta["val"].meta  # type: ignore[union-attr]  # fx types arguments loosely: it is a node
        assert given.sizes == (6, 3, 49, 49) and given.strides[3] == 1 and given.strides[2] % 16 == 0


@pytest.mark.parametrize(
    ("query", "keys", "rest"),
    [
        ((6, 3, 65, 32), (6, 3, 65, 32), ()),  # no small window
        ((6, 3, 9, 32), (6, 3, 197, 32), ()),  # many keys
        ((6, 3, 49, 20), (6, 3, 49, 20), ()),  # heads of odd width
        ((6, 6, 49, 32), (6, 3, 49, 32), ()),  # heads that share keys
        ((6, 1, 49, 32), (6, 1, 49, 32), ()),  # one head
        ((6, 3, 1, 32), (6, 3, 49, 32), ()),  # one query
        ((6, 3, 49, 32), (6, 3, 49, 32), (None, 0.1)),  # something is dropped
        ((6, 3, 49, 32), (6, 3, 49, 32), (None, 0.0, True)),  # later keys are hidden
        ((6, 3, 49, 32), (6, 3, 49, 32), ((6, 3, 1, 49),)),  # one bias for all queries
    ],
)
def test_what_stays(query: Shape, keys: Shape, rest: tuple[Any, ...]) -> None:
    module = written(query, keys, *rest)
    assert attend_in_windows(module.graph) == 0
    assert not calls(module)
