"""Functions of torch that are written in Python, or that no meta kernel knows."""

from __future__ import annotations

import torch
from harness import BREAK, program


@program("torch.broadcast_shapes, and sizes that do not broadcast")
def test_broadcast_shapes(x):
    try:
        torch.broadcast_shapes(x.shape, (7, 4))
    except RuntimeError:
        return torch.broadcast_shapes(x.shape, (1, 4), 4), x.expand(torch.broadcast_shapes((2, 1, 1), x.shape))
    return None


@program("torch.cov and corrcoef without weights")
def test_cov(x):
    return torch.cov(x), torch.cov(x, correction=0), x[0].cov(), torch.corrcoef(x), x[0].corrcoef()


@program("torch.cov with weights", BREAK)
def test_cov_weights(x):
    y = x + 1
    return torch.cov(y, fweights=torch.ones(4, dtype=torch.int64))


@program("low-rank decompositions")
def test_lowrank(x):
    return torch.svd_lowrank(x, q=2), torch.pca_lowrank(x, q=2)


@program("least squares, QR by reflectors, histograms")
def test_lapack(x):
    wide = torch.linalg.lstsq(x, x[:, :2])
    tall = torch.linalg.lstsq(x.T, x.T[:, 0], driver="gels")
    return (
        wide,
        tall.residuals,
        torch.geqrf(x),
        torch.histogram(x, 5),
        torch.histogram(x, torch.tensor([-1.0, 0.0, 1.0])),
    )


@program("least squares whose residuals depend on the rank", BREAK)
def test_lstsq_rank(x):
    y = x + 1
    return torch.linalg.lstsq(y.T, y.T[:, :2], driver="gelsd").residuals
