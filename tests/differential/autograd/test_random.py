"""Random numbers are eager's, however the tensor that they are written to lies in memory."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

DRAWS = {
    "bernoulli_": (0.3,), "uniform_": (), "normal_": (), "exponential_": (), "random_": (), "geometric_": (0.3,),
    "cauchy_": (), "log_normal_": (),
}  # fmt: skip

LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.t(),
    "every other": lambda t: t[:, ::2],
    "a corner, transposed": lambda t: t[:20, :30].t(),
    "small": lambda t: t[:3, :4].t(),
}


def same_as_eager(function: Any, *arguments: Any, backend: str) -> None:
    results = []
    for call in (function, stoker.compile(function, backend=backend)):
        torch.manual_seed(3)
        results.append((call(*arguments), torch.get_rng_state()))
    (expected, state), (found, state_found) = results
    assert torch.equal(expected, found)
    assert torch.equal(state, state_found), "the generator was left in another state"


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", DRAWS)
def test_drawing_in_place(name: str, layout: str, backend: str) -> None:
    def program() -> torch.Tensor:
        made = torch.zeros(40, 70)
        getattr(LAYOUTS[layout](made), name)(*DRAWS[name])
        getattr(LAYOUTS[layout](made), name)(*(DRAWS[name] if name == "geometric_" else ()))
        return made

    same_as_eager(program, backend=backend)


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dropout(layout: str, grad: bool, backend: str) -> None:
    given = LAYOUTS[layout](torch.randn(40, 70)).requires_grad_(grad)
    same_as_eager(lambda x: F.dropout(x, 0.3) + F.alpha_dropout(x, 0.2, training=True), given, backend=backend)
