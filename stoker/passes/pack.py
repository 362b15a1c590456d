"""Weights in the order that libraries want: their operators are exchanged for ones that take packed weights.

In:  a functional inference graph, and the names of the inputs that are weights.
Out: the same graph, changed: convolutions (with a relu, a clamp or an addition behind them taken in) and linear layers whose
     packed form measures faster call oneDNN and MKL with weights that `stoker.passes.freeze` keeps.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.passes.freeze import fixed_nodes

aten = torch.ops.aten
PACKS = frozenset({torch_private.PACK_CONVOLUTION, torch_private.PACK_LINEAR})
"""Operators whose results are kept."""

LinearPays = Callable[[int, int, int], bool]
"""Is the packed form of (rows, inputs, outputs) faster?"""


def pack(module: GraphModule, weights: Collection[str], linear_pays: LinearPays) -> int:
    """Pack in place; how many weights."""
    packer = _Packer(module.graph, fixed_nodes(module.graph, weights))
    for node in list(module.graph.nodes):
        if node.target is aten.convolution.default:
            packer.convolution(node)
        elif node.target in (aten.addmm.default, aten.mm.default):
            packer.linear(node, linear_pays)
    return packer.count


class _Packer:
    def __init__(self, graph: Graph, fixed: set[Node]) -> None:
        self.graph, self.fixed, self.count = graph, fixed, 0

    def convolution(self, node: Node) -> None:
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
        value = node.meta["val"]
        image = x.meta["val"]  # type: ignore[union-attr]
        plain = value.dtype is torch.float32 and value.dim() == 4 and value.device.type == "cpu"
        if transposed or not plain or weight not in self.fixed or _symbolic(value, image) or not value.numel():
            return
        with self.graph.inserting_before(node):
            packed = self.graph.call_function(
                torch_private.PACK_CONVOLUTION, (weight, padding, stride, dilation, groups, list(image.shape))
            )
            packed.meta = dict(weight.meta)  # type: ignore[union-attr]
        sum_, other = self._addition(node) or (node, None)
        last, attribute, scalars = _ending(sum_, plain=other is None) or (sum_, "none", [])
        window = (packed, bias, padding, stride, dilation, groups)
        with self.graph.inserting_before(last):
            if other is None:
                arguments = (x, *window, attribute, scalars, "")
                made = self.graph.call_function(torch_private.PACKED_CONVOLUTION, arguments)
            else:
                function = None if attribute == "none" else attribute
                made = self.graph.call_function(
                    torch_private.PACKED_CONVOLUTION_ADD, (x, other, *window, "add", 1.0, function, [], "")
                )
        self._replace(made, dict.fromkeys((last, sum_, node)))

    def _replace(self, made: Node, chain: Iterable[Node]) -> None:
        """Put a call in the place of a chain of operators, given from its end."""
        last, *_ = chain
        made.meta = dict(last.meta)
        last.replace_all_uses_with(made)
        for node in chain:
            self.graph.erase_node(node)
        self.count += 1

    def _addition(self, node: Node) -> tuple[Node, Node] | None:
        """The addition of a tensor of the same shape to a convolution's result that nobody else reads, and that tensor."""
        user = _only_user(node)
        if user is None or user.target is not aten.add.Tensor or user.kwargs or len(user.args) != 2:
            return None
        first, second = user.args
        other = second if first is node else first
        if not isinstance(other, Node) or other is node or not _alike(other, node):
            return None
        return user, other

    def linear(self, node: Node, pays: LinearPays) -> None:
        bias, x, weight = node.args if node.target is aten.addmm.default else (None, *node.args)
        value = node.meta["val"]
        plain = value.dtype is torch.float32 and value.device.type == "cpu" and not node.kwargs
        if (
            torch_private.PACK_LINEAR is None
            or not plain
            or weight not in self.fixed
            or bias not in (*self.fixed, None)
        ):
            return
        rows = x.meta["val"]  # type: ignore[union-attr]
        if _symbolic(value, rows) or not value.numel() or not rows.is_contiguous():
            return
        if bias is not None and tuple(bias.meta["val"].shape) != (value.shape[1],):  # type: ignore[union-attr]
            return
        if not pays(rows.shape[0], rows.shape[1], value.shape[1]):
            return
        with self.graph.inserting_before(node):
            turned = self.graph.call_function(aten.t.default, (weight,))
            straight = self.graph.call_function(aten.contiguous.default, (turned,))
            packed = self.graph.call_function(torch_private.PACK_LINEAR, (straight, rows.shape[0]))
            for made in (turned, straight, packed):
                made.meta = dict(weight.meta)  # type: ignore[union-attr]
            turned.meta["val"] = weight.meta["val"].t()  # type: ignore[union-attr]
            call = self.graph.call_function(torch_private.PACKED_LINEAR, (x, packed, turned, bias, rows.shape[0]))
        self._replace(call, [node])


def _symbolic(*values: Any) -> bool:
    return any(not isinstance(s, int) for v in values for s in v.shape)


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _alike(a: Node, b: Node) -> bool:
    x, y = a.meta["val"], b.meta["val"]
    return isinstance(x, torch.Tensor) and x.shape == y.shape and x.dtype == y.dtype


def _ending(node: Node, *, plain: bool) -> tuple[Node, str, list[float]] | None:
    """The elementwise operator behind a node that nobody else reads, in oneDNN's words. Behind an addition it takes fewer."""
    user = _only_user(node)
    if user is None or user.kwargs or not _alike(user, node):
        return None
    if user.target is aten.relu.default:
        return user, "relu", []
    if (
        plain
        and user.target is aten.clamp.default
        and len(user.args) == 3
        and all(isinstance(a, (int, float)) for a in user.args[1:])
    ):
        return user, "hardtanh", [float(a) for a in user.args[1:]]  # type: ignore[arg-type]
    return None
