"""Many operators to few: a back end that takes these decompositions need only know the prims, and norms by channels (`stoker.fake.rules.channels`).

>>> import torch
>>> from stoker.decompose import table
>>> torch.ops.aten.silu.default in table()
True

Families: `pointwise`, `foreach`, `optimizer`, `activation` and its gradients, `reduce`, `norm`, `loss`, `index`, `view`. `prims` is what
remains.
"""

from __future__ import annotations

from typing import Any

from stoker.decompose import activation, foreach, index, loss, norm, optimizer, pointwise, reduce, view  # noqa: F401
from stoker.decompose.prims import PRIMS
from stoker.decompose.registry import OURS, Table, decompose

__all__ = ["OURS", "PRIMS", "Table", "decompose", "table"]


def table(without: frozenset[Any] = frozenset()) -> Table:
    """The decompositions, less those a back end has kernels for."""
    return Table(PRIMS, without)
