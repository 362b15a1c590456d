"""cuDNN's batch norm, which writes running statistics though its schema does not say so, is traced as loops. It runs on no processor, but
the loops do: they are compared with the native form."""

from __future__ import annotations

import pytest
import torch

import stoker

aten = torch.ops.aten


def _cudnn(x, w, b, mean, variance, training):
    return aten.cudnn_batch_norm(x, w, b, mean, variance, training, 0.1, 1e-5)


def _native(x, w, b, mean, variance, training):
    return aten.native_batch_norm(x, w, b, mean, variance, training, 0.1, 1e-5)


def _given(order=None):
    torch.manual_seed(0)
    x = torch.randn(4, 3, 5, 6)
    x = x if order is None else x.permute(order).contiguous().permute([order.index(d) for d in range(4)])
    return (
        x.requires_grad_(),
        torch.rand(3).requires_grad_(),
        torch.rand(3).requires_grad_(),
        torch.zeros(3),
        torch.ones(3),
    )


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("order", [None, (0, 2, 3, 1), (3, 2, 1, 0)], ids=str)
def test_results_statistics_and_gradients(order, training):
    mine, eager = _given(order), _given(order)
    out, *saved = stoker.compile(_cudnn, fullgraph=True)(*mine, training)
    wanted, *native = _native(*eager, training)
    seed = torch.randn_like(wanted)
    out.backward(seed)
    wanted.backward(seed)
    torch.testing.assert_close(out, wanted)
    assert out.stride() == (wanted.stride() if order != (3, 2, 1, 0) else torch.empty(wanted.shape).stride())
    for found, right in zip(mine[3:], eager[3:]):
        torch.testing.assert_close(found, right)
    for found, right in zip(mine[:3], eager[:3]):
        torch.testing.assert_close(found.grad, right.grad)
    for found, right in zip(saved, native):
        torch.testing.assert_close(found, right)
    assert len(saved) == 3 and saved[2].dtype is torch.uint8


@pytest.mark.parametrize("backend", ["stoker", "aot_eager"])
def test_statistics_made_in_the_graph_are_read_after_the_write(backend):
    def instance_norm(norm, x, w, b, mean, variance):
        means, variances = mean.repeat(4), variance.repeat(4)
        out = norm(x.reshape(1, 12, 5, 6), w.repeat(4), b.repeat(4), means, variances, True)[0]
        mean.copy_(means.view(4, 3).mean(0))
        variance.copy_(variances.view(4, 3).mean(0))
        return out, means * 2

    mine, eager = ([t.detach() for t in _given()] for _ in range(2))
    found = stoker.compile(instance_norm, backend=backend, fullgraph=True)(_cudnn, *mine)
    for a, b in zip((*found, *mine), (*instance_norm(_native, *eager), *eager)):
        torch.testing.assert_close(a, b)
