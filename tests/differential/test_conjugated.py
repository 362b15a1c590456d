"""Tensors that are conjugated or negated when they are read: as arguments of every layout, written, and asked about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stoker


def numbers() -> torch.Tensor:
    return torch.view_as_complex(torch.linspace(-1, 2, 48).reshape(4, 6, 2))


NEGATED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "every second place": lambda z: z.conj().imag,
    "transposed": lambda z: z.conj().imag.t(),
    "a column": lambda z: z.conj().imag[:, 1],
    "steps": lambda z: z.conj().imag[1:, ::2],
    "expanded": lambda z: z.conj().imag[0].expand(3, 6),
    "overlapping": lambda z: z.conj().imag[0].unfold(0, 3, 1),
    "one": lambda z: z.conj().imag[1, 1],
    "none": lambda z: z.conj().imag[:0],
    "dense": lambda z: torch._neg_view(z.real.contiguous()),
    "not negated": lambda z: z.imag,
}
CONJUGATED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "dense": lambda z: z.conj(),
    "transposed": lambda z: z.mH,
    "steps": lambda z: z.conj()[1:, ::2],
    "expanded": lambda z: z.conj()[0].expand(3, 6),
    "negated too": lambda z: torch._neg_view(z.conj()),
    "not conjugated": lambda z: z,
}


def alike(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            alike(a, b)
    elif isinstance(theirs, torch.Tensor):
        assert (mine.is_conj(), mine.is_neg(), mine.stride()) == (theirs.is_conj(), theirs.is_neg(), theirs.stride())
        torch.testing.assert_close(mine, theirs)
    else:
        assert mine == theirs


def read(v: torch.Tensor) -> Any:
    return v + 1, (v * 2).sum(), v * v.flatten()[:1].sum()


def asked(v: torch.Tensor) -> Any:
    return v.is_neg(), v.is_conj(), torch.is_conj(v), torch.is_neg(v), v * (2 if v.is_neg() else 3)


def resolved(v: torch.Tensor) -> Any:
    return v.resolve_neg().clone(), v.resolve_conj().clone(), torch.resolve_neg(v).is_neg(), v.resolve_conj().is_conj()


def handed_on(v: torch.Tensor) -> Any:
    return v[None], v.detach()


def parts(v: torch.Tensor) -> Any:
    return v.real, v[None].real, (v.imag, v[:1].imag) if v.is_complex() else v, (v + 1).real


@pytest.mark.parametrize("program", [read, asked, resolved, handed_on, parts])
@pytest.mark.parametrize("layout", NEGATED)
def test_negated_arguments(layout: str, program: Any) -> None:
    alike(*(f(NEGATED[layout](numbers())) for f in (stoker.compile(program), program)))


@pytest.mark.parametrize("program", [read, asked, resolved, handed_on, parts])
@pytest.mark.parametrize("layout", CONJUGATED)
def test_conjugated_arguments(layout: str, program: Any) -> None:
    alike(*(f(CONJUGATED[layout](numbers())) for f in (stoker.compile(program), program)))


def test_a_function_sees_both_kinds() -> None:
    compiled = stoker.compile(asked)
    for make in (*NEGATED.values(), *CONJUGATED.values()):
        alike(compiled(make(numbers())), asked(make(numbers())))


@pytest.mark.parametrize("layout", [name for name in NEGATED if name not in ("expanded", "overlapping")])
def test_negated_arguments_are_written(layout: str) -> None:
    def write(v: torch.Tensor) -> torch.Tensor:
        v.mul_(2).add_(1)
        return v + 1

    found = []
    for function in (stoker.compile(write), write):
        base = numbers()
        found.append((function(NEGATED[layout](base)), base))
    alike(*found)


def test_gradients_of_negated_arguments() -> None:
    def loss(v: torch.Tensor) -> torch.Tensor:
        return (v.sin() * v).sum()

    found = []
    for function in (stoker.compile(loss), loss):
        leaf = numbers().real.contiguous().requires_grad_()
        function(torch._neg_view(leaf)[:, ::2]).backward()
        found.append(leaf.grad)
    alike(*found)


INSIDE: dict[str, Callable[[torch.Tensor], Any]] = {
    "is it": lambda z: (z.conj().is_conj(), z.is_conj(), z.conj().conj().is_conj(), (z.conj() + 1).is_conj()),
    "of views": lambda z: (z.conj()[0].is_conj(), z.mH.is_conj(), z.conj().view(-1).is_conj(), z.adjoint().is_conj()),
    "of copies": lambda z: (z.conj().clone().is_conj(), z.conj().contiguous().is_conj(), z.conj_physical().is_conj()),
    "negated": lambda z: (z.conj().imag.is_neg(), z.imag.is_neg(), torch._neg_view(z.real).is_neg()),
    "decides": lambda z: z * (2 if z.conj().is_conj() else 3),
    "resolved": lambda z: torch.view_as_real(z.conj().resolve_conj()),
    "resolved twice": lambda z: z.conj().resolve_conj().resolve_conj() * 2,
    "returned": lambda z: (z.conj(), z.mH, z.conj().imag, z.conj().resolve_conj()),
}


@pytest.mark.parametrize("name", INSIDE)
def test_asked_inside(name: str) -> None:
    alike(*(f(numbers()) for f in (stoker.compile(INSIDE[name]), INSIDE[name])))


def test_what_is_resolved_is_a_copy() -> None:
    def write(z: torch.Tensor) -> torch.Tensor:
        other = z.conj().resolve_conj()
        other.mul_(2)
        same = z.resolve_conj()
        same[0] = 0
        return other

    found = []
    for function in (stoker.compile(write), write):
        z = numbers()
        found.append((function(z), z))
    alike(*found)


def test_no_array_of_a_conjugated_tensor() -> None:
    def array(z: torch.Tensor) -> Any:
        try:
            return z.conj().numpy().sum()
        except RuntimeError as error:
            return str(error)

    assert stoker.compile(array)(numbers()) == array(numbers())


LEAVES = [
    torch.linspace(0.1, 1, 3),
    torch.linspace(0.1, 1, 3) * (1 - 2j),
    torch.linspace(0.1, 1, 3, dtype=torch.float64),
]


@pytest.mark.parametrize("leaf", LEAVES, ids=lambda leaf: str(leaf.dtype))
def test_gradients_through_complex_numbers(leaf: torch.Tensor) -> None:
    """Autograd conjugates the numbers that it multiplies by."""

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (x * (1 + 2j) / (2 - 1j)).abs().sum() + (x - 3j).conj().angle().sum()

    found = []
    for function in (stoker.compile(loss, fullgraph=True), loss):
        x = leaf.clone().requires_grad_()
        function(x).backward()
        found.append(x.grad)
    alike(*found)

    def inside(x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(loss(x), x)[0]

    alike(*(f(leaf.clone().requires_grad_()) for f in (stoker.compile(inside, fullgraph=True), inside)))
