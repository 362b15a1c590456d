"""Tensors and numbers of dictionaries under keys that are others at each call: found anew, whatever the key is, without a version for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stoker

X = torch.arange(3.0)


def surroundings() -> dict[str, Any]:
    """New ones for each run: programs change them."""
    torch.manual_seed(0)
    rows = {i: torch.full((3,), float(i)) for i in range(16)}
    return {
        "numbers": {i: i * 1.5 for i in range(16)},
        "steps": {i: i + 2 for i in range(16)},
        "rows": rows,
        "weights": {i: nn.Parameter(torch.full((3,), i + 0.5)) for i in range(16)},
        "shared": {i: rows[i // 2] for i in range(16)},
        "mixed": {i: float(i) if i % 2 else torch.full((3,), float(i)) for i in range(16)},
        "nested": {i: {j: float(i * j) for j in range(16)} for i in range(16)},
        "lists": {i: [float(i), i] for i in range(16)},
        "default": defaultdict(lambda: 7.0, {i: float(i) for i in range(8)}),
        "truths": {True: 2.0, False: 3.0, 5: 4.0, 6: 1.0, 7: 2.5, 8: 0.5},
    }


FEW: dict[str, Callable[..., Any]] = {
    "a number": lambda s, x, i: x * s["numbers"][i],
    "an integer": lambda s, x, i: x * s["steps"][i] + s["steps"][i],
    "a tensor": lambda s, x, i: x * s["rows"][i],
    "a parameter": lambda s, x, i: x * s["weights"][i],
    "get": lambda s, x, i: x * s["numbers"].get(i, 1.0) + s["rows"].get(i),
    "asked for first": lambda s, x, i: x * s["numbers"][i] if i in s["numbers"] else x,
    "twice": lambda s, x, i: x * s["rows"][i] + s["rows"][i],
    "beside a constant key": lambda s, x, i: x * s["numbers"][0] + s["numbers"][i],
    "a size by it": lambda s, x, i: x.repeat(i).view(-1, 3) * s["numbers"][i],
}
MANY: dict[str, Callable[..., Any]] = {
    "of two kinds": lambda s, x, i: x * s["mixed"][i],
    "the next": lambda s, x, i: x * s["numbers"][i + 1] if i < 10 else x,
    "nested": lambda s, x, i: x * s["nested"][i][i],
    "a list": lambda s, x, i: x * s["lists"][i][0] + len(s["lists"]),
    "a default": lambda s, x, i: x * s["default"][i] + len(s["default"]),
    "one tensor under two keys": lambda s, x, i: x + s["shared"][i].add_(1) + s["shared"][3],
    "written": lambda s, x, i: x + s["rows"][i].mul_(2),
    "replaced": lambda s, x, i: (x * s["numbers"][i], s["numbers"].update({i: 0.5}), x * s["numbers"][i])[::2],
    "taken out": lambda s, x, i: x * s["numbers"].pop(i, 3.0) + len(s["numbers"]),
    "missing": lambda s, x, i: x * s["numbers"].get(i * 100, 4.0),
    "all of them": lambda s, x, i: x * s["numbers"][i] + sum(s["numbers"].values()),
    "truths": lambda s, x, i: x * s["truths"].get(i, 9.0),
    "an error": lambda s, x, i: x * s["numbers"][i * 4],
}


def outcomes(program: Callable[..., Any], keys: list[Any]) -> list[Any]:
    held, found = surroundings(), []
    for i in keys:
        try:
            found.append(program(held, X, i))
        except KeyError as error:
            found.append(error.args)
    return [found, [held[n] for n in ("numbers", "rows", "shared")], dict(held["default"])]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", [*FEW, *MANY])
def test_as_in_eager(name: str, dynamic: bool | None) -> None:
    program = (FEW | MANY)[name]
    keys = [3, 4, 5, 6, 9, 1, 2, 4, 15, 7]
    torch.testing.assert_close(outcomes(stoker.compile(program, dynamic=dynamic), keys), outcomes(program, keys))


@pytest.mark.parametrize("name", FEW)
def test_no_version_for_each_key(name: str) -> None:
    stoker.log.clear()
    outcomes(stoker.compile(FEW[name]), [3, 4, 5, 6, 7, 8, 9, 10, 11])
    assert len(stoker.events("captured")) <= 3


def test_keys_that_are_no_integers() -> None:
    def program(table: dict[Any, float], x: torch.Tensor, key: Any) -> torch.Tensor:
        return x * table[key]

    table = {1: 2.0, 2: 3.0, 3: 4.0, "1": 5.0, 1.5: 6.0, None: 7.0}
    compiled = stoker.compile(program)
    for key in (1, 2, 3, True, 2.0, "1", 1.5, None, 3):
        torch.testing.assert_close(compiled(table, X, key), program(table, X, key))


def test_a_dictionary_that_changes() -> None:
    def program(table: dict[int, Any], x: torch.Tensor, i: int) -> torch.Tensor:
        return x * table[i]

    compiled = stoker.compile(program)
    table: dict[int, Any] = {i: float(i) for i in range(8)}
    for i in (2, 3, 4):
        torch.testing.assert_close(compiled(table, X, i), program(table, X, i))
    table[5] = torch.ones(3, dtype=torch.float64)
    table[6] = 8
    for given in (table, {5: 1.25}, defaultdict(lambda: 3.0)):
        torch.testing.assert_close(compiled(given, X, 5), program(given, X, 5))
    torch.testing.assert_close(compiled(table, X, 6), program(table, X, 6))
    del table[4]
    with pytest.raises(KeyError):
        compiled(table, X, 4)


def test_gradients_of_parameters_by_number() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tables = {i: torch.full((3,), i + 1.0, requires_grad=True) for i in range(12)}

        def forward(self, x: torch.Tensor, i: int) -> torch.Tensor:
            return (self.tables[i] * x).sum()

    stoker.log.clear()
    model = Model()
    compiled = stoker.compile(model)
    for i in range(2, 10):
        compiled(X, i).backward()
        torch.testing.assert_close(model.tables[i].grad, X)
    assert len(stoker.events("captured")) <= 3 and model.tables[0].grad is None


def test_by_the_size_of_a_tensor() -> None:
    rows = {i: torch.full((i, 3), float(i)) for i in range(2, 12)}
    scales = {i: 1.5 * i for i in range(2, 12)}

    def program(x: torch.Tensor) -> torch.Tensor:
        return x * rows[x.shape[0]] * scales[len(x)]

    stoker.log.clear()
    compiled = stoker.compile(program)
    for i in [*range(3, 10), 4, 3]:
        x = torch.randn(i, 3)
        torch.testing.assert_close(compiled(x), program(x))
    assert len(stoker.events("captured")) <= 4
