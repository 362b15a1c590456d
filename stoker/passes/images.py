"""Images with channels fastest in memory, in both parts of a training graph on a GPU.

In:  the forward part of a training graph, and how many of its results are the program's; the others are kept for the backward.
Out: the same graph, changed; and a function that changes a backward part of what it keeps. A convolution reads its images and its weight
     in the order that cuDNN's fast kernels want, which otherwise reorder them by kernels of their own, forward and backward; operators
     behind it keep that order, as they do in eager. What they give is found anew from what they are given. Any other operator is given its
     operands as they were, and so is the program its results.

A convolution in groups has faster kernels for the usual order: a graph with one stays as it is. So does one of numbers of 32 bits or more.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from stoker.fake import FakeTensor
from stoker.graph.facts import fake_of
from stoker.graph.insert import insert
from stoker.graph.walk import is_random

aten = torch.ops.aten
IMAGES = {aten.convolution.default: (0, 1), aten.convolution_backward.default: (0, 1, 2)}
"""Convolutions, and where among their arguments the images and weights are."""
GROUPS = {aten.convolution.default: 8, aten.convolution_backward.default: 9}
FOLLOWING = frozenset({
    operator.getitem, aten._to_copy.default, aten.clone.default, aten.sum.dim_IntList, aten.mean.dim, aten.var_mean.correction, aten.amax.default,
    aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default, aten.avg_pool2d.default,
    aten.avg_pool2d_backward.default, aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool2d_backward.default, aten.cat.default,
})  # fmt: skip
"""What keeps the order of its operands, as do operators that work element by element."""


@dataclass(frozen=True, slots=True)
class Images:
    """Which tensors are turned."""

    device: str = "cuda"
    dtypes: tuple[torch.dtype, ...] = (torch.float16, torch.bfloat16)

    def __contains__(self, value: FakeTensor | None) -> bool:
        return (
            value is not None and value.device.type == self.device and value.dim() == 4 and value.dtype in self.dtypes
        )


ON_A_GPU = Images()


def turn_images(forward: GraphModule, visible: int, images: Images = ON_A_GPU) -> Callable[[GraphModule], None] | None:
    """Change a forward part in place; None if there is nothing to change."""
    if not _suits(forward, images):
        return None
    (output,) = (n for n in forward.graph.nodes if n.op == "output")
    kept = [fake_of(n) for n in output.args[0][visible:]]
    _Turning(forward, images).turn(visible)
    turned = {n: fake_of(end) for n, end in enumerate(output.args[0][visible:]) if fake_of(end) is not kept[n]}

    def backward(module: GraphModule) -> None:
        turning = _Turning(module, images)
        given = [n for n in module.graph.nodes if n.op == "placeholder"]
        for position, fake in turned.items():
            turning.change(given[position], fake)
        turning.turn(None)

    return backward


def _suits(module: GraphModule, images: Images) -> bool:
    """Are there convolutions, all of them of such images and in one group, and all sizes known?"""
    found = [n for n in module.graph.nodes if n.target is aten.convolution.default]
    if not found or any((fake := fake_of(n)) is not None and fake.meta.symbolic for n in module.graph.nodes):
        return False
    return all(fake_of(n) in images and n.args[GROUPS[n.target]] == 1 for n in found)


class _Turning:
    """The state of one graph."""

    def __init__(self, module: GraphModule, images: Images) -> None:
        self.graph, self.images = module.graph, images
        self.before: dict[Node, FakeTensor] = {}
        """For nodes whose tensor lies otherwise than it did: how it lay."""
        self.several: set[Node] = set()
        """Nodes of several results, found anew."""
        self.copies: dict[tuple[Node, torch.memory_format], Node] = {}

    def change(self, node: Node, value: Any) -> None:
        """What a node gives now. Where that lies as before, it has the strides it had: those of dimensions of one element differ."""
        old = node.meta["val"]
        if not isinstance(old, FakeTensor):
            self.several.add(node)
        elif _lies_alike(old, value):
            return
        else:
            self.before[node] = old
        node.meta["val"] = value

    def turn(self, visible: int | None) -> None:
        """Change the graph; the results before `visible` are as they were, or all."""
        for node in list(self.graph.nodes):
            if node.op == "output":
                results = node.args[0]
                seen = set(results[:visible])
                node.args = ([self.restored(r, node) if r in seen else r for r in results],)
            elif node.target in IMAGES and node.args[GROUPS[node.target]] == 1:
                for position in IMAGES[node.target]:
                    self.turn_operand(node, position)
                self.follow(node)
            elif self.reads_changed(node) and not self.follow(node):
                for given in node.all_input_nodes:
                    node.replace_input_with(given, self.restored(given, node))

    def reads_changed(self, node: Node) -> bool:
        return any(given in self.before or given in self.several for given in node.all_input_nodes)

    def turn_operand(self, node: Node, position: int) -> None:
        given = node.args[position]
        assert isinstance(given, Node)
        value = fake_of(given)
        if value in self.images and not value.is_contiguous(memory_format=torch.channels_last):  # type: ignore[union-attr]  # of an image
            node.update_arg(position, self.copied(given, node, torch.channels_last))

    def copied(self, given: Node, user: Node, order: torch.memory_format) -> Node:
        """A copy in an order, made once."""
        if (given, order) not in self.copies:
            with self.graph.inserting_before(user):
                self.copies[given, order] = insert(self.graph, given, aten.clone.default, given, memory_format=order)
        return self.copies[given, order]

    def restored(self, node: Any, user: Node) -> Any:
        return self.copied(node, user, torch.contiguous_format) if node in self.before else node

    def follow(self, node: Node) -> bool:
        """Find anew what an operator gives that keeps the order of its operands; False if it is another, or gives what no copy restores."""
        target: Any = node.target
        if target not in IMAGES and target not in FOLLOWING and not _is_elementwise(node):
            return False
        given: Any = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta["val"])
        arguments, keywords = given
        if target is operator.getitem:
            made = arguments[0][arguments[1]]
        else:
            mode = next(v.memory.mode for n in node.all_input_nodes if (v := fake_of(n)) is not None)
            made = mode.propagate(target, arguments, keywords)
        old = fake_of(node)
        if old is not None and not _lies_alike(old, made) and not old.is_contiguous():
            return False
        self.change(node, made)
        return True


def _is_elementwise(node: Node) -> bool:
    """Does an operator work element by element, and draw no numbers, which are dealt in the order of memory?"""
    return torch.Tag.pointwise in getattr(node.target, "tags", ()) and not is_random(node)


def _lies_alike(a: FakeTensor, b: FakeTensor) -> bool:
    """The stride of a dimension of one element says nothing."""
    pairs = zip(a.meta.sizes, a.meta.strides, b.meta.strides, strict=True)
    return all(size == 1 or mine == theirs for size, mine, theirs in pairs)
