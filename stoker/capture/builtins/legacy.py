"""`torch.Tensor`, `torch.LongTensor` and their kin, called as constructors."""

from __future__ import annotations

from typing import Any

import torch

from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.value import Arguments, Value
from stoker.errors import Break

LEGACY_CLASSES = {
    getattr(torch, f"{name}Tensor"): dtype
    for name, dtype in {
        "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16, "Bool": torch.bool,
        "Byte": torch.uint8, "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64,
    }.items()
}  # fmt: skip
"""The classes that stood for dtypes: called with elements they make a tensor of them, with sizes one that is not filled."""


def legacy_tensor(m: Machine, dtype: torch.dtype, args: Arguments) -> Value | None:
    """What such a class makes, or `torch.Tensor` with the default dtype; None for arguments of another kind."""
    given = [m.wrap.force(value) for value in args]
    if len(given) == 1 and isinstance(given[0], (ListValue, TupleValue)) and given[0].python_type() in (list, tuple):
        return m.wrap.object(torch.tensor).call(m, given, {"dtype": Constant(dtype)})
    sizes = given[0].items_list(m) if len(given) == 1 and given[0].python_type() is torch.Size else given
    if sizes and all(size.python_type() is int for size in sizes):
        return m.wrap.object(torch.empty).call(m, [TupleValue(sizes)], {"dtype": Constant(dtype)})
    return None


def _legacy(cls: Any, dtype: torch.dtype) -> None:
    @handles(cls)
    def construct(m: Machine, *args: Value) -> Value:
        made = legacy_tensor(m, dtype, list(args))
        if made is None:
            raise Break(f"construction of {cls.__name__}", "it is given something other than elements or sizes")
        return made


for _cls, _dtype in LEGACY_CLASSES.items():
    _legacy(_cls, _dtype)


@handles(torch.Tensor)
def tensor_class(m: Machine, *args: Value, **kwargs: Value) -> Value:
    made = legacy_tensor(m, torch.get_default_dtype(), list(args)) if not kwargs else None
    return made if made is not None else m.calls.new_instance(torch.Tensor, list(args), kwargs)
