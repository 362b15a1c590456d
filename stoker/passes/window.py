"""Attention within small windows, as of images in pieces, goes to the kernel that is fastest there.

In:  a functional inference graph.
Out: the same graph, changed: where a head has few keys, the memory-efficient kernel stands for cuDNN's, whose tiles are larger than the windows
     (bench/attention_forms.py). How many.

What must hold: rows of a bias begin where the kernel reads vectors. Of a query whose keys are all hidden both kernels give zeros.
"""

from __future__ import annotations

import functools
import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.graph.attention import hand_over, is_plain, size
from stoker.graph.facts import fake_of
from stoker.graph.insert import exchange_each, insert

aten = torch.ops.aten
EFFICIENT = aten._scaled_dot_product_efficient_attention.default
MOST_KEYS = 64
"""The rows and columns of scores that one tile of the efficient kernel has."""
VECTOR, BIAS_VECTOR = 8, 16
"""Elements that it reads at a time: along a head, and at most along a row of the bias."""


def attend_in_windows(graph: Graph) -> int:
    """Exchange the calls on small windows."""
    return exchange_each(graph, lambda n: is_plain(n) and _is_small(n) and _bias_suits(n), _exchange)


def _is_small(node: Node) -> bool:
    """Few keys for each of several queries of several heads: of one, cuDNN lays its result out in an order that its strides do not tell."""
    fakes = [fake_of(n) for n in node.args[:3]]
    sizes = [size for fake in fakes if fake is not None for size in fake.shape]
    if len(sizes) != 12 or not all(isinstance(size, int) and size for size in sizes):
        return False
    _, heads, length, width, _, shared, keys, _, _, _, _, depth = sizes
    several = heads == shared and min(heads, length) > 1
    return bool(several and max(length, keys) <= MOST_KEYS and width % VECTOR == depth % VECTOR == 0)


def _bias_suits(node: Node) -> bool:
    """Is there none, or one for each query and key?"""
    bias = node.args[3]
    if bias is None:
        return True
    fake, scores = fake_of(bias), (size(node.args[0], 2), size(node.args[1], 2))
    return fake is not None and fake.dim() == 4 and fake.dtype.is_floating_point and tuple(fake.shape[2:]) == scores


def _exchange(graph: Graph, node: Node) -> None:
    arguments: tuple[Any, ...] = node.args
    query, key, value, bias = arguments[:4]
    with graph.inserting_before(node):
        call = functools.partial(insert, graph, query)
        if bias is not None:
            sizes = [size(query, 0), size(query, 1), size(query, 2), size(key, 2)]
            padded = call(aten.constant_pad_nd.default, bias, [0, -sizes[3] % BIAS_VECTOR])
            bias = call(aten.expand.default, call(aten.slice.Tensor, padded, 3, 0, sizes[3]), sizes)
        made = call(EFFICIENT, query, key, value, bias, False, **node.kwargs)
        made.meta = dict(node.meta) | {"val": made.meta["val"]}
        result = call(operator.getitem, made, 0)
        old, new = node.meta["val"][0].meta.strides, result.meta["val"].meta.strides
        if old != new:  # heads lie outside of the queries, as they do in its own
            result = call(aten.clone.default, result, memory_format=torch.contiguous_format)
    hand_over(graph, node, result)
