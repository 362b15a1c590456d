"""Inputs that lie in one memory, one of them written: eager against compiled, and that it is compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker import log
from stoker.autograd import aot, run_eagerly
from stoker.decompose import table

from .compare import check
from .programs import capture

Maker = Callable[[], list[Any]]


def plain(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def inner(*shape: int) -> torch.Tensor:
    return leaf(*shape) * 1.5


def views(make: Callable[..., torch.Tensor], *of: Callable[[torch.Tensor], torch.Tensor]) -> Maker:
    def inputs() -> list[Any]:
        base = make(3, 4)
        return [view(base) for view in of]

    return inputs


def itself(x: torch.Tensor) -> torch.Tensor:
    return x


def flat(x: torch.Tensor) -> torch.Tensor:
    return x.view(-1)


def unseen(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        return x.view(-1)


PROGRAMS: dict[str, tuple[Callable[..., Any], Maker]] = {}


def program(*makers: Maker) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for number, make in enumerate(makers):
            PROGRAMS[f"{function.__name__}-{number}"] = (function, make)
        return function

    return register


BOTH = [views(plain, itself, flat), views(inner, itself, flat), views(plain, flat, itself), views(inner, flat, itself)]


@program(*BOTH)
def write_one_read_other(x, y):
    x.mul_(2)
    return y.sin()


@program(*BOTH)
def write_both(x, y):
    x.mul_(2)
    y.add_(x.reshape(y.shape))
    x.mul_(3)
    return x.cos(), y


@program(*BOTH)
def write_between_reads(x, y):
    before = y * 3
    x.add_(1)
    return before + y, x


@program(*BOTH)
def write_without_grad(x, y):
    with torch.no_grad():
        x.mul_(2)
    return y * 2


@program(views(plain, itself, itself), views(inner, itself, itself), views(plain, flat, flat), views(inner, flat, flat))
def same_geometry(x, y):
    x.add_(y)
    return x + y, y


@program(
    views(plain, lambda b: b[:2], lambda b: b[1:]),
    views(inner, lambda b: b[:2], lambda b: b[1:]),
    views(plain, lambda b: b[:, :3], lambda b: b[:, 1:]),
    views(inner, lambda b: b.t()[:3], lambda b: b.t()[1:]),
    views(plain, lambda b: flat(b)[::2], lambda b: flat(b)[1::2]),
    views(inner, lambda b: flat(b)[::2], lambda b: flat(b)[1::2]),
)
def part_in_common(x, y):
    x.mul_(2)
    return x.sum() + (y * y).sum(), x[0]


@program(views(plain, itself, flat), views(inner, itself, flat))
def returns_them_and_views(x, y):
    x.mul_(2)
    return y, x, x[0], y[2:5]


@program(lambda: [*views(plain, itself, flat)(), leaf(12)], lambda: [*views(inner, itself, flat)(), leaf(12)])
def writes_a_gradient(x, y, w):
    y.mul_(w)
    return x.exp()


@program(
    views(inner, itself, lambda b: b.detach()), views(leaf, itself, lambda b: b.detach()), views(plain, itself, unseen)
)
def not_a_view_for_autograd(x, y):
    with torch.no_grad():
        y.mul_(2)
    return x * 3, y


@program(lambda: (lambda a, b: [a, a[0], b, b[1]])(inner(3, 4), plain(3, 4)))
def two_groups(x, x0, y, y1):
    x0.mul_(2)
    y.add_(x)
    return x + y, y1


@program(lambda: (lambda a: [a, a[0], leaf(4)])(inner(3, 4)))
def view_of_a_view_written(x, row, w):
    row[1:].mul_(w[1:])
    x.view(-1)[5:8].add_(1)
    return x * row


def graph_of(function: Any, make: Maker) -> torch.fx.GraphModule:
    """Each argument an input of its own, also where two share memory."""
    apart = [torch.empty_strided(x.shape, x.stride()).copy_(x.detach()) for x in make()]
    return capture(function, *apart)[0]


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("grad", [True, False])
@pytest.mark.parametrize("decomposed", [True, False])
def test_program(name: str, grad: bool, decomposed: bool) -> None:
    """Gradients of one memory through several names add up in another order: equal but for rounding."""
    function, make = PROGRAMS[name]
    log.clear()
    with torch.set_grad_enabled(grad):
        graph = graph_of(function, make)
    check(graph, make, exact=False, grad=grad, decompositions=table() if decomposed else None)
    assert not log.events("as captured")


def write_first(x, y):
    x.mul_(2)
    return (y * 3,)


def test_one_graph_for_every_overlap() -> None:
    graph = graph_of(write_first, views(plain, flat, flat))
    compiled = aot(graph, [plain(12), plain(12)], forward_compiler=run_eagerly)
    log.clear()
    for make in (
        lambda: [plain(12), plain(12)],
        views(plain, flat, flat),
        lambda: (lambda b: [b[:12], b[2:14]])(plain(20)),
        lambda: (lambda b: [b[2:14], b[:12]])(plain(20)),
        lambda: (lambda b: [b[:24:2], b[1:25:2]])(inner(30)),
    ):
        seen = []
        for call in (graph, compiled):
            torch.manual_seed(1)
            inputs = make()
            seen.append((*call(*inputs), *inputs, inputs[0]._version, inputs[1]._version))
        for ours, theirs in zip(seen[1], seen[0]):
            assert torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs
    assert not log.events("as captured")


def test_versions_count_as_in_eager() -> None:
    compiled = stoker.compile(lambda x, y: write_first(x, y)[0], backend="aot_eager")
    base = leaf(4) * 1
    saved = (base * base).sum()
    compiled(base, base.view(2, 2))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.backward()


def test_view_of_a_leaf() -> None:
    base = leaf(3, 4)
    with pytest.raises(RuntimeError, match="a view of a leaf Variable that requires grad"):
        stoker.compile(write_first, backend="aot_eager")(base[0], base[:2])


def test_made_several_at_once() -> None:
    parts = inner(4, 4).split(2)
    with pytest.raises(RuntimeError, match="is a view and is being modified inplace"):
        stoker.compile(write_first, backend="aot_eager")(parts[0], parts[0])


def test_gradient_of_gradient_is_refused() -> None:
    """It needs what the inputs held before they were overwritten."""

    def program(x, y):
        x.add_(y * 2)
        return (y * x).exp()

    start = leaf(5)
    base = start * 0.5
    result = stoker.compile(program, backend="aot_eager")(base, base[:]).sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(result, start, create_graph=True)


def test_write_to_a_leaf_without_grad() -> None:
    def program(x, y):
        with torch.no_grad():
            x.mul_(2)
        return y * y

    seen = []
    for call in (program, stoker.compile(program, backend="aot_eager")):
        for names in ((itself, flat), (flat, itself)):
            torch.manual_seed(0)
            base = leaf(3, 4)
            call(*(view(base) for view in names)).sum().backward()
            seen += [base.detach(), base.grad, base._version]
    for ours, theirs in zip(seen[6:], seen[:6], strict=True):
        assert torch.equal(ours, theirs) if isinstance(ours, torch.Tensor) else ours == theirs


def test_overlaps_without_end_run_as_captured() -> None:
    graph = graph_of(write_first, lambda: [plain(3), plain(3)])
    compiled = aot(graph, [plain(3), plain(3)], forward_compiler=run_eagerly)
    log.clear()
    for start in range(12):
        base = torch.arange(30.0)
        (result,) = compiled(base[start : start + 3], base[start + 1 : start + 4])
        expected = torch.arange(30.0)
        expected[start : start + 3] *= 2
        assert torch.equal(result, expected[start + 1 : start + 4] * 3) and torch.equal(base, expected)
    assert len(log.events("as captured")) == 1
