"""Packed sequences: `torch.nn.utils.rnn.pack_padded_sequence` and `pad_packed_sequence` as one operator each, and so their gradients.

In:  calls of what those functions call, on fake tensors.
Out: `PACKED`: what to call in their place. How long a packed sequence is, and its longest part, only data tells.

Eager's C++ reads the lengths. `stoker::pack` and `stoker::unpack` run it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, contiguous_strides, dense, meta_of
from stoker.fake.rule import IMPURE, RULES
from stoker.fake.rules.data import size_told_by
from stoker.fake.tensor import FakeStorage, FakeTensor, make_fake
from stoker.shape.symnode import size_of

_library = torch.library.Library("stoker", "FRAGMENT")
_SIZES = "Tensor data, Tensor batch_sizes, bool batch_first"
_library.define("pack(Tensor input, Tensor lengths, bool batch_first) -> (Tensor, Tensor)")
_library.define("pack_backward(Tensor data, SymInt[] sizes, Tensor batch_sizes, bool batch_first) -> Tensor")
_library.define(f"unpack({_SIZES}, Scalar padding_value, SymInt total_length) -> (Tensor, Tensor)")
_library.define("unpack_backward(Tensor gradient, Tensor lengths, Tensor data, bool batch_first) -> Tensor")


class _Pack(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, given: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, ...]:
        data, batch_sizes = torch.ops.stoker.pack(given, lengths, batch_first)
        ctx.sizes, ctx.batch_first = given.shape, batch_first
        ctx.save_for_backward(batch_sizes)
        ctx.mark_non_differentiable(batch_sizes)
        return data, batch_sizes

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        (batch_sizes,) = ctx.saved_tensors
        return torch.ops.stoker.pack_backward(gradients[0], ctx.sizes, batch_sizes, ctx.batch_first), None, None


class _Unpack(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, value: float, length: int
    ) -> tuple[torch.Tensor, ...]:
        padded, lengths = torch.ops.stoker.unpack(data, batch_sizes, batch_first, value, length)
        ctx.batch_first = batch_first
        ctx.save_for_backward(data, lengths)
        ctx.mark_non_differentiable(lengths)
        return padded, lengths

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[Any, ...]:
        data, lengths = ctx.saved_tensors
        found = torch.ops.stoker.unpack_backward(gradients[0], lengths, data, ctx.batch_first)
        return found, None, None, None, None


PACKED: dict[str, Callable[..., Any]] = {"pack_padded_sequence": _Pack.apply, "pad_packed_sequence": _Unpack.apply}


def _pack(given: torch.Tensor, lengths: torch.Tensor, batch_first: bool) -> tuple[torch.Tensor, torch.Tensor]:
    data, batch_sizes = torch.ops.aten._pack_padded_sequence(given, lengths, batch_first)
    return data.contiguous(), batch_sizes


def _pack_backward(data: torch.Tensor, sizes: Sequence[int], batch_sizes: torch.Tensor, batch_first: bool) -> Any:
    return torch.ops.aten._pack_padded_sequence_backward(data, sizes, batch_sizes, batch_first).contiguous()


def _unpack(data: torch.Tensor, batch_sizes: torch.Tensor, batch_first: bool, value: float, length: int) -> Any:
    padded, lengths = torch.ops.aten._pad_packed_sequence(data, batch_sizes, False, value, length)
    return padded.transpose(0, 1) if batch_first else padded, lengths


def _unpack_backward(gradient: torch.Tensor, lengths: torch.Tensor, data: torch.Tensor, batch_first: bool) -> Any:
    return torch.ops.aten._pack_padded_sequence(gradient, lengths, batch_first)[0].contiguous()


for _kernel in (_pack, _pack_backward, _unpack, _unpack_backward):
    _library.impl(_kernel.__name__[1:], _kernel, "CompositeExplicitAutograd")


def _pack_fakes(mode: Any, func: Any, given: Any, lengths: Any, batch_first: bool) -> tuple[FakeTensor, FakeTensor]:
    given, lengths = mode.as_fake(given), mode.as_fake(lengths)
    m = given.meta
    if len(m.sizes) < 2:
        raise RuntimeError("a packed sequence has at least two dimensions")
    steps = size_of(m.sizes[1 if batch_first else 0])  # eager takes lengths that are larger for this one
    total = size_told_by(mode, func, "elements of sequences", lengths, steps, minimum=1)
    longest = size_told_by(mode, func, "the longest sequence", lengths, minimum=1)
    data = make_fake(meta_of(m.dtype, (total, *m.sizes[2:]), None, m.device), FakeStorage(mode))
    counts = make_fake(meta_of(torch.int64, (longest,), None, torch.device("cpu")), FakeStorage(mode))
    mode.batches[counts.memory.content] = m.sizes[0 if batch_first else 1]
    return data, counts


def _unpack_fakes(
    mode: Any, func: Any, data: Any, batch_sizes: Any, batch_first: bool, value: Any, length: Any
) -> tuple[FakeTensor, FakeTensor]:
    data, batch_sizes = mode.as_fake(data), mode.as_fake(batch_sizes)
    m, batch = data.meta, mode.batches.get(batch_sizes.memory.content)
    if batch is None:
        batch = size_told_by(mode, func, "sequences", batch_sizes, minimum=1)
    sizes = (length, batch, *m.sizes[1:])
    strides = contiguous_strides(sizes)
    if batch_first:
        sizes, strides = (batch, length, *sizes[2:]), (strides[1], strides[0], *strides[2:])
    padded = make_fake(meta_of(m.dtype, sizes, strides, m.device), FakeStorage(mode))
    return padded, make_fake(meta_of(torch.int64, (batch,), None, torch.device("cpu")), FakeStorage(mode))


def _like_input(data: FakeTensor, sizes: Any, batch_sizes: FakeTensor, batch_first: bool) -> Meta:
    return dense(data.meta, tuple(sizes))


def _like_data(gradient: FakeTensor, lengths: FakeTensor, data: FakeTensor, batch_first: bool) -> Meta:
    return dense(data.meta)


IMPURE[torch.ops.stoker.pack.default] = _pack_fakes
IMPURE[torch.ops.stoker.unpack.default] = _unpack_fakes
RULES[torch.ops.stoker.pack_backward.default] = _like_input
RULES[torch.ops.stoker.unpack_backward.default] = _like_data
