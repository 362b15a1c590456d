"""Weights in the order that libraries want: their operators are exchanged for ones that take packed weights.

In:  a functional inference graph, and the names of the inputs that are weights.
Out: the same graph, changed: convolutions (with an addition behind them taken in) and linear layers whose packed form measures
     faster call oneDNN and MKL with weights that `stoker.passes.freeze` keeps.

What must hold: NaN, infinities and limits come out as in eager. oneDNN's own relu and clamp make 0 or a limit of NaN, so these stay
kernels of ours (tests/unit/passes/test_pack.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.passes.freeze import fixed_nodes

aten = torch.ops.aten
PACKS = frozenset({torch_private.PACK_CONVOLUTION, torch_private.PACK_FOR_MKL, torch_private.PACK_FOR_ONEDNN})
"""Operators whose results are kept."""

ChooseLinear = Callable[[int, int, int, str], str]
"""The fastest way to compute a linear layer of (rows, inputs, outputs) with a function behind it: plain, mkl or onednn."""

_VIEWS = (aten.view.default, aten._unsafe_view.default, aten.reshape.default)
_FUNCTIONS: dict[Any, str] = {aten.gelu.default: "gelu"}


def pack(module: GraphModule, weights: Collection[str], choose_linear: ChooseLinear) -> int:
    """Pack in place; how many weights."""
    packer = _Packer(module.graph, fixed_nodes(module.graph, weights))
    for node in list(module.graph.nodes):
        if node.target is aten.convolution.default:
            packer.convolution(node)
        elif node.target in (aten.addmm.default, aten.mm.default):
            packer.linear(node, choose_linear)
    return packer.count


class _Packer:
    def __init__(self, graph: Graph, fixed: set[Node]) -> None:
        self.graph, self.fixed, self.count = graph, fixed, 0

    def convolution(self, node: Node) -> None:
        x, weight, bias, stride, padding, dilation, transposed, _, groups = node.args
        value = node.meta["val"]
        image = x.meta["val"]  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
        plain = value.dtype is torch.float32 and value.dim() == 4 and value.device.type == "cpu"
        if transposed or not plain or not self._weighs(node, weight) or _symbolic(value, image) or not value.numel():
            return
        with self.graph.inserting_before(node):
            packed = self.graph.call_function(
                torch_private.PACK_CONVOLUTION, (weight, padding, stride, dilation, groups, list(image.shape))
            )
            packed.meta = dict(weight.meta)  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
        last, other = self._addition(node) or (node, None)
        window = (packed, bias, padding, stride, dilation, groups)
        with self.graph.inserting_before(last):
            if other is None:
                made = self.graph.call_function(torch_private.PACKED_CONVOLUTION, (x, *window, "none", [], ""))
            else:
                made = self.graph.call_function(
                    torch_private.PACKED_CONVOLUTION_ADD, (x, other, *window, "add", 1.0, None, [], "")
                )
        self._replace(made, dict.fromkeys((last, node)))

    def _weighs(self, node: Node, weight: Any) -> bool:
        """Is it a weight, and what it is applied to not? A packed weight is kept for what is computed anew at each call."""
        return weight in self.fixed and node not in self.fixed

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

    def linear(self, node: Node, choose: ChooseLinear) -> None:
        bias, x, weight = node.args if node.target is aten.addmm.default else (None, *node.args)
        value = node.meta["val"]
        plain = value.dtype is torch.float32 and value.device.type == "cpu" and not node.kwargs
        if not plain or not self._weighs(node, weight) or bias not in (*self.fixed, None):
            return
        rows = x.meta["val"]  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
        if _symbolic(value, rows) or not value.numel() or not rows.is_contiguous():
            return
        if bias is not None and tuple(bias.meta["val"].shape) != (value.shape[1],):  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
            return
        last, function = function_behind(node)
        match choose(rows.shape[0], rows.shape[1], value.shape[1], function):
            case "mkl":
                turned, packed = self._packed_linear(node, weight, torch_private.PACK_FOR_MKL)
                self._linear(node, node, torch_private.LINEAR_BY_MKL, (x, packed, turned, bias, rows.shape[0]))
            case "onednn":
                _, packed = self._packed_linear(node, weight, torch_private.PACK_FOR_ONEDNN)
                algorithm = last.kwargs.get("approximate", "none") if function == "gelu" else ""
                self._linear(node, last, torch_private.LINEAR_BY_ONEDNN, (x, packed, bias, function, [], algorithm))

    def _packed_linear(self, node: Node, weight: Any, operator: Any) -> tuple[Node, Node]:
        """The weight with its outputs first, and packed."""
        rows = node.args[-2].meta["val"].shape[0]  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
        with self.graph.inserting_before(node):
            turned = self.graph.call_function(aten.t.default, (weight,))
            straight = self.graph.call_function(aten.contiguous.default, (turned,))
            packed = self.graph.call_function(operator, (straight, rows))
        for made in (turned, straight, packed):
            made.meta = dict(weight.meta)
        value = weight.meta["val"]
        with value.memory.mode:  # outside of it, torch's way to a tensor subclass's operators loads SymPy
            turned.meta["val"] = value.t()
        return turned, packed

    def _linear(self, node: Node, last: Node, operator: Any, arguments: tuple[Any, ...]) -> None:
        """Put a call in the place of a linear layer and, if `last` is another, of the function behind it."""
        with self.graph.inserting_before(node):
            made = self.graph.call_function(operator, arguments)
        if last is not node:
            view = last.args[0]
            last.replace_all_uses_with(view)  # type: ignore[arg-type]  # fx types arguments loosely: here they are nodes
            self.graph.erase_node(last)
        self._replace(made, [node])


def function_behind(node: Node) -> tuple[Node, str]:
    """The GELU behind a linear layer whose result nobody else reads, views between aside."""
    user = _only_user(node)
    while user is not None and user.target in _VIEWS:
        user = _only_user(user)
    name = None if user is None else _FUNCTIONS.get(user.target)
    return (node, "none") if user is None or name is None else (user, name)


def _symbolic(*values: Any) -> bool:
    return any(not isinstance(s, int) for v in values for s in v.shape)


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


def _alike(a: Node, b: Node) -> bool:
    x, y = a.meta["val"], b.meta["val"]
    return isinstance(x, torch.Tensor) and x.shape == y.shape and x.dtype == y.dtype
