"""Where random numbers begin that attention has drawn: memory that is the processor's or the device's, by whether it is being recorded.

`scaled_dot_product_attention` gives that place to its gradient. Where nothing is dropped nobody looks at it, and it is a number that
is known (`settle_seeds`); where something is, the operators cannot be recorded (`keeps_seeds`).
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker import torch_private
from stoker.graph.facts import fake_of

aten = torch.ops.aten
SEEDS = {
    aten._scaled_dot_product_efficient_attention.default: (2, 3),
    aten._scaled_dot_product_cudnn_attention.default: (6, 7),
}
"""Which results of an operator say where its numbers begin."""
_READERS = (
    aten._scaled_dot_product_efficient_attention_backward.default,
    aten._scaled_dot_product_cudnn_attention_backward.default,
)


def settle_seeds(graph: Graph) -> None:
    """Put zeros in the place of seeds that nobody needs."""
    for node in list(graph.nodes):
        if node.target is not operator.getitem or not isinstance(node.args[0], Node):
            continue
        source, number = node.args
        if number in SEEDS.get(source.target, ()) and share_dropped(source) == 0:  # type: ignore[union-attr]  # fx types arguments loosely
            fake = fake_of(node)
            assert fake is not None
            node.target, node.args = aten.full.default, ([], 0)
            node.kwargs = {"dtype": fake.meta.dtype, "device": fake.meta.device}


def keeps_seeds(node: Node) -> bool:
    """Is it an operator that drops numbers, and writes or reads where they begin?"""
    return node.target in (*SEEDS, *_READERS) and share_dropped(node) != 0


def share_dropped(node: Node) -> Any:
    """What share of numbers an operator drops; None if it is none that could."""
    names = [argument.name for argument in torch_private.schema_of(node.target).arguments]  # type: ignore[arg-type]  # an operator
    given = dict(zip(names, node.args)) | node.kwargs
    return given.get("dropout_p", 0.0) if "dropout_p" in names else None
