"""torch.distributions, with their checks of arguments: results, gradients, random numbers and errors as in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import distributions as D

import stoker


def _positive(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.softplus(x) + 0.1


def _lower(x: torch.Tensor) -> torch.Tensor:
    return torch.tril(x @ x.t() + 3 * torch.eye(x.shape[0]))


PROGRAMS: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "normal": lambda x, a: D.Normal(x, _positive(a)).log_prob(a),
    "normal entropy": lambda x, a: D.Normal(x, _positive(a)).entropy(),
    "normal rsample": lambda x, a: D.Normal(x, _positive(a)).rsample(),
    "normal sample": lambda x, a: D.Normal(x, _positive(a)).sample((2,)) * x,
    "normal cdf": lambda x, a: D.Normal(x, _positive(a)).cdf(a) + D.Normal(x, 1.0).icdf(torch.sigmoid(a)),
    "categorical logits": lambda x, a: D.Categorical(logits=x).log_prob(a.argmax(-1)),
    "categorical probs": lambda x, a: D.Categorical(probs=torch.softmax(x, -1)).entropy(),
    "categorical sample": lambda x, a: D.Categorical(logits=x).sample() + a.sum(),
    "one hot": lambda x, a: D.OneHotCategorical(logits=x).log_prob(torch.eye(4)[a.argmax(-1)]),
    "bernoulli": lambda x, a: D.Bernoulli(logits=x).log_prob((a > 0).float()),
    "bernoulli probs": lambda x, a: D.Bernoulli(torch.sigmoid(x)).entropy() + D.Bernoulli(torch.sigmoid(x)).sample(),
    "binomial": lambda x, a: D.Binomial(5, logits=x).log_prob((a > 0).float() * 3),
    "beta": lambda x, a: D.Beta(_positive(x), _positive(a)).log_prob(torch.sigmoid(a)),
    "beta rsample": lambda x, a: D.Beta(_positive(x), _positive(a)).rsample(),
    "dirichlet": lambda x, a: D.Dirichlet(_positive(x)).log_prob(torch.softmax(a, -1)),
    "gamma": lambda x, a: D.Gamma(_positive(x), 2.0).log_prob(_positive(a)),
    "exponential": lambda x, a: D.Exponential(_positive(x)).rsample() + a,
    "laplace": lambda x, a: D.Laplace(x, 2.0).log_prob(a),
    "uniform": lambda x, a: D.Uniform(x - 9, x + 9).log_prob(a),
    "poisson": lambda x, a: D.Poisson(_positive(x)).log_prob(torch.tensor(3.0)),
    "student": lambda x, a: D.StudentT(3.0, x).log_prob(a),
    "cauchy": lambda x, a: D.Cauchy(x, 1.0).log_prob(a),
    "gumbel": lambda x, a: D.Gumbel(x, 2.0).log_prob(a),
    "half normal": lambda x, a: D.HalfNormal(_positive(x)).log_prob(_positive(a)),
    "multivariate": lambda x, a: D.MultivariateNormal(a[0], scale_tril=_lower(x)).log_prob(a),
    "multivariate covariance": lambda x, a: D.MultivariateNormal(a[0], x @ x.t() + 3 * torch.eye(4)).rsample(),
    "independent": lambda x, a: D.Independent(D.Normal(x, 1.0), 1).log_prob(a),
    "mixture": lambda x, a: D.MixtureSameFamily(D.Categorical(logits=x), D.Normal(a, 1.0)).log_prob(a[:, 0]),
    "transformed": lambda x, a: D.TransformedDistribution(D.Normal(x, 1.0), [D.TanhTransform()]).log_prob(torch.tanh(a)),
    "log normal": lambda x, a: D.LogNormal(x, 1.0).log_prob(_positive(a)),
    "affine": lambda x, a: D.AffineTransform(x, 2.0)(a) + D.SigmoidTransform().log_abs_det_jacobian(x, torch.sigmoid(x)),
    "kl normal": lambda x, a: D.kl_divergence(D.Normal(x, 1.0), D.Normal(a, 2.0)),
    "kl categorical": lambda x, a: D.kl_divergence(D.Categorical(logits=x), D.Categorical(logits=a)),
    "kl beta": lambda x, a: D.kl_divergence(D.Beta(_positive(x), 2.0), D.Beta(2.0, _positive(a))),
    "no checks": lambda x, a: D.Normal(x, -1.0, validate_args=False).log_prob(a),
    "expand": lambda x, a: D.Normal(x[0], 1.0).expand((4, 4)).log_prob(a),
}  # fmt: skip


def _run(program: Callable[..., Any]) -> Any:
    found = []
    for seed in range(3):
        torch.manual_seed(seed)
        x, a = torch.randn(4, 4, requires_grad=True), torch.randn(4, 4)
        result = program(x, a)
        gradient = torch.autograd.grad(result.sum(), x)[0] if result.requires_grad else torch.zeros(())
        found += [result.detach(), gradient, torch.rand(())]
    return found


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name: str, backend: str) -> None:
    got, want = _run(stoker.compile(PROGRAMS[name], backend=backend)), _run(PROGRAMS[name])
    torch.testing.assert_close(got, want, rtol=2e-4, atol=2e-5, equal_nan=True)


ERRORS: dict[str, Callable[[torch.Tensor], Any]] = {
    "scale": lambda x: D.Normal(torch.zeros(3), x).log_prob(x),
    "sample": lambda x: D.Beta(torch.ones(3), torch.ones(3)).log_prob(x),
    "simplex": lambda x: D.Categorical(probs=x).entropy(),
    "support": lambda x: D.Bernoulli(torch.full((3,), 0.5)).log_prob(x),
    "matrix": lambda x: D.MultivariateNormal(torch.zeros(3), torch.diag(x)).log_prob(x),
    "a matrix that is not symmetric": lambda x: D.MultivariateNormal(torch.zeros(3), torch.eye(3) + x).log_prob(x),
    "matrices": lambda x: D.MultivariateNormal(x, torch.stack([torch.eye(3), torch.diag(x)])).log_prob(x),
}


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", ERRORS)
def test_the_error_is_eagers(name: str, backend: str) -> None:
    def run(function: Callable[..., Any], x: torch.Tensor) -> Any:
        try:
            return function(x)
        except ValueError as error:
            return str(error)

    compiled = stoker.compile(ERRORS[name], backend=backend)
    for values in ([0.2, 0.3, 0.5], [-1.0, 0.5, 2.0], [1.0, 0.0, 1.0], [0.1, 0.1, 0.8]):
        got, want = run(compiled, torch.tensor(values)), run(ERRORS[name], torch.tensor(values))
        assert type(got) is type(want), (got, want)
        assert got == want if isinstance(want, str) else torch.allclose(got, want, equal_nan=True)


@pytest.mark.parametrize(
    "name", ["normal", "categorical logits", "kl normal", "normal rsample", "beta", "multivariate covariance"]
)
def test_one_graph(name: str) -> None:
    stoker.compile(PROGRAMS[name], fullgraph=True)(torch.randn(4, 4), torch.randn(4, 4))
