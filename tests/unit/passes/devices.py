"""Functional graphs of two devices, written by hand: a machine without a GPU can have them."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker.fake import FakeMode, FakeStorage
from stoker.fake.meta import meta_of
from stoker.fake.tensor import make_fake
from stoker.graph.insert import insert

GPU = torch.device("cuda", 0)
CPU = torch.device("cpu")


class Written:
    """A graph in the making."""

    def __init__(self) -> None:
        self.graph = Graph()
        self.mode = FakeMode()

    def input(self, *sizes: int, dtype: torch.dtype = torch.float32, device: torch.device = GPU) -> Node:
        node = self.graph.placeholder(f"arg{len(self.graph.nodes)}")
        node.meta["val"] = make_fake(meta_of(dtype, sizes, None, device), FakeStorage(self.mode))
        return node

    def call(self, target: Any, *arguments: Any, **keywords: Any) -> Node:
        first = next(iter(self.graph.nodes))
        return insert(self.graph, first, target, *arguments, **keywords)

    def output(self, *values: Any) -> GraphModule:
        self.graph.output(list(values))
        return GraphModule(torch.nn.Module(), self.graph)


def devices(module: GraphModule) -> set[str]:
    """Where the values of a graph are."""
    return {n.meta["val"].meta.device.type for n in module.graph.nodes if n.op == "call_function"}
