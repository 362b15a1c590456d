"""Masks of attention whose content is known, or whose layout the fused kernels refuse.

In:  a captured graph (torch's functions and methods, before autograd).
Out: a graph whose attention takes less: a mask that depends on no input and hides nothing is dropped, one that hides what comes later
     is the flag `is_causal`, and on a GPU one whose last dimension is not laid out densely is copied. Or the same graph.

Libraries build masks from sizes alone: transformers passes one that is true everywhere when it is compiled, and with it attention
would run through the slowest kernel. Nothing is assumed of such a mask: it is evaluated, when the graph is compiled.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Node

from stoker import torch_private
from stoker.passes.attention import only_reads

LARGEST_MASK = 1 << 26
"""Elements of a mask that is looked at."""
_MASK = 3
"""The mask's position among the arguments."""


def settle_masks(module: GraphModule) -> GraphModule:
    """The module itself, or a copy with masks settled."""
    found = {node.name: change for node in module.graph.nodes if (change := _change(node)) is not None}
    if not found:
        return module
    settled = torch_private.graph_module(module, copy.deepcopy(module.graph))
    settled.meta = module.meta
    for node in list(settled.graph.nodes):
        if node.name in found:
            _settle(node, found[node.name])
    settled.recompile()
    return settled


def _mask_of(node: Node) -> Any:
    return node.args[_MASK] if len(node.args) > _MASK else node.kwargs.get("attn_mask")


def _change(node: Node) -> str | None:
    """What to do with the mask of a node, if it is an attention."""
    if node.op != "call_function" or node.target is not F.scaled_dot_product_attention:
        return None
    mask = _mask_of(node)
    causal = node.args[5] if len(node.args) > 5 else node.kwargs.get("is_causal", False)
    if not isinstance(mask, Node) or causal is not False:
        return None
    value = _constant(mask)
    if value is not None:
        return _meaning(value)
    fake = mask.meta.get("example_value")
    dense = fake is None or fake.device.type != "cuda" or fake.shape[-1] == 1 or fake.stride(-1) == 1
    return None if dense else "copy"


def _meaning(mask: torch.Tensor) -> str | None:
    """ "nothing" if a mask hides nothing, "causal" if it hides what comes later."""
    hidden = ~mask if mask.dtype is torch.bool else mask
    if not bool(hidden.any()):
        return "nothing"
    if mask.dim() < 2:
        return None
    later = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).triu(1)
    if mask.dtype is torch.bool:
        return "causal" if bool((hidden == later).all()) else None
    wanted = torch.zeros((), dtype=mask.dtype, device=mask.device).masked_fill(later, float("-inf"))
    return "causal" if bool((mask == wanted).all()) else None


def _settle(node: Node, change: str) -> None:
    mask = _mask_of(node)
    if change == "copy":
        with node.graph.inserting_before(node):
            dense = node.graph.call_method("contiguous", (mask,))
        dense.meta = {k: v for k, v in mask.meta.items() if k != "example_value"}
        node.replace_input_with(mask, dense)
        return
    keywords = dict(node.kwargs)
    if len(node.args) > _MASK:
        names = ("attn_mask", "dropout_p", "is_causal")
        keywords |= dict(zip(names, node.args[_MASK:]))
        node.args = node.args[:_MASK]
    keywords["attn_mask"] = None
    node.kwargs = keywords | ({"is_causal": True} if change == "causal" else {})


def _constant(mask: Node) -> torch.Tensor | None:
    """The value of a mask that depends on no input; None if it does, or if something writes to what it is made of."""
    needed: dict[Node, None] = {}
    stack = [mask]
    while stack:
        node = stack.pop()
        if node in needed:
            continue
        if node.op not in ("call_function", "call_method") or not only_reads(node) or _draws(node):
            return None
        value = node.meta.get("example_value")
        static = isinstance(value, torch.Tensor) and all(isinstance(s, int) for s in value.shape)
        if not static or not all(user.op == "output" or only_reads(user) for user in node.users):
            return None
        needed[node] = None
        stack += node.all_input_nodes
    if mask.meta["example_value"].numel() > LARGEST_MASK:
        return None
    return _evaluated(mask, needed)


def _draws(node: Node) -> bool:
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    return any(word in name for word in ("rand", "normal", "bernoulli", "multinomial", "dropout", "empty", "uniform"))


def _evaluated(mask: Node, needed: dict[Node, None]) -> torch.Tensor:
    values: dict[Node, Any] = {}
    with torch.inference_mode(False), torch.no_grad():
        for node in mask.graph.nodes:
            if node not in needed:
                continue
            args, kwargs = torch.fx.node.map_arg((node.args, node.kwargs), values.__getitem__)
            if node.op == "call_method":
                values[node] = getattr(args[0], str(node.target))(*args[1:], **kwargs)
            else:
                values[node] = node.target(*args, **kwargs)
    return values[mask]
