"""The `ctx` of a torch.autograd.Function, while its code is evaluated on the side."""

from __future__ import annotations

from typing import Any


class Context:
    saved_tensors: tuple = ()
    needs_input_grad: tuple = ()
    non_differentiable: tuple = ()
    materializes_grads: bool = True

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    def save_for_forward(self, *tensors: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        pass

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        self.materializes_grads = value
