"""Operators whose error depends on what tensors hold: an index out of range, an integer divided by zero, a matrix without an inverse.

In:  a node of a captured graph, or of a functional ATen graph.
Out: may it raise? Such a node runs though nobody reads its result; sizes and types that do not fit are known before, from metadata.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node

from stoker import torch_private
from stoker.graph.walk import OURS, TORCHS_OWN

_BY_DATA = """
index index_select gather scatter scatter_add scatter_reduce take take_along_dim put index_add index_copy index_fill index_put
index_put_impl index_reduce embedding embedding_bag nll_loss nll_loss_nd nll_loss2d nll_loss_forward nll_loss2d_forward cross_entropy
cross_entropy_loss binary_cross_entropy multi_margin_loss multilabel_margin_loss one_hot bincount multinomial bernoulli normal poisson binomial
ctc_loss repeat_interleave masked_scatter histc histogram histogramdd quantile nanquantile max_unpool1d max_unpool2d max_unpool3d tensor_split
searchsorted segment_reduce pack_padded_sequence cholesky cholesky_ex cholesky_solve cholesky_inverse inverse solve solve_ex inv inv_ex lu_factor
lu_factor_ex lu_unpack lu svd svdvals eigh eig eigvals eigvalsh lstsq ldl_factor ldl_factor_ex pinv matrix_power matrix_rank cond
tensorinv tensorsolve check_errors assert assert_async
"""
BY_DATA = frozenset(_BY_DATA.split())
"""Functions, and methods, without their underscores and `linalg_`. Operators that users registered are taken for such, too."""
INDEXING = frozenset({"getitem", "setitem"})
DIVISIONS = frozenset({"div", "divide", "floordiv", "ifloordiv", "floor_divide", "mod", "imod", "remainder", "fmod"})


def raises_by_data(node: Node) -> bool:
    """May a call raise an error that its arguments' metadata does not foretell?"""
    if node.op not in ("call_function", "call_method"):
        return False
    if isinstance(node.target, torch_private.OpOverload) and node.target.namespace not in TORCHS_OWN:
        return not _is_our_formula(node.target)
    name = _name(node.target)
    if name in INDEXING:  # by tensors, that is
        return len(node.all_input_nodes) > 1
    if name in DIVISIONS:
        result = node.meta.get("example_value", node.meta.get("val"))
        return isinstance(result, torch.Tensor) and not (result.is_floating_point() or result.is_complex())
    return name in BY_DATA


def _is_our_formula(operator: Any) -> bool:
    """What we have that works element by element refuses no element."""
    return operator.namespace == OURS and torch.Tag.pointwise in operator.tags


def operator_raises(operator: Any) -> bool:
    """May a library operator raise by its data, whatever its types?"""
    if not isinstance(operator, torch_private.OpOverload) or operator.namespace not in TORCHS_OWN:
        return True
    return _name(operator) in BY_DATA | DIVISIONS


def _name(target: Any) -> str:
    if isinstance(target, torch_private.OpOverload):
        target = target.overloadpacket.__name__
    name = target if isinstance(target, str) else str(getattr(target, "__name__", ""))
    return name.strip("_").removeprefix("linalg_")
