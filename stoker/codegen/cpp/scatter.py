"""Kernels that combine values with what is in memory, at computed places.

Several iterations may meet in one place, so they run in the order of the program, as eager's do: the result does not depend on
threads. Threads share a loop along which places are certainly different, if there is one: the store's index is linear in it,
and nothing computed depends on it.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import reduce
from operator import mul

import torch

from stoker.codegen.cpp.function import FunctionText
from stoker.codegen.cpp.operation import TYPES
from stoker.loop.index import Dimension, coefficient, ranges_of
from stoker.loop.instruction import Index, Indirect, Load, LoopInstruction, Store
from stoker.schedule.kernel import Kernel
from stoker.shape.expr import Expr, Symbol, constant
from stoker.shape.prove import bounds
from stoker.shape.walk import free_symbols

SHARE = 64
"""Iterations of the shared loop that a thread takes at a time."""
_HALF = (torch.float16, torch.bfloat16)
_FORMS = {"add": "{0} + {1}", "mul": "{0} * {1}", "max": "maximum({0}, {1})", "min": "minimum({0}, {1})"}


def combines(kernel: Kernel) -> bool:
    """Does the kernel combine with what is in memory?"""
    return any(isinstance(i, Store) and bool(i.combine) for p in kernel.phases for _, i in p.lines)


def combined(place: str, value: str, combine: str | None, dtype: torch.dtype) -> str:
    """What to store at a place."""
    if combine is None or combine == "set":
        return value
    if dtype is torch.bool:
        return f"{place} {'|' if combine in ('add', 'max') else '&'} {value}"
    if dtype in _HALF:
        wide = (f"convert<float>({words})" for words in (place, value))
        return f"convert<{TYPES[dtype]}>({_FORMS[combine].format(*wide)})"
    return _FORMS[combine].format(place, value)


def emit_scatter(emitter: FunctionText) -> None:
    """The loops of the kernel, in order; one of them in pieces that threads share."""
    kernel = emitter.kernel
    (phase,) = kernel.phases
    shared = _certain(kernel)
    with ExitStack() as stack:
        if shared is not None:
            size = emitter.extent(shared)
            emitter.parallel("parallel for")
            stack.enter_context(emitter.out.block(f"for (int64_t piece = 0; piece < {size}; piece += {SHARE})"))
            emitter.out.line(f"const int64_t piece_end = minimum<int64_t>(piece + {SHARE}, {size});")
        for loop in kernel.outer:
            limits = ("piece", "piece_end") if loop is shared else ("0", None)
            if loop is shared and loop is kernel.outer[-1]:
                emitter.simd(True)
            stack.enter_context(emitter.out.block(emitter.head(loop, *limits)))
        emitter.lines(phase)


def _certain(kernel: Kernel) -> Dimension | None:
    """A loop whose iterations write to different places whatever was computed; the innermost, if several are."""
    lines = [i for p in kernel.phases for _, i in p.lines]
    varying = _computed(lines)
    (index,) = {i.index for i in lines if isinstance(i, Store)}
    for loop in reversed(kernel.outer):
        step = coefficient(index, loop.symbol)
        moved = any(loop.symbol in varying[s] for s in free_symbols(index) if s in varying)
        if not moved and step is not None and step.value and _apart(index, loop, step.value, kernel):
            return loop
    return None


def _computed(lines: list[LoopInstruction]) -> dict[Symbol, frozenset[Symbol]]:
    """For each computed index: the loops that it depends on."""
    depends: list[frozenset[Symbol]] = []
    found: dict[Symbol, frozenset[Symbol]] = {}
    for i in lines:
        own: frozenset[Symbol] = frozenset().union(*(depends[a] for a in i.arguments))
        if isinstance(i, (Load, Index)):
            for symbol in free_symbols(i.index if isinstance(i, Load) else i.expr):
                own |= found.get(symbol, frozenset({symbol}))
        if isinstance(i, Indirect):
            found[i.name] = own
        depends.append(own)
    return found


def _apart(index: Expr, loop: Dimension, step: int, kernel: Kernel) -> bool:
    """Do the other terms of the index move it by multiples of the loop's whole reach, or by less than its step?"""
    size = loop.size.value
    if not size:
        return False
    reach = abs(step) * size
    inside = 0
    known = ranges_of(kernel.outer)
    for monomial, factor in index.terms:
        if loop.symbol in monomial:
            continue
        if factor % reach == 0:
            continue
        within = bounds(reduce(mul, monomial, constant(factor)), known)
        if within.low < 0 or within.high == float("inf"):
            return False
        inside += int(within.high)
    return inside < abs(step)
