"""Writes into numpy arrays, by masks, by places, and into arrays from outside."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from harness import program

import stoker


def inputs():
    return np.random.RandomState(torch.randint(9, ()).item()).randn(4, 3), torch.ones(4)


@program("numpy: elements and rows that a mask chooses, assigned", inputs=inputs, default=True)
def test_assigned_by_masks(a, x):
    b, c, d = a.copy(), a.copy(), a.copy()
    b[b > 0] = 0
    c[c.max(1) > 0.5] = np.array([1.0, 2.0, 3.0])
    d[np.abs(d[:, 0]) > 1, 0] = 3
    return x * 2, b, c, d


@program("numpy: places in arrays and lists, assigned, the last of the same place wins", inputs=inputs, default=True)
def test_assigned_by_places(a, x):
    b, c = a.copy(), a.copy()
    b[np.argsort(a[:, 0].copy())[:2]] = 5
    b[:, [0, 2]] = c[:, [2, 0]]
    c[[0, 1, 0]] = np.arange(9.0).reshape(3, 3)
    c[::-1, 1] = [1, 2, 3, 4]
    return x + torch.from_numpy(b[:, 1].copy()), b, c, a[[3, 1]], a[1, [0, 2]]


@program("numpy: numbers of another type assigned", inputs=lambda: (np.arange(6), torch.ones(3)), default=True)
def test_assigned_by_type(a, x):
    b = a.astype(np.float32)
    b[1:] = a[1:] * 2
    a[0] = 2.7
    a[1:3] = np.float32(1.5)
    return x * 2, a, b


@program("numpy: arrays from outside written", inputs=inputs, default=True)
def test_written_from_outside(a, x):
    before = a.sum()
    a[0] = 1
    a[a < 0] = 0
    a += 1
    a[1:] = a[:-1]
    a[:, 0].fill(7)
    return x + torch.from_numpy(a).sum(1), before, a[1], a


@program("numpy: arrays from outside sorted, copied over, written through a tensor", inputs=inputs, default=True)
def test_written_in_other_ways(a, x):
    a.sort(0)
    b = a[::2]
    b[...] = b * 2
    torch.from_numpy(a)[1].mul_(3)
    a.T[1] -= 1
    return x * a[0, 0].item(), a, b.copy()


@program(
    "numpy: one array from outside in two places",
    inputs=lambda: ({"a": (a := np.zeros(3)), "b": a}, torch.ones(3)),
    default=True,
)
def test_written_twice_reached(d, x):
    d["a"][0] = 4
    d["b"] += 1
    return x + torch.from_numpy(d["a"]), d["a"] is d["b"]


def written_by_both(t, s):
    y = s * 2
    t += y if type(t) is type(s) else torch.as_tensor(y) if isinstance(t, torch.Tensor) else y.numpy()
    s *= t if type(t) is type(s) else torch.as_tensor(t) if isinstance(s, torch.Tensor) else t.numpy()
    return y, s + 1, t


@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_arrays_that_overlap(backend: str) -> None:
    """With one another, and with tensors; in the first call, or only in a later one."""

    def views():
        whole = np.arange(8.0)
        yield whole, whole[:4], np.ones(4)
        whole = np.arange(8.0)
        yield whole, whole[:4], whole[2:6]
        whole = np.arange(8.0)
        yield whole, torch.from_numpy(whole)[:4], whole[2:6]
        whole = torch.arange(8.0)
        yield whole, whole.numpy()[:4], whole[2:6]
        whole = np.arange(8.0)
        yield whole, whole[:4], whole[4:]

    for order in (list, lambda every: list(every)[::-1]):
        compiled = stoker.compile(written_by_both, backend=backend, fullgraph=True)
        for mine, theirs in zip(order(views()), order(views())):
            assert str(compiled(*mine[1:])) == str(written_by_both(*theirs[1:]))
            assert str(mine[0]) == str(theirs[0])


@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_refused_writes(backend: str) -> None:
    """Arrays that are read-only, places that are not there, and values that do not fit: numpy's own errors, after what was written before."""

    def write(a, places, value, x):
        told = x * 2
        a[0] = 9
        try:
            a[places] = value
        except (ValueError, IndexError) as error:
            return told, str(error)
        return told, a

    compiled = stoker.compile(write, backend=backend)
    for place, count in ((1, 2), (7, 2), (1, 3), (-4, 2)):
        mine, theirs = np.arange(4.0), np.arange(4.0)
        given = np.array([0, place]), np.arange(float(count)), torch.ones(2)
        assert str(compiled(mine, *given)) == str(write(theirs, *given))
        assert np.array_equal(mine, theirs)
    kept = np.arange(4.0)
    kept.flags.writeable = False
    for run in (compiled, write):
        with pytest.raises(ValueError, match="assignment destination is read-only"):
            run(kept, np.array([0, 1]), np.arange(2.0), torch.ones(2))
    assert kept[0] == 0
