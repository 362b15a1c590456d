"""isinstance() of tensors: of classes that are asked, of buffers and parameters made inside, after what the program did to them."""

from __future__ import annotations

import collections.abc
import numbers
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.testing._internal.two_tensor import TwoTensor

import stoker


class Asking(type):
    def __instancecheck__(cls, other: Any) -> bool:
        return getattr(other, "marked", False) or (isinstance(other, torch.Tensor) and other.dim() == 1)


class Vector(metaclass=Asking):
    pass


def of_results(x: torch.Tensor) -> Any:
    return isinstance(x * 2, Vector), isinstance(x[0] * 2, Vector), isinstance(x.sum(), (int, Vector))


def of_arguments(x: torch.Tensor) -> Any:
    return isinstance(x, Vector), isinstance(x, (str, Vector)), x * (2 if isinstance(x, Vector) else 3)


def of_what_is_marked_inside(x: torch.Tensor) -> Any:
    y = x + 1
    before = isinstance(y, Vector)
    y.marked = True  # type: ignore[attr-defined]
    return before, isinstance(y, Vector), y


def of_buffers(x: torch.Tensor) -> Any:
    buffer = nn.Buffer(x * 2, persistent=False)
    return isinstance(buffer, nn.Buffer), isinstance(x * 2, nn.Buffer), isinstance(buffer, nn.Parameter), buffer


def of_parameters(x: torch.Tensor) -> Any:
    parameter = nn.Parameter(x.detach())
    return isinstance(parameter, nn.Parameter), isinstance(parameter, nn.Buffer), isinstance(x, nn.Parameter)


def of_abstract_classes(x: torch.Tensor) -> Any:
    families = (collections.abc.Iterable, collections.abc.Hashable, numbers.Number, object, torch.FloatTensor)
    return [(isinstance(x, c), isinstance(x * 2, c)) for c in families]


LEGACY = [getattr(place, f"{name}Tensor") for place in (torch, torch.sparse, torch.cuda) for name in (
    "Float", "Double", "Half", "BFloat16", "Byte", "Char", "Short", "Int", "Long"
)]  # fmt: skip


def of_legacy_classes(x: torch.Tensor) -> Any:
    made = [
        x.to(dtype) for dtype in (torch.float64, torch.float16, torch.bfloat16, torch.bool, torch.uint8, torch.int32)
    ]
    made += [x, x + 1, torch.empty(2, device="meta"), torch.empty(2, 2).to_sparse()]
    return [isinstance(tensor, cls) for tensor in made for cls in [*LEGACY, torch.BoolTensor, (torch.IntTensor, int)]]


PROGRAMS: list[Callable[..., Any]] = [
    of_legacy_classes, of_results, of_arguments, of_what_is_marked_inside, of_buffers, of_parameters, of_abstract_classes
]  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_as_in_eager(program: Callable[..., Any]) -> None:
    compiled = stoker.compile(program)
    marked = torch.ones(2, 3)
    marked.marked = True  # type: ignore[attr-defined]
    for x in (torch.ones(2, 3), marked, torch.ones(2, 3), nn.Buffer(torch.ones(2, 3)), nn.Parameter(torch.ones(2, 3))):
        mine, theirs = compiled(x), program(x)
        torch.testing.assert_close(mine, theirs)
        assert [type(v) for v in mine] == [type(v) for v in theirs]
        assert [isinstance(v, nn.Buffer) for v in mine] == [isinstance(v, nn.Buffer) for v in theirs]


def test_a_mark_is_read_again() -> None:
    compiled, x = stoker.compile(of_arguments), torch.ones(2, 3)
    for mark in (None, True, False, True):
        if mark is not None:
            x.marked = mark  # type: ignore[attr-defined]
        torch.testing.assert_close(compiled(x), of_arguments(x))


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.bool]
)
def test_a_legacy_class_is_given(dtype: torch.dtype) -> None:
    def function(dtype: torch.dtype, cls: Any) -> bool:
        return isinstance(torch.empty(4, dtype=dtype), cls)

    compiled = stoker.compile(function, fullgraph=True)
    for cls in (torch.FloatTensor, torch.DoubleTensor, torch.HalfTensor, torch.BFloat16Tensor, torch.LongTensor):
        assert compiled(dtype, cls) is function(dtype, cls)


def test_a_parameter_of_a_class_below_autograd() -> None:
    """Such a tensor is a parameter by a mark that it has, whatever its class; a mark that comes later is seen."""
    inside = torch.randn(2, 2)

    def function(weight: torch.Tensor) -> Any:
        return isinstance(weight, nn.Parameter), isinstance(weight, nn.Buffer), isinstance(weight, (int, nn.Parameter))

    compiled = stoker.compile(function, backend="aot_eager")
    for given in (
        TwoTensor(inside, inside),
        nn.Parameter(TwoTensor(inside, inside)),
        TwoTensor(inside, inside),
        inside,
    ):
        assert compiled(given) == function(given)
