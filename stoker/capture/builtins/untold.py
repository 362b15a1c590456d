"""Functions of torch that ask for sizes which only data tells, though no value depends on the answer: they are made of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from stoker.capture.builtins.floats import of_floats, varies
from stoker.capture.handlers import handles, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.polyfill import floats, untold
from stoker.capture.values.constant import Constant
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value

KINDS = ("fft", "ifft", "rfft", "irfft")
TRANSFORMS = [getattr(torch.fft, kind + dims) for kind in KINDS for dims in ("", "2", "n")]
FUNCTIONS: dict[Any, Any] = {
    torch.kron: untold.kron,
    torch.vander: untold.vander,
    torch.take_along_dim: untold.take_along_dim,
    torch.stft: untold.stft,
    **{transform: getattr(untold, transform.__name__.removeprefix("fft_")) for transform in TRANSFORMS},
}


def has_symbolic_size(value: Value) -> bool:
    """A tensor with a size that varies."""
    return isinstance(value, TensorValue) and any(isinstance(size, torch.SymInt) for size in value.fake.shape)


def has_untold_size(value: Value) -> bool:
    """A size that only running the program tells, or a tensor with one."""
    if isinstance(value, SymbolicValue):
        return value.untold
    sizes = value.fake.shape if isinstance(value, TensorValue) else ()
    return any(isinstance(size, torch.SymInt) and not size.node.has_hint() for size in sizes)


def _keeps_sizes(args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    """No other size is asked for: of a transform, that would be a copy of its own."""
    other = args[1] if len(args) > 1 else kwargs.get("n", kwargs.get("s", Constant(None)))
    return isinstance(other, Constant) and other.value is None


def _has_places(args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    """Places along a dimension that is named, in a tensor of as many dimensions."""
    places = args[1] if len(args) > 1 else kwargs.get("indices")
    dim = args[2] if len(args) > 2 else kwargs.get("dim")
    source = args[0] if args else kwargs.get("input")
    if not isinstance(source, TensorValue) or not isinstance(places, TensorValue) or not isinstance(dim, Constant):
        return False
    return dim.value is not None and source.fake.dim() == places.fake.dim()


def _is_padded_signal(args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    """A real signal and a real window, centered, whose transform is complex, all by plain numbers."""
    given = dict(zip(("input", "n_fft", "hop_length", "win_length", "window"), args)) | kwargs
    signal, window = given.pop("input", None), given.pop("window", Constant(None))
    real = [
        t for t in (signal, window) if isinstance(t, TensorValue) and t.fake.dtype in (torch.float32, torch.float64)
    ]
    if len(args) > 5 or signal not in real or not (window in real or isinstance(window, Constant)):
        return False
    known = {name: value.value for name, value in given.items() if isinstance(value, Constant)}
    centered = known.get("center", True) is True and "align_to_window" not in given
    return (
        len(known) == len(given) and centered and known.get("return_complex") is True and real[0].fake.dim() in (1, 2)
    )


ASK_FOR_NUMBERS = frozenset({torch.kron, torch.take_along_dim, torch.stft})
"""Functions whose C++ asks for sizes as plain numbers: they would be compiled for each."""
FITS: dict[Any, Any] = {torch.take_along_dim: _has_places, torch.stft: _is_padded_signal}
"""Which calls are of a form that is written here."""


def _register(function: Any, written: Any) -> None:
    fits = _keeps_sizes if function in TRANSFORMS else FITS.get(function, lambda args, kwargs: True)
    asks = has_symbolic_size if function in ASK_FOR_NUMBERS else has_untold_size

    @handles(function)
    def of_untold_sizes(m: Machine, *args: Value, **kwargs: Value) -> Value:
        plain = "out" not in kwargs and any(map(asks, (*args, *kwargs.values())))
        if plain and fits(args, kwargs):
            return m.wrap.object(written).call(m, list(args), kwargs)
        return m.record.call(function, list(args), kwargs)

    if function in (torch.kron, torch.take_along_dim):
        tensor_special(function.__name__)(of_untold_sizes)


def _register_triangle(function: Any, of_square: Any, of_any: Any) -> None:
    @handles(function)
    def indices(m: Machine, row: Value, col: Value, offset: Value = Constant(0), **options: Value) -> Value:  # noqa: B008
        plain = options.keys() <= {"dtype", "device"}
        if plain and any(map(has_untold_size, (row, col))):
            return m.wrap.object(of_any).call(m, [row, col, offset], options)
        square = isinstance(row, SymbolicValue) and isinstance(offset, Constant)
        if plain and square and m.operators.compare("==", row, col).truth(m):
            return m.wrap.object(of_square).call(m, [row, col, offset], options)
        return m.record.call(function, [row, col, offset], options)


def _register_distance(function: Any, written: Any, by_exponent: Any) -> None:
    """A distance has both: sizes that only data tells, and an exponent that may vary."""

    @handles(function)
    def distance(m: Machine, *args: Value, **kwargs: Value) -> Value:
        given = (*args, *kwargs.values())
        if any(map(varies, given)) and of_floats(list(args), kwargs):
            return m.wrap.object(by_exponent).call(m, list(args), kwargs)
        if any(map(has_untold_size, given)):
            return m.wrap.object(written).call(m, list(args), kwargs)
        return m.record.call(function, list(args), kwargs)


@tensor_special("fill_diagonal_")
def fill_diagonal_(m: Machine, input: Value, fill_value: Value, wrap: Value = Constant(False)) -> Value:  # noqa: B008
    sizes = input.fake.shape if isinstance(input, TensorValue) else ()
    symbolic = len(sizes) == 2 and any(isinstance(size, torch.SymInt) for size in sizes)
    if symbolic and isinstance(wrap, Constant) and not wrap.value and not isinstance(fill_value, TensorValue):
        return m.wrap.object(untold.fill_diagonal_).call(m, [input, fill_value], {})
    return m.record.method(input, "fill_diagonal_", [fill_value, wrap], {})


_register_distance(torch.cdist, untold.cdist, floats.cdist)
_register_distance(torch.pdist, floats.pdist, floats.pdist)
_register_triangle(torch.triu_indices, untold.triu_indices_of_square, untold.triu_indices)
_register_triangle(torch.tril_indices, untold.tril_indices_of_square, untold.tril_indices)
for _function, _written in FUNCTIONS.items():
    _register(_function, _written)
