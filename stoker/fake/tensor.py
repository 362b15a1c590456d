"""The fake tensor: a tensor that answers every question about itself except what it holds.

In:  a `Meta` and the storage it lives in.
Out: a `torch.Tensor` subclass that reports that metadata, takes part in autograd, and sends each operator to
`propagate`.

What must hold: `fake.meta` always says the same as the tensor's own C++ fields (tests/unit/fake/test_tensor.py), also
after `x.data = y` and after operators that change metadata in place.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import torch

from stoker import torch_private
from stoker.fake.meta import Meta
from stoker.nest import leaves
from stoker.shape.env import DataDependent

if TYPE_CHECKING:
    from stoker.fake.mode import FakeMode

_make = torch_private.make_wrapper_subclass

CONTENTS = itertools.count()
"""Numbers for what memory holds."""


class FakeStorage:
    """The memory that fake tensors share: views of one another hold the same FakeStorage."""

    __slots__ = ("__weakref__", "bounds", "constant", "content", "followed", "inference", "lazy", "mode", "written")

    def __init__(self, mode: FakeMode, constant: torch.Tensor | None = None) -> None:
        self.mode = mode
        self.constant = constant
        """A real tensor of one element while the content is known."""
        self.bounds: tuple[float, float] | None = None
        """Where known: every element is in [low, high)."""
        self.content: Any = next(CONTENTS)
        """Where it is equal, memory holds the same (`stoker.fake.propagate`)."""
        self.written = False
        """Has an operator written to it, or given a tensor on it other sizes?"""
        self.followed = False
        """Has one done so where gradients are on, so that autograd may refuse it?"""
        self.lazy = False
        """Is there a view of it whose elements are conjugated or negated when they are read?"""
        self.inference = torch.is_inference_mode_enabled()
        """Is it of tensors made in inference mode? Eager writes to them there alone."""

    def forget(self) -> None:
        """It is written, through whichever alias: what was known of the content is so no longer."""
        self.constant = self.bounds = None
        self.content = next(CONTENTS)
        self.change()

    def change(self) -> None:
        """It is written, or a tensor on it is given other sizes."""
        if self.inference and not torch.is_inference_mode_enabled():
            self.mode.written_late()
        self.written = True
        self.followed |= torch.is_grad_enabled()


class FakeTensor(torch.Tensor):
    """A tensor without data. Made by `FakeMode.from_real`, or by an operator under the mode."""

    meta: Meta
    memory: FakeStorage

    __torch_function__ = torch_private.disabled_torch_function  # type: ignore[assignment]  # torch's stubs know no such use

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's stubs know no such use
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Reached when no FakeMode is active: the tensors know theirs."""
        mode = _mode_among(args) or _mode_among(tuple((kwargs or {}).values()))
        if mode is None:
            return NotImplemented
        return mode.propagate(func, args, kwargs or {})

    @property
    def data(self) -> torch.Tensor:
        return torch.Tensor.data.__get__(self)  # type: ignore[attr-defined]  # torch's stubs know no such use

    @data.setter
    def data(self, value: torch.Tensor) -> None:
        torch.Tensor.data.__set__(self, value)  # type: ignore[attr-defined]  # torch's stubs know no such use
        if isinstance(value, FakeTensor):
            self.meta, self.memory = value.meta, value.memory
            if (table := vars(value).get("alias_table")) is not None:  # of a trace (`stoker.autograd.alias`)
                table.share(self, value)

    def __repr__(self, *, tensor_contents: object = None) -> str:  # type: ignore[override]  # torch's stubs know no such use
        m = self.meta
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"FakeTensor([{', '.join(map(str, m.sizes))}], {m.dtype}, {m.device}{grad})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return format(repr(self), spec)

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("a FakeTensor has no data to pickle; keep its `meta` instead")

    def tolist(self) -> Any:
        """The nested list of elements, where they are known."""
        if self.memory.constant is not None and not self.meta.sizes:
            return self.item()
        raise data_dependent("Tensor.tolist")

    def numpy(self, *, force: bool = False) -> Any:
        """There is no memory for NumPy to look at."""
        raise data_dependent("Tensor.numpy")


def data_dependent(what: str) -> Exception:
    """The error for asking a fake tensor for its elements."""
    return DataDependent(what, "its result depends on the data of a tensor, and only metadata is known here")


def _mode_among(values: Any) -> FakeMode | None:
    return next((leaf.memory.mode for leaf in leaves(values) if isinstance(leaf, FakeTensor)), None)


def make_fake(meta: Meta, memory: FakeStorage, requires_grad: bool = False) -> FakeTensor:
    """A fake tensor with this metadata, in this memory."""
    if not memory.inference and torch.is_inference_mode_enabled():
        with torch.inference_mode(False):  # a view of a tensor that was made outside is none of that mode
            return make_fake(meta, memory, requires_grad)
    fake: FakeTensor
    if meta.symbolic:
        fake = _make(
            FakeTensor,
            meta.sizes,
            meta.strides,
            meta.offset,
            dtype=meta.dtype,
            device=meta.device,
            requires_grad=requires_grad,
            storage_size=meta.reach_bytes,
        )
    else:
        strided = torch.strided
        fake = _make(
            FakeTensor,
            meta.sizes,
            meta.strides,
            meta.offset,
            None,
            meta.dtype,
            strided,
            meta.device,
            False,
            requires_grad,
        )
    fake.meta = meta
    fake.memory = memory
    return fake


def restride(fake: FakeTensor, meta: Meta, memory: FakeStorage | None = None) -> FakeTensor:
    """Give an existing fake tensor other metadata, as `t_`, `resize_` or `set_` do."""
    if memory is None:
        fake.memory.change()
    target = make_fake(meta, memory or fake.memory)
    torch.Tensor.data.__set__(fake, target)  # type: ignore[attr-defined]  # torch's stubs know no such use
    fake.meta, fake.memory = target.meta, target.memory
    return fake
