"""Tensors of inference mode, given and made inside: where eager refuses to write to them, so do we; views of others are none."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stoker


def write(x: torch.Tensor) -> Any:
    y = x + 1
    x.mul_(2)
    return x + y


def write_to_a_view(x: torch.Tensor) -> Any:
    x.view(-1)[0] = 5
    return x


def write_out(x: torch.Tensor) -> Any:
    torch.sin(x.clone(), out=x)
    return x


def resize(x: torch.Tensor) -> Any:
    return x.resize_(2)


def write_to_a_result(x: torch.Tensor) -> Any:
    y = x + 1
    return y.mul_(2)


def write_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        x.mul_(2)
    return x.sum()


def write_to_what_was_made_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        y.add_(1)
    return y.mul_(3)


def views_made_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y, row, turned = x.view(-1), x[0], x.unsqueeze(1)
    return y * 2, row + 1, turned.sum()


def write_to_a_view_made_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x.view(-1)
    y.mul_(3)
    return y * 2


@torch.inference_mode()
def helper(x: torch.Tensor) -> torch.Tensor:
    return x.reshape(1, -1) @ x.reshape(-1, 1)


def a_helper_of_that_mode(x: torch.Tensor) -> Any:
    return helper(x) * 2, helper(x + 1).clone()


PROGRAMS = [
    write, write_to_a_view, write_out, resize, write_to_a_result, write_inside, write_to_what_was_made_inside, views_made_inside,
    write_to_a_view_made_inside, a_helper_of_that_mode,
]  # fmt: skip


def outcome(function: Any, made_inside: bool) -> list[Any]:
    found: list[Any] = []
    for _ in range(2):
        with torch.inference_mode(made_inside):
            x = torch.arange(4.0)
        try:
            result = function(x)
            tensors = result if isinstance(result, tuple) else (result,)
            found.append([(t.tolist(), t.is_inference(), t.requires_grad) for t in tensors])
        except RuntimeError as error:
            found.append(str(error))
        found.append((x.tolist(), x.is_inference()))
    return found


@pytest.mark.parametrize("made_inside", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program: Any, made_inside: bool) -> None:
    assert outcome(stoker.compile(program), made_inside) == outcome(program, made_inside)


def the_mode_twice(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        with torch.inference_mode():
            z = y.view(-1)
            z.add_(1)
        return y.mul_(3), z.clone()


def a_break_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        y = x * 2
        print(end="")
        z = y + 1
    return z.mul_(torch.is_inference_mode_enabled()), y.add_(torch.is_grad_enabled())


def gradients_turned_on_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode():
        torch.set_grad_enabled(True)
        y = x * 2
    return y.mul_(3), x + torch.is_grad_enabled()


def off_inside(x: torch.Tensor) -> Any:
    with torch.inference_mode(False):
        y = x.clone()
    return y.mul_(3)


def on_inside_off(x: torch.Tensor) -> Any:
    y = x + 1
    with torch.inference_mode(False):
        z = torch.ones(4)
        with torch.inference_mode():
            w = z * 2
        z.add_(1)
    return y.mul_(3), z * 2, w.add_(1)


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize(
    "program",
    [*PROGRAMS, the_mode_twice, a_break_inside, gradients_turned_on_inside, off_inside, on_inside_off],
)
def test_inside_the_mode(program: Any, grad: bool) -> None:
    stoker.log.clear()
    with torch.inference_mode(), torch.set_grad_enabled(grad):
        assert outcome(stoker.compile(program), True) == outcome(program, True)
    assert not stoker.events("defect")


@pytest.mark.parametrize("program", [write_inside, write_to_what_was_made_inside, the_mode_twice])
def test_one_compiled_graph_inside_the_mode(program: Any) -> None:
    stoker.log.clear()
    with torch.inference_mode():
        stoker.compile(program, fullgraph=True)(torch.arange(4.0))
    assert stoker.events("compiled") and not stoker.events("as captured")


@pytest.mark.parametrize(
    "program", [views_made_inside, a_helper_of_that_mode, write_to_a_view_made_inside, write_inside]
)
def test_one_graph(program: Any) -> None:
    stoker.compile(program, fullgraph=True)(torch.arange(4.0))


def test_a_function_given_both_kinds() -> None:
    compiled = stoker.compile(write)
    for made_inside in (False, True, False, True):
        assert outcome(compiled, made_inside) == outcome(write, made_inside)
