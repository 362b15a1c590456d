"""Which values are computed to their last element, whatever is done with them.

In:  a functional ATen graph.
Out: the nodes all of whose elements some loop, library call or caller looks at.

A lowered value is computed where it is read, so an element that nobody reads is none: of `x[places][0]` one place is looked at, and eager
has looked at all of them and refused. An operator that may refuse by its data, and is not on this list, is stored as a whole.

Requirement, held by tests/differential/test_places_that_fit.py: an index out of range is an error though nobody reads there.
"""

from __future__ import annotations

import torch
from torch.fx import Graph, Node

from stoker import torch_private
from stoker.graph.raising import raises_by_data
from stoker.graph.walk import has_effect
from stoker.lower.registry import LOWERINGS

_WHOLE = """
alias clone _to_copy view _unsafe_view reshape permute transpose t unsqueeze squeeze expand repeat flip roll cat stack
sum mean amax amin prod any all max min argmax argmin var var_mean std std_mean linalg_vector_norm logsumexp cumsum cumprod
_softmax _log_softmax native_layer_norm native_group_norm mm bmm addmm baddbmm
hardswish hardswish_backward hardsigmoid_backward hardtanh_backward leaky_relu_backward
"""
WHOLE = frozenset(_WHOLE.split())
"""Operators that read each element of their tensors, beside those that torch says to work element by element."""
_OF_SIZES = """
copy fill zero zeros_like ones_like full_like empty_like rand_like randn_like randint_like new_zeros new_ones new_full new_empty
new_empty_strided uniform normal_functional exponential geometric cauchy log_normal random
"""
OF_SIZES = frozenset(_OF_SIZES.split())
"""Operators that look at sizes and types of their first argument alone."""


def computed_whole(graph: Graph) -> frozenset[Node]:
    """The nodes of which no element is left out."""
    found: set[Node] = set()
    for node in reversed(graph.nodes):
        if any(_computes_whole(user, found) and _reads_whole(user, node) for user in node.users):
            found.add(node)
    return frozenset(found)


def _computes_whole(node: Node, found: set[Node]) -> bool:
    """Does it run for all of its elements?"""
    runs = node.op == "output" or node in found or node.target not in LOWERINGS
    return runs or raises_by_data(node) or has_effect(node)


def _reads_whole(user: Node, node: Node) -> bool:
    if not isinstance(user.target, torch_private.OpOverload):
        return True
    name = user.target.overloadpacket.__name__
    if name in OF_SIZES and user.args[0] is node and list(user.all_input_nodes).count(node) == 1:
        return node in user.args[1:]
    return user.target not in LOWERINGS or name in WHOLE or torch.Tag.pointwise in user.target.tags
