"""numpy arrays and functions."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from harness import BREAK, program

import stoker


@program("numpy scalars as constants")
def test_numpy_constants(x):
    return x * np.pi, np.float32 is not None


@program("tensor.numpy()")
def test_to_numpy(x):
    y = x + 1
    a = y.numpy()
    return torch.from_numpy(a * 2) + 1


@program("numpy array argument", inputs=lambda: (np.arange(4.0), torch.ones(4)))
def test_array_argument(a, x):
    y = x + 1
    return y + torch.from_numpy(a), a.sum(), a.shape


@program("numpy functions on arrays", inputs=lambda: (np.arange(4.0), torch.ones(4)))
def test_numpy_functions(a, x):
    y = x * 2
    b = np.sin(a) + np.sqrt(np.abs(a))
    return y + torch.as_tensor(b), b.reshape(2, 2)


@program("numpy array made inside")
def test_array_inside(x):
    y = x + 1
    a = np.ones((3, 4))
    a[0] = 5
    return y * torch.from_numpy(a), a


@program("numpy scalar argument", inputs=lambda: (np.float64(2.5), torch.ones(4)))
def test_scalar_argument(s, x):
    y = x + 1
    return y * s


@program("numpy random")
def test_numpy_random(x):
    y = x + 1
    np.random.seed(0)
    return y * np.random.rand()


@program("numpy dtype objects")
def test_dtype(x):
    y = x + 1
    return y, np.dtype("float32").itemsize


@program("numpy integer functions on plain numbers")
def test_plain_numbers(x):
    y = x + 1
    return y * float(np.sqrt(4.0)), int(np.prod(x.shape))


@program("array mutated in place", inputs=lambda: (np.zeros(3), torch.ones(3)))
def test_array_mutation(a, x):
    y = x + 1
    a[1] = 7
    a += 1
    return y + torch.from_numpy(a)


@program("numpy scalars in arithmetic, as arguments of operators, and converted")
def test_scalar_arithmetic(x):
    a, b, c = np.float32(0.1), np.int64(3), np.bool_(True)
    return (
        x * a,
        a * x,
        x + b,
        b - x,
        x > a,
        x**b,
        torch.full((2,), a),
        x.sum(int(b) - 2),
        a * 2,
        b / 2,
        c & True,
        float(a),
        x.view(b, 4),
    )


@program("numpy functions folded on plain numbers")
def test_folded(x):
    scale = np.sqrt(64) * np.log(2.0) + np.exp(0.5)
    return (
        x * scale,
        x / np.sqrt(x.shape[1]),
        np.prod(x.shape),
        np.ceil(2.5),
        np.maximum(1, 2),
        type(np.sqrt(2)),
        np.float64(1) == 1,
    )


@program("numpy scalars beside sizes", inputs=lambda: (torch.randn(5, 4),))
def test_scalar_and_size(x):
    n = x.shape[0] * np.float64(0.5)
    return x[: int(n)], n, x.reshape(int(np.prod(x.shape)))


@program("a numpy function that warns", BREAK)
def test_folded_warns(x):
    y = x + 1
    return y * float(np.isinf(np.log(0.0)))


@program("numpy scalar argument of another value", inputs=lambda: (np.float32(torch.rand(()).item()), torch.ones(4)))
def test_scalar_value(s, x):
    return x * s, s + 1, s.dtype, s.item()


def arrays():
    a = np.arange(12.0).reshape(3, 4) - 5
    return a, np.linspace(-1, 1, 4).astype(np.float32), torch.randn(3, 4)


@program("arrays: arithmetic by numpy's dtype rules", inputs=arrays)
def test_arithmetic(a, b, x):
    i = np.ones((3, 4), dtype=np.int32)
    return (
        a + b,
        a * 2,
        1 - b,
        b / 2,
        i / 2,
        i + 1,
        i * 2.5,
        a > b,
        (a > 0) & (b > 0),
        -a,
        abs(b),
        a == 1,
        b * np.float64(2),
        i - a,
    )


@program("arrays: ufuncs that are exact", inputs=arrays)
def test_ufuncs(a, b, x):
    return (
        np.abs(a),
        np.floor(b),
        np.square(b),
        np.isnan(a),
        np.add(a, b),
        np.negative(b),
        np.logical_not(a),
        np.trunc(a),
    )


@program("arrays: shape, indexing, methods", inputs=arrays)
def test_array_methods(a, b, x):
    rows = [row * 2 for row in a]
    return (
        a.shape,
        a.ndim,
        a.size,
        a.dtype,
        len(a),
        a[0],
        a[1:, ::2],
        a[..., 0],
        a.reshape(2, 6),
        a.T,
        a.copy(),
        rows,
        a.astype(np.float32),
        a[0, 1],
        a.flatten(),
    )


@program("arrays: joined, chosen, made like another", inputs=arrays)
def test_array_functions(a, b, x):
    return (
        np.concatenate([a, a]),
        np.stack((b, b), 1),
        np.where(a > 0, a, -a),
        np.zeros_like(a),
        np.ones((2,), dtype=np.int64),
        np.reshape(a, (4, 3)),
    )


@program("arrays and tensors on the same memory")
def test_shared_memory(x):
    y = x + 1
    a = y.numpy()
    a[0] = 5
    b = np.zeros((3, 4), dtype=np.float32)
    t = torch.from_numpy(b)
    t += 1
    b[1] = 7
    return y, a, b, t, np.asarray(y)


@program("numpy() of an argument, written", inputs=lambda: (torch.zeros(3, 4),))
def test_written_argument(x):
    a = x.numpy()
    a[1] = 3
    a += 1
    return x * 2, a


@program("views of an array argument", inputs=arrays)
def test_array_view(a, b, x):
    return a[1:], torch.from_numpy(a)[0] + 1, torch.as_tensor(b), torch.tensor(b), a


@program("arrays: functions that round differently", inputs=arrays)
def test_rounding(a, b, x):
    y = x + 1
    return y, np.sin(a), np.exp(b)


@program("arrays: float sums", inputs=arrays)
def test_sums(a, b, x):
    y = x + 1
    return y, a.sum(), np.mean(b)


@program("array beside a tensor in an operator", BREAK, inputs=lambda: (np.arange(4.0), torch.ones(4)))
def test_mixed(a, x):
    y = x + 1
    try:
        return a + y
    except TypeError as error:
        return str(error)


@program("arrays of objects, of strings, read-only, reversed", BREAK,
         inputs=lambda: (np.array(["a", None], dtype=object), np.arange(3.0)[::-1], torch.ones(3)))  # fmt: skip
def test_odd_arrays(o, r, x):
    y = x + 1
    return y, o[0], r * 2


@program(
    "array in an attribute and a container", inputs=lambda: ({"a": np.arange(3.0), "n": np.int32(2)}, torch.ones(3))
)
def test_held_arrays(d, x):
    return torch.from_numpy(d["a"]) * d["n"] + x, d["a"] * 2


@program("tensor.numpy() that needs a gradient", BREAK, inputs=lambda: (torch.ones(3, requires_grad=True),))
def test_numpy_of_gradient(x):
    y = x * 2
    try:
        return y.numpy()
    except RuntimeError as error:
        return str(error)


@program("numpy integers as indices and sizes, dtypes compared with classes")
def test_numpy_indices(x):
    n = np.int64(1)
    kind = x.numpy().dtype
    return (
        x[n],
        [1, 2, 3][n],
        list(range(np.int32(2))),
        x.view(np.int64(3), -1),
        kind == np.float32,
        np.float64 == kind,
        kind.type is np.float32,
    )


@program(
    "numpy: rows chosen by an array of places",
    inputs=lambda: (np.arange(12.0).reshape(4, 3) % 5, torch.ones(4)),
    default=True,
)
def test_rows_by_places(a, x):
    order = np.argsort(-a[:, 1].copy())
    sorted_rows = a[order]
    return x * torch.from_numpy(sorted_rows[:, 0].copy()), sorted_rows, a[order.reshape(2, 2)], order[-1:]


@program(
    "numpy: elements and rows chosen by a mask",
    inputs=lambda: (np.arange(12.0).reshape(4, 3), torch.ones(4)),
    default=True,
)
def test_rows_by_masks(a, x):
    return x * 2, a[a > 4], a[a.max(1) > 6], a[a > 40]


@program("numpy: copies of strided arrays", inputs=lambda: (np.arange(12.0).reshape(4, 3), torch.ones(4)))
def test_copies_of_strided_arrays(a, x):
    return x * 2, a[::2].copy() + 1, a.T.copy(), a.T.flatten(), a[:, 1].copy() * 2


@pytest.mark.parametrize("backend", ["eager", "stoker"])
def test_places_that_are_not_there(backend):
    def rows(a, places, x):
        y = x + 1
        try:
            return a[places]
        except IndexError as error:
            return y, str(error)

    compiled = stoker.compile(rows, backend=backend, fullgraph=True)
    for place in (1, 9, -1, -4, -5):
        given = np.arange(4.0), np.array([0, place]), torch.ones(4)
        mine, theirs = compiled(*given), rows(*given)
        assert str(mine) == str(theirs)


@program("numpy.issubdtype", inputs=lambda: (torch.ones(2), np.ones(3), 4))
def test_issubdtype(x, array, number):
    kinds = np.issubdtype(array.dtype, np.floating), np.issubdtype(type(number), np.integer)
    return x * 2, kinds, np.issubdtype(np.int32, np.floating)


@program(
    "numpy: bytes, strides and real parts of arrays, casts by types and by asarray",
    inputs=lambda: (np.arange(12.0).reshape(4, 3), torch.ones(4)),
    default=True,
)
def test_casts_of_arrays(a, x):
    total = np.asarray(a.sum())
    total[...] = 3
    halves = np.float32(a), np.asarray(a, dtype=np.float32), np.asarray(x, np.float64), np.asarray([1, 2], dtype=float)
    like = np.ones_like(a, dtype=np.int64), np.zeros_like(a, np.float32)
    return x * 2, total, a.sum().copy(), halves, like, a.strides, a.T.strides, a.nbytes, a.real is a, np.asarray(a) is a
