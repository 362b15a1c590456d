"""Reading by computed indices: index, gather, embedding; and writing by them, as library calls unless they are simple."""

from __future__ import annotations

from typing import Any

import torch

from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.view import Computed, Index, Tensor
from stoker.lower.builder import Builder
from stoker.lower.operand import broadcast_index, require_supported
from stoker.lower.registry import LeftToLibrary, Result, leave_if, lower
from stoker.lower.view import dimension, flattened
from stoker.shape.expr import Expr


@lower("index.Tensor", "_unsafe_index.Tensor")
def index(builder: Builder, out: Result, x: Tensor, indices: Any) -> Tensor:
    """x[indices]: indexed dimensions are replaced by the broadcast shape of the indices, at the first of them if adjacent."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    if any(i.dtype not in (torch.int64, torch.int32) for _, i in given) or not given:
        raise LeftToLibrary("a mask chooses a number of elements that depends on data")
    require_supported(x.dtype)
    dims = [d for d, _ in given]
    adjacent = dims == list(range(dims[0], dims[0] + len(dims)))
    rank = max(len(i.sizes) for _, i in given)
    first = dims[0] if adjacent else 0
    shape = out.sizes[first : first + rank]
    kept = [d for d in range(len(x.sizes)) if d not in dims]

    def element(at: Index) -> LoopValue:
        chosen = at[first : first + rank]
        rest = iter(at[:first] + at[first + rank :])
        places = {d: next(rest) for d in kept}
        for d, tensor in given:
            value = ops.to_dtype(tensor.at(broadcast_index(chosen, tensor.sizes, shape)), torch.int64)
            places[d] = ops.indirect(value, x.sizes[d])
        return x.at(tuple(places[d] for d in range(len(x.sizes))))

    return builder.compute(out, element, [x, *(i for _, i in given)], cost=4)


@lower("gather.default")
def gather(builder: Builder, out: Result, x: Tensor, dim: int, places: Tensor, sparse_grad: bool = False) -> Tensor:
    require_supported(x.dtype)
    leave_if(not x.sizes, "a tensor without dimensions")
    dim = dimension(dim, len(x.sizes))

    def element(at: Index) -> LoopValue:
        return x.at((*at[:dim], counted_from_0(places.at(at), x.sizes[dim], "element"), *at[dim + 1 :]))

    return builder.compute(out, element, [x, places], cost=4)


def counted_from_0(value: Any, size: Expr, kind: str) -> Any:
    """An index for operators that refuse negative ones: such a one is as far out of range as one can be."""
    value = ops.to_dtype(value, torch.int64)
    negative = ops.lt(value, ops.constant(0, torch.int64))
    return ops.indirect(ops.where(negative, ops.index(size, torch.int64), value), size, kind)


@lower("take.default")
def take(builder: Builder, out: Result, x: Tensor, places: Tensor) -> Tensor:
    """Elements by their number in the whole tensor."""
    require_supported(x.dtype)
    flat = flattened(builder, x)
    (count,) = flat.sizes

    def element(at: Index) -> LoopValue:
        return flat.at((ops.indirect(ops.to_dtype(places.at(at), torch.int64), count),))

    return builder.compute(out, element, [flat, places], cost=4)


@lower("index_select.default")
def index_select(builder: Builder, out: Result, x: Tensor, dim: int, places: Tensor) -> Tensor:
    require_supported(x.dtype)
    leave_if(not x.sizes or not places.sizes, "a tensor without dimensions")
    _require_elements(out)
    dim = dimension(dim, len(x.sizes))
    kind, places = "row" if dim == 0 else "element", _at_hand(builder, places)

    def element(at: Index) -> LoopValue:
        return x.at((*at[:dim], counted_from_0(places.at((at[dim],)), x.sizes[dim], kind), *at[dim + 1 :]))

    return builder.compute(out, element, [x, places], cost=4)


def _at_hand(builder: Builder, places: Tensor) -> Tensor:
    """Places of rows, each of which many elements ask for: in memory, if they are costly to compute."""
    costly = isinstance(places, Computed) and places.cost > builder.target(places.device).inline_cost
    return builder.store(places) if costly else places


def _require_elements(out: Result) -> None:
    """Loops look at the places of elements. Eager's kernels for whole rows look at all places, though rows be empty."""
    leave_if(any(size.value == 0 for size in out.sizes), "rows without elements, whose places are checked all the same")


@lower("embedding.default")
def embedding(builder: Builder, out: Result, weight: Tensor, places: Tensor, *rest: Any, **options: Any) -> Tensor:
    require_supported(weight.dtype)
    _require_elements(out)
    places = _at_hand(builder, places)

    def element(at: Index) -> LoopValue:
        return weight.at((counted_from_0(places.at(at[:-1]), weight.sizes[0], "row"), at[-1]))

    return builder.compute(out, element, [weight, places], cost=4)
