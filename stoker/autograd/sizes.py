"""Symbolic sizes as nodes of a graph.

In:  placeholders with symbolic sizes, and symbolic integers that operators take as arguments.
Out: for each a node: the placeholder that carries it, a size of an input, or arithmetic on those.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node


class SizeNodes:
    """One graph's symbolic integers, each computed once."""

    def __init__(self, graph: Graph, note: Callable[[Node, Any], Node]) -> None:
        self._graph, self._note = graph, note
        self._nodes: dict[Any, Node] = {}
        self._places: dict[Any, tuple[Node, Any, int]] = {}

    def know(self, size: Any, node: Node) -> None:
        """This node carries this symbolic integer."""
        self._nodes.setdefault(size.node.expr, node)

    def offer(self, tensor: torch.Tensor, node: Node) -> None:
        """The sizes and strides of an input may be asked of it when needed."""
        for sizes, question in (
            (tensor.shape, torch.ops.aten.sym_size.int),
            (tensor.stride(), torch.ops.aten.sym_stride.int),
        ):
            for dim, size in enumerate(sizes):
                if isinstance(size, torch.SymInt):
                    self._places.setdefault(size.node.expr, (node, question, dim))

    def node(self, size: Any) -> Node:
        """The node that carries a symbolic integer."""
        expr = size.node.expr
        if expr not in self._nodes:
            self._nodes[expr] = self._make(size, expr)
        return self._nodes[expr]

    def _make(self, size: Any, expr: Any) -> Node:
        if expr in self._places:
            tensor, question, dim = self._places[expr]
            return self._note(self._graph.call_function(question, (tensor, dim)), size)
        raise NotImplementedError(f"the size {size} is no size of an input")
