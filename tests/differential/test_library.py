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


@program("torch.cov with weights")
def test_cov_weights(x):
    counts, weights = torch.tensor([1, 0, 2, 3]), torch.tensor([0.5, 1.0, 0.0, 2.0])
    plain = [torch.cov(x[row], fweights=counts, correction=0) for row in (0, slice(None))]
    return plain, x.cov(aweights=weights), torch.cov(x, correction=2, fweights=counts, aweights=weights)


@program(
    "torch.cov with weights that it refuses",
    inputs=lambda: (torch.ones(2, 4), torch.tensor([1, -1, 2, 3])),
)
def test_cov_refuses(x, counts):
    return torch.cov(x, fweights=counts)


@program("torch.cov with weights that leave no freedom", inputs=lambda: (torch.ones(2, 4), torch.tensor([1, 0, 1, 0])))
def test_cov_warns(x, counts):
    return torch.cov(x, fweights=counts, correction=3)


@program("low-rank decompositions")
def test_lowrank(x):
    return torch.svd_lowrank(x, q=2), torch.pca_lowrank(x, q=2)


def layout(*tensors):
    """What LAPACK computes differs in the last digits with the alignment of its input; what it is stored in does not."""
    return [(t.shape, t.stride(), t.dtype) for t in tensors]


@program("least squares, QR by reflectors, histograms")
def test_lapack(x):
    wide = torch.linalg.lstsq(x, x[:, :2])
    tall = torch.linalg.lstsq(x.T, x.T[:, 0], driver="gels")
    edges = torch.tensor([-1.0, 0.0, 1.0])
    return layout(*wide, *tall, *torch.geqrf(x)), wide.rank, torch.histogram(x, 5), torch.histogram(x, edges)


@program("least squares whose residuals depend on the rank", BREAK)
def test_lstsq_rank(x):
    y = x + 1
    return torch.linalg.lstsq(y.T, y.T[:, :2], driver="gelsd").residuals
