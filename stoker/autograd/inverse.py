"""Views as data: how to make one again, and how a change seen through it changes what it views.

In:  a view operator with its arguments.
Out: nodes: the view of another base (`replay`), or the base with the view's content replaced (`inverse`).

The table below is by operator; a view it does not name is written through `as_strided_scatter`, which can express all
views of one element type. tests/unit/autograd/test_inverse.py writes through every operator of the table.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from stoker.fake.meta import Meta

if TYPE_CHECKING:
    from stoker.autograd.alias import Alias, Emit

aten = torch.ops.aten
Inverse = Callable[..., Node]
"""Of what emits nodes, a view, the node that it views, and its new content: the first node with that content in it."""

SAME_VALUE = frozenset({aten.alias.default, aten.detach.default, aten.lift_fresh.default})
"""Views of the whole as it is: of autograd's concern, or memory's. In a functional graph their result is their
argument."""


PHYSICAL = {aten._conj.default: aten._conj_physical.default, aten._neg_view.default: aten.neg.default}
"""Views that mark their elements to be conjugated or negated when read. A fake tensor has no such mark, so the graph
computes."""


@dataclass(frozen=True, slots=True)
class View:
    """`operator(base, *args, **kwargs)`, and which of its results, if it makes several. `grad` is the grad mode it ran
    under."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None
    grad: bool

    @property
    def absolute(self) -> bool:
        """Does it look at the whole memory instead of at the elements of its argument?"""
        return self.operator is aten.as_strided.default

    @property
    def offset(self) -> Any:
        """The place in memory that an absolute view was asked for, if it was."""
        return self.args[2] if len(self.args) > 2 else self.kwargs.get("storage_offset")

    def replay(self, emit: Emit, base: Node, traced: Meta) -> Node:
        """The view of `base`. `traced` is what the base looked like when the view was made."""
        if self.operator in SAME_VALUE:
            return base
        if self.operator in PHYSICAL:
            return emit(PHYSICAL[self.operator], base)
        args = self.args
        if self.absolute:
            args = (*args[:2], _offset(self, base, traced))
        made = emit(self.operator, base, *args, **self.kwargs)
        return made if self.index is None else emit(operator.getitem, made, self.index)


def _offset(view: View, base: Node, traced: Meta) -> Any:
    """The storage offset of an as_strided for a base that may start elsewhere than the traced one did."""
    wanted = traced.offset if view.offset is None else view.offset
    return wanted - traced.offset + base.meta["val"].meta.offset


def inverse(emit: Emit, view: View, base: Node, content: Node, alias: Alias) -> Node:
    """`base` with the part that `view` sees replaced by `content`."""
    if any(type(size) is int and size == 0 for size in _shape(content)):
        return base
    found = _INVERSES.get(view.operator)
    return _strided(emit, base, content, alias) if found is None else found(emit, view, base, content)


def _strided(emit: Emit, base: Node, content: Node, alias: Alias) -> Node:
    """Any view: by sizes, strides and offset."""
    seen, parent = alias.meta, alias.parent.meta  # type: ignore[union-attr]  # a view has a parent
    offset = seen.offset - parent.offset + base.meta["val"].meta.offset
    return emit(aten.as_strided_scatter.default, base, content, seen.sizes, seen.strides, offset)


def _shape(node: Node) -> tuple[Any, ...]:
    return node.meta["val"].meta.sizes


def _argument(view: View, index: int, name: str, default: Any) -> Any:
    """The argument after the base at `index`, given by place or by name."""
    return view.args[index] if len(view.args) > index else view.kwargs.get(name, default)


def _piece(emit: Emit, view: View, base: Node, content: Node) -> Node:
    sizes, at, dim = view.args[0], view.index or 0, _argument(view, 1, "dim", 0)
    if isinstance(sizes, (list, tuple)):
        start, size = sum(sizes[:at]), sizes[at]
    else:
        start, size = sizes * at, _shape(content)[dim]
    return emit(aten.slice_scatter.default, base, content, dim, start, start + size)


def _permuted(emit: Emit, view: View, base: Node, content: Node) -> Node:
    order = [d % len(view.args[0]) for d in view.args[0]]
    return emit(aten.permute.default, content, [order.index(i) for i in range(len(order))])


def _scattered(scatter: Any) -> Inverse:
    return lambda emit, view, base, content: emit(scatter, base, content, *view.args, **view.kwargs)


_SHAPES = (
    aten.view.default, aten._unsafe_view.default, aten._reshape_alias.default, aten.squeeze.default, aten.squeeze.dim,
    aten.squeeze.dims, aten.expand.default,
)  # fmt: skip
"""Other shapes of the same elements. By `expand` dimensions of one element were added, where nothing is repeated
(`AliasTable._past_repetition` sees to the rest)."""
_INVERSES: dict[Any, Inverse] = {
    **dict.fromkeys(SAME_VALUE, lambda emit, view, base, content: content),
    **dict.fromkeys(_SHAPES, lambda emit, view, base, content: emit(aten.view.default, content, _shape(base))),
    **dict.fromkeys(PHYSICAL, lambda emit, view, base, content: emit(PHYSICAL[view.operator], content)),
    aten.t.default: lambda emit, view, base, content: emit(aten.t.default, content),
    aten.transpose.int: lambda emit, view, base, content: emit(aten.transpose.int, content, *view.args),
    aten.permute.default: _permuted,
    aten.unsqueeze.default: lambda emit, view, base, content: emit(aten.squeeze.dim, content, view.args[0]),
    aten.slice.Tensor: _scattered(aten.slice_scatter.default),
    aten.select.int: _scattered(aten.select_scatter.default),
    aten.diagonal.default: _scattered(aten.diagonal_scatter.default),
    aten.split.Tensor: _piece,
    aten.split_with_sizes.default: _piece,
    aten.unbind.int: lambda emit, view, base, content: emit(
        aten.select_scatter.default, base, content, _argument(view, 0, "dim", 0), view.index
    ),
    aten.view.dtype: lambda emit, view, base, content: emit(aten.view.dtype, content, base.meta["val"].meta.dtype),
    aten.view_as_real.default: lambda emit, view, base, content: emit(aten.view_as_complex.default, content),
    aten.view_as_complex.default: lambda emit, view, base, content: emit(aten.view_as_real.default, content),
}
