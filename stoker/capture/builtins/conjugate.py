"""Complex tensors that are conjugated, and parts of them that are negated, when they are read: who asks, and who makes it so.

torch keeps a bit for each on the tensor; fakes have none. The bits of an argument are among its dispatch keys, which are
guarded. Of what is made inside, it is known whether any view of its memory has one; then CPython asks the real tensor.
"""

from __future__ import annotations

import torch

from stoker.capture.handlers import handles, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break


def known_bits(value: TensorValue) -> tuple[bool, bool]:
    """Is it conjugated when read, is it negated?"""
    if value.real is not None:
        return value.real.is_conj(), value.real.is_neg()
    if value.fake.memory.lazy:  # type: ignore[attr-defined]  # a FakeTensor
        raise Break(
            "a tensor that may be conjugated when it is read",
            f"only {value.describe()} itself knows whether it is",
            "make it so with resolve_conj() before, or compute with conj_physical()",
        )
    return False, False


@handles(torch.is_conj)
@tensor_special("is_conj")
def is_conj(m: Machine, input: Value) -> Value:
    assert isinstance(input, TensorValue)
    return Constant(known_bits(input)[0])


@handles(torch.is_neg)
@tensor_special("is_neg")
def is_neg(m: Machine, input: Value) -> Value:
    assert isinstance(input, TensorValue)
    return Constant(known_bits(input)[1])


@handles(torch.resolve_conj)
@tensor_special("resolve_conj")
def resolve_conj(m: Machine, input: Value) -> Value:
    """A copy with the bit made real, or the tensor itself."""
    assert isinstance(input, TensorValue)
    return m.record.method(input, "clone", [], {}) if known_bits(input)[0] else input


@handles(torch.resolve_neg)
@tensor_special("resolve_neg")
def resolve_neg(m: Machine, input: Value) -> Value:
    assert isinstance(input, TensorValue)
    return m.record.method(input, "clone", [], {}) if known_bits(input)[1] else input
