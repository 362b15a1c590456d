"""Sums with a factor (`alpha`): of truth values, integers and fractions, by truth values, integers and fractions; eager refuses some."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import stoker

TENSORS = {
    "truths": torch.tensor([True, False, True, False]),
    "integers": torch.tensor([1, 2, 3, 4]),
    "fractions": torch.tensor([1.5, -2.0, 0.0, 4.0]),
}
OTHER_TRUTHS = torch.tensor([True, True, False, False])
SUMS = {
    "add": lambda x, y, alpha: torch.add(x, y, alpha=alpha),
    "in place": lambda x, y, alpha: x.clone().add_(y, alpha=alpha),
    "sub": lambda x, y, alpha: torch.sub(x, y, alpha=alpha),
    "rsub": lambda x, y, alpha: torch.rsub(x, y, alpha=alpha),
    "of a number": lambda x, y, alpha: torch.add(x, True, alpha=alpha),
    "of a row": lambda x, y, alpha: torch.add(x[:, None], y, alpha=alpha).sum(1),
    "of lists": lambda x, y, alpha: torch._foreach_add([x, x], [y, y], alpha=alpha)[1],
}
ALPHAS = (False, True, 0, 3, 0.5)


def _outcome(function: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
    try:
        return function(x, y)
    except RuntimeError as error:
        return str(error).splitlines()[0]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("name", SUMS)
def test_scaled_sums(name: str, backend: str) -> None:
    for alpha in ALPHAS:

        def program(x: torch.Tensor, y: torch.Tensor, alpha: Any = alpha) -> Any:
            return SUMS[name](x, y, alpha)

        compiled = stoker.compile(program, backend=backend, recompile_limit=64)
        for (kind, x), (other, y) in itertools.product(TENSORS.items(), TENSORS.items()):
            y = OTHER_TRUTHS if kind == other == "truths" else y
            mine, theirs = _outcome(compiled, x, y), _outcome(program, x, y)
            if isinstance(theirs, str):
                assert mine == theirs, (alpha, kind, other)
            else:
                torch.testing.assert_close(mine, theirs, msg=lambda words: f"{alpha} {kind} {other}: {words}")
