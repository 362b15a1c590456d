"""Programs that write and alias: each kind, eager against compiled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker import log

from .compare import check
from .programs import capture

Maker = Callable[[], list[Any]]


def leaf(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, requires_grad=True)


def plain(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def inner(*shape: int) -> torch.Tensor:
    return leaf(*shape) * 1.5


PROGRAMS: dict[str, tuple[Callable[..., Any], Maker]] = {}


def program(*makers: Callable[[], list[Any]]) -> Callable[[Any], Any]:
    def register(function: Any) -> Any:
        for number, make in enumerate(makers):
            PROGRAMS[f"{function.__name__}-{number}"] = (function, make)
        return function

    return register


@program(lambda: [plain(3, 4)], lambda: [inner(3, 4)])
def add_in_place(x):
    y = x.add_(1)
    return y * 2


@program(lambda: [plain(3, 4), leaf(4)], lambda: [inner(3, 4), leaf(4)])
def through_a_view(x, w):
    x[1].mul_(w)
    x[:, 2] = 5.0
    return x.sin()


@program(lambda: [leaf(3, 4)])
def on_an_intermediate(x):
    y = x * 2
    z = y.view(-1)
    z[2:5].add_(3)
    y.t().mul_(2)
    return y, z.cos()


@program(lambda: [plain(3, 4)], lambda: [inner(3, 4)])
def through_views_of_nothing(x):
    y = x * 2
    y.expand(0, 3, 4).clamp_(min=3)
    y[:, :0].expand(2, 3, 0).add_(1)
    y.unfold(0, 2, 1)[:0].mul_(2)
    y[3:].view(-1).fill_(7)
    y.t()[:0].diagonal().sub_(1)
    x.expand(0, 3, 4).add_(1)
    return y, x + 1


@program(lambda: [leaf(3, 4)])
def under_no_grad(x):
    y = x * 2
    with torch.no_grad():
        x.add_(1)
    return y + x


@program(lambda: [leaf(3, 4)], lambda: [plain(3, 4)], lambda: [inner(3, 4)])
def returns_views_of_input(x):
    return x.view(-1), x[0], x.t(), x.detach(), x


@program(lambda: [leaf(3, 4)], lambda: [plain(3, 4)])
def returns_views_of_each_other(x):
    y = x * 2
    return y, y.view(4, 3), y[1]


@program(lambda: [leaf(3, 4)])
def returns_only_views(x):
    y = x * 2
    return y.view(4, 3), y[1].detach()


@program(lambda: [leaf(3, 4)], lambda: [plain(3, 4)])
def returns_same_twice(x):
    y = x + 1
    return y, y, x, x


@program(lambda: [plain(3, 4), plain(3, 4)], lambda: [inner(3, 4), leaf(3, 4)])
def copy_between(x, y):
    x.copy_(y)
    return x * 2


@program(lambda: [plain(3, 4), plain(4)], lambda: [inner(3, 4), leaf(4)])
def copy_broadcasts(x, y):
    x.copy_(y)
    return x * 2


@program(lambda: [plain(4, 3).t(), plain(3, 4)], lambda: [inner(4, 3).t(), plain(3, 4)])
def writes_a_transposed_input(x, y):
    x.add_(y)
    return x.view(12) if x.is_contiguous() else x.reshape(12)


@program(lambda: [plain(3, 4), plain(3, 4).double()])
def writes_another_type(x, y):
    x.add_(y)
    return x + 1


@program(lambda: [plain(3, 4)], lambda: [inner(3, 4)])
def moves_an_input(x):
    x.mul_(2)
    x.t_()
    x.unsqueeze_(0)
    return x + 1


@program(lambda: [leaf(3, 4)])
def moves_an_intermediate(x):
    y = x * 2
    y.t_()
    y.squeeze_()
    return y


@program(lambda: [plain(3, 4)], lambda: [inner(3, 4)])
def moves_by_strides(x):
    x.mul_(2)
    x.t_()
    x.as_strided_((2, 2), (1, 2), 1)
    x.mul_(3)
    return x + 1


@program(lambda: [plain(3, 4)], lambda: [inner(3, 4)])
def moves_a_view_by_strides(x):
    y = x.view(-1)
    y.as_strided_((2, 2), (2, 1))
    y.mul_(2)
    return x + 1, y


@program(lambda: [plain(3, 4)], lambda: [inner(3, 4)])
def moves_a_view(x):
    y = x[1:]
    y.t_()
    y[1].mul_(2)
    return x + 1, y


@program(lambda: [plain(3, 4)], lambda: [inner(3, 4)])
def swaps_axes(x):
    x.swapaxes_(0, 1)
    return x.transpose_(0, 1).unsqueeze_(1).squeeze_() * 2


@program(lambda: [inner(3, 4)], lambda: [plain(3, 4)])
def detaches_an_input(x):
    y = x * 3
    x.mul_(2)
    x.detach_()
    return x * 2, y


@program(lambda: [inner(3, 4), leaf(3, 4)])
def writes_to_a_detached_input(x, w):
    y = x * 3
    x.detach_()
    x.mul_(w)
    return y


@program(lambda: [leaf(3, 4)])
def reads_without_gradient(x):
    return x.detach() * 2


@program(lambda: [plain(6, 4)])
def splits_and_writes(x):
    a, b = x.split([2, 4])
    with torch.no_grad():
        a.detach().add_(1)
    for row in b.unbind():
        with torch.no_grad():
            row.detach().mul_(2)
    return a * b[:2]


@program(lambda: [plain(4, 4)], lambda: [inner(4, 4)])
def diagonal(x):
    x.diagonal().add_(1)
    return x * 2


@program(lambda: [plain(12)], lambda: [inner(12)])
def strided(x):
    y = x.as_strided((2, 3), (1, 2), 1)
    y.mul_(3)
    return x + 1, y * 2


@program(lambda: [plain(3, 4)])
def out_argument(x):
    y = torch.empty(3, 4)
    torch.add(x, 1, out=y)
    z = torch.empty(0)
    torch.mul(x, 2, out=z)
    return y, z


@program(lambda: [plain(3, 4), plain(3, 4)])
def out_is_an_input(x, y):
    torch.add(x, 1, out=y)
    return y * 2


@program(lambda: [leaf(3, 4)])
def index_put(x):
    y = x.clone()
    y[torch.tensor([0, 2])] = 1.0
    y[:, 1:3] += x[:, 1:3]
    return y


@program(lambda: [leaf(2, 3, 4, 4), plain(3), torch.ones(3), leaf(3), leaf(3)])
def batch_norm(x, mean, variance, weight, bias):
    return F.batch_norm(x, mean, variance, weight, bias, training=True)


@program(lambda: [leaf(2, 3, 4, 4), plain(3), torch.ones(3), leaf(3), leaf(3)])
def batch_norm_evaluated(x, mean, variance, weight, bias):
    return F.batch_norm(x, mean, variance, weight, bias)


@program(lambda: [leaf(8, 8)], lambda: [plain(8, 8)])
def dropout(x):
    return F.dropout(x, 0.3) * F.dropout(x.relu(), 0.5)


@program(lambda: [leaf(8, 8)])
def unused_random(x):
    torch.rand(3)
    return torch.rand_like(x) * x


@program(lambda: [leaf(3), leaf(3)])
def no_gradient_for_some(x, y):
    return x * 2, y.detach() * 3, (x > 0)


@program(lambda: [leaf(3), leaf(3)])
def unused_input(x, y):
    return x * 2


@program(lambda: [leaf(3)])
def detach_in_place(x):
    y = x * 2
    y.detach_()
    return y + x


@program(lambda: [leaf(3, 1)])
def expanded_output(x):
    return (x * 2).expand(3, 4)


@program(lambda: [leaf(3, 4)])
def fill_and_zero(x):
    y = x * 2
    y[0].zero_()
    y[1:].fill_(3)
    y[2, 1] = x[0, 0]
    return y


@program(lambda: [leaf(3, 4)])
def relu_in_place(x):
    return F.relu((x + 1).mul_(2), inplace=True)


@program(lambda: [plain(3, 4)], lambda: [leaf(3, 4)])
def mutates_data(x):
    y = x * 2
    y.data.add_(1)
    return y


@program(lambda: (lambda b: [b, b])(plain(3)))
def same_input_twice(x, y):
    x.add_(1)
    return x + y


@program(lambda: (lambda b: [b[:2], b[1:], b])(plain(3)), lambda: (lambda b: [b[:2], b[1:], b])(inner(3)))
def inputs_view_each_other(x, y, z):
    x.add_(1)
    return x + y, z * 2


@program(lambda: (lambda b: [b[:2], b[1:]])(plain(3)))
def aliased_inputs_unwritten(x, y):
    return x + y, x


@program(lambda: [plain(3, 4)[:, :3]], lambda: [inner(3, 4)[:, :3]], lambda: [inner(4, 6).t()[::2]])
def writes_with_gaps(x):
    y = x[1]
    x.mul_(2)
    x[:, 1].add_(y[0])
    return x * y[0], y, x.as_strided((2, 2), (2, 1), x.storage_offset())


@program(lambda: [plain(3, 4)])
def complex_views(x):
    z = torch.view_as_complex(x.view(3, 2, 2))
    z.mul_(2j)
    return z, torch.view_as_real(z)


@program(lambda: [leaf(3, 4)])
def writes_a_constant(x):
    c = torch.tensor([1.0, 2.0, 3.0, 4.0])
    c.add_(1)
    return x * c


@program(lambda: [[leaf(3), leaf(3)], [plain(3), plain(3)]][1] + [leaf(3)])
def foreach(a, b, w):
    torch._foreach_add_([a, b], 1.0)
    torch._foreach_mul_([a, b], [b, a])
    return a * w


PLACED = "an input that requires a gradient is written, and looked at by its place in memory"
MOVED = "an input in shared or strided memory is written and given other sizes"
AS_CAPTURED = {
    "moves_by_strides-0": MOVED,
    "foreach-0": "aten._foreach_mul_.List reads what it writes",
    "out_argument-0": "out= resizes a tensor that has other names",
}
AS_CAPTURED["moves_by_strides-1"] = MOVED
WITH_GRAD = {
    "moves_by_strides-1": PLACED,
    "strided-1": PLACED,
    "writes_with_gaps-1": PLACED,
    "writes_with_gaps-2": PLACED,
    "moves_a_view_by_strides-1": "aten.as_strided_.default moves a view, and gradients may flow through it",
    "moves_a_view-1": "aten.t_.default moves a view, and gradients may flow through it",
}
ROUNDED = {"inputs_view_each_other-1", "writes_with_gaps-1", "writes_with_gaps-2"}
"""Gradients of one memory through several names add up in another order."""


@pytest.mark.parametrize("name", sorted(PROGRAMS))
@pytest.mark.parametrize("grad", [True, False])
def test_program(name: str, grad: bool) -> None:
    function, make = PROGRAMS[name]
    torch.manual_seed(7)
    example = make()
    with torch.set_grad_enabled(grad):
        graph, lifted, _ = capture(function, *example)
    assert len(lifted) >= len({id(e) for e in example})
    extra = lifted[len({id(e) for e in example}) :]

    def inputs() -> list[Any]:
        made = make()
        return list({id(m): m for m in made}.values()) + [e.clone() for e in extra]

    log.clear()
    check(graph, inputs, grad=grad, exact=name not in ROUNDED)
    reason = WITH_GRAD.get(name, AS_CAPTURED.get(name)) if grad else AS_CAPTURED.get(name)
    assert {e.reason for e in log.events("as captured")} == ({reason} if reason else set())


def test_requires_grad_of_an_input_changes() -> None:
    def flip(x):
        y = x * 2
        x.requires_grad_()
        return y, x * 3

    graph = capture(flip, plain(3))[0]
    log.clear()
    check(graph, lambda: [plain(3)])
    assert [e.reason for e in log.events("as captured")] == [
        "requires_grad of an input is changed, and a result needs its gradient"
    ]


@pytest.mark.parametrize("apart", [torch.chunk, torch.split, torch.tensor_split])
@pytest.mark.parametrize("grad", [False, True])
def test_pieces_returned_after_a_write(apart: Callable[..., Any], grad: bool) -> None:
    def pieces(a):
        q, k = apart(a, 2 if apart is not torch.split else 1)
        a.mul_(2)
        return q, k

    x = torch.ones(2, 3, requires_grad=grad)
    for got, want in zip(stoker.compile(pieces)(x * 1), pieces(x * 1), strict=True):
        torch.testing.assert_close(got.detach(), want.detach())


def test_an_operator_that_writes_a_list_and_a_tensor() -> None:
    def unscale(a, b, found, scale):
        torch._amp_foreach_non_finite_check_and_unscale_([a, b], found, scale)

    def run(f: Callable[..., Any]) -> list[torch.Tensor]:
        written = [torch.ones(3), torch.full((2,), float("inf")), torch.zeros(1)]
        f(*written, torch.tensor(0.5))
        return written

    torch.testing.assert_close(run(stoker.compile(unscale)), run(unscale))


def _init_parameter(p: torch.nn.Parameter) -> None:
    with torch.no_grad():
        p.uniform_(-1, 1)


def _make_module(p: torch.nn.Parameter) -> torch.nn.Module:
    return torch.nn.Linear(3, 2)


@pytest.mark.parametrize("function", [_init_parameter, _make_module])
@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
def test_leaves_written_without_grad(function: Any, backend: str) -> None:
    """What a graph computes for a leaf is written to it without gradients, too, in inference mode or not."""
    found = []
    for call in (function, stoker.compile(function, backend=backend)):
        torch.manual_seed(0)
        parameter = torch.nn.Parameter(torch.zeros(3))
        made = call(parameter)
        with torch.inference_mode():
            call(torch.zeros(3))
        found.append([parameter.detach(), parameter._version, *(list(made.parameters()) if made is not None else [])])
    torch.testing.assert_close(found[1], found[0])


def test_a_row_of_a_repetition_is_written_at_sizes_that_vary() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        x.expand(2, *x.shape)[0][0, 0] = 9
        return x

    compiled = stoker.compile(program, dynamic=True)
    for sizes in ((4, 6), (3, 5), (1, 1)):
        given, again = torch.zeros(sizes), torch.zeros(sizes)
        assert compiled(given) is given
        assert torch.equal(given, program(again))
