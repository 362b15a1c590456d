"""The guards of ten typical graphs, in words. `STOKER_UPDATE_GOLDEN=1` writes the files anew.

Left out are guards on torch's own modules, which differ between its versions.

A guard too many recompiles for nothing, one too few reuses a version that does not fit: a change of either shows here.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stoker

PLACE = re.compile(r" of \S+\.py:\d+$")  # of a function: files and lines differ between machines
HERE = Path(__file__).parent / "guards"
SCALE = 2.0
TABLE = {"bias": 1.0, "unused": 3.0}


def two_tensors(x: Any, y: Any) -> Any:
    return x * 2 + y


def a_global_number(x: Any) -> Any:
    return x * SCALE


def one_key_of_a_global_dictionary(x: Any) -> Any:
    return x + TABLE["bias"]


def a_list_of_tensors(xs: Any) -> Any:
    return [x.relu() for x in xs]


def a_dictionary_argument(batch: Any) -> Any:
    return batch["tokens"] * batch["mask"]


def a_flag_and_a_default(x: Any, flag: bool = True, times: int = 3) -> Any:
    return x * times if flag else x


def a_branch_on_a_size(x: Any) -> Any:
    return x.sum() if x.shape[0] > 2 else x


def the_same_tensor_twice(x: Any, y: Any) -> Any:
    return x.add_(1) + y if x is y else x - y


@dataclasses.dataclass
class Settings:
    width: int = 8
    activation: Callable[..., Any] = F.relu


def an_object(x: Any, settings: Settings) -> Any:
    return settings.activation(x) / settings.width


def a_closure() -> Callable[..., Any]:
    shift = torch.ones(4)

    def add(x: Any) -> Any:
        return x + shift

    return add


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.scale = 0.5

    def forward(self, x: Any) -> Any:
        return self.linear(x) * self.scale


def tensors(*sizes: tuple[int, ...]) -> list[torch.Tensor]:
    return [torch.ones(size) for size in sizes]


def same() -> list[torch.Tensor]:
    return tensors((3, 4)) * 2


PROGRAMS: dict[str, tuple[Callable[..., Any], list[Any]]] = {
    "two_tensors": (two_tensors, tensors((3, 4), (3, 4))),
    "a_global_number": (a_global_number, tensors((3, 4))),
    "one_key_of_a_global_dictionary": (one_key_of_a_global_dictionary, tensors((4,))),
    "a_list_of_tensors": (a_list_of_tensors, [tensors((2,), (3,))]),
    "a_dictionary_argument": (a_dictionary_argument, [dict(zip(("tokens", "mask"), tensors((2, 3), (2, 3))))]),
    "a_flag_and_a_default": (a_flag_and_a_default, tensors((3,))),
    "a_branch_on_a_size": (a_branch_on_a_size, tensors((3, 4))),
    "the_same_tensor_twice": (the_same_tensor_twice, same()),
    "an_object": (an_object, [*tensors((3,)), Settings()]),
    "a_closure": (a_closure(), tensors((4,))),
    "a_module": (Block(), tensors((2, 4))),
}


def guards(function: Callable[..., Any], args: list[Any], **settings: Any) -> list[str]:
    with torch.no_grad():
        found = stoker.explain(stoker.compile(function, backend="eager", **settings), *args).guards
    return [
        PLACE.sub(" of a file", text) for text in found if not text.startswith(("torch.", "torch has", "module class"))
    ]


def compare(name: str, found: list[str]) -> None:
    path = HERE / f"{name}.txt"
    text = "\n".join(found) + "\n"
    if os.environ.get("STOKER_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", PROGRAMS)
def test_guards(name: str) -> None:
    function, args = PROGRAMS[name]
    compare(name, guards(function, args))


def test_symbolic_sizes() -> None:
    compare("a_branch_on_a_symbolic_size", guards(a_branch_on_a_size, tensors((3, 4)), dynamic=True))
