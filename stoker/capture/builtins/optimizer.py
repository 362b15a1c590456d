"""Numbers that torch's optimizers keep in tensors: read by eager, data to captured code.

Eager computes bias corrections and step sizes with Python's floats. Captured code computes them with tensors of float64, and scales in
the order of eager's kernels, so that parameters come out the same.
"""

from __future__ import annotations

import torch

from stoker import torch_private
from stoker.capture.handlers import handles, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.polyfill import grouping
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import SequenceValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value


@handles(torch_private.optimizer_value)
def value_of_step(m: Machine, step: Value) -> Value:
    return m.record.method(step, "double", [], {}) if isinstance(step, TensorValue) else step


@handles(torch_private.optimizer_stack)
def numbers_of_steps(m: Machine, numbers: Value) -> Value:
    """As they are: in one tensor, each would have to be taken out of it again."""
    return numbers


def _scaled(m: Machine, name: str, receiver: Value, parts: tuple[Value, ...], factor: Value) -> Value:
    """What is added, as eager's kernels compute it: the factor times the first part, then the second."""
    made = m.record.call(torch.mul, [parts[0], factor], {})
    if name == "addcdiv_":
        made = m.record.call(torch.div, [made, parts[1]], {})
    if name == "addcmul_":
        made = m.record.call(torch.mul, [made, parts[1]], {})
    return m.record.method(receiver, "sub_" if name == "sub_" else "add_", [made], {})


def _register(name: str, scale: str) -> None:
    """A method whose factor is a number to eager, which reads it where it is a tensor. Here it stays data."""

    @tensor_special(name)
    def method(m: Machine, receiver: TensorValue, /, *args: Value, **kwargs: Value) -> Value:
        factor = kwargs.get(scale)
        if isinstance(factor, TensorValue):
            return _scaled(m, name, receiver, args, factor)
        return m.record.method(receiver, name, list(args), kwargs)


for _name, _scale in (("addcdiv_", "value"), ("addcmul_", "value"), ("add_", "alpha"), ("sub_", "alpha")):
    _register(_name, _scale)


@handles(torch_private.foreach_addcdiv_)
def foreach_addcdiv_(m: Machine, *args: Value, **kwargs: Value) -> Value:
    if kwargs or len(args) != 4 or not _is_data(m, args[3]):
        return m.record.call(torch_private.foreach_addcdiv_, list(args), kwargs, keep=True)
    receivers, *parts = (value.items_list(m) for value in args[:3])
    for number, (receiver, *operands) in enumerate(zip(receivers, *parts, strict=True)):
        _scaled(m, "addcdiv_", receiver, tuple(operands), m.operators.item(args[3], Constant(number)))
    return Constant(None)


def _is_data(m: Machine, factors: Value) -> bool:
    """Are the factors, numbers to eager, in a tensor or in several?"""
    if isinstance(factors, SequenceValue):
        return any(isinstance(factor, TensorValue) for factor in factors.items_list(m))
    return isinstance(factors, TensorValue)


@handles(torch_private.group_tensors)
def group_tensors(m: Machine, lists: Value, with_indices: Value = Constant(False)) -> Value:  # noqa: B008
    return m.wrap.object(grouping.by_device_and_dtype).call(m, [lists, with_indices], {})
