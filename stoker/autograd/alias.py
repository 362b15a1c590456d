"""Which tensors share memory, and what each of them holds as a value of the graph.

In:  fake tensors that share `FakeStorage`, and the view operators that made one from another.
Out: for each tensor the node that holds its present content, however often its memory was written through other names.

A storage has a root tensor; every other tensor on it is a chain of views from that root. Writing through one name
computes the root's new content by the inverse of each view (`stoker.autograd.inverse`), and counts a version. A name
that is read at an older version replays its chain. So after tracing nothing in the graph writes, and nothing depends
on what shares memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Node

from stoker.autograd.inverse import SAME_VALUE, View, inverse
from stoker.autograd.meeting import meets_itself
from stoker.autograd.refusal import CannotTrace
from stoker.fake import FakeStorage, FakeTensor
from stoker.fake.meta import Meta, is_always_one, is_dense, meta_of
from stoker.shape.symnode import expr_of

Emit = Callable[..., Node]
"""`emit(operator, *args, **kwargs)`: a new node of the graph, arguments being nodes and plain values."""


@dataclass(slots=True)
class Storage:
    """One memory: the content of its root as of `version`, and the input it came in by, if it did. `entry` is the place
    of the tensor that it was met by: the root, unless that tensor leaves gaps (`AliasTable._fill_gaps`)."""

    root: Alias
    entry: Alias
    tensor: FakeTensor
    version: int = 0
    input: int | None = None
    absolute: bool = False
    """Was it looked at by place in memory (`as_strided`), not through its tensors?"""
    anchored: bool = False
    """Was that place counted from the start of the memory, wherever the tensor begins?"""


@dataclass(slots=True)
class Alias:
    """One tensor's place on its storage: the root (no parent), or a view of the parent."""

    storage: Storage
    parent: Alias | None
    view: View | None
    meta: Meta
    node: Node
    version: int = 0


class AliasTable:
    """Every tensor met while tracing, and its content."""

    def __init__(self, emit: Emit) -> None:
        self._emit = emit
        self._storages: dict[FakeStorage, Storage] = {}
        self._placed: list[FakeTensor] = []
        self.given: set[FakeStorage] = set()
        """What tensors were given by `.data = ...`: views of it say where a tensor lies, not what autograd knows of it."""

    def knows(self, fake: FakeTensor) -> bool:
        return getattr(fake, "alias_table", None) is self

    def alias(self, fake: FakeTensor) -> Alias:
        """The place of a tensor that `knows` holds for."""
        return fake.alias  # type: ignore[attr-defined]  # our attributes on a FakeTensor

    def has_views(self, fake: FakeTensor) -> bool:
        """Is another tensor in the same memory?"""
        return any(other is not fake and other.memory is fake.memory for other in self._placed)

    def storage(self, memory: FakeStorage) -> Storage | None:
        return self._storages.get(memory)

    def versions(self) -> dict[FakeStorage, int]:
        """How often each memory was written."""
        return {memory: storage.version for memory, storage in self._storages.items()}

    def add_root(self, fake: FakeTensor, node: Node, input: int | None = None) -> None:
        """A tensor whose memory was not seen before."""
        alias = Alias(None, None, None, fake.meta, node)  # type: ignore[arg-type]  # our attributes on a FakeTensor
        alias.storage = Storage(alias, alias, fake, input=input)
        self._storages[fake.memory] = alias.storage
        self.place(fake, alias)

    def add_view(self, fake: FakeTensor, parent: Alias, view: View, node: Node) -> None:
        """A tensor that an operator made as a view of `parent`."""
        if view.absolute:
            parent = parent.storage.root
            _refuse_surroundings(fake.meta, parent.meta)
            parent.storage.absolute = True
            parent.storage.anchored |= view.offset is not None
        self.place(fake, Alias(parent.storage, parent, view, fake.meta, node, parent.storage.version))

    def place(self, fake: FakeTensor, alias: Alias) -> None:
        """From here on `fake` is this place; operators that change metadata in place move a tensor."""
        fake.alias_table, fake.alias = self, alias  # type: ignore[attr-defined]  # our attributes on a FakeTensor
        self._placed.append(fake)

    def share(self, fake: FakeTensor, other: FakeTensor) -> None:
        """`fake.data = other`: from here on it is the same place, unless it was (`x.data -= 1`)."""
        place = self.alias(other)
        if self.knows(fake) and _seen(self.alias(fake)) is _seen(place):
            return
        self.place(fake, place)
        self.given.add(other.memory)

    def close(self) -> None:
        """Let go of the tensors. Autograd's nodes hold them too, and what goes through those no collector sees."""
        for fake in self._placed:
            fake.__dict__.pop("alias_table", None)
            fake.__dict__.pop("alias", None)
        self._placed.clear()
        self._storages.clear()
        self.given.clear()

    def read(self, fake: FakeTensor) -> Node:
        """The node that holds what the tensor holds."""
        return self.content(self.alias(fake))

    def content(self, alias: Alias) -> Node:
        """The node that holds a place's content, made by replaying views if the memory was written since."""
        if alias.version != alias.storage.version:
            assert alias.parent is not None and alias.view is not None
            base = self.content(alias.parent)
            alias.node = alias.view.replay(self._emit, base, alias.parent.meta)
            alias.version = alias.storage.version
        return alias.node

    def write(self, fake: FakeTensor, node: Node) -> None:
        """The tensor holds `node` from here on, and so does every other name of its memory."""
        fake.memory.forget()
        self._fill_gaps(self.alias(fake).storage)
        chain: list[tuple[Alias, Node]] = []
        alias, value = self._past_repetition(self.alias(fake), node)
        while alias.parent is not None:
            assert alias.view is not None
            chain.append((alias, value))
            value = self.fit(inverse(self._emit, alias.view, self.content(alias.parent), value, alias), alias.parent)
            alias = alias.parent
        storage = alias.storage
        storage.version += 1
        for place, content in [*chain, (alias, value)]:
            place.node = content
            laid_out = equal_sizes(content.meta["val"].meta.strides, place.meta.strides)
            place.version = storage.version if laid_out else _STALE

    def _past_repetition(self, alias: Alias, node: Node) -> tuple[Alias, Node]:
        """Behind a view that shows an element several times (`expand`, `unfold`) one place is written, and all see it: go to the
        root at once, by the strides of what is written."""
        if not any(meets_itself(above.meta) for above in _names(alias)):
            return alias, node
        root, seen = alias.storage.root, alias.meta
        if root.meta.dtype is not seen.dtype:
            raise CannotTrace("elements that are one in memory are written as another type")
        kept = [not (isinstance(t, int) and t == 0) for t in seen.strides]
        for dim in reversed(range(len(kept))):
            if not kept[dim]:  # every copy is given one value: others eager refuses
                node = self._emit(torch.ops.aten.select.int, node, dim, 0)
        sizes, strides = ([v for v, k in zip(values, kept) if k] for values in (seen.sizes, seen.strides))
        base = self.content(root)
        offset = seen.offset - root.meta.offset + base.meta["val"].meta.offset
        scattered = self._emit(torch.ops.aten.as_strided_scatter.default, base, node, sizes, strides, offset)
        return root, self.fit(scattered, root)

    def _fill_gaps(self, storage: Storage) -> None:
        """A computed value is dense. So a root that skips elements of its memory becomes a view of the whole span before
        it is written, and keeps its strides."""
        entry = storage.root
        meta = entry.meta
        if entry.parent is not None or is_dense(meta.sizes, meta.strides, is_always_one):
            return
        reach = _reach(meta)
        span = meta_of(meta.dtype, (reach,), (1,), meta.device, meta.offset)
        seen = self._emit(torch.ops.aten.as_strided.default, self.content(entry), (reach,), (1,))
        node = self._emit(torch.ops.aten.clone.default, seen)  # starts its memory, wherever the input lies in its own
        storage.root = Alias(storage, None, None, span, node, storage.version)
        entry.parent = storage.root
        view = (meta.sizes, meta.strides, meta.offset)
        entry.view = View(torch.ops.aten.as_strided.default, view, {}, None, torch.is_grad_enabled())

    def fit(self, node: Node, alias: Alias) -> Node:
        """The same content with the type and sizes of the place; at a root also with its strides, so that views
        replay."""
        have, want = node.meta["val"].meta, alias.meta
        same = have.dtype is want.dtype and equal_sizes(have.sizes, want.sizes) and have.device == want.device
        if same and (alias.parent is not None or equal_sizes(have.strides, want.strides)):
            return node
        return self._emit(torch.ops.aten.copy.default, self.content(alias), node)


def views_of(alias: Alias) -> list[View]:
    """How a name was made from the tensor that its storage was met by."""
    found: list[View] = []
    while alias.parent is not None and alias.view is not None and alias is not alias.storage.entry:
        found.append(alias.view)
        alias = alias.parent
    return found[::-1]


def _seen(alias: Alias) -> Alias:
    """The place that views of the whole as it is (`detach`) are of."""
    while alias.view is not None and alias.view.operator in SAME_VALUE and alias.parent is not None:
        alias = alias.parent
    return alias


def _refuse_surroundings(seen: Meta, root: Meta) -> None:
    """A root stands for its own elements: what lies before and behind them in memory the graph neither has nor checks, and
    another input may write it."""
    if seen.dtype is not root.dtype:
        raise CannotTrace("memory is looked at by place, as another type than that of the tensor that it came by")
    if all(seen.sizes) and not (
        root.offset <= seen.offset and seen.offset + _reach(seen) <= root.offset + _reach(root)
    ):
        raise CannotTrace("memory around a tensor is looked at by place")


def _reach(meta: Meta) -> Any:
    """How many elements of memory lie from its first to its last."""
    return sum((size - 1) * stride for size, stride in zip(meta.sizes, meta.strides)) + 1


def _names(alias: Alias) -> Iterator[Alias]:
    """A place, what it is a view of, and so on; without the root."""
    while alias.parent is not None:
        yield alias
        alias = alias.parent


_STALE = -1
"""The version of a place whose content must be read back through its view: what was written is laid out differently."""


def equal_sizes(a: Sequence[Any], b: Sequence[Any]) -> bool:
    """Are these the same expressions? Unlike `==` on symbolic sizes, the question leaves no guard behind."""
    return len(a) == len(b) and all(x is y or expr_of(x) is expr_of(y) for x, y in zip(a, b))
