"""Types that eager has no kernel of an operator for. Such a call is left whole: the library raises eager's error.

Our loops would compute something; a decomposition may even compute in another type than the operator is said to have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

_REFUSED: dict[tuple[str, ...], str] = {
    ("truth", "whole", "complex"): """
        mish elu softplus log_sigmoid_forward mse_loss nll_loss_forward nll_loss2d_forward glu _prelu_kernel addcdiv addcmul lerp
        native_layer_norm native_group_norm logcumsumexp frac binary_cross_entropy_with_logits
    """,
    ("complex",): "logit xlogy special_xlog1py special_entr",
    ("truth",): """
        abs floor ceil round trunc threshold bucketize searchsorted reflection_pad1d reflection_pad2d reflection_pad3d
    """,
    ("whole",): "im2col",
    ("truth", "unsigned"): "hardtanh",
    ("truth", "rare"): "trace",
}
_OF: dict[str, frozenset[str]] = {name: frozenset(kinds) for kinds, names in _REFUSED.items() for name in names.split()}


def is_refused(operator: Any, arguments: Sequence[Any]) -> bool:
    """Is it left whole, because of the type of the first tensor it is given?"""
    refused = _OF.get(operator.overloadpacket.__name__)
    if refused is None:
        return False
    dtype = next((a.dtype for a in arguments if isinstance(getattr(a, "dtype", None), torch.dtype)), None)
    return dtype is not None and not refused.isdisjoint(_kinds(dtype))


def _kinds(dtype: torch.dtype) -> frozenset[str]:
    if dtype.is_floating_point:
        return frozenset()
    if dtype.is_complex:
        return frozenset({"complex"})
    if dtype is torch.bool:
        return frozenset({"truth"})
    if dtype.is_signed:
        return frozenset({"whole"})
    return frozenset({"whole", "unsigned"} if dtype is torch.uint8 else {"whole", "unsigned", "rare"})
