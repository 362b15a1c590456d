"""Hooks on saved tensors that the program sets around operators: one graph where they only compute, a break where they do more."""

from __future__ import annotations

import contextlib
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import disable_saved_tensors_hooks, save_on_cpu, saved_tensors_hooks
from torch.nn import functional as F

import stoker
import stoker.errors
from stoker import log, torch_private

LINEAR = nn.Linear(4, 4)
SEEN: list[Any] = []


def to_half(tensor):
    return tensor.half() if tensor.is_floating_point() else tensor


def from_half(tensor):
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def in_half(x):
    with saved_tensors_hooks(to_half, from_half):
        y = x.sin() * x.exp()
    return (y * y).sum()


def seen_in_gradients(x):
    with saved_tensors_hooks(lambda t: t * 1, lambda t: t * 2):
        return (x**3).sum()


def on_the_processor(x):
    with save_on_cpu():
        y = F.gelu(LINEAR(x))
    return y.sum() + x.sin().sum()


def on_the_processor_pinned(x):
    with save_on_cpu(pin_memory=True):
        return F.softmax(LINEAR(x), -1)[0].sum()


def with_types(x):
    def pack(tensor):
        return (tensor.dtype, tensor.to(torch.bfloat16)) if tensor.is_floating_point() else (None, tensor)

    def unpack(packed):
        dtype, tensor = packed
        return tensor if dtype is None else tensor.to(dtype)

    with saved_tensors_hooks(pack, unpack):
        y = F.dropout(LINEAR(x).relu(), 0.5)
        return F.cross_entropy(y, x.argmax(-1))


def by_size(x):
    with saved_tensors_hooks(lambda t: t.half() if t.numel() > 10 else t, lambda t: t.float()):
        return (LINEAR(x) * LINEAR.bias.sin()).exp().sum()


def inside_each_other(x):
    with saved_tensors_hooks(to_half, from_half):
        with saved_tensors_hooks(lambda t: t, lambda t: t * 0):
            a = x.sin()
        b = x.cos() * a
    return b.sum()


def a_number_around(x):
    k = 2
    with saved_tensors_hooks(lambda t: t * k, lambda t: t / k):
        return x.sin().exp().sum()


def never_called(x):
    with torch.no_grad(), saved_tensors_hooks(lambda t: 1 / 0, lambda t: t):
        y = x.sin()
    return (x * y).sum()


def a_backward_inside(x):
    y = x.detach().clone().requires_grad_()
    with saved_tensors_hooks(to_half, from_half):
        (y.sin() * y).sum().backward()
    return (y.grad * x).sum()


def turned_off(x):
    with disable_saved_tensors_hooks("no hooks"):
        try:
            with save_on_cpu():
                return x.sin().sum()
        except RuntimeError as error:
            return x.cos().sum() * len(str(error))


def left_by_an_error(x):
    try:
        with save_on_cpu():
            y = x.sin()
            raise ValueError
    except ValueError:
        return (y * x.exp()).sum()


ONE_GRAPH = [
    in_half, seen_in_gradients, on_the_processor, on_the_processor_pinned, with_types, by_size, inside_each_other, a_number_around,
    never_called, a_backward_inside, turned_off, left_by_an_error,
]  # fmt: skip


def of_a_tensor_around(x):
    scale = x.abs().max().detach()
    with saved_tensors_hooks(lambda t: t / scale, lambda t: t * scale):
        return (x.sin() * 2).exp().sum()


def with_effects(x):
    def pack(tensor):
        SEEN.append(tensor.shape)
        return tensor

    with saved_tensors_hooks(pack, lambda t: t):
        return (x.sin() * 2).exp().sum()


def a_break_inside(x):
    with saved_tensors_hooks(to_half, from_half):
        y = x.sin()
        zlib.adler32(b"")
        y = y.exp()
    return y.sum()


def a_variable_set_inside(x):
    k = 2
    with saved_tensors_hooks(lambda t: t * k, lambda t: t):
        y = x.sin()
        k = 3
        y = y.exp()
    return y.sum()


OTHERS = [of_a_tensor_around, with_effects, a_break_inside]


def _outcome(program: Callable[..., Any], number: int) -> Any:
    SEEN.clear()
    LINEAR.zero_grad()
    torch.manual_seed(number)
    x = torch.randn(3, 4, requires_grad=True)
    result = program(x)
    result.backward()
    assert torch_private.top_saved_tensors_hooks(False) is None
    return result.detach(), x.grad, LINEAR.weight.grad, torch.get_rng_state(), len(SEEN)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda f: f.__name__)
def test_in_one_graph(program: Callable[..., Any], backend: str) -> None:
    log.clear()
    compiled = stoker.compile(program, backend=backend)
    for number in range(3):
        torch.testing.assert_close(_outcome(compiled, number), _outcome(program, number))
    assert not log.events("break")


@pytest.mark.parametrize("program", OTHERS, ids=lambda f: f.__name__)
def test_others(program: Callable[..., Any]) -> None:
    """They see what eager saves: CPython runs the function, and says why."""
    log.clear()
    compiled = stoker.compile(program)
    for number in range(3):
        torch.testing.assert_close(_outcome(compiled, number), _outcome(program, number))
    assert any("tensors that are saved" in event.reason for event in log.events("skip"))
    with pytest.raises(stoker.errors.GraphBreakError):
        _outcome(stoker.compile(program, fullgraph=True), 0)


def test_a_variable_set_while_they_are_active() -> None:
    log.clear()
    _outcome(stoker.compile(a_variable_set_inside, backend="eager"), 0)
    assert "a variable that it reads is set while it is active" in log.events("skip")[0].reason


def test_a_function_that_changes_is_seen() -> None:
    def program(x, pack):
        with saved_tensors_hooks(pack, lambda t: t):
            return (x**2).sum()

    compiled = stoker.compile(program, backend="aot_eager")
    for factor in (1, 2, 3, 2):
        found = []
        for function in (program, compiled):
            x = torch.ones(3, requires_grad=True)
            function(x, lambda t, factor=factor: t * factor).backward()
            found.append(x.grad)
        torch.testing.assert_close(*found)
        closed = (lambda k: lambda t: t * k)(factor)
        found = []
        for function in (program, compiled):
            x = torch.ones(3, requires_grad=True)
            function(x, closed).backward()
            found.append(x.grad)
        torch.testing.assert_close(*found)


def test_an_error_leaves_no_hooks() -> None:
    def program(x, index):
        with save_on_cpu():
            return x.sin()[index].exp().sum()

    compiled = stoker.compile(program)
    compiled(torch.ones(3, requires_grad=True), torch.tensor([1]))
    with pytest.raises(IndexError):
        compiled(torch.ones(3, requires_grad=True), torch.tensor([7]))
    assert torch_private.top_saved_tensors_hooks(False) is None


def _counted(program: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        seen: list[int] = []

        def pack(t: torch.Tensor) -> torch.Tensor:
            seen.append(t.numel())
            return t

        return program(x, pack), len(seen)

    return run


@contextlib.contextmanager
def around(pack: Callable[..., Any]) -> Iterator[None]:
    with saved_tensors_hooks(pack, lambda t: t):
        yield


def set_by_a_callee(x, pack):
    def inner(x):
        with saved_tensors_hooks(pack, lambda t: t):
            return (x.exp() * x).sum()

    return inner(x * 2) * 3


def set_by_a_generator(x, pack):
    with around(pack):
        return (x.exp() * x).sum()


def set_by_a_stack(x, pack):
    with contextlib.ExitStack() as stack:
        stack.enter_context(saved_tensors_hooks(pack, lambda t: t))
        return (x.exp() * x).sum()


def raises_while_saving(x, pack):
    def refuse(t):
        raise RuntimeError("no saving")

    try:
        with saved_tensors_hooks(refuse, lambda t: t):
            return x * x
    except RuntimeError:
        return x * 2


def by_numpy(x, pack):
    with saved_tensors_hooks(lambda t: t.detach().numpy().copy(), lambda a: torch.from_numpy(a)):
        return (x * x).sin()


@pytest.mark.parametrize(
    "program",
    [set_by_a_callee, set_by_a_generator, set_by_a_stack, raises_while_saving, by_numpy],
    ids=lambda f: f.__name__,
)
def test_what_hooks_see_is_what_eager_saves(program: Callable[..., Any]) -> None:
    """However they are set, and none is left behind."""
    plain, compiled = _counted(program), stoker.compile(_counted(program))
    for _ in range(3):
        x, y = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
        (wanted, count), (found, seen) = plain(x), compiled(y)
        wanted.sum().backward()
        found.sum().backward()
        torch.testing.assert_close((found, y.grad), (wanted, x.grad))
        assert seen == count
        assert torch._C._autograd._top_saved_tensors_default_hooks(True) is None
