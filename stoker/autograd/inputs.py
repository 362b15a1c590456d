"""The fake inputs of a trace: what autograd and aliasing must know of the real ones.

In:  a captured graph, its example inputs, and the fakes that capture made of them, where it did.
Out: `Inputs`: fakes in memory of their own, leaves where the real ones are leaves, and for each the leaf whose
     gradient is the input's. An input that is not a leaf enters through an autograd node, so that writing to it is as
     legal as in eager and the gradient of what it held at the start can still be asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule

from stoker.autograd.alias import AliasTable
from stoker.autograd.functional import CannotTrace
from stoker.fake import FakeMode, FakeStorage, FakeTensor
from stoker.fake.meta import Meta, meta_of
from stoker.fake.tensor import make_fake


@dataclass(frozen=True)
class Inputs:
    """Names, values as the program sees them, the memory each began in, and leaves to differentiate by."""

    mode: FakeMode
    names: tuple[str, ...]
    values: tuple[Any, ...]
    memories: tuple[FakeStorage | None, ...]
    leaves: tuple[FakeTensor | None, ...]
    overlaps: tuple[frozenset[int], ...]

    def index_of(self, tensor: FakeTensor) -> int | None:
        return next((i for i, value in enumerate(self.values) if value is tensor), None)

    def check_written(self, aliases: AliasTable) -> None:
        """A write to an input that shares memory with another is more than its own new content."""
        for group in self.overlaps:
            for index in group:
                storage = aliases.storage(self.memories[index])  # type: ignore[arg-type]
                if storage is not None and storage.version:
                    raise CannotTrace("an input is written, and another input shares its memory")


def make_inputs(captured: GraphModule, examples: Sequence[Any]) -> Inputs:
    """Fake inputs for a captured graph."""
    placeholders = [n for n in captured.graph.nodes if n.op == "placeholder"]
    given = [node.meta.get("example_value") for node in placeholders]
    mode = next((v.memory.mode for v in given if isinstance(v, FakeTensor)), None) or FakeMode()
    values, leaves, memories = [], [], []
    for example, known in zip(examples, given):
        value, leaf = _enter(mode, example, known)
        values.append(value)
        leaves.append(leaf)
        memories.append(value.memory if isinstance(value, FakeTensor) else None)
    names = tuple(node.name for node in placeholders)
    return Inputs(mode, names, tuple(values), tuple(memories), tuple(leaves), _overlaps(examples))


def _enter(mode: FakeMode, example: Any, known: Any) -> tuple[Any, FakeTensor | None]:
    """An input as the program sees it, and the leaf that stands for it."""
    if not isinstance(example, torch.Tensor):
        return (example if known is None else known), None
    meta = _meta_at_entry(example, known)
    fake = make_fake(meta, FakeStorage(mode), example.requires_grad)
    if isinstance(example, torch.nn.Parameter):
        fake._is_param = True  # type: ignore[attr-defined]
    if not example.requires_grad:
        return fake, None
    if example.is_leaf:
        return fake, fake
    with torch.enable_grad():
        return _Enter.apply(fake), fake  # type: ignore[no-untyped-call]


def _meta_at_entry(example: torch.Tensor, known: Any) -> Meta:
    """What capture knows of an input is as the program left it; sizes and strides may have changed since."""
    if isinstance(example, FakeTensor):
        return example.meta
    if not isinstance(known, FakeTensor) or not known.meta.symbolic:
        return meta_of(example.dtype, example.shape, example.stride(), example.device, example.storage_offset())
    if [_hint(s) for s in (*known.shape, *known.stride())] != [*example.shape, *example.stride()]:
        raise CannotTrace("an input of symbolic size is given other metadata")
    return known.meta


def _hint(size: Any) -> int:
    return size if isinstance(size, int) else int(size.node.hint)


class _Enter(torch.autograd.Function):
    """The identity, as an autograd node between a leaf and the program."""

    @staticmethod
    def forward(ctx: Any, leaf: FakeTensor) -> FakeTensor:
        return make_fake(leaf.meta, leaf.memory)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def _overlaps(examples: Sequence[Any]) -> tuple[frozenset[int], ...]:
    """Pairs of inputs that reach into the same memory."""
    spans: dict[int, list[tuple[int, int, int]]] = {}
    for index, example in enumerate(examples):
        if isinstance(example, torch.Tensor) and example.layout is torch.strided and example.numel():
            low = example.storage_offset() * example.element_size()
            reach = sum((s - 1) * t for s, t in zip(example.shape, example.stride())) + 1
            key = example.untyped_storage()._cdata
            spans.setdefault(key, []).append((index, int(low), int(low + reach * example.element_size())))
    pairs = []
    for group in spans.values():
        for position, (i, low, high) in enumerate(group):
            pairs += [frozenset((i, j)) for j, start, end in group[:position] if start < high and low < end]
    return tuple(pairs)


def shares_written(inputs: Sequence[Any], written: frozenset[int]) -> bool:
    """Does an input at one of these positions share memory with another input?"""
    keys = [x.untyped_storage()._cdata if isinstance(x, torch.Tensor) else None for x in inputs]
    present = [k for k in keys if k is not None]
    if len(set(present)) == len(present):
        return False
    return any(not written.isdisjoint(pair) for pair in _overlaps(inputs))
