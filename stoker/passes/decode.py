"""Attention of a few queries for each head, as when a text grows by a token, becomes loops over keys and values.

In:  a functional inference graph, and how many multiprocessors the device has.
Out: the same graph, changed: such calls are products, sums and a softmax, in float32. How many.

A library's kernel gives each head of the batch to one multiprocessor, which walks along all keys. Where there are fewer heads than
multiprocessors most of them are idle; loops use them all. (Heads that share keys are queries of one head here: `stoker.passes.heads`.) What must
hold: each result is a sum over the same numbers as before, rounded once; a query that sees no key has zeros, as cuDNN gives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.fake import FakeTensor
from stoker.graph.attention import hand_over, is_plain, size
from stoker.graph.facts import KEPT, fake_of
from stoker.graph.insert import exchange_each, insert

aten = torch.ops.aten
MOST_READERS = 16
"""Queries that read the same keys: each reads them again, though from a cache."""


def spread_queries(graph: Graph, processors: int) -> int:
    """Exchange the calls that would leave multiprocessors idle."""
    return exchange_each(graph, lambda n: is_plain(n) and _is_small(n, processors) and _bias_suits(n), _exchange)


def _is_small(node: Node, processors: int) -> bool:
    """Few queries for each of a few heads, which share keys evenly, in half precision."""
    query, key, value = (fake_of(n) for n in node.args[:3])
    if query is None or key is None or value is None or query.dtype not in (torch.float16, torch.bfloat16):
        return False
    known = (*query.shape, *key.shape[:2], key.shape[3], value.shape[3])
    if query.dim() != 4 or not all(isinstance(size, int) for size in known):
        return False
    batch, heads, length, _ = query.shape
    shared = key.shape[1]
    if not 0 < batch * heads < processors or not length or not shared or heads % shared or value.shape[1] != shared:
        return False
    return bool(length * (heads // shared) <= MOST_READERS)


def _bias_suits(node: Node) -> bool:
    """Is there none, or one that the heads that share keys share, too?"""
    bias = node.args[3]
    if bias is None:
        return True
    fake, heads, shared = fake_of(bias), size(node.args[0], 1), size(node.args[1], 1)
    if fake is None or fake.dim() != 4 or not fake.dtype.is_floating_point:
        return False
    return bool(fake.shape[1] == 1 or heads == shared)


def _exchange(graph: Graph, node: Node) -> None:
    query, key, value, bias = node.args[:4]
    batch, heads, length, width = (size(query, d) for d in range(4))
    shared = size(key, 1)
    scale = node.kwargs.get("scale")
    with graph.inserting_before(node):
        call = functools.partial(insert, graph, node.args[0])  # type: ignore[arg-type]  # fx types arguments loosely: it is a node

        def wide(of: Any) -> Node:
            return call(aten._to_copy.default, of, dtype=torch.float32)

        rows = call(aten.view.default, wide(query), [batch, shared, heads // shared, length, 1, width])
        rows = call(aten.mul.Tensor, rows, width**-0.5 if scale is None else scale)
        rows.meta[KEPT] = True
        keys, values = (call(aten.unsqueeze.default, call(aten.unsqueeze.default, wide(n), 2), 3) for n in (key, value))
        scores = call(aten.sum.dim_IntList, call(aten.mul.Tensor, rows, keys), [5])
        if bias is not None:
            scores = call(aten.add.Tensor, scores, call(aten.unsqueeze.default, wide(bias), 2))
        shares = call(aten._softmax.default, scores, -1, False) if bias is None else _shares(call, scores)
        shares = call(aten.unsqueeze.default, shares, 5)
        sums = call(aten.sum.dim_IntList, call(aten.mul.Tensor, shares, values), [4])
        like = node.meta["val"][0]
        result = _laid_out(call, call(aten._to_copy.default, sums, dtype=like.dtype), like)
    hand_over(graph, node, result)


def _shares(call: Callable[..., Node], scores: Node) -> Node:
    """A softmax, of zeros where every key is hidden. Its powers are of two, like cuDNN's: what is infinite as their exponent is hidden. Of other
    rows the greatest power is 1, so that their sum is no less."""
    exponents = call(aten.mul.Tensor, scores, math.log2(math.e))
    greatest = call(aten.amax.default, exponents, [-1], True)
    finite = call(aten.clamp.default, greatest, torch.finfo(torch.float32).min)
    powers = call(aten.exp2.default, call(aten.sub.Tensor, exponents, finite))
    total = call(aten.sum.dim_IntList, powers, [-1], True)
    shares = call(aten.div.Tensor, powers, call(aten.clamp.default, total, 1.0))
    shares.meta[KEPT] = True
    return shares


def _laid_out(call: Callable[..., Node], rounded: Node, like: FakeTensor) -> Node:
    """The result in four dimensions, with the strides that the library gives it: heads inside or outside of the queries."""
    made = call(aten.view.default, rounded, list(like.shape))
    if like.meta.strides[2] == like.shape[3]:
        return made
    turned = call(aten.clone.default, call(aten.transpose.int, made, 1, 2), memory_format=torch.contiguous_format)
    return call(aten.transpose.int, turned, 1, 2)
