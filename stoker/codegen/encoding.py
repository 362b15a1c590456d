"""What the records of one plan share: slots of buffers, numbers, and the objects beside them.

In:  names of buffers, expressions, tensors.
Out: their places in the tables of the `PlanRecord` that is being made, and the records of layouts and views.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stoker.codegen import plan_records as record
from stoker.codegen.backend import Built
from stoker.codegen.numbers import Numbers
from stoker.codegen.plan_records import BufferSlot
from stoker.loop.layout import Layout
from stoker.loop.view import Stored
from stoker.schedule.plan import Plan
from stoker.shape.expr import Expr


class Encoding:
    """What the records of one plan share."""

    def __init__(self, plan: Plan, layouts: dict[str, Layout], kernels: Sequence[Built]) -> None:
        self.plan, self.layouts, self.kernels = plan, layouts, kernels
        self.numbers = Numbers()
        self.slots: dict[str, BufferSlot] = {}
        self.objects: list[object] = []
        self.constants: list[record.PlanConstant] = []

    def fresh(self, words: str) -> BufferSlot:
        """A place for a buffer that the plan itself does not know."""
        return self.slot(f"{words} {len(self.slots)}")

    def constant(self, value: torch.Tensor, slot: BufferSlot | None = None) -> BufferSlot:
        """The place of a tensor that every call is given."""
        slot = self.fresh("constant") if slot is None else slot
        self.constants.append(record.PlanConstant(slot, record.HeldTensor(self.hold(value))))
        return slot

    def slot(self, name: str) -> BufferSlot:
        return self.slots.setdefault(name, BufferSlot(len(self.slots)))

    def hold(self, value: object) -> int:
        """The place of an object that is not plain."""
        self.objects.append(value)
        return len(self.objects) - 1

    def layout(self, layout: Layout) -> record.BufferLayout:
        sizes, strides = self.numbers.each(layout.sizes), self.numbers.each(layout.strides)
        return record.BufferLayout(dtype_name(layout.dtype), sizes, strides, record.Device(str(layout.device)))

    def view(self, tensor: Stored) -> record.TensorView:
        layout = self.layouts[tensor.buffer]
        whole = (
            tensor.sizes == layout.sizes
            and tensor.strides == layout.strides
            and tensor.offset.value == 0
            and tensor.dtype is layout.dtype
        )
        return record.TensorView(
            self.slot(tensor.buffer), dtype_name(tensor.dtype), self.numbers.each(tensor.sizes), self.numbers.each(tensor.strides),
            self.numbers.of(tensor.offset), whole,
        )  # fmt: skip

    def part(self, value: Stored | Expr) -> record.PythonArgument:
        return self.view(value) if isinstance(value, Stored) else record.NumberArgument(self.numbers.of(value))


def dtype_name(dtype: torch.dtype) -> record.Dtype:
    return record.Dtype(str(dtype).removeprefix("torch."))
