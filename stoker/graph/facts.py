"""What is known of a node's value: `meta["val"]`, computed when the graph was traced.

In:  nodes of a functional ATen graph.
Out: typed answers, or None where nothing is known.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.fake import FakeTensor


def fake_of(node: Any) -> FakeTensor | None:
    """The tensor that a node gives, without its data."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return value if isinstance(value, FakeTensor) else None


def device_of(node: Any) -> torch.device | None:
    """Where a node's tensor is, or the first of several."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    if isinstance(value, (list, tuple)):
        value = next((v for v in value if isinstance(v, FakeTensor)), None)
    return value.meta.device if isinstance(value, FakeTensor) else None


KEPT = "kept in memory"
"""The mark, in a node's meta, of a value that so many elements are computed of that it is stored first."""
LITERAL = "literal"
"""Of a constant: is it made of numbers in the program's text, and so the same for ever?"""
HOMES = "homes"
"""Of the node that gives back a graph's results: `homes_of`."""


def homes_of(graph: Graph) -> dict[int, int]:
    """The results, by position, whose values the caller writes to inputs, by position, when the graph has run: a graph that reads
    such an input no more may write there itself."""
    (output,) = (n for n in graph.nodes if n.op == "output")
    return dict(output.meta.get(HOMES, {}))


def alike(a: Any, b: Any) -> bool:
    """Have two nodes tensors of one type, of the same sizes and strides?"""
    x, y = fake_of(a), fake_of(b)
    if x is None or y is None:
        return False
    m, n = x.meta, y.meta
    return m is n or (m.dtype is n.dtype and m.device == n.device and plain_layout(m) == plain_layout(n))


def plain_layout(meta: Any) -> tuple[Any, ...]:
    """Sizes and strides, symbolic ones as expressions."""
    return tuple(s.node.expr if isinstance(s, torch.SymInt) else s for s in (*meta.sizes, *meta.strides))
