"""Convolutions of patches that lie side by side, as images are cut for a transformer, become matrix products.

In:  a functional graph on a GPU.
Out: the same graph, changed: such a convolution is a product of the patches, each a row, with the weight. How many.

A window that moves by its own size reads each point once, so that the rows are the image in another order. cuDNN has fast kernels for channels
that fill its vectors; of three channels it takes many times the product's time. What must hold: each result is a sum over the same numbers as
before, rounded once; the bias is added to what was rounded, as eager adds it.
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.graph.facts import fake_of
from stoker.graph.insert import exchange_each, insert

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
VECTOR = 8
"""Numbers that kernels read at a time, along channels and along a row of a product."""


def multiply_patches(graph: Graph) -> int:
    """Exchange the convolutions."""
    return exchange_each(graph, lambda n: n.target is aten.convolution.default and _suits(n), _exchange)


def _suits(node: Node) -> bool:
    """Patches side by side of images on a GPU, of few channels, and rows of them that a product reads well."""
    arguments: tuple[Any, ...] = node.args
    x, weight = fake_of(arguments[0]), fake_of(arguments[1])
    _, _, _, stride, padding, dilation, transposed, _, groups = arguments
    if x is None or weight is None or x.device.type != "cuda" or x.dtype not in HALF:
        return False
    if not all(isinstance(s, int) and s for s in (*x.shape, *weight.shape)) or not weight.is_contiguous():
        return False
    outputs, channels, *window = weight.shape
    beside = list(stride) == window and not any(padding) and set(dilation) == {1} and not transposed and groups == 1
    return bool(
        beside and channels % VECTOR != 0 and math.prod(weight.shape[1:]) % VECTOR == 0 and outputs % VECTOR == 0
    )


def _exchange(graph: Graph, node: Node) -> None:
    arguments: tuple[Any, ...] = node.args
    x, weight, bias = arguments[:3]
    image, places = fake_of(x), fake_of(node)
    assert image is not None and places is not None
    batch, outputs, *counts = places.shape
    _, channels, *window = weight.meta["val"].shape
    rank = len(window)
    with graph.inserting_before(node):
        call: Any = functools.partial(insert, graph, node)
        for dimension, (count, size) in enumerate(zip(counts, window), 2):
            if image.shape[dimension] != count * size:  # what is left of the last patch
                x = call(aten.slice.Tensor, x, dimension, 0, count * size)
        apart = [n for pair in zip(counts, window) for n in pair]
        cut = call(aten.view.default, _dense(call, x), [batch, channels, *apart])
        order = [0, *(2 + 2 * d for d in range(rank)), 1, *(3 + 2 * d for d in range(rank))]
        turned = call(aten.clone.default, call(aten.permute.default, cut, order), memory_format=torch.contiguous_format)
        rows = call(aten.view.default, turned, [batch * math.prod(counts), channels * math.prod(window)])
        columns = call(aten.t.default, call(aten.view.default, weight, [outputs, channels * math.prod(window)]))
        made = call(aten.view.default, call(aten.mm.default, rows, columns), [batch, *counts, outputs])
        made = call(aten.permute.default, made, [0, rank + 1, *range(1, rank + 1)])
        if bias is not None:
            made = call(aten.add.Tensor, made, call(aten.view.default, bias, [outputs, *[1] * rank]))
        if made.meta["val"].meta.strides != places.meta.strides:
            made = call(aten.clone.default, made, memory_format=_order(places))
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _dense(call: Any, x: Any) -> Any:
    """Where a view cannot part its dimensions it is copied first; loops compute both at once."""
    fake = fake_of(x)
    assert fake is not None
    return x if fake.is_contiguous() else call(aten.clone.default, x, memory_format=torch.contiguous_format)


def _order(fake: Any) -> torch.memory_format:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = formats.get(fake.dim())
    return last if last is not None and fake.is_contiguous(memory_format=last) else torch.contiguous_format
