"""Functions of torch that ask for plain floats: for a float that varies from call to call they are made of other operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.nn.functional as F

from stoker.capture.handlers import TENSOR_METHODS, handles
from stoker.capture.polyfill import floats
from stoker.capture.values.constant import Constant
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.capture.values.varying import VaryingFloat

if TYPE_CHECKING:
    from stoker.capture.machine import Machine


def varies(value: Value) -> bool:
    return isinstance(value, VaryingFloat) or isinstance(value, SymbolicValue) and value.python_type() is float


def _is_none(value: Value | None) -> bool:
    return value is None or isinstance(value, Constant) and value.value is None


def _plain_targets(args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Classes by number, all of one weight."""
    target = args[1] if len(args) > 1 else kwargs.get("target")
    by_number = isinstance(target, TensorValue) and not target.fake.dtype.is_floating_point
    return by_number and _is_none(args[2] if len(args) > 2 else kwargs.get("weight"))


def _always(args: list[Value], kwargs: dict[str, Value]) -> bool:
    return True


FUNCTIONS: dict[Any, tuple[Any, Any]] = {
    F.layer_norm: (floats.layer_norm, _always),
    F.rms_norm: (floats.rms_norm, _always),
    F.group_norm: (floats.group_norm, _always),
    F.scaled_dot_product_attention: (floats.scaled_dot_product_attention, _always),
    F.dropout: (floats.dropout, _always),
    F.huber_loss: (floats.huber_loss, lambda args, kwargs: len(args) < 5 and "weight" not in kwargs),
    F.smooth_l1_loss: (floats.smooth_l1_loss, _always),
    F.margin_ranking_loss: (floats.margin_ranking_loss, _always),
    F.cross_entropy: (floats.cross_entropy, _plain_targets),
}
METHODS: dict[str, Any] = {"uniform_": floats.uniform_, "normal_": floats.normal_, "bernoulli_": floats.bernoulli_}


def _register(function: Any, written: Any, fits: Any) -> None:
    @handles(function)
    def with_floats(m: Machine, *args: Value, **kwargs: Value) -> Value:
        if any(varies(value) for value in (*args, *kwargs.values())) and fits(args, kwargs):
            return m.wrap.object(written).call(m, list(args), kwargs)
        return m.record.call(function, list(args), kwargs)


def _register_method(name: str, written: Any) -> None:
    def with_floats(m: Machine, receiver: Any, *args: Value, **kwargs: Value) -> Value:
        if (
            any(varies(value) for value in (*args, *kwargs.values()))
            and "from" not in kwargs
            and _is_none(kwargs.get("generator"))
        ):
            return m.wrap.object(written).call(m, [receiver, *args], kwargs)
        return m.record.method(receiver, name, list(args), kwargs)

    TENSOR_METHODS[name] = with_floats


@handles(F.batch_norm)
def batch_norm(m: Machine, *args: Value, **kwargs: Value) -> Value:
    given = (
        dict(zip(("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps"), args))
        | kwargs
    )
    if "eps" in given and varies(given["eps"]):
        return m.wrap.object(floats.batch_norm).call(m, list(args), kwargs)
    if "momentum" in given and varies(given["momentum"]):
        return m.wrap.object(floats.batch_norm_that_remembers).call(m, list(args), kwargs)
    return m.record.call(F.batch_norm, list(args), kwargs)


for _function, (_written, _fits) in FUNCTIONS.items():
    _register(_function, _written, _fits)
for _name, _written in METHODS.items():
    _register_method(_name, _written)
