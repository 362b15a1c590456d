"""Functions of torch that ask for sizes which only data tells, though no value depends on the answer: they are made of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F

from stoker.capture.builtins.floats import of_floats, varies
from stoker.capture.handlers import handles, tensor_special
from stoker.capture.polyfill import floats, untold
from stoker.capture.values.constant import Constant
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

KINDS = ("fft", "ifft", "rfft", "irfft")
TRANSFORMS = [getattr(torch.fft, kind + dims) for kind in KINDS for dims in ("", "2", "n")]
FUNCTIONS: dict[Any, Any] = {
    torch.kron: untold.kron,
    torch.triu_indices: untold.triu_indices,
    torch.tril_indices: untold.tril_indices,
    torch.vander: untold.vander,
    F.max_pool1d: untold.max_pool1d,
    **{transform: getattr(untold, transform.__name__.removeprefix("fft_")) for transform in TRANSFORMS},
}


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


def _register(function: Any, written: Any) -> None:
    fits = _keeps_sizes if function in TRANSFORMS else lambda args, kwargs: True

    @handles(function)
    def of_untold_sizes(m: Machine, *args: Value, **kwargs: Value) -> Value:
        plain = "out" not in kwargs and any(map(has_untold_size, (*args, *kwargs.values())))
        if plain and fits(args, kwargs):
            return m.wrap.object(written).call(m, list(args), kwargs)
        return m.record.call(function, list(args), kwargs)


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
for _function, _written in FUNCTIONS.items():
    _register(_function, _written)
