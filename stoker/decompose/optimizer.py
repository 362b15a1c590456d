"""Optimizer steps that eager has whole (`fused=True`), and gradients unscaled for one (`torch.amp.GradScaler`).

Each is one operator that reads and writes every parameter. Taken apart, the step of a parameter is fused with what computed its gradient,
and clipping or scaling in between costs no pass over memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from stoker.decompose.registry import HALF, decompose, widened

Tensors = Sequence[Tensor]
Lists = tuple[list[Tensor], ...]
Step = Callable[..., tuple[Tensor, ...]]
"""The step of one parameter: its new content, and that of the state beside it, of both and the gradient."""


def _stepped(step: Step, written: Sequence[Tensors], grad_scale: Tensor | None, found_inf: Tensor | None) -> Lists:
    """The step of each parameter. `written` are lists of parameters, of gradients and of state, empty where there is none of a kind: what is
    made of them comes in this order."""
    made: Lists = tuple([] for _ in written)
    kinds = [kind for kind, tensors in enumerate(written) if len(tensors)]
    for place, olds in enumerate(zip(*(written[kind] for kind in kinds))):
        wide = [widened(old) for old in olds]
        if grad_scale is not None:
            wide[1] = wide[1] / grad_scale
        parameter, *state = step(place, *wide)
        for kind, old, new in zip(kinds, olds, (parameter, wide[1], *state)):
            made[kind].append(_unless(found_inf, old, new.to(old.dtype)))
    return made


def _towards(x: Tensor, grad: Tensor, decay: float, maximize: bool) -> Tensor:
    """The gradient that a step follows: turned where a loss is to grow; with a share of the parameter, which decays."""
    grad = -grad if maximize else grad
    return grad + x * decay if decay != 0 else grad


def _unless(found_inf: Tensor | None, old: Tensor, new: Tensor) -> Tensor:
    """A step from a gradient that is not finite is not taken."""
    return new if found_inf is None else torch.where(found_inf == 1, old, new)


def _adam(decoupled: bool) -> Callable[..., Lists]:
    """Adam (Kingma and Ba, 2015); `decoupled` decay of weights is AdamW's (Loshchilov and Hutter, 2019)."""

    def adam(
        parameters: Tensors,
        grads: Tensors,
        means: Tensors,
        squares: Tensors,
        largest: Tensors,
        steps: Tensors,
        *,
        lr: Any,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: Tensor | None = None,
        found_inf: Tensor | None = None,
    ) -> Lists:
        def step(
            place: int, x: Tensor, grad: Tensor, mean: Tensor, square: Tensor, *most: Tensor
        ) -> tuple[Tensor, ...]:
            count = steps[place].double()
            grad = _towards(x, grad, 0 if decoupled else weight_decay, maximize)
            x = x * (1 - lr * weight_decay) if decoupled else x
            mean = torch.lerp(mean, grad, 1 - beta1)
            square = square * beta2 + (1 - beta2) * grad * grad
            most = tuple(torch.maximum(m, square) for m in most)
            spread = (most[0] if most else square).sqrt() / (1 - beta2**count).sqrt() + eps
            return x - lr / (1 - beta1**count) * (mean / spread), mean, square, *most

        return _stepped(step, (parameters, grads, means, squares, largest), grad_scale, found_inf)

    return adam


decompose("_fused_adam.default", "_fused_adam.tensor_lr")(_adam(decoupled=False))
decompose("_fused_adamw.default", "_fused_adamw.tensor_lr")(_adam(decoupled=True))


@decompose("_fused_sgd.default", "_fused_sgd.tensor_lr")
def sgd(
    parameters: Tensors,
    grads: Tensors,
    buffers: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: Any,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> Lists:
    """In half precision torch 2.13 moves the last few elements of a parameter alone: there, the operator stays."""
    if any(x.dtype in HALF for x in parameters):
        return NotImplemented

    def step(place: int, x: Tensor, grad: Tensor, *buffer: Tensor) -> tuple[Tensor, ...]:
        grad = _towards(x, grad, weight_decay, maximize)
        if not buffer:
            return (x - lr * grad,)
        kept = grad if is_first_step else momentum * buffer[0] + (1 - dampening) * grad
        return x - lr * (grad + momentum * kept if nesterov else kept), kept

    return _stepped(step, (parameters, grads, buffers), grad_scale, found_inf)


@decompose("_fused_adagrad.default", "_fused_adagrad.tensor_lr")
def adagrad(
    parameters: Tensors,
    grads: Tensors,
    sums: Tensors,
    steps: Tensors,
    *,
    lr: Any,
    lr_decay: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
    grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> Lists:
    """Counters are written by one of the two operators, with what they hold."""

    def step(place: int, x: Tensor, grad: Tensor, total: Tensor) -> tuple[Tensor, ...]:
        grad = _towards(x, grad, weight_decay, maximize)
        total = total + grad * grad
        return x - lr / (1 + (steps[place].double() - 1) * lr_decay) * grad / (total.sqrt() + eps), total

    made = _stepped(step, (parameters, grads, sums), grad_scale, found_inf)
    return made if isinstance(lr, Tensor) else (*made, list(steps))


@decompose("_amp_foreach_non_finite_check_and_unscale.default")
def unscaled(grads: Tensors, found_inf: Tensor, inv_scale: Tensor) -> tuple[list[Tensor], Tensor]:
    """Gradients times a factor; and a 1 beside them if one of them is not finite."""
    for grad in grads:
        found_inf = torch.where(grad.isfinite().all(), found_inf, 1.0)
    return [(widened(grad) * inv_scale).to(grad.dtype) for grad in grads], found_inf
