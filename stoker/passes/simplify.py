"""Operators that change nothing: their readers read what they were given.

In:  a functional ATen graph, forward or backward, of sizes known or symbolic.
Out: the same graph, changed, and how often each rule of `RULES` held.

What must hold (tests/unit/passes/test_simplify.py):
  1. Every value is what it was, bit for bit: -0.0 + 0 is 0.0, so a floating-point addition of 0 stays. A result's type, sizes
     and strides are those of what takes its place.
  2. What the graph gives back has memory of its own where it had: outputs, and what is looked at by place in memory, are left.
  3. The rules of a node are found by its operator: a graph costs one look at each node.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.decompose.registry import find
from stoker.graph.facts import alike, fake_of, plain_layout

aten = torch.ops.aten
Rule = Callable[[Node], Node | None]
"""What a node is the same as, if this rule can tell. A rule may also give the node an earlier argument."""

_SEEN_BY_PLACE = frozenset({aten.as_strided.default, aten.as_strided_scatter.default, aten.as_strided_copy.default})


def simplify(graph: Graph) -> Counter[str]:
    """Apply the rules in place, in the order of the graph; which held how often."""
    held: Counter[str] = Counter()
    for node in graph.nodes:
        for words, rule in RULES.get(node.target, ()) if node.op == "call_function" else ():
            argument = node.args[0] if node.args else None
            same = rule(node)
            if same is not None and _redirect(node, same):
                held[words] += 1
                break
            if node.args and node.args[0] is not argument:
                held[words] += 1
    for node in reversed(graph.nodes):
        if not node.users and node.target in RULES:
            graph.erase_node(node)
    return held


def _redirect(node: Node, same: Node) -> bool:
    """Let the node's readers read another one. Those that see its memory stay, unless it is that other's."""
    shared = node.meta["val"].memory is same.meta["val"].memory and node.meta["val"].meta is same.meta["val"].meta
    readers = [u for u in node.users if shared or not (u.op == "output" or u.target in _SEEN_BY_PLACE)]
    for user in readers:
        user.replace_input_with(node, same)
    return bool(readers)


def number_of(value: Any) -> int | float | bool | None:
    """The number that an argument is in every element, if that can be seen."""
    if isinstance(value, Node) and value.target in (aten.full.default, aten.full_like.default):
        value = value.args[1]
    return value if isinstance(value, (int, float)) else None


def _is_complex(node: Node) -> bool:
    value = fake_of(node)
    return value is None or value.meta.dtype.is_complex


def _positive_zero(number: Any) -> bool:
    return number == 0 and math.copysign(1.0, number) > 0


def _plus_nothing(node: Node) -> Node | None:
    """The sum with 0 of whole numbers; with -0.0 of others."""
    if node.kwargs or len(node.args) != 2 or _is_complex(node):
        return None
    floating = node.meta["val"].meta.dtype.is_floating_point
    for kept, other in (node.args, node.args[::-1]):
        number = number_of(other)
        nothing = number == 0 and not (floating and _positive_zero(number))
        if number is not None and nothing and alike(node, kept):
            return kept  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes
    return None


def _minus_nothing(node: Node) -> Node | None:
    kept, other = node.args[:2]
    number = number_of(other)
    if node.kwargs or len(node.args) != 2 or number is None or not _positive_zero(number) or _is_complex(node):
        return None
    return kept if alike(node, kept) else None  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes


def _times_one(node: Node) -> Node | None:
    for kept, other in (node.args, node.args[::-1]):
        if number_of(other) == 1 and alike(node, kept) and not _is_complex(node):
            return kept  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes
    return None


def _by_one(node: Node) -> Node | None:
    """Divided by 1 (of whole numbers also rounded), or to the power of 1."""
    kept, other = node.args[:2]
    rounded = node.kwargs.get("rounding_mode") is not None and node.meta["val"].meta.dtype.is_floating_point
    one = number_of(other) == 1 and alike(node, kept) and not rounded and not _is_complex(node)
    return kept if one else None  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes


def _undone(node: Node) -> Node | None:
    """f(f(x)) for an f that is its own inverse, with the same further arguments."""
    inner = node.args[0]
    if not isinstance(inner, Node) or inner.target is not node.target or inner.args[1:] != node.args[1:]:
        return None
    kept = inner.args[0]
    return kept if alike(node, kept) else None  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes


def _done_before(node: Node) -> Node | None:
    """f(f(x)) for an f that changes nothing the second time."""
    inner = node.args[0]
    done = isinstance(inner, Node) and inner.target is node.target and alike(node, inner)
    return inner if done else None  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes


def _of_itself(node: Node) -> Node | None:
    """An extreme or a union of a tensor and itself."""
    a, b = node.args[:2]
    return a if a is b and alike(node, a) else None  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes


def _no_choice(node: Node) -> Node | None:
    condition, a, b = node.args
    known = number_of(condition)
    chosen = a if a is b or known else b if known is not None else None
    return chosen if alike(node, chosen) else None  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes


def _copied(node: Node) -> Node | None:
    kept = node.args[0]
    return kept if alike(node, kept) else None  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes


def _converted(node: Node) -> Node | None:
    """A conversion to the type that is there, or by way of a type that holds every number of the first."""
    kept = node.args[0]
    if alike(node, kept):
        return kept  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes
    if not isinstance(kept, Node) or kept.target is not aten._to_copy.default:
        return None
    first = kept.args[0]
    a, b, c = (fake_of(n) for n in (first, kept, node))
    if a is None or b is None or c is None or a.meta.device != c.meta.device or a.meta.device != b.meta.device:
        return None
    source, between, target = a.meta.dtype, b.meta.dtype, c.meta.dtype
    sure = target.is_floating_point or not source.is_floating_point or target is source
    if not holds(between, source) or not sure or plain_layout(a.meta) != plain_layout(c.meta):
        return None
    if target is source:
        return first  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes
    if "memory_format" not in node.kwargs:
        node.update_arg(0, first)
    return None


_DIGITS = {
    torch.bool: 1, torch.uint8: 8, torch.int8: 7, torch.int16: 15, torch.int32: 31, torch.int64: 63,
    torch.float16: 11, torch.bfloat16: 8, torch.float32: 24, torch.float64: 53,
}  # fmt: skip
"""Binary digits that a type holds, the sign aside."""


def holds(wide: torch.dtype, narrow: torch.dtype) -> bool:
    """Is every number of one type exactly one of the other?"""
    if wide is narrow:
        return True
    if wide not in _DIGITS or narrow not in _DIGITS or wide is torch.bool:
        return False
    if narrow.is_floating_point:
        halves = (torch.float16, torch.bfloat16)
        return wide.is_floating_point and _DIGITS[wide] > _DIGITS[narrow] and wide not in halves
    signed = narrow in (torch.bool, torch.uint8) or wide is not torch.uint8
    return signed and _DIGITS[wide] >= _DIGITS[narrow]


def _seen_before(node: Node) -> Node | None:
    """A view of a view that shows what an earlier one of them shows: same memory, same place, same sizes and strides."""
    shown, above = fake_of(node), node.args[0]
    while shown is not None and (value := fake_of(above)) is not None and value.memory is shown.memory:
        if value.meta is shown.meta:
            return above  # type: ignore[return-value]  # fx types arguments loosely: here they are nodes
        if above.target not in VIEWS or not above.args:  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
            return None
        above = above.args[0]  # type: ignore[union-attr]  # fx types arguments loosely: here they are nodes
    return None


def operators(names: str) -> frozenset[Any]:
    """Operators of ATen by their names, those that this version of torch has."""
    return frozenset(map(find, names.split())) - {None}


VIEWS = operators(
    """
    view _unsafe_view reshape permute t transpose.int expand slice.Tensor select.int unsqueeze squeeze squeeze.dim
    squeeze.dims alias detach diagonal view.dtype
    """
)
_TABLE: Iterable[tuple[str, Rule, str]] = (
    ("x + 0 is x", _plus_nothing, "add.Tensor add.Scalar"),
    ("x - 0 is x", _minus_nothing, "sub.Tensor sub.Scalar"),
    ("x * 1 is x", _times_one, "mul.Tensor mul.Scalar"),
    ("x / 1 and x ** 1 are x", _by_one, "div.Tensor div.Scalar div.Tensor_mode div.Scalar_mode pow.Tensor_Scalar"),
    ("an operator undoes itself", _undone, "neg bitwise_not logical_not flip _conj_physical"),
    ("a second time changes nothing", _done_before, "relu abs floor ceil trunc round sign"),
    ("both are the same", _of_itself, "maximum minimum fmax fmin logical_and logical_or"),
    ("both are the same", _of_itself, "bitwise_and.Tensor bitwise_or.Tensor"),
    ("there is no choice", _no_choice, "where.self"),
    ("a copy that nobody tells apart", _copied, "clone lift_fresh_copy lift_fresh"),
    ("a conversion without loss", _converted, "_to_copy"),
)
RULES: dict[Any, list[tuple[str, Rule]]] = {}
"""For each operator: rules, with the words for what they saw."""
for _words, _rule, _names in _TABLE:
    for _operator in operators(_names):
        RULES.setdefault(_operator, []).append((_words, _rule))
for _operator in VIEWS:
    RULES.setdefault(_operator, []).append(("a view of everything", _seen_before))
