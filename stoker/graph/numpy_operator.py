"""numpy's own functions as one operator of graphs, `stoker::numpy`: what torch may compute in another order, numpy computes.

In:  the name of a function of numpy, its arguments as text (arrays among them by number), and the arrays, as tensors.
Out: the arrays that it makes, as tensors. Where numpy would warn, the operator raises: CPython runs the program again, and warns.

Requirements, held by tests/differential/test_numpy_functions.py:
  1. Only functions are in the tables that give new arrays, whose types, sizes and strides follow from those of their arguments.
"""

from __future__ import annotations

import base64
import functools
import pickle
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from stoker import nest

_FUNCTIONS = {
    "numpy": """
        sum mean prod max min amax amin argmax argmin std var median percentile quantile average any all cumsum cumprod diff sort
        argsort trace outer dot inner vdot tensordot kron cross einsum clip round around tile repeat roll pad concatenate stack vstack
        hstack dstack column_stack isclose nan_to_num ptp take take_along_axis tril triu gradient interp searchsorted digitize convolve
        correlate corrcoef cov nansum nanmean nanmax nanmin nanstd nanvar nanprod nancumsum isin where full full_like eye identity tri
        linspace logspace geomspace arange array vander heaviside sinc select ediff1d insert delete append angle
        i0 trapezoid ndarray.__getitem__ matvec vecmat vecdot unwrap astype concat cumulative_sum cumulative_prod triu_indices
        tril_indices indices hamming hanning blackman bartlett kaiser isneginf isposinf fix lexsort partition argpartition
        polyval polyfit block meshgrid histogram unravel_index ravel_multi_index ndarray.astype
    """,
    "numpy.linalg": """
        norm det slogdet inv solve cholesky eigh eigvalsh qr svd svdvals pinv matrix_power matrix_rank multi_dot
        cond vector_norm matrix_norm outer cross vecdot tensordot trace matmul
    """,
    "numpy.fft": "fft ifft rfft irfft hfft ihfft fft2 ifft2 rfft2 irfft2 fftn ifftn rfftn irfftn fftshift ifftshift fftfreq rfftfreq",
}
ON_ARRAY = "array"
"""Of an input whose memory is that of an array outside: its storage is new in each call, whatever else lies there."""

OWN = "stoker."
"""Before the names of the functions beneath, in place of that of a module."""


def assigned(array: Any, key: Any, value: Any) -> Any:
    """A copy with `copy[key] = value` done."""
    made = array.copy()
    made[key] = value
    return made


def at_most(function: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """What a function in SIZED_BY_DATA makes, filled up to the number of elements it was given; before it, which are its own."""
    called, room = _function(function), sum(numpy.size(arg) for arg in args)
    assert called is not None
    made = called(*args, **kwargs)
    parts = made if isinstance(made, tuple) else (made,)
    if any(part.shape != (len(parts[0]),) for part in parts):
        raise ValueError("arrays of several sizes")
    filling = [numpy.zeros(room - len(part), part.dtype) for part in parts]
    return numpy.arange(room) < len(parts[0]), *map(numpy.concatenate, zip(parts, filling))


SIZED_BY_DATA = {
    id(getattr(numpy, name)): f"numpy.{name}"
    for name in ("unique", "nonzero", "flatnonzero", "intersect1d", "union1d", "setdiff1d", "setxor1d")
}
"""Functions that make lists of at most as many elements as they are given."""

_OWN_FUNCTIONS: dict[str, Callable[..., Any]] = {OWN + "assigned": assigned, OWN + "at_most": at_most}
SIZED_BY_NUMBERS = frozenset(
    ["tile", "repeat", "pad", "linspace", "logspace", "geomspace", "arange", "full", "eye", "delete", "insert"]
)
"""Functions whose result's size follows from what later arguments hold."""


@functools.cache
def hosted() -> dict[int, str]:
    """Functions of numpy that the operator runs, by identity, with their names."""
    found = {id(function): name for name, function in _OWN_FUNCTIONS.items()}
    for module, names in _FUNCTIONS.items():
        for name in names.split():
            function = _function(f"{module}.{name}")
            if function is not None:
                found.setdefault(id(function), f"{module}.{name}")
    for name, function in vars(numpy).items():
        if isinstance(function, numpy.ufunc) and function.nout == 1:
            found[id(function)] = f"numpy.{name}"
    return found


def _function(name: str) -> Callable[..., Any] | None:
    """A function by its name, which may be that of a method or of a module inside numpy; None where this numpy has none."""
    if name.startswith(OWN):
        return _OWN_FUNCTIONS[name]
    found: Any = numpy
    for part in name.split(".")[1:]:
        found = getattr(found, part, None)
    return found


@dataclass(frozen=True, slots=True)
class GivenArray:
    """The array of this number, in the place of an argument."""

    number: int


@dataclass(frozen=True, slots=True)
class ArrayMeta:
    """What is known of an array before a program runs."""

    dtype: Any
    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    is_scalar: bool

    @staticmethod
    def of(made: Any) -> ArrayMeta:
        strides = tuple(stride // made.itemsize for stride in made.strides)
        return ArrayMeta(made.dtype, made.shape, strides, isinstance(made, numpy.generic))


@dataclass(frozen=True, slots=True)
class ArrayResult:
    """What a call makes: arrays in a list or tuple of this class, or one array."""

    cls: type | None
    metas: list[ArrayMeta]


def as_text(args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    return base64.b64encode(pickle.dumps((list(args), kwargs))).decode()


def dry_run(
    function: str, arguments: str, metas: Sequence[tuple[Any, tuple[int, ...], tuple[int, ...]]]
) -> ArrayResult | None:
    """What a function makes of arrays of these types and sizes; None if that is not new arrays."""
    examples = [_example(*meta) for meta in metas]
    with warnings.catch_warnings(), numpy.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        made = examples[0].copy() if function == OWN + "assigned" else _call(function, arguments, examples)
    parts = list(made) if isinstance(made, (list, tuple)) else [made]
    if not all(isinstance(part, (numpy.ndarray, numpy.generic)) for part in parts):
        return None
    if any(numpy.may_share_memory(part, other) for part in parts for other in examples):
        return None
    if any(stride % part.itemsize or stride < 0 for part in parts for stride in part.strides):
        return None
    return ArrayResult(type(made) if isinstance(made, (list, tuple)) else None, [ArrayMeta.of(part) for part in parts])


def _example(dtype: Any, sizes: tuple[int, ...], strides: tuple[int, ...]) -> Any:
    """An array that functions accept: matrices with an inverse, indices in range."""
    extent = 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides)) if 0 not in sizes else 1
    offsets = [stride * dtype.itemsize for stride in strides]
    made = numpy.lib.stride_tricks.as_strided(numpy.zeros(extent, dtype), sizes, offsets)
    if dtype.kind in "fc":
        made[...] = 1
    if dtype.kind in "fc" and len(sizes) > 1 and sizes[-1] == sizes[-2]:
        made[...] = numpy.eye(sizes[-1], dtype=dtype) * (sizes[-1] + 1) + 1
    return made


def _call(function: str, arguments: str, arrays: Sequence[Any]) -> Any:
    called = _function(function)
    assert called is not None
    args, kwargs = nest.map_leaves(
        lambda leaf: arrays[leaf.number] if isinstance(leaf, GivenArray) else leaf,
        pickle.loads(base64.b64decode(arguments)),
    )
    return called(*args, **kwargs)


@torch.library.custom_op("stoker::numpy", mutates_args=())
def run(function: str, arguments: str, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    with warnings.catch_warnings(), numpy.errstate(all="raise"):
        warnings.simplefilter("error")
        made = _call(function, arguments, [array.numpy() for array in arrays])
    return [torch.from_numpy(numpy.asarray(part)) for part in (made if isinstance(made, (list, tuple)) else [made])]


@run.register_fake
def _(function: str, arguments: str, arrays: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    numbers = [(tuple(map(int, array.shape)), tuple(map(int, array.stride()))) for array in arrays]
    made = dry_run(function, arguments, [(numpy_dtype(array.dtype), *known) for array, known in zip(arrays, numbers)])
    assert made is not None, "capture has asked before"
    return [torch.empty_strided(meta.sizes, meta.strides, dtype=getattr(torch, meta.dtype.name)) for meta in made.metas]


def numpy_dtype(dtype: torch.dtype) -> Any:
    return numpy.dtype(str(dtype).removeprefix("torch."))
