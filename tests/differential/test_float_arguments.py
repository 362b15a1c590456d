"""Functions of torch that ask for plain floats, given one that is another at each call: two compilations serve all, with eager's
values, gradients and random numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

FLOATS = [0.2, 0.35, 0.5, 0.61, 0.74]
Tensor = torch.Tensor


def _remembered(norm: Callable[..., Tensor], x: Tensor, momentum: float) -> tuple[Tensor, ...]:
    mean, var = torch.zeros(4), torch.ones(4)
    return norm(x, mean, var, momentum=momentum), mean, var


def _distances(x: Tensor, y: Tensor, a: float) -> tuple[Tensor, ...]:
    """In float64: how far eager's gradients in float32 are from the truth is another on each processor."""
    return torch.cdist(x, y, a + 1.1), torch.cdist(x[None], y[:2], p=a + 2), torch.cdist(x, x, a + 0.2)


PROGRAMS: dict[str, Callable[[Tensor, Tensor, float], Any]] = {
    "isclose": lambda x, y, a: (torch.isclose(x, y, rtol=a), x.isclose(y, a, 0.1), torch.isclose(x.long(), y.long(), a)),
    "isclose, nan": lambda x, y, a: torch.isclose(x / 0, y / 0, atol=a, equal_nan=True),
    "allclose": lambda x, y, a: x * torch.allclose(x, y, rtol=a),
    "quantile": lambda x, y, a: (torch.quantile(x, a), x.quantile(a, 1, True), torch.quantile(y, a, 0, interpolation="nearest")),
    "nanquantile": lambda x, y, a: (torch.nanquantile(x, a), y.nanquantile(a, dim=1)),
    "logit": lambda x, y, a: (torch.logit(x.sigmoid(), a / 2), torch.special.logit(y.sigmoid(), eps=a / 3), x.sigmoid().logit(a / 4)),
    "trapezoid": lambda x, y, a: (torch.trapezoid(x, dx=a), torch.trapz(y, dx=a, dim=0), torch.cumulative_trapezoid(x, dx=a)),
    "pad": lambda x, y, a: (F.pad(x, (1, 2), value=a), F.pad(y, (0, 1, 1, 0), "constant", a), F.pad(x, (-1, 1), value=a)),
    "matrix_rank": lambda x, y, a: torch.linalg.matrix_rank(x @ y.t(), rtol=a),
    "pinv": lambda x, y, a: torch.linalg.pinv(x, rtol=a / 100),
    "cosine_similarity": lambda x, y, a: (F.cosine_similarity(x, y, 1, a), F.cosine_similarity(x, y, dim=0, eps=a * 9)),
    "pairwise_distance": lambda x, y, a: (F.pairwise_distance(x, y, 2.0, a), F.pairwise_distance(x, y, p=1.0, eps=a, keepdim=True)),
    "triplet_margin_loss": lambda x, y, a: (F.triplet_margin_loss(x, y, y.flip(0), a), F.triplet_margin_loss(x, y, x.flip(1), margin=a, swap=True, reduction="none")),
    "hinge_embedding_loss": lambda x, y, a: F.hinge_embedding_loss(x, torch.where(y > 0, 1, -1), a, reduction="sum"),
    "cosine_embedding_loss": lambda x, y, a: (F.cosine_embedding_loss(x, y, torch.where(y[:, 0] > 0, 1, -1), a), F.cosine_embedding_loss(x[0], y[0], torch.tensor(-1), margin=a)),
    "poisson_nll_loss": lambda x, y, a: (F.poisson_nll_loss(x.abs(), y.abs(), log_input=False, eps=a), F.poisson_nll_loss(x, y.abs() * 3, full=True, eps=a)),
    "instance_norm": lambda x, y, a: (F.instance_norm(x[None], eps=a), F.instance_norm(y[None], weight=x[:, 0], bias=y[:, 1], eps=a)),
    "rrelu": lambda x, y, a: F.rrelu(x, a / 2, a),
    "instance_norm that remembers": lambda x, y, a: _remembered(F.instance_norm, torch.stack([x, y]), a),
    "batch_norm that remembers": lambda x, y, a: _remembered(lambda *args, **kwargs: F.batch_norm(*args, training=True, **kwargs), torch.stack([x, y]), a),
    "bernoulli": lambda x, y, a: (torch.bernoulli(x.detach(), a) * y, torch.bernoulli(torch.empty(3, 4), p=a / 2)),
    "nan_to_num": lambda x, y, a: (torch.nan_to_num(x.detach().log(), nan=a), torch.where(y > 0, y, torch.inf).nan_to_num(a, a + 1, -a), torch.nan_to_num(torch.where(x > 0, x, torch.nan), a)),
    "feature dropout": lambda x, y, a: (F.dropout2d(x[None, :, :, None].expand(2, -1, -1, 2), a), F.dropout3d(y[None, :, :, None, None], a)),
    "alpha dropout": lambda x, y, a: (F.alpha_dropout(x, a, True), F.feature_alpha_dropout(y[None, :, :, None], a, True)),
    "no dropout": lambda x, y, a: F.dropout2d(x[None, None], a, training=False) + F.alpha_dropout(y, a)[None, None],
    "attention": lambda x, y, a: F.scaled_dot_product_attention(x[None], y[None], y[None], dropout_p=a),
    "causal attention": lambda x, y, a: F.scaled_dot_product_attention(x[None], y[None], y[None], dropout_p=a, is_causal=True, scale=a),
    "exponential_": lambda x, y, a: x.detach().clone().exponential_(a) * y,
    "log_normal_": lambda x, y, a: x.detach().clone().log_normal_(a, a / 2) * y,
    "cauchy_": lambda x, y, a: x.detach().clone().cauchy_(a, a * 2) * y,
    "saved by autograd": lambda x, y, a: (F.leaky_relu(x, a), y.clamp(-a, a), F.elu(x, a), F.threshold(y, a, a), F.hardtanh(x, -a, a), F.softplus(y, a)),
    "powers": lambda x, y, a: (x.abs() ** a, y.abs().pow(a + 1), torch.pow(a + 1, x), (a + 2) ** y, x.exp() ** (-a), x.sum() ** (a + 1)),
    "lerp": lambda x, y, a: (torch.lerp(x, y, a), x.lerp(y, a), (x * 2).lerp_(y, a), torch.lerp(x.detach().bfloat16(), y.bfloat16(), a)),
    "logarithms": lambda x, y, a: (torch.xlogy(x, a), torch.xlogy(a, y.abs()), x.xlogy(a), torch.special.xlog1py(a, y.abs())),
    "float_power": lambda x, y, a: (torch.float_power(x.abs(), a), y.abs().float_power(a + 1), torch.float_power(a, x)),
    "dist": lambda x, y, a: (torch.dist(x, y, a + 1), x.dist(y, a + 2)),
    "correction": lambda x, y, a: (x.var(correction=a), torch.std(y, 1, correction=a), *torch.var_mean(x, 0, correction=a)),
    "celu": lambda x, y, a: F.celu(x, alpha=a) * F.celu(y * 50, a),
    "norms": lambda x, y, a: (x.norm(a + 1.5), torch.norm(y, a + 1.2, dim=1), torch.linalg.vector_norm(x * 0, a + 1.1), (x * y).norm(p=a + 2, dim=0, keepdim=True)),
    "arange": lambda x, y, a: (x.sum() * torch.arange(a, a + 2, 0.25), y.sum() * torch.arange(a * 8), torch.arange(5.0, a, -1.0, dtype=torch.float64)),
    "normal": lambda x, y, a: (torch.normal(x.detach(), a), torch.normal(a, y.detach().abs())),
    "normal of a size": lambda x, y, a: (torch.normal(a, a + 1, (3, 4)), x * torch.normal(a, 0.5, size=(6,), dtype=torch.float64)),
    "geometric_": lambda x, y, a: (x.detach().clone().geometric_(a) * y, torch.empty(3, 5, dtype=torch.int32).geometric_(a / 2)),
    "cdist": lambda x, y, a: _distances(x.double(), y.double(), a),
    "pdist": lambda x, y, a: F.pdist(x.double(), a + 1.3) * torch.pdist(y.double(), p=a + 2).sum(),
    "logspace": lambda x, y, a: x * torch.logspace(0, 2, 6, base=a + 1) + torch.logspace(a, 1.0, 6, a + 2, dtype=torch.float64),
    "embedding": lambda x, y, a: (F.embedding(torch.tensor([0, 2, 2]), x * 1, max_norm=a), F.embedding(torch.tensor([[1]]), y * 1, None, 0.9, a + 1)),
    "embedding_bag": lambda x, y, a: F.embedding_bag(torch.tensor([[0, 2], [2, 1]]), x * 1, max_norm=a, mode="sum"),
    "normalize": lambda x, y, a: (F.normalize(x, a + 1.2), F.normalize(y, p=2.0, dim=0, eps=a)),
    "lp_pool": lambda x, y, a: (F.lp_pool1d(x.abs()[None], a + 1.5, 2), F.lp_pool2d(y.abs()[None], a + 1.5, 2)),
    "resized to the nearest": lambda x, y, a: (F.interpolate(x[None], scale_factor=a + 2.3), F.interpolate(torch.stack([x, y])[None], scale_factor=(a + 1.2, 1.5), mode="nearest-exact")),
    "resized by lines": lambda x, y, a: (F.interpolate(x[None], scale_factor=a + 1.4, mode="linear"), F.interpolate(y[None, None], scale_factor=a + 1.3, mode="bilinear"), F.interpolate(x[None, None, None], scale_factor=a + 2, mode="trilinear")),
    "resized by cubes": lambda x, y, a: F.interpolate(x[None, None], scale_factor=a + 1.3, mode="bicubic"),
    "resized by areas": lambda x, y, a: F.interpolate(x[None, None], scale_factor=a + 1.4, mode="area"),
    "resized corner to corner": lambda x, y, a: F.interpolate(x[None, None], scale_factor=a + 1.4, mode="bilinear", align_corners=True),
    "resized by sizes": lambda x, y, a: F.interpolate(x[None, None], scale_factor=a + 1.4, mode="bilinear", recompute_scale_factor=True),
    "resized half": lambda x, y, a: F.interpolate(x[None, None].half(), scale_factor=a + 1.4, mode="bilinear").float(),
}  # fmt: skip


def _outcome(program: Callable[..., Any], a: float) -> list[Any]:
    torch.manual_seed(5)
    x, y = (torch.randn(4, 6).requires_grad_() for _ in range(2))
    made = program(x, y, a)
    results = list(made) if isinstance(made, tuple) else [made]
    wanted = [r for r in results if r.requires_grad]
    gradients = torch.autograd.grad(sum(r.sin().sum() for r in wanted), (x, y), allow_unused=True) if wanted else []  # type: ignore[arg-type]
    return [[r.detach() for r in results], [torch.zeros(()) if g is None else g for g in gradients]]


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_two_compilations(name: str, backend: str) -> None:
    stoker.log.clear()
    compiled = stoker.compile(PROGRAMS[name], backend=backend, fullgraph=True)
    for a in FLOATS:
        torch.testing.assert_close(_outcome(compiled, a), _outcome(PROGRAMS[name], a), rtol=1e-4, atol=1e-5)
    assert len(stoker.events("captured")) == 2


@pytest.mark.parametrize(
    "program",
    [
        lambda x, a: torch.isclose(x, x, rtol=a),
        lambda x, a: torch.quantile(x, a + 3),
        lambda x, a: F.dropout2d(x[None, None], a),
        lambda x, a: F.triplet_margin_loss(x, x, x, margin=a),
        lambda x, a: torch.bernoulli(x, a),
    ],
)
def test_what_eager_refuses(program: Callable[..., Any]) -> None:
    compiled = stoker.compile(program)
    for a in (0.2, 0.3):
        if "quantile" not in program.__code__.co_names:
            compiled(torch.ones(3, 4), a)
    found = []
    for run in (compiled, program):
        with pytest.raises((RuntimeError, ValueError)) as caught:
            run(torch.ones(3, 4), -0.5)
        found.append(type(caught.value))
    assert found[0] is found[1]
