"""What lies around a compiled graph: autocast and generators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stoker

BACKENDS = ["aot_eager", "stoker"]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grad", [True, False])
def test_casts_are_not_made_twice(backend: str, grad: bool) -> None:
    def program(x: Any) -> Any:
        with torch.autocast("cpu", enabled=False):
            wide = x @ x.T
        return wide, x @ x.T

    x = torch.randn(3, 4, requires_grad=grad)
    with torch.autocast("cpu", torch.bfloat16):
        expected, found = program(x), stoker.compile(program, backend=backend)(x)
    assert [f.dtype for f in found] == [e.dtype for e in expected] == [torch.float32, torch.bfloat16]
    for mine, eager in zip(found, expected, strict=True):
        torch.testing.assert_close(mine, eager)


@pytest.mark.parametrize("backend", BACKENDS)
def test_generators_are_inputs(backend: str) -> None:
    def program(x: Any, generator: torch.Generator) -> Any:
        return x + torch.randn(4, generator=generator), torch.rand(3, generator=generator)

    compiled = stoker.compile(program, backend=backend)
    for seed in (1, 2, 3):
        mine, eager = (torch.Generator().manual_seed(seed) for _ in range(2))
        for found, expected in zip(compiled(torch.zeros(4), mine), program(torch.zeros(4), eager), strict=True):
            assert torch.equal(found, expected)
        assert torch.equal(mine.get_state(), eager.get_state())
