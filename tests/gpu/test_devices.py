"""Memory of the processor beside that of a GPU: what a program asks of it, and what it may not mix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def test_pinned_memory_is_known() -> None:
    compiled = stoker.compile(lambda x: x + 1 if x.is_pinned() else x - 1, fullgraph=True)
    for x in (torch.zeros(3).pin_memory(), torch.zeros(3), torch.zeros(5).pin_memory()[2:]):
        assert torch.equal(compiled(x), x + 1 if x.is_pinned() else x - 1)


REFUSED: dict[str, Callable[..., Any]] = {
    "index_select": lambda x, i: x.index_select(0, i),
    "index_select by a number": lambda x, i: x.index_select(0, i[0]),
    "gather": lambda x, i: x.gather(0, i),
    "scatter": lambda x, i: x.scatter(0, i, 1.0),
    "clamp": lambda x, i: x.clamp(i[0]),
    "stack": lambda x, i: torch.stack([x[0], i[0]]),
    "written by the GPU": lambda x, i: i[0].mul_(x[0]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_two_devices_are_refused(name: str) -> None:
    inputs = torch.ones(4, device="cuda"), torch.zeros(4, dtype=torch.long)
    for function in (REFUSED[name], stoker.compile(REFUSED[name])):
        with pytest.raises(RuntimeError):
            function(*inputs)
