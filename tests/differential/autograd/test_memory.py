"""Writes where elements of tensors meet in memory, places counted from its start, versions, and what tensors know of themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {}


def program(function: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    PROGRAMS[function.__name__] = function
    return function


@program
def row_of_an_expanded(x):
    m = torch.zeros(1, 4).expand(3, 4)
    m[1] = 5.0
    return m + x[:1]


@program
def rows_of_an_expanded_filled(x):
    m = torch.zeros(1, 4).expand(3, 4)
    m[1:].fill_(5.0)
    return m + x[:1]


@program
def element_of_an_expanded(x):
    m = torch.zeros(4, 1).expand(4, 3)
    m[1:3, 2] = x[:2]
    r = m[1]
    return m + 0, r * 2


@program
def twice_through_an_expanded(x):
    m = torch.zeros(1, 4).expand(3, 4)
    r = m[1]
    r.copy_(x[:4])
    r[1:].mul_(2)
    return m + 0


@program
def window(x):
    u = x.clone().unfold(0, 3, 1)
    u[1].add_(1)
    u[1:3, 1].mul_(3)
    return u * 2


@program
def all_windows(x):
    u = x.clone()
    u.unfold(0, 3, 1).zero_()
    return u


@program
def by_strides_that_meet(x):
    u = x.clone()
    v = u.as_strided((3, 3), (1, 1))
    v[1] = 7
    return u, v + 0


@program
def the_next_element(x):
    x[1:].add_(x[:-1])
    return x


@program
def the_next_copied(x):
    x[1:].copy_(x[:-1])
    return x


@program
def columns_read_while_written(x):
    y = x.view(2, 3)
    y[:, 1:] += y[:, :-1]
    y /= y[:, -1:]
    return y


@program
def every_second(x):
    y = x.clone()
    y[0::2] = y[1::2]
    return y


@program
def itself(x):
    y = x.clone()
    y.add_(y)
    y.mul_(y[:])
    y.view(2, 3).t().add_(y.view(2, 3).t())
    return y


@program
def itself_turned(x):
    y = x.clone()[:4].view(2, 2)
    y.add_(y.t())
    return y


@program
def first_element_of_itself(x):
    y = x.clone()
    y.add_(y[0])
    return y


@program
def first_row_of_itself(x):
    y = x.clone().view(2, 3)
    y.sub_(y[:1].expand_as(y))
    return y


@program
def scattered_from_itself(x):
    y = x.clone()
    y.scatter_(0, torch.tensor([1, 0]), y[:2])
    return y


@program
def chained_pieces(x):
    a = x.clone()
    b, c = a[1:4], a[2:]
    b.mul_(2)
    c[:2].add_(b[1:])
    return a, b, c


@program
def a_view_of_a_conjugate(x):
    y = torch.view_as_complex(x[:4].view(2, 2).clone())
    w = y.conj().imag
    y.mul_(2j)
    return torch.view_as_real(y), w


def _outcome(f: Callable[..., Any], grad: bool) -> Any:
    x = torch.arange(1.0, 7.0, requires_grad=grad)
    given = x * 1 if grad else x
    try:
        results = f(given)
        results = results if isinstance(results, tuple) else (results,)
        told = [r.detach().clone() for r in results]
        if grad and all(r.requires_grad for r in results):
            sum((r * torch.arange(1.0, r.numel() + 1).view(r.shape)).sum() for r in results).backward()
            told.append(x.grad)
    except RuntimeError as error:
        return str(error).splitlines()[0], given.detach().clone()
    return told, given.detach().clone()


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, dynamic: bool | None, grad: bool) -> None:
    function = PROGRAMS[name]
    got, want = _outcome(stoker.compile(function, dynamic=dynamic), grad), _outcome(function, grad)
    if isinstance(want[0], str):
        assert got[0] == want[0]
        torch.testing.assert_close(got[1], want[1])
    else:
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("arguments", [((2,), (1,), 1), ((2,), (1,)), ((2, 2), (1, 2), 0)])
def test_places_in_memory(arguments: Any, grad: bool) -> None:
    def view(x):
        return x.as_strided(*arguments) * 2

    base, compiled = torch.arange(20.0, requires_grad=grad), stoker.compile(view)
    for start in (0, 5, 10):
        torch.testing.assert_close(compiled(base[start : start + 5]), view(base[start : start + 5]))


def test_each_write_is_counted() -> None:
    def twice(x, y):
        x.add_(1)
        x[0].mul_(2)
        y.data.add_(1)
        return x.sum() + y.sum()

    def run(f: Callable[..., Any]) -> list[int]:
        x, y = torch.ones(2), torch.ones(2)
        f(x, y)
        return [x._version, y._version]

    assert run(stoker.compile(twice)) == run(twice)


def test_a_gradient_that_is_retained() -> None:
    def square(x):
        y = x * 2
        y.retain_grad()
        return y, (y * y).sum()

    def run(f: Callable[..., Any]) -> list[Any]:
        x = torch.ones(3, requires_grad=True)
        y, s = f(x)
        s.backward()
        return [y.grad, x.grad]

    torch.testing.assert_close(run(stoker.compile(square)), run(square))


def test_inference_mode_inside() -> None:
    def inside(x):
        with torch.inference_mode():
            y = x * 2
            z = y[1:]
        return y, z

    def partly(x):
        with torch.inference_mode():
            y = x * 2
        return y, x + 1

    for f in (inside, partly):
        x = torch.ones(3, requires_grad=True)
        got, want = stoker.compile(f)(x), f(x)
        assert [t.is_inference() for t in got] == [t.is_inference() for t in want]
        assert [t.requires_grad for t in got] == [t.requires_grad for t in want]
        torch.testing.assert_close([t.detach() for t in got], [t.detach() for t in want])


def test_deterministic_memory_is_filled() -> None:
    def fresh(x):
        like = torch.empty_like(x, dtype=torch.int32)
        return torch.empty(3) + 0 * x, like, x.new_empty(2, dtype=torch.bool), torch.empty_strided((2,), (1,)) * 1

    compiled, x = stoker.compile(fresh), torch.ones(3)
    compiled(x)
    try:
        torch.use_deterministic_algorithms(True)
        torch.testing.assert_close(compiled(x), fresh(x), equal_nan=True)
        torch.utils.deterministic.fill_uninitialized_memory = False
        compiled(x)
        assert len(stoker.events("recompile")) >= 2
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = True
        torch.use_deterministic_algorithms(False)


BRANCHES: list[Callable[[torch.Tensor], Any]] = [
    lambda u: u.add_(5) < 1,
    lambda u: u.data.add_(5) is None or u < 1,
    lambda u: torch._foreach_add_([u], 5.0) is None and u < 1,
    lambda u: torch.add(u, 5, out=u) < 1,
    lambda u: (u < 1).logical_not_(),
    lambda u: u < 1,
]


@pytest.mark.parametrize("number", range(len(BRANCHES)))
def test_bounds_die_with_a_write(number: int) -> None:
    condition = BRANCHES[number]

    def branch(x):
        return x + 1 if condition(torch.rand([])) else x - 1

    torch.testing.assert_close(stoker.compile(branch)(torch.ones(2)), branch(torch.ones(2)))


RAISING: list[Callable[..., Any]] = [
    lambda a, b: a // b,
    lambda a, b: a % b,
    lambda a, b: torch.fmod(a, b),
    lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    lambda a, b: a // 0,
    lambda a, b: a % 0 + b,
    lambda a, b: torch.tensor([1]) // torch.tensor([0]) + a,
    lambda a, b: torch._assert_async((a.sum() > 100)),
    lambda a, b: (torch._assert_async(b.all(), "all of them"), a + 1),
]


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("number", range(len(RAISING)))
def test_what_raises_in_eager_raises(number: int, grad: bool) -> None:
    f, given = RAISING[number], (torch.tensor([1, 2]), torch.tensor([0, 1]))
    compiled = stoker.compile(f)
    with torch.set_grad_enabled(grad):
        for _ in range(2):
            with pytest.raises(RuntimeError) as eager:
                f(*given)
            with pytest.raises(RuntimeError) as mine:
                compiled(*given)
            assert str(mine.value).splitlines()[0] == str(eager.value).splitlines()[0]


def test_an_error_that_is_caught_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    def add(x):
        x.add_(1)
        return x

    with pytest.raises(RuntimeError):
        stoker.compile(add)(torch.zeros(1).expand(3))
    assert capfd.readouterr().err == ""
