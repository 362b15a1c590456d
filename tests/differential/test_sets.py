"""Sets: order, types of equal elements, guards."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import stoker

X = torch.arange(3.0)


def operations(x: torch.Tensor, a: list[Any], b: list[Any]) -> Any:
    s, t = set(a), frozenset(b)
    u = s | t
    u.discard(a[0])
    u.add(1000)
    v = {*a, *b, 7} - {a[1], b[0]}
    v ^= set(b)
    w = u.intersection(b, v) if len(a) % 2 else u.symmetric_difference(a)
    w.update(range(5), {300: 1, 1: 2})
    popped = [w.pop() for _ in range(min(3, len(w)))]
    k = dict.fromkeys(a).keys() | set(b)
    k &= t
    copied = s.copy()
    copied.difference_update(b)
    orders = [list(part) for part in (s, t, u, v, w, k, copied, s & t, t & s, s ^ t, s - t, set(dict.fromkeys(b)))]
    return x + len(s), orders, popped, u, w, frozenset(copied)


def seen(found: Any) -> Any:
    return found[1:3], [list(part) for part in found[3:]], [[type(e) for e in part] for part in found[3:]]


@pytest.mark.parametrize("seed", range(12))
def test_order_is_eagers(seed: int) -> None:
    r = random.Random(seed)
    kinds = [
        lambda: r.randrange(400),
        lambda: f"n{r.randrange(90)}",
        lambda: r.choice([1, 1.0, True, 2, 2.0, 0, False]),
    ]
    made = [kinds[(seed + n) % 3 if seed > 3 else 0] for n in range(2)]
    a, b = [made[0]() for _ in range(11 + seed)], [made[1]() for _ in range(9)]
    found = stoker.compile(operations, backend="eager", fullgraph=True)(X, a, b)
    expected = operations(X, a, b)
    assert torch.equal(found[0], expected[0])
    assert seen(found) == seen(expected)


def change(x: torch.Tensor, s: set[Any], b: list[Any]) -> torch.Tensor:
    s.add(b[0])
    s |= set(b)
    s.discard(b[1])
    s.intersection_update([*b, *range(60)])
    s.symmetric_difference_update({3, 5, 77})
    return x + len(s)


@pytest.mark.parametrize("seed", range(4))
def test_changes_of_an_outside_set_keep_its_order(seed: int) -> None:
    r = random.Random(seed)
    elements, b = [r.randrange(100) for _ in range(20)], [r.randrange(100) for _ in range(9)]
    mine, theirs = set(elements), set(elements)
    compiled = stoker.compile(change, backend="eager")
    assert torch.equal(compiled(X, mine, b), change(X, theirs, b))
    assert list(mine) == list(theirs)


def product(x: torch.Tensor, s: Any) -> torch.Tensor:
    for k in s:
        x = x * k
    return x


CASES = [
    ({2}, {2.0}, {True}),
    (frozenset({2}), frozenset({2.0}), frozenset({True}), {2}),
    ({0, 8}, {8, 0}, {8, 16}, {16, 8}),
    (range(2, 7, 2), range(2, 8, 2), range(2, 8, 3)),
    ((frozenset({1}), 2), (frozenset({True}), 2)),
    (slice(1, 2), slice(True, 2), slice(1.0, 2)),
]


@pytest.mark.parametrize("cases", CASES, ids=str)
def test_types_and_order_are_guarded(cases: Any) -> None:
    def shown(x: torch.Tensor, s: Any) -> Any:
        parts = [s.start, s.stop, s.step] if isinstance(s, (range, slice)) else list(s)
        return x + 1, [(type(part), str(part)) for part in parts]

    compiled = stoker.compile(shown, backend="eager")
    for case in cases:
        assert compiled(X, case)[1] == shown(X, case)[1]
        if isinstance(case, (set, frozenset)):
            found = stoker.compile(product, backend="eager")(torch.arange(3), case)
            assert found.dtype == product(torch.arange(3), case).dtype


class Tagged(set):  # type: ignore[type-arg]
    def add(self, item: Any) -> None:
        super().add(item * 2)


def test_subclasses_of_set() -> None:
    def program(x: torch.Tensor, s: Tagged) -> Any:
        made = Tagged([1, 2])
        made.add(4)
        s.add(5)
        return x + len(s), made, sorted(s)

    mine, theirs = Tagged([3]), Tagged([3])
    found, expected = stoker.compile(program, backend="eager")(X, mine), program(X, theirs)
    assert found[1] == expected[1] and type(found[1]) is Tagged and found[2] == expected[2] and mine == theirs


def test_sets_of_classes_and_tensors() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        kinds = {int, float, str} - {str}
        return x + len({x, y, x}), [k.__name__ for k in kinds], y in {x, y}

    found, expected = stoker.compile(program, backend="eager")(X, X + 1), program(X, X + 1)
    assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]


@pytest.mark.parametrize("text", ["|=", "&=", "-=", "^="])
@pytest.mark.parametrize(
    "other", [frozenset(), frozenset({2}), frozenset({2, 300, -1}), {2, 3}, {2: 0}.keys()], ids=str
)
def test_operators_change_a_set_from_outside(text: str, other: Any) -> None:
    """By a set of any kind, given or written in the program, and once more with the elements in another order."""
    scope: dict[str, Any] = {}
    exec(f"def given(x, s, other):\n    s {text} other\n    return x + len(s), s, list(s)", scope)
    exec(f"def written(x, s, other):\n    s {text} frozenset({{2, 300}})\n    return x + len(s), s", scope)
    for function in (scope["given"], scope["written"]):
        compiled = stoker.compile(function, backend="eager")
        for elements in ([1, 2, 300], [300, 2, 1], []):
            mine, eagers = set(elements), set(elements)
            have, expect = compiled(X, mine, other), function(X, eagers, other)
            assert list(mine) == list(eagers) and (have[1] is mine) is (expect[1] is eagers)
            assert str(have) == str(expect)
