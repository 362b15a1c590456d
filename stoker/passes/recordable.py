"""Which operators a CUDA graph cannot hold, and why."""

from __future__ import annotations

from fnmatch import fnmatch

import torch
from torch.fx import Node

from stoker import torch_private
from stoker.fake import FakeTensor
from stoker.graph.walk import is_random
from stoker.nest import leaves
from stoker.passes.seeds import keeps_seeds, share_dropped

WAITS = (
    "linalg_*", "_linalg_*", "cholesky*", "lu_*", "ormqr*", "geqrf*", "lstsq*", "triangular_solve*",
    "equal", "is_nonzero", "_local_scalar_dense", "nonzero*", "masked_select*", "unique*", "_unique*", "bincount*", "histc*",
    "repeat_interleave", "_assert_scalar", "cond", "cond_drawing", "loop", "loop_drawing", "scan", "scan_drawing",
)  # fmt: skip
"""Operators, as patterns of names, that look at their result on the host."""


def obstacle(node: Node) -> str | None:
    """Why an operator of a graph on a device cannot be recorded; None if it can."""
    if node.op != "call_function":
        return None
    values = [n.meta.get("val") for n in (node, *node.all_input_nodes)]
    if any(isinstance(v, FakeTensor) and v.meta.device.type == "cpu" for value in values for v in leaves(value)):
        return "it works on memory of the processor"
    if any(isinstance(a, torch.Generator) for a in leaves([node.args, node.kwargs])):
        return "it draws from a generator of its own"
    if keeps_seeds(node):
        return "where its random numbers begin lies in other memory while it is recorded"
    if isinstance(node.target, torch_private.OpOverload):
        name = node.target.__name__.split(".")[0]
        if any(fnmatch(name, pattern) for pattern in WAITS):
            return "it waits for the device"
    return None


def draws_numbers(node: Node) -> bool:
    """Does an operator draw from torch's generator? Attention that drops nothing does not, though it may."""
    if not is_random(node):
        return False
    if not isinstance(node.target, torch_private.OpOverload):
        return True
    return bool(share_dropped(node) != 0)
