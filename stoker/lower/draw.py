"""Random operators of a CUDA device, whose numbers are those that eager's kernels draw there (`stoker.loop.philox`).

The generator is asked for its state once for all that follow one another; what an element takes is a matter of its place. Left to the
library is what would call the generator more often than eager does: distributions with more elements than eager has threads, of which
a thread takes four that lie far apart.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable
from typing import Any

import torch

from stoker.loop import philox
from stoker.loop.body import LoopValue
from stoker.loop.handler import ops
from stoker.loop.layout import contiguous, is_dense, product
from stoker.loop.op import ELEMENTWISE
from stoker.loop.view import Index, Stored, Tensor
from stoker.lower.builder import Builder, GeneratorState
from stoker.lower.registry import LOWERINGS, LeftToLibrary, Result, leave_if, lower
from stoker.shape.expr import Expr, constant
from stoker.shape.symnode import expr_of

DRAWN = frozenset({torch.float16, torch.bfloat16, torch.float32})
COST = ELEMENTWISE["philox"].cost

Word = Callable[[Index, int], LoopValue]
"""A word of the generator for the element at an index: its own, or one beside it."""


OWN_ORDER = "it draws random numbers in eager's order"


def _count(builder: Builder, out: Result) -> int:
    """The number of elements that are drawn, where kernels may draw them."""
    elements = product(out.sizes).value
    if not elements or not builder.target(out.device).drawing_threads() or not is_dense(out.sizes, out.strides):
        raise LeftToLibrary(OWN_ORDER)
    return elements


def _drawn(
    builder: Builder, out: Result, elements: int, dealt: Callable[[Expr], tuple[Any, Any, Any]]
) -> tuple[GeneratorState, Word]:
    """The generator's state, and its words for a tensor that lies as `out` does; `dealt` says (block, lane, word) of an element in memory."""
    most = builder.target(out.device).drawing_threads()
    state, moved = builder.draw(out.device, philox.increment(elements, most))

    def word(index: Index, beside: int) -> LoopValue:
        element = sum((i * s for i, s in zip(index, out.strides)), constant(0))
        places = [ops.index(constant(0) + place, torch.int64) for place in dealt(element)]
        if beside:
            places[-1] = ops.constant(beside, torch.int64)
        seed = ops.plus_at(state.seed.at(()), state.seed_address.at(()))
        offset = ops.plus_at(state.offset.at(()), state.offset_address.at(()))
        return ops.philox(seed, ops.add(offset, ops.constant(moved, torch.int64)), *places)

    return state, word


@lower("native_dropout.default")
def native_dropout(builder: Builder, out: list[Result], x: Tensor, p: float, train: bool | None = None) -> list[Tensor]:
    """Multiplied by 0 in some places, so that nan stays, by the scale in the rest."""
    result, mask = out
    elements = _count(builder, result)
    leave_if(train is False or not 0 <= p < 1 or result.dtype not in DRAWN, OWN_ORDER)
    dealt = _dealt_to_dropout(builder, result, x, elements)
    kept = ctypes.c_float(1 - p).value
    scale, limit = ctypes.c_float(1 / kept).value, philox.words_below(kept)
    state, word = _drawn(builder, result, elements, dealt)

    def stays(index: Index) -> LoopValue:
        return ops.lt(word(index, 0), ops.constant(limit, torch.int64))

    def element(index: Index) -> LoopValue:
        factor = ops.where(stays(index), ops.constant(scale, torch.float32), ops.constant(0.0, torch.float32))
        return ops.to_dtype(ops.mul(ops.to_dtype(x.at(index), torch.float32), factor), result.dtype)

    return [builder.compute(result, element, [*state, x], COST + 4), builder.compute(mask, stays, state, COST + 1)]


def _dealt_to_dropout(
    builder: Builder, out: Result, x: Tensor, elements: int
) -> Callable[[Expr], tuple[Any, Any, Any]]:
    """Eager walks memory by vectors where it begins aligned, and where the number of elements allows it."""
    width = philox.vector_width(elements, out.dtype.itemsize)
    fake, (started, most) = builder.usage.operands[0], (0, builder.target(out.device).drawing_threads())
    leave_if(not is_dense(out.sizes, tuple(map(expr_of, fake.meta.strides))), OWN_ORDER)
    if 0 in builder.usage.outside:
        if not isinstance(x, Stored) or x.buffer not in builder.program.inputs:
            raise LeftToLibrary(OWN_ORDER)
        leave_if(x.offset.value is None or x.offset.value % width, OWN_ORDER)
    else:
        leave_if(not isinstance(fake.meta.offset, int) or fake.meta.offset % width, OWN_ORDER)
    if width >= philox.WORDS:
        if isinstance(x, Stored) and 0 in builder.usage.outside:
            builder.program.aligned.add(x.buffer)
        started = philox.threads(elements, most)
        return lambda element: philox.by_vectors(element, started, width)
    leave_if(elements % 2 == 0 or elements > most or out.strides != contiguous(out.sizes), OWN_ORDER)
    return philox.by_element


def _one_each(builder: Builder, out: Result) -> tuple[GeneratorState, Word]:
    """Words for a distribution of which each thread draws one element."""
    elements = _count(builder, out)
    leave_if(out.dtype not in DRAWN or elements > builder.target(out.device).drawing_threads(), OWN_ORDER)
    return _drawn(builder, out, elements, philox.by_element)


def _scaled(word: LoopValue, factor: float) -> LoopValue:
    """The middle of the word's place among all, times a factor: rounded once, as eager's kernels are compiled."""
    size = ops.constant(ctypes.c_float(factor * 2.0**-32).value, torch.float32)
    half = ops.constant(ctypes.c_float(factor * 2.0**-33).value, torch.float32)
    return ops.fma(ops.to_dtype(word, torch.float32), size, half)


@lower("rand.default")
def rand(builder: Builder, out: Result, size: Any, **how: Any) -> Tensor:
    state, word = _one_each(builder, out)

    def element(index: Index) -> LoopValue:
        value = ops.to_dtype(_scaled(word(index, 0), 1.0), out.dtype)
        one, zero = ops.constant(1.0, out.dtype), ops.constant(0.0, out.dtype)
        return ops.where(ops.eq(value, one), zero, value)

    return builder.compute(out, element, state, COST + 4)


@lower("randn.default")
def randn(builder: Builder, out: Result, size: Any, **how: Any) -> Tensor:
    """By Box and Muller, of two words; the second number that they give is not used, as in eager."""
    state, word = _one_each(builder, out)

    def element(index: Index) -> LoopValue:
        logarithm = ops.log(_scaled(word(index, 0), 1.0))
        radius = ops.sqrt(ops.mul(logarithm, ops.constant(-2.0, torch.float32)))
        angle = _scaled(word(index, 1), 2 * math.pi)
        value = ops.add(ops.mul(ops.quick_sin(angle), radius), ops.constant(0.0, torch.float32))
        return ops.to_dtype(value, out.dtype)

    return builder.compute(out, element, state, COST + 40)


@lower("rand_like.default", function=rand)
@lower("randn_like.default", function=randn)
def like(builder: Builder, out: Result, x: Tensor, *, function: Callable[..., Tensor], **how: Any) -> Tensor:
    return function(builder, out, x)


@lower("bernoulli.p")
def bernoulli(builder: Builder, out: Result, x: Tensor, p: float, *, generator: Any = None) -> Tensor:
    leave_if(not _count(builder, out) or generator is not None or not 0 <= p <= 1, OWN_ORDER)
    state, word = _one_each(builder, out)
    limit = philox.words_below(ctypes.c_float(p).value)

    def element(index: Index) -> LoopValue:
        return ops.to_dtype(ops.lt(word(index, 0), ops.constant(limit, torch.int64)), out.dtype)

    return builder.compute(out, element, state, COST + 2)


LOWERINGS[torch.ops.stoker.bernoulli.default] = bernoulli
