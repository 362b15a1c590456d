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

from stoker import torch_private
from stoker.autograd.alias import AliasTable
from stoker.autograd.refusal import CannotTrace
from stoker.fake import FakeMode, FakeStorage, FakeTensor
from stoker.fake.meta import Meta, meta_of
from stoker.fake.tensor import make_fake
from stoker.graph.undo import SPAN
from stoker.shape import ShapeEnv


@dataclass(frozen=True)
class Inputs:
    """Names, values as the program sees them, the memory each began in, and leaves to differentiate by."""

    mode: FakeMode
    names: tuple[str, ...]
    values: tuple[Any, ...]
    memories: tuple[FakeStorage | None, ...]
    leaves: tuple[FakeTensor | None, ...]
    entries: tuple[Entry, ...]
    examples: tuple[Any, ...]
    spans: frozenset[int]
    """The inputs that stand for others (`stoker.autograd.overlap`): where they lie in memory is known."""

    def index_of(self, tensor: FakeTensor) -> int | None:
        return next((i for i, value in enumerate(self.values) if value is tensor), None)

    def anew(self) -> Inputs:
        """The same inputs, untouched by a trace; of the real ones nothing is kept."""
        return _entered(self.mode, self.names, self.entries, (), self.spans)

    def written(self, aliases: AliasTable) -> frozenset[int]:
        """The inputs whose memory was written."""
        storages = [None if m is None else aliases.storage(m) for m in self.memories]
        return frozenset(i for i, s in enumerate(storages) if s is not None and s.version)

    def placed(self, aliases: AliasTable) -> frozenset[int]:
        """The written inputs that the program looked at by place in memory: the graph holds for that place alone."""
        storages = {i: aliases.storage(self.memories[i]) for i in self.written(aliases) - self.spans}  # type: ignore[arg-type]  # written ones have memory
        return frozenset(i for i, s in storages.items() if s is not None and s.absolute)

    def anchored(self, aliases: AliasTable) -> tuple[tuple[int, int], ...]:
        """The inputs whose memory was looked at from its start, and where in it each begins: the graph holds for that alone."""
        storages = [None if m is None else aliases.storage(m) for m in self.memories]
        return tuple(
            (i, entry.meta.offset)
            for i, (entry, s) in enumerate(zip(self.entries, storages))
            if s is not None and s.anchored and i not in self.spans and entry.meta is not None
        )


def make_inputs(captured: GraphModule, examples: Sequence[Any]) -> Inputs:
    """Fake inputs for a captured graph."""
    placeholders = [n for n in captured.graph.nodes if n.op == "placeholder"]
    given = [node.meta.get("example_value") for node in placeholders]
    mode = next((v.memory.mode for v in given if isinstance(v, FakeTensor)), None) or FakeMode(_environment(given))
    entries = tuple(_entry(example, known) for example, known in zip(examples, given))
    spans = frozenset(i for i, node in enumerate(placeholders) if node.meta.get(SPAN))
    return _entered(mode, tuple(node.name for node in placeholders), entries, tuple(examples), spans)


def _environment(values: Sequence[Any]) -> ShapeEnv:
    """That of symbolic numbers; a program without any may still make sizes that only data tells."""
    known = (v.node.shape_env for v in values if isinstance(v, (torch.SymInt, torch.SymFloat, torch.SymBool)))
    return next(known, None) or ShapeEnv()


@dataclass(frozen=True, slots=True)
class Entry:
    """What matters of an input. `meta` is None for one that is no tensor: then it is `value`."""

    meta: Meta | None
    value: Any = None
    requires_grad: bool = False
    is_leaf: bool = True
    is_parameter: bool = False


def _entry(example: Any, known: Any) -> Entry:
    if not isinstance(example, torch.Tensor):
        return Entry(None, example if known is None else known)
    is_parameter = isinstance(example, torch.nn.Parameter)
    is_leaf = not example.requires_grad or torch_private.is_leaf_so_far(example)
    return Entry(_meta_at_entry(example, known), None, example.requires_grad, is_leaf, is_parameter)


def _entered(
    mode: FakeMode, names: tuple[str, ...], entries: tuple[Entry, ...], examples: tuple[Any, ...], spans: frozenset[int]
) -> Inputs:
    pairs = [_enter(mode, entry) for entry in entries]
    values = tuple(value for value, _ in pairs)
    memories = tuple(v.memory if isinstance(v, FakeTensor) else None for v in values)
    return Inputs(mode, names, values, memories, tuple(leaf for _, leaf in pairs), entries, examples, spans)


def _enter(mode: FakeMode, entry: Entry) -> tuple[Any, FakeTensor | None]:
    """An input as the program sees it, and the leaf that stands for it."""
    if entry.meta is None:
        return entry.value, None
    fake = make_fake(entry.meta, FakeStorage(mode), entry.requires_grad)
    if entry.is_parameter:
        torch_private.mark_as_parameter(fake)
    if not entry.requires_grad:
        return fake, None
    if entry.is_leaf:
        return fake, fake
    with torch.enable_grad():
        return _Enter.apply(fake), fake


def _meta_at_entry(example: torch.Tensor, known: Any) -> Meta:
    """What capture knows of an input is as the program left it; sizes and strides may have changed since."""
    if isinstance(example, FakeTensor):
        return example.meta
    if not isinstance(known, FakeTensor) or not known.meta.symbolic:
        return meta_of(example.dtype, example.shape, example.stride(), example.device, example.storage_offset())
    if [_hint(s) for s in (*known.shape, *known.stride())] != [*example.shape, *example.stride()]:
        raise CannotTrace("an input of symbolic size is given other metadata")
    return known.meta


def _hint(size: Any) -> int | None:
    """None for a size that only data tells: out= was given this input, and the program gave it the size of a result."""
    return size if isinstance(size, int) else size.node.hint


class _Enter(torch.autograd.Function):
    """The identity, as an autograd node between a leaf and the program."""

    @staticmethod
    def forward(ctx: Any, leaf: FakeTensor) -> FakeTensor:
        return make_fake(leaf.meta, leaf.memory)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient
