"""Functions of torch that look at a number made inside them before they go on; as written here, capture knows that number."""

from __future__ import annotations

import torch
from torch.distributions import constraints


def is_positive_definite(constraint, value):
    """Of matrices that are not all symmetric, which are tells what is wrong."""
    symmetric = constraints.symmetric.check(value)
    return torch.where(symmetric.all(), torch.linalg.cholesky_ex(value).info.eq(0), symmetric)


def is_positive_semidefinite(constraint, value):
    symmetric = constraints.symmetric.check(value)
    return torch.where(symmetric.all(), torch.linalg.eigvalsh(value).ge(0).all(-1), symmetric)


def cov(input, correction):
    """The covariance of rows, without weights. The caller has checked that there are more columns than `correction`."""
    rows = input.view(1, -1) if input.dim() < 2 else input
    count = rows.shape[1]
    centred = rows - (rows.sum(1) / count).unsqueeze(1)
    return (torch.mm(centred, centred.t().conj()) / (count - correction)).squeeze()


def weighted_cov(input, correction, fweights, aweights):
    """The covariance of rows by weights, as torch wants them: one for each column. Where `torch.cov` refuses the weights, or
    warns, it is asked itself: captured code checks that it goes on here."""
    rows = input.view(1, -1) if input.dim() < 2 else input
    given = [weights for weights in (fweights, aweights) if weights is not None]
    for each in given:
        _expect(each.min() >= 0)
    weights = given[0] if len(given) == 1 else given[0] * given[1]
    total = weights.sum()
    _expect(total != 0)
    mean = (rows * weights).sum(1) / total
    freedom = total - correction
    if aweights is not None and correction != 0:
        freedom = total - correction * (weights * aweights).sum() / total
    _expect(freedom > 0)
    centred = rows - mean.unsqueeze(1)
    return (torch.mm(centred, (centred * weights).t().conj()) / freedom).squeeze()


def _expect(condition):
    if not condition:
        raise ValueError("torch.cov refuses these weights, or warns of them")


def corrcoef(input):
    found = cov(input, 1)
    if found.dim() == 0:
        return found / found
    deviation = found.diagonal().sqrt()
    found = found / deviation.view(-1, 1) / deviation.view(1, -1)
    return found.clamp(-1, 1)


def broadcast_shapes(*shapes):
    """The shape that all of them broadcast to."""
    whole = [(shape,) if isinstance(shape, int) else shape for shape in shapes]
    rank = max([len(shape) for shape in whole], default=0)
    found = [1] * rank
    for shape in whole:
        for place in range(-1, -len(shape) - 1, -1):
            size = shape[place]
            if size == 1 or found[place] == size:
                continue
            if found[place] != 1:
                raise RuntimeError("Shape mismatch: objects cannot be broadcast to a single shape")
            found[place] = size
    return torch.Size(found)
