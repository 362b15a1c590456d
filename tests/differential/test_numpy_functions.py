"""numpy's functions inside graphs: what torch computes otherwise, numpy computes, in the middle of the graph."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from harness import BREAK, ONE, Program, check, check_default, program

import stoker


def matrix():
    return (np.arange(12, dtype=np.float32).reshape(3, 4) + 1,)


def square():
    return (np.array([[4.0, 1.0, 0.0], [1.0, 3.0, 1.0], [0.0, 1.0, 2.0]]),)


def numbers():
    return (np.array([5, 1, 4, 1, 3]),)


FUNCTIONS = {
    matrix: [
        lambda a: (np.sum(a), a.sum(axis=0), a.mean(1), a.max(), a.min(0), a.argmax(), np.std(a), a.var(axis=0), a.prod()),
        lambda a: (np.median(a), np.percentile(a, 30), np.quantile(a, 0.2, axis=1), np.average(a, weights=a), np.ptp(a)),
        lambda a: (np.any(a > 3), np.all(a > 0, axis=1), np.isclose(a, 2), np.isin(a, [1, 2])),
        lambda a: (np.cumsum(a, axis=1), np.cumprod(a, 0), np.diff(a), np.gradient(a), np.ediff1d(a)),
        lambda a: (np.sqrt(a), np.exp(a), np.log(a), np.sin(a), np.tanh(a), np.power(a, 2), a**0.5, a // 2, a % 3, np.hypot(a, a)),
        lambda a: (np.maximum(a, 3), np.minimum(a, 3), np.clip(a, 2, 5), np.where(a > 3, a, 0), np.round(a / 3, 1), np.sign(a)),
        lambda a: (a @ a.T, np.dot(a, a.T), np.outer(a[0], a[1]), np.einsum("ij,kj->ik", a, a), np.inner(a, a), np.vdot(a, a)),
        lambda a: (np.tensordot(a, a, 2), np.kron(a[0], a[1]), np.cross(a[:, :3], a[:, 1:]), np.trace(a)),
        lambda a: (np.tile(a, (2, 1)), np.repeat(a, 2, axis=0), np.roll(a, 1, 0), np.pad(a, 1), np.tril(a), np.triu(a)),
        lambda a: (np.vstack([a, a]), np.hstack([a, a]), np.dstack([a, a]), np.column_stack([a, a]), np.append(a, a)),
        lambda a: (np.concatenate([a, a.astype(np.float64)]), np.stack([a, a], axis=1), np.meshgrid(a[0], a[1])),
        lambda a: (np.squeeze(a[:1]), np.expand_dims(a, 1), np.swapaxes(a, 0, 1), np.moveaxis(a, 0, 1), np.shape(a), np.size(a)),
        lambda a: (np.fft.fft(a), np.fft.ifft(a), np.fft.rfft(a), np.fft.fft2(a), np.fft.fftshift(a), np.fft.fftfreq(5)),
        lambda a: (a + 1j, np.conj(a * 1j), np.angle(a + 1j), (a + 1j) * (a - 1j), np.exp(a * 1j)),
        lambda a: (np.linalg.norm(a), np.linalg.norm(a, axis=1), np.linalg.svd(a)[1], np.linalg.qr(a), np.linalg.pinv(a)),
        lambda a: (np.corrcoef(a), np.cov(a), np.convolve(a[0], a[1]), np.interp(2.5, a[0], a[1]), np.histogram(a, bins=4)),
        lambda a: (a.astype(np.int64), a.astype(bool), a.astype(np.complex64), np.nan_to_num(a), a.take([0, 2], axis=1)),
        lambda a: (np.eye(3), np.arange(5), np.linspace(0, 1, 4) * a, np.full((2,), 7.0), np.array([1.5, 2]), np.tri(3), np.indices((2, 2))),
        lambda a: (np.finfo(np.float32).eps, np.iinfo(np.int32).max, np.finfo(a.dtype).tiny, np.promote_types("f4", "f8")),
        lambda a: (np.nanmean(a), np.nansum(a, axis=0), np.nanmax(a), np.logaddexp(a, a), np.arctan2(a, a), np.cbrt(a), np.heaviside(a, 0.5)),
        lambda a: [row.sum() for row in a.T],
    ],
    square: [
        lambda a: (np.linalg.det(a), np.linalg.inv(a), np.linalg.solve(a, a[0]), np.linalg.cholesky(a), np.linalg.slogdet(a)),
        lambda a: (np.linalg.eigh(a)[0], np.linalg.eigvalsh(a), np.linalg.matrix_power(a, 3), np.linalg.matrix_rank(a)),
        lambda a: (np.linalg.multi_dot([a, a, a]), np.linalg.cond(a), np.linalg.norm(a, 2), np.linalg.norm(a, "fro")),
        lambda a: type(np.linalg.eigh(a)).__name__,
    ],
    numbers: [
        lambda a: (np.sort(a), np.argsort(a, kind="stable"), np.searchsorted([1, 3, 5], a), np.digitize(a, [2, 4]), a << 1, a & 3),
        lambda a: (a.sum(), a.mean(), a / 2, a // 2, a % 3, -a, a * 2.5, np.sqrt(a), np.cumsum(a), a.dot(a), a.clip(2, 4)),
    ],
}  # fmt: skip


@pytest.mark.parametrize("inputs, number", [(made, i) for made, cases in FUNCTIONS.items() for i in range(len(cases))])
def test_functions(inputs, number) -> None:
    made = Program("", FUNCTIONS[inputs][number], ONE, inputs, False, (), True, True)
    check(made)
    check_default(made)


BY_DATA = [
    lambda a: (a * 2, np.unique(a, return_inverse=True)),
    lambda a: (a * 2, np.unique(a, axis=0)),
    lambda a: (a * 2, a[a > 3].sum()),
    lambda a: (a * 2, np.flip(a, 0)),
    lambda a: (a * 2, np.allclose(a, a)),
    lambda a: (a * 2, np.linalg.matrix_power(a[:, :3], 1)),
    lambda a: (a * 2, np.repeat(a[0], a[0].astype(int))),
    lambda a: (a * 2, np.sum(a, axis=0, out=np.zeros(4, np.float32))),
    lambda a: (a * 2, np.broadcast_to(a[0], (2, 4))),
    lambda a: (a * 2, np.einsum("ij->ji", a)),
]


@pytest.mark.parametrize("number", range(len(BY_DATA)))
def test_others_break(number) -> None:
    """Sizes that only data tells, views, writes, numbers of Python."""
    check(Program("", BY_DATA[number], BREAK, matrix, False, (), True, False))


@program("numpy in the middle of a torch program", default=True)
def test_between(x):
    a = np.fft.rfft((x * 2).numpy())
    b = np.linalg.norm(np.abs(a), axis=1)
    return torch.from_numpy(b).sum() + x, b


@program(
    "numpy's functions at several sizes", inputs=lambda: (torch.randn(torch.randint(2, 5, ()).item(), 3),), steady=False
)
def test_sizes(x):
    return torch.from_numpy(np.sort(x.numpy(), axis=0)) * 2


@program("numbers and lists out of arrays", inputs=matrix)
def test_numbers(a):
    total, place = a.sum(), a.argmax()
    return float(total), int(place), total.item(), a.tolist(), type(total), np.hanning(4), a[0, 0].item() * 2


@program("parts of complex arrays", inputs=lambda: (np.array([[1 + 2j, 3 - 1j]]),))
def test_complex(z):
    return z.real, z.imag, z.conj(), z.T, z.sum(), np.abs(z).max(), z * z


@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_errors_are_numpys(backend: str) -> None:
    """What numpy refuses by value it refuses, and what the program did before is done once."""

    def inverted(a, told):
        told.append("before")
        try:
            return np.linalg.inv(a) * 2
        except np.linalg.LinAlgError as error:
            told.append(str(error))
            return a

    compiled = stoker.compile(inverted, backend=backend)
    for a in (np.eye(3), np.zeros((3, 3)), np.eye(3) * 2):
        told, said = [], []
        found, wanted = compiled(a, told), inverted(a, said)
        assert told == said and np.array_equal(found, wanted)


@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_warnings_are_numpys(backend: str) -> None:
    def logarithm(a):
        return np.log(a) + 1

    compiled = stoker.compile(logarithm, backend=backend)
    for a in (np.ones(3), np.array([1.0, 0.0, -1.0])):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            found = compiled(a)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            wanted = logarithm(a)
        assert [(str(w.message), w.lineno) for w in told] == [(str(w.message), w.lineno) for w in said]
        assert np.array_equal(found, wanted, equal_nan=True)


def repeated():
    drawn = torch.randint(-3, 4, (3, 4))
    return drawn.numpy(), drawn.double().numpy(), torch.ones(3)


@program("numpy: elements without their repetitions", inputs=repeated, default=True)
def test_unique(a, b, x):
    values, first, counts = np.unique(b, return_index=True, return_counts=True)
    once = np.unique(a)
    return x * 2, once, values, first, counts, counts * 2 + first, once.shape, torch.from_numpy(values).sum()


@program("numpy: places of what is not zero", inputs=repeated, default=True)
def test_nonzero(a, b, x):
    rows, columns = np.nonzero(a)
    return x * 2, rows + columns, np.flatnonzero(b > 0), np.where(a < 0), (a == 2).nonzero(), b[rows]


@program("numpy: arrays as sets", inputs=repeated, default=True)
def test_sets_of_elements(a, b, x):
    kept = np.setdiff1d(a, [0, 1])
    return x * 2, kept, np.union1d(a, b), np.intersect1d(a[0], a[1]), np.setxor1d(b[0], b[1]), len(kept)


@program("numpy: numbers that the graph computes, on the right of a tensor", inputs=repeated, default=True)
def test_numbers_beside_tensors(a, b, x):
    return x * b.sum(), x + a.max(), x / np.float32(b).max(), x > b.mean(), torch.arange(3) * a.sum(), x - b[0, 0]
