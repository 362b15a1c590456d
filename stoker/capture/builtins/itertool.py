"""itertools: the iterators written in C, entered as the generators of `polyfill/iteration.py`."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from stoker.capture.handlers import CLASS_METHODS, handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import iteration
from stoker.capture.values.constant import Constant
from stoker.capture.values.iterator import PolyfilledIterator, PooledIterator
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.value import Value

NONE = Constant(None)


def _polyfilled(
    m: Machine, kind: Callable[..., Any], generator: Any, args: list[Value], remake: list[Value] | None = None
) -> Value:
    """The iterator `kind(*remake)`, whose elements come from a generator function of the polyfill."""
    made = m.wrap.object(generator).call(m, args, {})
    return PolyfilledIterator(kind, made, args if remake is None else remake)


@handles(itertools.chain)
def chain(m: Machine, *parts: Value) -> Value:
    return _polyfilled(m, itertools.chain, iteration.chain, [TupleValue(list(parts))], list(parts))


def chain_from_iterable(m: Machine, args: list[Value], kwargs: dict[str, Value]) -> Value:
    parts = m.operators.iterate(args[0])
    made = m.wrap.object(iteration.chain).call(m, [parts], {})
    return PolyfilledIterator(itertools.chain.from_iterable, made, [parts], itertools.chain)


CLASS_METHODS[(itertools.chain, "from_iterable")] = chain_from_iterable


@handles(itertools.islice)
def islice(m: Machine, iterable: Value, *limits: Value) -> Value:
    if not 1 <= len(limits) <= 3:
        m.concrete.run(itertools.islice, (), *[None] * len(limits))  # raises, in its own words
    start, stop, step = (NONE, limits[0], NONE) if len(limits) == 1 else (*limits, NONE)[:3]
    for limit in (start, stop, step):
        number = m.concrete.constant(limit, "itertools.islice()")
        if number is not None and (not isinstance(number, int) or number < 0):
            m.exceptions.raise_(ValueError, "Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    plain = [
        Constant(start.constant() or 0) if isinstance(start, Constant) else start,
        stop,
        step if m.concrete.constant(step, "itertools.islice()") is not None else Constant(1),
    ]
    return _polyfilled(m, itertools.islice, iteration.islice, [m.operators.iterate(iterable), *plain])


@handles(itertools.cycle)
def cycle(m: Machine, iterable: Value) -> Value:
    return _polyfilled(m, itertools.cycle, iteration.cycle, [m.operators.iterate(iterable)])


def _predicated(kind: Any, generator: Any) -> None:
    def handler(m: Machine, predicate: Value, iterable: Value) -> Value:
        return _polyfilled(m, kind, generator, [predicate, m.operators.iterate(iterable)])

    handles(kind)(handler)


_predicated(itertools.takewhile, iteration.takewhile)
_predicated(itertools.dropwhile, iteration.dropwhile)
_predicated(itertools.starmap, iteration.starmap)
_predicated(itertools.filterfalse, iteration.filterfalse)


@handles(itertools.accumulate)
def accumulate(m: Machine, iterable: Value, func: Value = NONE, *, initial: Value = NONE) -> Value:
    args = [m.operators.iterate(iterable), func, initial]
    made = m.wrap.object(iteration.accumulate).call(m, args, {})
    return PolyfilledIterator(itertools.accumulate, made, args[:2], keywords={"initial": initial})


@handles(itertools.groupby)
def groupby(m: Machine, iterable: Value, key: Value = NONE) -> Value:
    return _polyfilled(m, itertools.groupby, iteration.groupby, [m.operators.iterate(iterable), key])


@handles(itertools.zip_longest)
def zip_longest(m: Machine, *iterables: Value, fillvalue: Value = NONE) -> Value:
    parts = [m.operators.iterate(part) for part in iterables]
    made = m.wrap.object(iteration.zip_longest).call(m, [ListValue(list(parts)), fillvalue], {})
    return PolyfilledIterator(itertools.zip_longest, made, parts, keywords={"fillvalue": fillvalue})


@handles(itertools.tee)
def tee(m: Machine, iterable: Value, n: Value = Constant(2)) -> Value:  # noqa: B008
    iterator, shared = m.operators.iterate(iterable), ListValue([])
    generators = [m.wrap.object(iteration.tee).call(m, [iterator, shared], {}) for _ in range(m.concrete.integer(n))]
    return TupleValue([PolyfilledIterator(itertools.chain, made, [made]) for made in generators])


@handles(itertools.pairwise)
def pairwise(m: Machine, iterable: Value) -> Value:
    return _polyfilled(m, itertools.pairwise, iteration.pairwise, [m.operators.iterate(iterable)])


@handles(itertools.compress)
def compress(m: Machine, data: Value, selectors: Value) -> Value:
    return _polyfilled(
        m, itertools.compress, iteration.compress, [m.operators.iterate(data), m.operators.iterate(selectors)]
    )


@handles(itertools.product)
def product(m: Machine, *iterables: Value, repeat: Value = Constant(1)) -> Value:  # noqa: B008
    pools = [part.items_list(m) for part in iterables]
    return PooledIterator(itertools.product, itertools.product(*pools, repeat=m.concrete.integer(repeat)))


def _pooled(kind: Any) -> None:
    def handler(m: Machine, iterable: Value, *size: Value, r: Value | None = None) -> Value:
        pool = iterable.items_list(m)
        sizes = [
            m.concrete.constant(part, f"itertools.{kind.__name__}()") for part in (*size, *([] if r is None else [r]))
        ]
        return PooledIterator(kind, m.concrete.run(kind, pool, *sizes))

    handles(kind)(handler)


_pooled(itertools.permutations)
_pooled(itertools.combinations)
_pooled(itertools.combinations_with_replacement)

_batched = getattr(itertools, "batched", None)  # from 3.12


def batched(m: Machine, iterable: Value, n: Value) -> Value:
    assert _batched is not None
    return _polyfilled(m, _batched, iteration.batched, [m.operators.iterate(iterable), n])


if _batched is not None:
    handles(_batched)(batched)
