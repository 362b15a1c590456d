"""numpy arrays and functions."""

from __future__ import annotations

import numpy as np
import torch
from harness import BREAK, program


@program("numpy scalars as constants")
def test_numpy_constants(x):
    return x * np.pi, np.float32 is not None


@program("tensor.numpy()", BREAK)
def test_to_numpy(x):
    y = x + 1
    a = y.numpy()
    return torch.from_numpy(a * 2) + 1


@program("numpy array argument", BREAK, inputs=lambda: (np.arange(4.0), torch.ones(4)))
def test_array_argument(a, x):
    y = x + 1
    return y + torch.from_numpy(a), a.sum(), a.shape


@program("numpy functions on arrays", BREAK, inputs=lambda: (np.arange(4.0), torch.ones(4)))
def test_numpy_functions(a, x):
    y = x * 2
    b = np.sin(a) + np.sqrt(np.abs(a))
    return y + torch.as_tensor(b), b.reshape(2, 2)


@program("numpy array made inside", BREAK)
def test_array_inside(x):
    y = x + 1
    a = np.ones((3, 4))
    a[0] = 5
    return y * torch.from_numpy(a), a


@program("numpy scalar argument", BREAK, inputs=lambda: (np.float64(2.5), torch.ones(4)))
def test_scalar_argument(s, x):
    y = x + 1
    return y * s


@program("numpy random", BREAK)
def test_numpy_random(x):
    y = x + 1
    np.random.seed(0)
    return y * np.random.rand()


@program("numpy dtype objects", BREAK)
def test_dtype(x):
    y = x + 1
    return y, np.dtype("float32").itemsize


@program("numpy integer functions on plain numbers", BREAK)
def test_plain_numbers(x):
    y = x + 1
    return y * float(np.sqrt(4.0)), int(np.prod(x.shape))


@program("array mutated in place", BREAK, inputs=lambda: (np.zeros(3), torch.ones(3)))
def test_array_mutation(a, x):
    y = x + 1
    a[1] = 7
    a += 1
    return y + torch.from_numpy(a)
