"""Splitting and merging loops, and simplification under ranges."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from stoker.loop.index import Dimension, express, ranges_of, refine, simplify
from stoker.schedule.merge import merge_loops
from stoker.shape.expr import constant, symbol
from stoker.shape.walk import evaluate, substitute

small = st.lists(st.integers(1, 4), min_size=0, max_size=4)


def sizes(numbers: list[int]) -> list:
    return [constant(n) for n in numbers]


@given(small, st.randoms())
def test_refine_splits_both(numbers: list[int], random: object) -> None:
    fine = [n for n in numbers if n != 1]
    first, second = _regroup(fine, random), _regroup(fine, random)
    found = refine(sizes(first), sizes(second))
    assert found is not None
    loops = [Dimension(symbol(f"f{d}"), s) for d, s in enumerate(found)]
    for coarse in (first, second):
        parts = express(sizes(coarse), loops)
        points = itertools.product(*(range(loop.size.offset) for loop in loops))
        seen = [tuple(evaluate(p, dict(zip((d.symbol for d in loops), at))) for p in parts) for at in points]
        assert seen == list(itertools.product(*(range(n) for n in coarse)))


def _regroup(numbers: list[int], random) -> list[int]:
    """Multiply random neighbours together."""
    result: list[int] = []
    for n in numbers:
        if result and random.random() < 0.5:
            result[-1] *= n
        else:
            result.append(n)
    return result


def test_refine_refuses_what_does_not_divide() -> None:
    assert refine(sizes([4, 6]), sizes([3, 8])) is None


def test_simplify_uses_ranges() -> None:
    i, j = symbol("i0"), symbol("i1")
    ranges = ranges_of((Dimension(i, constant(4)), Dimension(j, constant(8))))
    assert simplify((i * 8 + j) // 8, ranges) is i
    assert simplify((i * 8 + j) % 8, ranges) is j


def test_merge_follows_memory() -> None:
    i, j, n = symbol("i0"), symbol("i1"), symbol("n")
    loops = (Dimension(i, constant(4)), Dimension(j, n))
    merged, change = merge_loops(loops, [i * n + j])
    assert [d.size for d in merged] == [4 * n]
    assert substitute(i * n + j, change) is j
    kept, _ = merge_loops(loops, [i * n + j, j])
    assert len(kept) == 2
