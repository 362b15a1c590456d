"""Heads that share keys and values are rows of one head: nobody repeats the keys and values, or reads them more than once.

In:  a captured graph (torch's functions and methods, before autograd).
Out: a graph whose attention reads keys and values as they were before they were repeated for each head of a group, or the same graph.

Models with grouped queries keep fewer heads of keys than of queries. Where attention takes as many of both, they expand the keys and copy
them, a whole cache for one new token. With one row of queries for each head, as when a token is decoded, the heads of a group differ in their
queries alone, just as rows of one head do: so they become its rows. The mask, if there is one, must be the same for all heads. With more
rows, and no mask, the operator itself knows groups, on a GPU in half precision (`enable_gqa`).

What must hold besides: nothing is written between the copies and attention, because it reads the keys where it stands.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from stoker.graph.insert import exchanged
from stoker.passes.attention import written_between

_NAMES = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
_VIEWS = {"unsqueeze", "expand", torch.unsqueeze, operator.getitem}
_SHAPED = {"reshape", "view", "flatten", torch.reshape, torch.flatten}
_REPEATED = {"repeat_interleave", torch.repeat_interleave}
_LARGEST_WIDTH = 256
"""Of a head that the kernels for groups take."""
_HALF = (torch.float16, torch.bfloat16)


@dataclass(frozen=True, slots=True)
class _Grouped:
    """An attention whose heads share keys: its arguments by name, with keys and values of fewer heads."""

    arguments: dict[str, Any]
    as_rows: bool


def share_heads(module: GraphModule) -> GraphModule:
    """The module itself, or a copy in which heads share keys and values."""
    return exchanged(module, _grouped, _exchange, lambda n: n.target not in _VIEWS | _SHAPED | _REPEATED)


def _grouped(node: Node) -> _Grouped | None:
    if node.op != "call_function" or node.target is not F.scaled_dot_product_attention:
        return None
    given: dict[str, Any] = (
        {"attn_mask": None, "dropout_p": 0.0, "is_causal": False} | dict(zip(_NAMES, node.args)) | dict(node.kwargs)
    )
    query, key, value = (_value(given.get(name)) for name in _NAMES[:3])
    if any(t is None or t.dim() != 4 for t in (query, key, value)) or given["dropout_p"] != 0:
        return None
    sources = [_source(given[name], node) for name in ("key", "value")]
    if given.get("enable_gqa"):
        sources = [given["key"], given["value"]]
    if any(source is None for source in sources):
        return None
    few, few_values = (_value(source) for source in sources)
    if few.shape[:3] != few_values.shape[:3] or not _divides(few.shape[1], query.shape[1]):
        return None
    given |= {"key": sources[0], "value": sources[1]}
    if query.shape[2] == 1 and given["is_causal"] is False and _is_for_all_heads(given["attn_mask"]):
        kernel_knows = bool(given.get("enable_gqa")) and given["attn_mask"] is None and query.device.type != "cpu"
        return None if kernel_knows else _Grouped(given, as_rows=True)
    knows = query.device.type == "cuda" and query.dtype in _HALF and given["attn_mask"] is None
    wide = max(query.shape[-1], few_values.shape[-1]) > _LARGEST_WIDTH or query.shape[-1] != few_values.shape[-1]
    return _Grouped(given, as_rows=False) if knows and not wide and not given.get("enable_gqa") else None


def _value(node: Any) -> Any:
    found = node.meta.get("example_value") if isinstance(node, Node) else None
    known = isinstance(found, torch.Tensor) and all(isinstance(s, int) for s in found.shape)
    return found if known else None


def _divides(few: int, many: int) -> bool:
    return 0 < few < many and many % few == 0


def _is_for_all_heads(mask: Any) -> bool:
    """Is a mask, of which a row is given for each head's one, the same for all heads?"""
    value = _value(mask)
    return mask is None or (value is not None and value.dim() <= 4 and (value.dim() < 3 or value.shape[-3] == 1))


def _source(repeated: Any, end: Node) -> Node | None:
    """What heads were repeated of, each next to its copies, if it is still the same where attention stands."""
    chain: list[Node] = []
    node = repeated
    while isinstance(node, Node) and node.target in _VIEWS | _SHAPED | _REPEATED and node.op.startswith("call_"):
        if any(isinstance(a, Node) for a in (*node.args[1:], *node.kwargs.values())):
            return None
        chain.insert(0, node)
        node = node.args[0]
        if isinstance(node, Node) and _repeats_heads(node, chain):
            return None if written_between(chain[0], end) else node
    return None


def _repeats_heads(source: Node, chain: list[Node]) -> bool:
    """Do these operators give each head several times? Views are followed by what they do to strides."""
    before, after = _value(source), _value(chain[-1])
    if before is None or after is None or before.dim() != 4 or not _divides(before.shape[1], after.shape[1]):
        return False
    batch, heads, length, width = before.shape
    times = after.shape[1] // heads
    if tuple(after.shape) != (batch, heads * times, length, width):
        return False
    *views, last = chain
    if last.target in _REPEATED and not views:
        numbers = torch.arange(heads)
        return torch.equal(_call(last, numbers.view(1, heads, 1, 1)).flatten(), numbers.repeat_interleave(times))
    if last.target not in _SHAPED or any(view.target not in _VIEWS for view in views):
        return False
    seen = torch.empty(before.shape, device="meta")
    strides = seen.stride()
    for view in views:
        seen = _call(view, seen)
    wanted = (strides[0], strides[1], 0, *strides[2:])
    same = all(size == 1 or a == b for size, a, b in zip(seen.shape, seen.stride(), wanted))
    return same and tuple(seen.shape) == (batch, heads, times, length, width) and not seen.storage_offset()


def _call(node: Node, tensor: torch.Tensor) -> torch.Tensor:
    if node.op == "call_method":
        return getattr(tensor, str(node.target))(*node.args[1:], **node.kwargs)
    return node.target(tensor, *node.args[1:], **node.kwargs)  # type: ignore[operator]  # a function


def _exchange(node: Node, form: _Grouped) -> None:
    graph, given = node.graph, dict(form.arguments)
    query, key = _value(given["query"]), _value(given["key"])
    batch, heads, rows, width = query.shape
    few = key.shape[1]
    place = {key: value for key, value in node.meta.items() if key != "example_value"}
    with graph.inserting_before(node):
        if form.as_rows:
            given["query"] = graph.call_method("reshape", (given["query"], batch, few, heads // few * rows, width))
            given["query"].meta = dict(place)
        given["enable_gqa"] = not form.as_rows
        made = graph.call_function(F.scaled_dot_product_attention, (), given)
        if form.as_rows:
            made.meta = dict(place)
            made = graph.call_method("reshape", (made, batch, heads, rows, _value(given["value"]).shape[-1]))
    made.meta = dict(node.meta)
    node.replace_all_uses_with(made)
    graph.erase_node(node)
