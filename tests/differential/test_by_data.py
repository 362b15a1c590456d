"""Numbers that only data tells, wherever Python or torch takes a number: one graph, eager's values and eager's errors."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker

XS = [
    torch.tensor([1.0, -2.0, 3.0, 0.0]),
    torch.tensor([1.0, 2.0, 3.0, 0.0, 5.0]),
    torch.tensor([4.0, 1.0, 6.0]),
    torch.tensor([4.0, 1.0, 6.0, 7.0, 8.0, 9.0]),
]


LIBRARY = f"stoker_{__name__.replace('.', '_')}"
"""Each import has operators of its own: the tool that writes the coverage page imports this module by another name."""


@torch.library.custom_op(f"{LIBRARY}::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


@positive.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.custom_op(f"{LIBRARY}::count", mutates_args=())
def count(x: torch.Tensor) -> int:
    return int((x > 0).sum())


@count.register_fake
def _(x: torch.Tensor) -> int:
    return torch.library.get_ctx().new_dynamic_size()


def _set_mask(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x.sum() > 3] = 7.0
    return y


def _set_index(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x.argmax().item()] = 0
    return y


def _set_slice(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[x.argmax().item() :] += 1
    return y


def _set_column(x: torch.Tensor) -> torch.Tensor:
    y = torch.outer(x, x)
    y[:, x.argmax().item()] = x
    return y * 2


def _view_and_base(x: torch.Tensor) -> Any:
    y = x.clone()
    z = y[: x.argmax().item()]
    z.mul_(2)
    y.add_(1)
    return y, z


def _foreach_written(x: torch.Tensor) -> Any:
    a, b = x.clone(), x + 1
    torch._foreach_addcmul_([a, b], [x, x], [b, a], x[:2])
    return a, b


def _asserted(x: torch.Tensor) -> Any:
    largest = x.abs().max().long().item()
    assert largest <= 6, f"too large: {largest}"
    if not (x > 0).sum().item():
        raise ValueError("none is positive")
    return torch.zeros(2) + largest


def _refused(x: torch.Tensor) -> Any:
    number = int(x.sum())
    if number > 20:
        raise ValueError(f"the sum {number} is too large")
    return x * number


def _written_by_mask(x: torch.Tensor) -> torch.Tensor:
    y = torch.zeros(6)[: x.shape[0]].clone()
    y[x > 0] += x[x > 0]
    return y


ONE_GRAPH: dict[str, Callable[[torch.Tensor], Any]] = {
    "int of a float tensor": lambda x: (x * int(x.sum()), int(-x.sum() - 0.5), int(x.max())),
    "bool as a number": lambda x: (x * (x.sum() > 0).item(), (x > 2).any().item() + 1, int((x > 2).all())),
    "bool as an object": lambda x: (bool(x.sum() > 3), not (x > 100).any(), [bool(v) for v in x[:2]], not x.max()),
    "float of a bool": lambda x: x * float((x > 2).all()),
    "floor, ceil, round": lambda x: (math.floor(x.mean().item()), math.ceil(x.mean().item()), round(x.mean().item())),
    "rounded to digits": lambda x: (round(x.mean().item(), 1), x * round(x.mean().item(), 2)),
    "min and max": lambda x: x * max(x.sum().item(), 0.0) + min(x.argmax().item(), 2, x.argmin().item()),
    "math functions": lambda x: x * math.sqrt(x.abs().sum().item()) + math.exp(-abs(x.sum().item())),
    "f-string": lambda x: (f"{x.sum().item():.2f} of {x.argmax().item():>4} {(x > 2).any().item()!r}", x * 2),
    "percent and format": lambda x: ("%.2f %d" % (x.sum().item(), x.argmax().item()), "{}/{n:.1f}".format(1, n=x.mean().item())),
    "str and concatenation": lambda x: (str(x.argmax().item()) + "!", "<" + repr(x.sum().item()), x + 1),
    "print": lambda x: (print("loss", f"{x.sum().item():.3f}", x.argmax().item()), x * 2)[1],
    "one_hot": lambda x: F.one_hot(x.abs().long()),
    "one_hot in arithmetic": lambda x: F.one_hot(x.abs().long()).float().sum(0) * 2,
    "one_hot of negative numbers": lambda x: F.one_hot(x.long()),
    "unique rows": lambda x: torch.unique(torch.stack([x, x]), dim=0),
    "unique columns": lambda x: torch.unique(torch.stack([x, x + 1]), dim=1, return_inverse=True, return_counts=True),
    "unique_consecutive rows": lambda x: torch.unique_consecutive(torch.stack([x, x]), dim=0),
    "mask without dimensions": lambda x: x[x.sum() > 3] * 2,
    "mask of a number": lambda x: x.sum()[x.sum() > 3] * 2,
    "mask among indices": lambda x: torch.outer(x, x)[:, x.sum() > 3, :1],
    "mask written": _set_mask,
    "foreach with a tensor of numbers": lambda x: torch._foreach_addcmul([x, x], [x, x], [x, x], x[:2]),
    "foreach division": lambda x: torch._foreach_addcdiv([x, x], [x, x], [x + 20, x + 20], x[:2]),
    "foreach written": _foreach_written,
    "scalars": lambda x: torch.add(x, x, alpha=x.max()) + torch.addcmul(x, x, x, value=x.min()) + torch.full((1,), x.max()),
    "tensor_split": lambda x: torch.tensor_split(x, x[:2].abs().long()),
    "tensor_split of rows": lambda x: torch.outer(x, x).tensor_split(torch.tensor([1, 2]), dim=1),
    "narrow": lambda x: x.narrow(0, x.argmin(), 1),
    "narrow from the end": lambda x: x.narrow(0, -1 - x.argmin().item() * 0, 1),
    "narrow too far": lambda x: x.narrow(0, x.argmax(), 2),
    "topk": lambda x: torch.topk(x, int(x.abs().max())),
    "topk of columns": lambda x: torch.outer(x, x).topk(x.argmax(), dim=0, largest=False),
    "kthvalue": lambda x: x.kthvalue(x.argmin().item()),
    "a size that follows": lambda x: torch.outer(x, x).view(x.argmax().item(), -1) + 1,
    "a size that follows from a negative one": lambda x: torch.outer(x, x).view(-1, int(x[1].item()), 1) + 1,
    "a size that follows, copied": lambda x: torch.outer(x, x + 1).t().reshape(-1, x.argmax().item()) + 1,
    "a size that follows, of a function": lambda x: torch.reshape(torch.outer(x, x), (1, -1, x.argmin().item())) + 1,
    "arange": lambda x: (torch.arange(x.abs().max().long()) * 2, torch.arange(1, 1 + x.abs().max().long(), 2)),
    "arange backwards": lambda x: torch.arange((-x[0]).long()) * 2,
    "zeros": lambda x: torch.zeros(int(x.abs().max()), 2) + 1,
    "expand and repeat": lambda x: (x.expand(int(x.abs().max().item()), x.shape[0]) * 2, x.repeat(int(x.abs().max()), 2)),
    "roll": lambda x: torch.roll(x, int(x.sum().item())),
    "slices": lambda x: (x[: x.argmax().item()] * 2, x[x.argmin().item() :], x[: x.argmax() + 1], x[-x.argmax().item() :]),
    "slices of steps": lambda x: torch.outer(x, x)[:, x.argmin().item() :: 2] + 1,
    "index": lambda x: (x[x.argmax().item()], x[-1 - x.argmin().item()], torch.outer(x, x)[..., x.argmax().item()]),
    "index among others": lambda x: torch.outer(x, x)[x.argmax().item(), :, None] + torch.outer(x, x)[[0, 1], x.argmax().item()].sum(),
    "index too large": lambda x: x[x.abs().max().long().item()],
    "index too small": lambda x: torch.outer(x, x)[0, -x.abs().max().long().item()],
    "index written": _set_index,
    "slice written": _set_slice,
    "column written": _set_column,
    "view and base": _view_and_base,
    "split": lambda x: [v.sum() for v in torch.split(x, [x.argmax().item(), x.shape[0] - x.argmax().item()])],
    "split, a tuple": lambda x: (
        x.split([x.argmax().item(), x.shape[0] - x.argmax().item()]),
        x.split_with_sizes([x.argmax().item(), x.shape[0] - x.argmax().item()]) + (x,),
    ),
    "split that does not fit": lambda x: torch.split(x, x[:2].long().tolist()),
    "equal": lambda x: (torch.equal(x, x + 0), x.equal(x + 1), torch.equal(x, x[:2]), torch.allclose(x, x + 1e-9)),
    "combinations": lambda x: (torch.combinations(x) * 2, torch.combinations(x, 3, True), torch.combinations(x, 1)),
    "histogramdd": lambda x: torch.histogramdd(torch.stack([x, x]).T, bins=[2, 3]),
    "assertions on numbers": _asserted,
    "a number that is refused": _refused,
    "two masks that fit": lambda x: x[x > 0] + (x * 2)[x > 0],
    "two masks that may not fit": lambda x: x[x > 0] + (x * 2)[x > 3],
    "as many as there are rows": lambda x: x[:3] / torch.bincount(x[:3].abs().long() % 3, minlength=3).clamp(min=1),
    "more than there are rows": lambda x: x / torch.bincount(x.abs().long(), minlength=x.shape[0]).clamp(min=1),
    "written by a mask": _written_by_mask,
    "gaussian_nll_loss": lambda x: F.gaussian_nll_loss(x, x * 2, x.abs() + 0.1, full=True),
    "a variance that may be negative": lambda x: F.gaussian_nll_loss(x, x * 2, x - 0.5, reduction="sum"),
    "custom operator": lambda x: (positive(x) * 2, positive(-x) + 1, torch.cat([positive(x), positive(1 - x)])),
    "custom operator with a number": lambda x: (x.new_zeros(count(x)) + 1, count(x)),
}  # fmt: skip


def outcome(call: Callable[..., Any], x: torch.Tensor, capsys: Any) -> Any:
    try:
        found: Any = call(x.clone())
    except Exception as error:  # noqa: BLE001
        return type(error), str(error)
    return found, capsys.readouterr().out


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("name", ONE_GRAPH)
def test_one_graph(name: str, backend: str, capsys: Any) -> None:
    program = ONE_GRAPH[name]
    stoker.log.clear()
    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    for x in XS:
        wanted, found = outcome(program, x, capsys), outcome(compiled, x, capsys)
        assert_agree(found, wanted)
    assert len(stoker.events("captured")) <= 2
    assert not stoker.events("backend")


def assert_agree(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted):
            assert_agree(a, b)
    elif isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted)
    elif isinstance(wanted, float):
        assert math.isclose(found, wanted, rel_tol=1e-6)
    else:
        assert found == wanted


DIFFERENTIABLE: list[Callable[[torch.Tensor], torch.Tensor]] = [
    lambda x: ((x * 2)[x.detach().argmax().item() :] ** 2).sum(),
    lambda x: (x * 2)[x.detach().argmax().item()] ** 2,
    lambda x: ((x * 2).narrow(0, x.detach().argmin(), 1) ** 2).sum(),
    lambda x: (x * x).topk(x.argmax().item() + 1).values.sin().sum(),
    lambda x: torch.outer(x, x).view(-1, x.argmax().item() * 0 + 1).sin().sum(),
    lambda x: torch.split(x * x, [x.argmax().item(), x.shape[0] - x.argmax().item()])[1].sin().sum(),
    lambda x: (x * x * int(x.sum())).sum() + (x * x)[x.sum() > 3].sum(),
    lambda x: (x * x * (x.sum() > 3).item()).sum(),
    lambda x: (
        torch.zeros(len(x)).index_add(0, torch.where(x > 0)[0], (x * x)[torch.where(x > 0)[0]].sin()).square().sum()
    ),
    lambda x: torch.index_fill(x * 2, 0, torch.tensor([0, 1]), x.sum()).square().sum(),
    lambda x: (
        F.ctc_loss(
            torch.outer(x, torch.arange(8.0)).reshape(-1, 2, 4).log_softmax(2),
            torch.tensor([[1], [2]]),
            torch.tensor([2, 2]),
            torch.tensor([1, 1]),
        )
        if len(x) == 4
        else x.sum()
    ),
]


@pytest.mark.parametrize("program", DIFFERENTIABLE)
def test_gradients(program: Callable[..., Any]) -> None:
    compiled = stoker.compile(program, fullgraph=True)
    for x in XS:
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        compiled(a).backward()
        program(b).backward()
        torch.testing.assert_close(a.grad, b.grad)


def test_a_number_that_python_cannot_hold() -> None:
    def program(x: torch.Tensor) -> Any:
        return x * 2, int(x.sum())

    compiled = stoker.compile(program, fullgraph=True)
    assert compiled(XS[0])[1] == 2
    with pytest.raises(OverflowError, match="cannot convert float infinity to integer"):
        compiled(torch.tensor([1.0, 2.0, 3.0, math.inf]))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.new(x.shape).fill_(1.0),
        lambda x: x.new(torch.Size([2, 3])).zero_(),
        lambda x: x.new(4, 2).zero_(),
        lambda x: x.new((4.0, 2.0)),
        lambda x: x.new([1.5, 2.0]),
        lambda x: x.new(),
    ],
)
def test_new(program):
    """Sizes make a tensor without content, other tuples are its content."""
    x = torch.randn(3, 2)
    torch.testing.assert_close(stoker.compile(program)(x), program(x))


def test_combinations_lie_as_eagers() -> None:
    x = torch.arange(4.0)
    for f in (lambda x: torch.combinations(x), lambda x: torch.combinations(x, 3, True)):
        mine, eager = stoker.compile(f)(x), f(x)
        torch.testing.assert_close(mine, eager)
        assert mine.stride() == eager.stride()


def test_ragged_rows() -> None:
    """Sizes from a list of data, padded by torch's own Python."""

    def f(x, lengths):
        parts = x.split(lengths.tolist())
        return [p.mean(0) for p in parts], torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)

    compiled = stoker.compile(f)
    for lengths in ([1, 2], [2, 3], [4, 1], [1, 2, 3]):
        x = torch.randn(sum(lengths), 2)
        torch.testing.assert_close(compiled(x, torch.tensor(lengths)), f(x, torch.tensor(lengths)))


def test_a_tensor_with_strides_by_data_is_written_in_the_graph() -> None:
    """Its rows lie as far apart as they are long, however long data makes them."""

    def program(lengths):
        n = int(lengths.max())
        return torch.nn.functional.dropout(torch.ones(3, n, 4), 0.5)

    stoker.reset()
    compiled = stoker.compile(program, fullgraph=True)
    for longest in (7, 5):
        torch.manual_seed(0)
        found = compiled(torch.tensor([2, longest]))
        torch.manual_seed(0)
        assert torch.equal(found, program(torch.tensor([2, longest])))
    assert not stoker.events("as captured")
