"""Numbers that an operator of the user's tells: as sizes, and as strides; and elements of small tensors as a list, whatever is dynamic."""

from __future__ import annotations

import pytest
import torch

import stoker

LIBRARY = f"stoker_{__name__.replace('.', '_')}"


@torch.library.custom_op(f"{LIBRARY}::spread", mutates_args=())
def spread(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided((2,), (int(x.item()),)).fill_(3)


@spread.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided((2,), (torch.library.get_ctx().new_dynamic_size(),))


@torch.library.custom_op(f"{LIBRARY}::several", mutates_args=())
def several(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(int(x.item()), 2)


@several.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.ones(torch.library.get_ctx().new_dynamic_size(), 2)


PROGRAMS = {
    "a stride": lambda x: (torch.zeros(spread(x).stride(0)) + 1, spread(x) * 2),
    "a stride that is returned": lambda x: (made := spread(x), made.stride(0) * 2)[1] + x,
    "a size": lambda x: (torch.zeros(several(x).size(0)) + 1, several(x).sum(1)),
    "strides of what has such a size": lambda x: several(x).t().contiguous().stride(0) + x,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_told_by_operators(name: str, backend: str) -> None:
    program = PROGRAMS[name]
    compiled = stoker.compile(program, fullgraph=True, backend=backend)
    for number in (3, 5, 2):
        x = torch.tensor([number])
        torch.testing.assert_close(compiled(x), program(x))


def parts(lengths, x):
    first, second = lengths.tolist()
    head, tail = torch.split(x, [first, second])
    return tail * 2, head.sum() + sum(lengths.tolist())


def nested(lengths, x):
    return lengths.reshape(2, -1).tolist(), x * lengths.float().tolist()[0]


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("program", [parts, nested], ids=lambda f: f.__name__)
def test_lists(program, dynamic) -> None:
    compiled = stoker.compile(program, fullgraph=True, dynamic=dynamic)
    for first, second in ((2, 3), (1, 4), (4, 2)):
        lengths, x = torch.tensor([first, second]), torch.arange(float(first + second))
        torch.testing.assert_close(compiled(lengths, x), program(lengths, x))


def test_lists_of_every_length() -> None:
    """A length that was seen to be another is a break: each would be a graph of its own."""
    compiled = stoker.compile(lambda v: [n * 2 for n in v.tolist()], dynamic=True)
    for length in (3, 4, 5, 40, 0):
        assert compiled(torch.arange(length)) == [2 * n for n in range(length)]
    assert any("become Python objects" in event.reason for event in stoker.events("break"))
