"""Outputs stand in autograd as eager's do: what requires a gradient, where it flows, and what may be written.

Programs take a tensor without history, a leaf, a tensor with a history and a list; a break in the middle makes outputs of what is alive there,
and inputs of it again.
"""

from __future__ import annotations

import pytest
import torch

import stoker

BREAK = stoker.disable(lambda: None)


def written_after_detach(x, y, h, log):
    v = x.detach()
    v[..., -1] += y[..., -1]
    return v


def leaf_written_after_detach(x, y, h, log):
    v, w = y.detach(), y * 2
    w.copy_(y)
    v[0] += w[0]
    return v, w


def detached_view_of_a_view(x, y, h, log):
    v = x.t().detach()[1:]
    v.mul_(h.t()[1:])
    return v, v * 2


def detached_twice(x, y, h, log):
    t = x * 2
    v = t.detach().view(-1)
    v.add_(y.view(-1))
    return t, v, t + 1


def moved_without_gradients(x, y, h, log):
    v = y.transpose(0, 1)
    with torch.no_grad():
        v.t_()
    return v


def moved_view_of_a_history(x, y, h, log):
    v = h[:, :2]
    with torch.no_grad():
        v.unsqueeze_(0)
    return v * 3, v


def seen_without_gradients(x, y, h, log):
    with torch.no_grad():
        v, w = y.view(-1), (h * 2).view(-1)
    return v, w, h + 1


def seen_without_gradients_of_a_result(x, y, h, log):
    t = h * 2
    with torch.no_grad():
        v = t[0]
    return t, v


def seen_before_it_was_written(x, y, h, log):
    t = x + 1
    v = t.view(-1)
    t.copy_(y)
    return t, v


def seen_without_gradients_before(x, y, h, log):
    t = x + 1
    with torch.no_grad():
        v = t[0]
    t.mul_(y)
    return t, v


def written_before_it_is_seen(x, y, h, log):
    t = x + 1
    t.copy_(y)
    v = t.view(-1)
    BREAK()
    v.add_(1)
    return t, v


def stale_view_is_written(x, y, h, log):
    t = x + 1
    v = t.view(-1)
    t.scatter_(0, torch.zeros(t.shape, dtype=torch.long), y)
    v += 1.25
    return v


def stale_view_alone_is_written_later(x, y, h, log):
    t = x + 1
    v = t.view(-1)
    t.copy_(y)
    del t
    BREAK()
    log.append("before")
    v += 1.25
    return v


def stale_view_is_written_later(x, y, h, log):
    t = x + 1
    v = t.reshape(-1)
    t.copy_(y)
    log.append("before")
    BREAK()
    log.append("after")
    v.t_()
    return t, v


def stale_view_is_read_later(x, y, h, log):
    t = x + 1
    v = t[0]
    t.copy_(y)
    BREAK()
    return v * 2, t


def piece_of_what_is_written(x, y, h, log):
    t = x + 1
    v = t.chunk(2)[0]
    t.copy_(y)
    BREAK()
    log.append(v.requires_grad)
    return t * 2


def product_of_matrices_is_moved(x, y, h, log):
    v = torch.einsum("...i,...i->...", y, y)
    BREAK()
    v.t_()
    return v


def view_of_a_result_is_written(x, y, h, log):
    v = (h @ x.t()).view(-1)
    BREAK()
    v.add_(y.sum())
    return v


def view_of_what_needs_no_gradient(x, y, h, log):
    v = (x @ x.t()).view(-1)
    log.append(tuple(y.shape))
    z = y.detach() * 2
    BREAK()
    v.add_(y.sum())
    return v, z


def view_of_a_leaf_is_written(x, y, h, log):
    v = y[0]
    BREAK()
    x.zero_()
    log.insert(0, "before")
    v.add_(2.0)
    return v


def leaf_is_written_last(x, y, h, log):
    x.mul_(2)
    log.append("before")
    y.view(-1).add_(1)
    return x


def view_of_a_leaf_is_written_after_others(x, y, h, log):
    v, w = y[0], y.detach()[1]
    BREAK()
    log.append(1)
    w.add_(1)
    x.add_(1)
    v.mul_(x[0])
    log.append(2)
    return v


def piece_is_written(x, y, h, log):
    v = h.unbind(0)[0]
    BREAK()
    x.add_(1)
    log.append(1)
    v.mul_(2)
    return v


def view_without_gradients_is_written(x, y, h, log):
    with torch.no_grad():
        v = h[0]
    BREAK()
    x.add_(1)
    log.append(1)
    v.mul_(2)
    return v


def view_without_gradients_is_written_without(x, y, h, log):
    with torch.no_grad():
        v = h[0]
        BREAK()
        x.add_(1)
        v.mul_(2)
    return v, h


def given_view_is_moved(x, y, h, log):
    v = y.t()
    BREAK()
    x.add_(1)
    log.append(1)
    v.t_()
    return v


PROGRAMS = [
    written_after_detach, leaf_written_after_detach, detached_view_of_a_view, detached_twice, moved_without_gradients,
    moved_view_of_a_history, seen_without_gradients, seen_without_gradients_of_a_result, seen_before_it_was_written,
    seen_without_gradients_before, written_before_it_is_seen, stale_view_is_written, stale_view_alone_is_written_later,
    stale_view_is_written_later, stale_view_is_read_later, piece_of_what_is_written, product_of_matrices_is_moved,
    view_of_a_result_is_written, view_of_what_needs_no_gradient, view_of_a_leaf_is_written, leaf_is_written_last,
    view_of_a_leaf_is_written_after_others, piece_is_written, view_without_gradients_is_written,
    view_without_gradients_is_written_without, given_view_is_moved,
]  # fmt: skip


def outcome(f):
    torch.manual_seed(0)
    x, y = torch.randn(3, 3), torch.randn(3, 3, requires_grad=True)
    h, log = torch.sin(y), []
    try:
        results = f(x, y, h, log)
    except RuntimeError as error:
        return type(error), str(error).split(" is ")[0], x, y.detach(), h.detach(), log
    results = results if isinstance(results, tuple) else (results,)
    stood = [r.requires_grad for r in results]
    try:
        total = torch.stack([r.sum() for r in results if r.requires_grad]).sum() if any(stood) else None
        gradient = None if total is None else torch.autograd.grad(total, y, allow_unused=True)[0]
    except RuntimeError:
        gradient = "refused"
    found = []
    for r in results:
        try:
            found.append((r.is_leaf, r.grad_fn is None, r.detach()))
        except RuntimeError:
            found.append("lost")
    return stood, gradient, found, x, y.detach(), h.detach(), log


def assert_same(found, expected):
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    elif isinstance(expected, (list, tuple)):
        assert len(found) == len(expected), (found, expected)
        for a, b in zip(found, expected):
            assert_same(a, b)
    else:
        assert found == expected


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(program, backend):
    expected = outcome(program)
    compiled = stoker.compile(program, backend=backend)
    for _ in range(2):
        assert_same(outcome(compiled), expected)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("rows", [1, 2, 3])
def test_variance_of_few(rows, dynamic):
    """The gradient of a variance divides by one less than the number of rows."""

    def f(y):
        return y[1:].var(0), y.std(0), torch.var_mean(y[:1], 0)[0]

    y = torch.randn(rows, 5, dtype=torch.float64, requires_grad=True)
    for backend in ("aot_eager", "stoker"):
        expected, found = f(y), stoker.compile(f, backend=backend, dynamic=dynamic)(y)
        torch.testing.assert_close(found, expected, equal_nan=True)
        gradients = [torch.autograd.grad(torch.stack(r).sum(), y)[0] for r in (expected, found)]
        torch.testing.assert_close(*gradients, equal_nan=True)
