"""`as_strided` of tensors whose sizes vary, with gradients: two versions, where eager's formula for the gradient wants plain numbers."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import stoker
from stoker import log

BATCHES = (2, 3, 4, 5, 6, 7)


def overlapping(x):
    return (x * 2).as_strided((x.shape[0], 7, 4, 3), (48, 6, 3, 1)).sin()


def by_the_function(x):
    return torch.as_strided(x * 2, [x.shape[0], 16], [48, 3]).sin()


def by_its_own_strides(x):
    sizes, strides = list(x.shape), list(x.stride())
    sizes[1], strides[1] = sizes[1] - 2, strides[1]
    return (x + 1).as_strided(size=sizes, stride=strides)


def with_a_number_in_a_tensor(x):
    count = torch.div(torch.tensor(16), 4, rounding_mode="trunc") - 1
    return (x + 1).as_strided((x.shape[0], count + 1, 4, 3), (48, 12, 3, 1)) * 2


def as_it_lies(x):
    y = (x * 2).transpose(0, 1)
    return y.as_strided(y.shape, y.stride()).cos()


def with_a_dimension_of_one(x):
    y = (x * 2)[:, None].transpose(0, 2)
    strides = list(y.stride())
    strides[1] //= 2
    return y.as_strided(y.size(), strides).exp()


def written(x):
    y = x * 2
    y.as_strided((x.shape[0], 3), (48, 1)).mul_(5)
    return y


def of_a_part(x):
    return (x * 2)[:-1].as_strided((x.shape[0], 2), (48, 1))


def behind_the_beginning(x):
    return (x * 2)[:, 1:].as_strided((x.shape[0], 2), (48, 1))


PROGRAMS = [
    overlapping, by_the_function, by_its_own_strides, with_a_number_in_a_tensor, as_it_lies, with_a_dimension_of_one, written,
]  # fmt: skip
OTHERS = [of_a_part, behind_the_beginning]


def outcome(function: Callable[..., torch.Tensor], batch: int) -> list[torch.Tensor]:
    torch.manual_seed(batch)
    x = torch.randn(batch, 16, 3, requires_grad=True)
    found = function(x)
    (found * torch.arange(found.numel()).view(found.shape)).sum().backward()
    return [found.detach(), x.grad]


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("program", [*PROGRAMS, *OTHERS], ids=lambda f: f.__name__)
def test_gradients(program, backend):
    log.clear()
    compiled = stoker.compile(program, backend=backend)
    for batch in (*BATCHES, 1):
        torch.testing.assert_close(outcome(compiled, batch), outcome(program, batch))
    assert program in OTHERS or len(log.events("captured")) <= 3


def test_what_does_not_fit():
    def program(x):
        return (x * 2).as_strided((x.shape[0], 9), (48, 6))

    compiled = stoker.compile(program, backend="aot_eager")
    for batch in BATCHES:
        found = []
        for run in (compiled, program):
            with pytest.raises(RuntimeError, match="out of bounds") as caught:
                run(torch.ones(batch, 16, 3, requires_grad=True))
            found.append(str(caught.value))
        assert found[0] == found[1]
