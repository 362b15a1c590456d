"""Attention written by hand becomes `scaled_dot_product_attention`, which never holds the matrix of scores.

In:  a captured graph (torch's functions and methods, before autograd), for inference or training. The operator has no second
     gradient: who asks for one must be given that of the graph as it was.
Out: a graph with attention as one operator, or the same if there is none. The form:
     matmul(softmax(matmul(q, k transposed) [* or / number] [+ mask]), v), with dropout of nothing and conversions of type
     between, and nobody else reading the scores.

Two things must hold besides. Nothing is written between the two products, because the operator reads q, k and mask where the
second one stood. And a mask is finite: where a row is -inf everywhere the program has NaN, and the operator 0.

Small scores are left alone: while those of one head stay in a cache, two matrix products with a kernel between them are as fast or
faster, and for the gradient the operator would compute them again. `INFERENCE_BYTES` and `TRAINING_BYTES` are where the operator
began to win, measured on one thread of an AVX-512 machine.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from stoker import torch_private
from stoker.graph.insert import exchanged

INFERENCE_BYTES, TRAINING_BYTES = 192 * 192 * 4, 512 * 512 * 4
"""Bytes of one head's scores from which they are not held."""
_MATMUL = {torch.matmul, torch.bmm, operator.matmul, "matmul", "bmm", "__matmul__"}
_SOFTMAX = {torch.softmax, F.softmax, "softmax"}
_MULTIPLY = {operator.mul, operator.imul, torch.mul, "mul", "mul_"}
_DIVIDE = {operator.truediv, operator.itruediv, torch.div, torch.true_divide, "div", "div_"}
_ADD = {operator.add, operator.iadd, torch.add, "add", "add_"}
_TRANSPOSE = {torch.transpose, torch.swapaxes, "transpose", "swapaxes"}
_MAKES_DENSE = {"contiguous", "reshape", torch.reshape}
_CONVERT = {"to", "type_as", "float", "half", "bfloat16", "contiguous"}


def fuse_attention(module: GraphModule, from_bytes: int) -> GraphModule:
    """The module itself, or a copy with its attention fused where one head's scores take that many bytes."""
    return exchanged(module, lambda node: _match(node, from_bytes), _exchange, _may_matter)


@dataclass(frozen=True)
class _Form:
    """The parts of an attention."""

    query: Node
    key: Node
    value: Node
    scale: float
    mask: Node | None


def _exchange(node: Node, form: _Form) -> None:
    graph = node.graph
    with graph.inserting_before(node):
        made = graph.call_function(
            F.scaled_dot_product_attention,
            (form.query, form.key, form.value),
            {"attn_mask": form.mask, "dropout_p": 0.0, "scale": form.scale},
        )
        made.meta = dict(node.meta)
        if not all(_is(user, _TRANSPOSE) and all(_is(u, _MAKES_DENSE) for u in user.users) for user in node.users):
            made = graph.call_method("contiguous", (made,))  # a matrix product is, and somebody may see it
            made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)


def _may_matter(node: Node) -> bool:
    """Only what is known to be without effect may go."""
    plain = _is(node, _MATMUL | _SOFTMAX | _TRANSPOSE | _CONVERT | _MULTIPLY | _DIVIDE | _ADD)
    return _in_place(node) or not (plain or _dropout_of_nothing(node))


def _in_place(node: Node) -> bool:
    return node.target in (operator.imul, operator.itruediv, operator.iadd) or str(node.target).endswith("_")


def _value(node: Any) -> Any:
    return node.meta.get("example_value") if isinstance(node, Node) else None


def _is(node: Any, targets: set[Any]) -> bool:
    return isinstance(node, Node) and node.op in ("call_function", "call_method") and node.target in targets


def _alone(node: Node) -> bool:
    """Does one node read it, and does nobody write to it? Readers whose result is not used do not count."""
    return sum(bool(user.users) or user.op == "output" or _may_matter(user) for user in node.users) <= 1


def _dropout_of_nothing(node: Any) -> bool:
    if not _is(node, {F.dropout, torch.dropout}):
        return False
    chance = node.args[1] if len(node.args) > 1 else node.kwargs.get("p", 0.5)
    training = node.args[2] if len(node.args) > 2 else node.kwargs.get("training", node.kwargs.get("train", True))
    in_place = node.args[3] if len(node.args) > 3 else node.kwargs.get("inplace", False)
    return (chance == 0 or training is False) and not in_place


def _match(node: Node, from_bytes: int) -> _Form | None:
    if not _is(node, _MATMUL) or len(node.args) != 2 or node.kwargs:
        return None
    weights, value = node.args
    softmax = _through(weights, lambda n: _is(n, _CONVERT) or _dropout_of_nothing(n))
    if softmax is None or not _is(softmax, _SOFTMAX) or not _last_dimension(softmax) or not _alone(softmax):
        return None
    scores = _through(softmax.args[0], lambda n: _is(n, {"to", "float", "contiguous"}))
    scale, mask = 1.0, None
    if scores is not None and _is(scores, _ADD) and not scores.kwargs and _alone(scores) and not _in_place(scores):
        split = _tensor_and_mask(scores)
        if split is None:
            return None
        scores, mask = split
    while scores is not None and _is(scores, _MULTIPLY | _DIVIDE) and not scores.kwargs and not _in_place(scores):
        inner, number = scores.args
        if isinstance(inner, (int, float)) and _is(scores, _MULTIPLY):
            inner, number = number, inner
        if not isinstance(number, (int, float)) or isinstance(number, bool) or not _alone(scores):
            return None
        scale = scale / number if _is(scores, _DIVIDE) else scale * number
        scores = inner if isinstance(inner, Node) else None
    form = _assembled(scores, value, scale, mask, node)
    return form if form is not None and _score_bytes(form) >= from_bytes else None


def _through(node: Any, passes: Callable[[Node], bool]) -> Node | None:
    """The first node above that is not one of these, if each is read once."""
    while isinstance(node, Node) and passes(node):
        if not _alone(node):
            return None
        node = node.args[0]
    return node if isinstance(node, Node) else None


def _last_dimension(softmax: Node) -> bool:
    dim = softmax.kwargs.get("dim", softmax.args[1] if len(softmax.args) > 1 else None)
    value = _value(softmax)
    return value is not None and dim in (-1, value.dim() - 1)


def _tensor_and_mask(add: Node) -> tuple[Node, Node] | None:
    """The scores and what is added to them: the scores are a product, scaled or not."""
    if len(add.args) != 2 or not all(isinstance(a, Node) for a in add.args):
        return None
    for scores, mask in (add.args, add.args[::-1]):
        if _is(scores, _MATMUL | _MULTIPLY | _DIVIDE) and _value(mask) is not None:
            return scores, mask  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes
    return None


def _assembled(scores: Any, value: Any, scale: float, mask: Node | None, end: Node) -> _Form | None:
    """Check that the shapes and types are those that the operator takes without changing what the program means."""
    if not _is(scores, _MATMUL) or len(scores.args) != 2 or not _alone(scores) or written_between(scores, end):
        return None
    query, turned = scores.args
    key = _transposed(turned)
    q, k, v, out = (_value(n) for n in (query, key, value, end))
    if key is None or any(t is None or not t.is_floating_point() for t in (q, k, v, out)):
        return None
    if not (q.dim() == k.dim() == v.dim() == 4 and q.dtype == k.dtype == v.dtype == out.dtype):
        return None
    if q.shape[:2] != k.shape[:2] or k.shape[:3] != v.shape[:3]:
        return None
    if mask is not None:
        m, target = _value(mask), (*q.shape[:3], k.shape[2])
        if m.dtype != q.dtype or m.dim() > 4 or not _is_finite(mask):
            return None
        wide = (1,) * (4 - m.dim()) + tuple(m.shape)
        if any(a not in (1, b) for a, b in zip(wide, target)):
            return None
    return _Form(query, key, value, scale, mask)


def _score_bytes(form: _Form) -> int:
    """Of one head; symbolic sizes count as they were when the graph was captured."""
    query, key = _value(form.query), _value(form.key)
    rows, columns = (s if isinstance(s, int) else int(s.node.hint) for s in (query.shape[-2], key.shape[-2]))
    return rows * columns * int(query.dtype.itemsize)


def written_between(start: Node, end: Node) -> bool:
    """May a node between these two write to memory?"""
    node = start.next
    while node is not end:
        if node.op not in ("placeholder", "get_attr") and not only_reads(node):
            return True
        node = node.next
    return False


_WRITING = "iadd iand iconcat ifloordiv ilshift imatmul imod imul ior ipow irshift isub itruediv ixor setitem delitem"
_WRITING_OPERATORS = frozenset(_WRITING.split())
"""Of Python's operators as functions."""


def only_reads(node: Node) -> bool:
    """A function or method of torch or Python's operators that does not write, by its name and options."""
    if _in_place(node) or node.kwargs.get("out") is not None or node.kwargs.get("inplace") or node.op == "call_module":
        return False
    if node.op == "call_method":
        return node.target not in ("__setitem__", "set_", "resize_")
    if isinstance(node.target, torch_private.OpOverload):
        return not torch_private.schema_of(node.target).is_mutable
    name, home = getattr(node.target, "__name__", ""), getattr(node.target, "__module__", None) or "torch"
    in_place = len(node.args) > 3 and node.target in (F.dropout,) and node.args[3]
    if home == "_operator":
        return name not in _WRITING_OPERATORS
    return home.split(".")[0] in ("torch", "math") and not name.endswith("_") and not in_place


def _is_finite(mask: Node) -> bool:
    """Is a mask made of finite numbers: a choice between two of them, seen through views?"""
    while _is(mask, {"expand", "unsqueeze", "view", "contiguous", operator.getitem}):
        mask = mask.args[0]  # type: ignore[assignment]  # fx types arguments loosely: here they are nodes
    if not _is(mask, {torch.where}) or len(mask.args) != 3:
        return False
    return all(_is(v, {torch.zeros}) or (isinstance(v, (int, float)) and math.isfinite(v)) for v in mask.args[1:])


def _transposed(node: Any) -> Node | None:
    """What a node is the transpose of, in its last two dimensions."""
    if _is(node, _TRANSPOSE) and len(node.args) == 3 and isinstance(node.args[0], Node):
        rank = _value(node).dim()
        if {d % rank for d in node.args[1:]} == {rank - 1, rank - 2}:
            return node.args[0]
    if _is(node, {getattr}) and node.args[1] == "mT":
        return node.args[0]
    return None
