"""Shares that only data tells, and questions about such floats: dropped by them in one graph, and refused as eager refuses them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import stoker
from stoker import log


def share(x):
    return x.abs().mean().clamp(0, 1).item()


def dropped(x):
    return F.dropout(x, share(x)) + torch.rand(4)


def not_in_training(x):
    return F.dropout(x, share(x), training=False)


def in_place(x):
    y = x.clone()
    return F.dropout(y, share(x), inplace=True), y


def by_a_module(x):
    return nn.Dropout(share(x))(x), nn.AlphaDropout(share(x))(x)


def alpha(x):
    return F.alpha_dropout(x, share(x), training=True), F.feature_alpha_dropout(x, share(x), training=True)


def channels(x):
    return F.dropout1d(x, share(x)), F.dropout2d(x[None], share(x)), F.dropout3d(x[None, None], share(x))


def channels_of_one(x):
    return F.dropout1d(x[0], share(x)), F.dropout3d(x[None], share(x))


def attention(x):
    return F.scaled_dot_product_attention(x, x, x, dropout_p=share(x))


def differentiated(x):
    y = x.clone().requires_grad_()
    F.dropout(y.sin(), share(x)).sum().backward()
    return y.grad


def between_numbers(x):
    return F.dropout(x, max(0.1, min(0.9, share(x))))


def out_of_range(x):
    return F.dropout(x, x.sum().item())


def refused(x):
    p = x.sum().item()
    if p < -100.0 or 100.0 < p:
        raise ValueError(f"too large: {p}")
    if p == 0.75 or p != p:
        raise ArithmeticError(p)
    return x * p


def a_loss_of_no_number(x):
    loss = (x / x.abs()).sum().item()
    if math.isnan(loss) or not math.isfinite(loss):
        raise RuntimeError("the loss is no number")
    return x * loss


def asserted(x):
    most = x.max().item()
    assert most <= 2.5, most
    assert 0 <= x.abs().max().item() < math.pi
    return x * (most > 0.25), most


PROGRAMS = [
    dropped, not_in_training, in_place, by_a_module, alpha, channels, channels_of_one, attention, differentiated, between_numbers,
    out_of_range, refused, a_loss_of_no_number, asserted,
]  # fmt: skip


def _outcome(program: Callable[..., Any], x: torch.Tensor) -> Any:
    torch.manual_seed(0)
    try:
        found = program(x.clone())
    except (ArithmeticError, AssertionError, RuntimeError, ValueError) as error:
        found = type(error), str(error)
    return found, torch.get_rng_state()


GIVEN = torch.linspace(-0.4, 0.6, 24).reshape(2, 3, 4)
FULL = torch.ones(2, 3, 4)
INPUTS = [GIVEN, GIVEN * 1.5, FULL * 0, GIVEN * 0.5, FULL, FULL * -1, FULL * 30, FULL / 32, FULL * math.nan, GIVEN]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_in_eager(program: Callable[..., Any], backend: str) -> None:
    log.clear()
    compiled = stoker.compile(program, backend=backend)
    for x in INPUTS:
        found, wanted = _outcome(compiled, x), _outcome(program, x)
        if isinstance(wanted[0], tuple) and isinstance(wanted[0][0], type):
            assert found[0] == wanted[0]
        else:
            torch.testing.assert_close(found, wanted, equal_nan=True)
    if program is not out_of_range:  # the first call raises
        assert not log.events("break")


def test_a_share_that_varies() -> None:
    def program(x, p):
        return F.dropout1d(x[0], p), F.dropout3d(x[None], p), F.alpha_dropout(x, p, True), F.dropout(x, p)

    compiled = stoker.compile(program, backend="aot_eager")
    for p in (0.2, 0.3, 0.4, 1.0, 0.0, 0.5):
        shared = [_outcome(lambda x, f=f: f(x, p), GIVEN) for f in (compiled, program)]
        torch.testing.assert_close(*shared)


def test_a_decision_in_words() -> None:
    def program(x):
        n = x.sum().item()
        return x * n if n > 3 else x - n

    told = stoker.explain(stoker.compile(program, backend="eager"), GIVEN)
    assert told.breaks[0].construct == "a decision on `f0 > 3.0`"
    assert told.breaks[0].reason == "the value of f0 comes from the data of a tensor and is not known here"


@pytest.mark.parametrize("number", [float, int], ids=lambda n: n.__name__)
def test_a_back_end_of_the_user_s(number: Any) -> None:
    def program(x):
        if number(x.sum().item()) > 3:
            raise KeyError("too large")
        return x * 2

    compiled = stoker.compile(program, backend=lambda graph_module, inputs: graph_module.forward)
    torch.testing.assert_close(compiled(GIVEN), GIVEN * 2)
    with pytest.raises(KeyError, match="too large"):
        compiled(FULL)
