"""Results that look like one of the arguments, whatever the others are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from stoker.fake.meta import Meta, alike, dense, in_format
from stoker.fake.rule import rule

_TABLE: tuple[tuple[Callable[[Meta], Meta], int, str], ...] = (
    (dense, 0, "bernoulli.default bernoulli.p normal.Tensor_float poisson"),
    (dense, 0, "_standard_gamma _sample_dirichlet _dirichlet_grad"),
    (dense, 1, "normal.float_Tensor glu_backward nll_loss_backward nll_loss2d_backward huber_loss_backward"),
    (dense, 1, "_ctc_loss_backward multi_margin_loss_backward multilabel_margin_loss_backward"),
    (dense, 1, "fractional_max_pool3d_backward avg_pool3d_backward"),
    (dense, 1, "_adaptive_avg_pool3d_backward adaptive_max_pool3d_backward"),
    (alike, 0, "bernoulli.Tensor normal_functional uniform exponential random fill"),
    (alike, 1, "binary_cross_entropy_backward"),
    (in_format, 1, "max_pool2d_with_indices_backward max_pool3d_with_indices_backward avg_pool2d_backward"),
    (in_format, 1, "_adaptive_avg_pool2d_backward adaptive_max_pool2d_backward"),
)
"""How the result lies, which argument it is like, and of which operators that holds."""


def _register(made: Callable[[Meta], Meta], position: int, names: str) -> None:
    def function(*args: Any, **others: Any) -> Meta:
        return made(args[position].meta)

    rule(*names.split())(function)


for _row in _TABLE:
    _register(*_row)
