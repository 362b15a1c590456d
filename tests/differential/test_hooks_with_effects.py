"""Hooks that do more than compute, on tensors in the middle of a graph: a backward behind the graph calls them, as often as it passes."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker
from stoker.graph import program_hook

Tensor = torch.Tensor


class Record:
    def __init__(self) -> None:
        self.seen: list[Any] = []
        self.last: Tensor | None = None

    def keep(self, gradient: Tensor) -> None:
        self.last = gradient


def _appends(x, record):
    y = x * 2
    y.register_hook(lambda gradient: record.seen.append(gradient))
    return (y * 3 * y).sum() + y.sum()


def _writes_an_attribute(x, record):
    y = x * 2
    before = y * 5
    y.register_hook(record.keep)
    return (before * y).sum()


def _changes_the_gradient(x, record):
    y = x * 2

    def clipped(gradient):
        record.seen.append(gradient.norm())
        return gradient.clamp(max=1.0)

    y.register_hook(clipped)
    return (y * y).sum()


def _several(x, record):
    a = x * 2
    b = a * 3
    a.register_hook(lambda gradient: record.seen.append((1, gradient)))
    b.register_hook(lambda gradient: record.seen.append((2, gradient)))
    b.register_hook(lambda gradient: record.seen.append((3, gradient)))
    return (a * b).sum()


def _by_size(x, record):
    sizes = x.shape
    y = x.relu()
    y.register_hook(lambda gradient: record.seen.append((tuple(sizes), gradient.sum())))
    return (y * y).mean()


def _written_behind_it(x, record):
    y = x * 2
    y.register_hook(lambda gradient: record.seen.append(gradient))
    y.mul_(3)
    return (y * y).sum()


def _of_a_result(x, record):
    y = x * 2
    y.register_hook(lambda gradient: record.seen.append(gradient))
    return (y * y).sum(), y


def _removed(x, record):
    y = x * 2
    y.register_hook(lambda gradient: record.seen.append(gradient)).remove()
    return (y * y).sum()


def _with_its_handle(x, record):
    y = x * 2
    return (y * y).sum(), y.register_hook(lambda gradient: record.seen.append(gradient))


PROGRAMS: list[Callable[..., Any]] = [
    _appends,
    _writes_an_attribute,
    _changes_the_gradient,
    _several,
    _by_size,
    _written_behind_it,
    _of_a_result,
    _removed,
    _with_its_handle,
]


def _observed(run: Callable[..., Any]) -> list[Any]:
    found = []
    for size in (4, 4, 6, 3):
        record, x = Record(), torch.arange(float(size)).requires_grad_()
        made = run(x, record)
        loss, handle = made if isinstance(made, tuple) else (made, None)
        loss.backward(retain_graph=True)
        if isinstance(handle, torch.utils.hooks.RemovableHandle):
            handle.remove()
        loss.backward()
        found.append([loss.detach(), x.grad, record.seen, record.last])
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_one_graph(program: Callable[..., Any], backend: str) -> None:
    options = {} if backend == "stoker" else {"backend": backend}
    found = _observed(stoker.compile(program, fullgraph=True, **options))
    torch.testing.assert_close(found, _observed(program))


def test_a_second_gradient() -> None:
    for run in (_appends, stoker.compile(_appends, fullgraph=True)):
        record, x = Record(), torch.ones(3, requires_grad=True)
        (first,) = torch.autograd.grad(run(x, record), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        assert first.tolist() == [26.0] * 3 and second.tolist() == [24.0] * 3 and len(record.seen) == 2


def test_a_hook_that_raises_is_called_once() -> None:
    def run(x, record):
        y = x * 2

        def fails(gradient):
            record.seen.append(gradient)
            raise ValueError("no")

        y.register_hook(fails)
        return (y * y).sum()

    compiled = stoker.compile(run, fullgraph=True)
    for _ in range(2):
        record = Record()
        with pytest.raises(ValueError, match="no"):
            compiled(torch.ones(3, requires_grad=True), record).backward()
        assert len(record.seen) == 1


def test_called_here_and_later() -> None:
    """A hook that a backward inside calls, too: a break."""

    def run(x, record):
        y = x * 2
        y.register_hook(lambda gradient: record.seen.append(gradient))
        y.sum().backward(retain_graph=True)
        return (y * y).sum()

    seen = []
    for call in (run, stoker.compile(run)):
        record, x = Record(), torch.ones(3, requires_grad=True)
        call(x, record).backward()
        seen.append([x.grad, record.seen])
    torch.testing.assert_close(*seen)


def test_hooks_go_with_their_graphs() -> None:
    compiled = stoker.compile(_appends, fullgraph=True)
    gc.collect()
    before = len(program_hook._attached)
    for _ in range(3):
        compiled(torch.ones(3, requires_grad=True), Record()).backward()
    compiled(torch.ones(3, requires_grad=True), Record())
    gc.collect()
    assert len(program_hook._attached) == before


class Watched(torch.nn.Module):
    """Keeps what a layer gives, and the gradients there, as Grad-CAM does."""

    def __init__(self, changes: bool) -> None:
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.changes, self.made, self.seen = changes, None, []
        self.second.register_forward_hook(self.keep)
        self.second.register_full_backward_hook(self.keep_gradients)
        self.second.register_full_backward_pre_hook(lambda module, of_output: self.seen.append(of_output[0].sum()))

    def keep(self, module: Any, given: Any, made: Tensor) -> None:
        self.made = made

    def keep_gradients(self, module: Any, of_inputs: Any, of_output: Any) -> Any:
        self.seen += [of_inputs[0], of_output[0], float(len(self.seen))]
        return (of_inputs[0] * 2,) if self.changes else None

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x).relu()).pow(2).sum()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("changes", [False, True])
def test_modules(changes: bool, backend: str) -> None:
    options = {} if backend == "stoker" else {"backend": backend}
    found = []
    for compiles in (lambda module: module, lambda module: stoker.compile(module, fullgraph=True, **options)):
        torch.manual_seed(0)
        module = Watched(changes)
        run = compiles(module)
        for size in (2, 2, 5):
            x = torch.randn(size, 4)
            loss = run(x)
            loss.backward(retain_graph=True)
            loss.backward()
            found.append([loss.detach(), module.made.detach(), [p.grad.clone() for p in module.parameters()]])
            found[-1].append([seen for seen in module.seen])
            module.seen.clear()
    torch.testing.assert_close(found[3:], found[:3])


def test_a_module_hook_that_raises_is_called_once() -> None:
    linear, seen = torch.nn.Linear(2, 2), []

    def fails(module: Any, of_inputs: Any, of_output: Any) -> None:
        seen.append(of_output)
        raise ValueError("no")

    linear.register_full_backward_hook(fails)
    compiled = stoker.compile(lambda x: linear(x * 2).sum(), fullgraph=True)
    with pytest.raises(ValueError, match="no"):
        compiled(torch.ones(2, requires_grad=True)).backward()
    assert len(seen) == 1
