"""The register of programs: each takes the function that compiles, and gives what is to be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

PROGRAMS: dict[str, Callable[..., list[Any]]] = {}


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


def leaf(*shape: Any, **options: Any) -> torch.Tensor:
    return torch.randn(*shape, **options).requires_grad_()
