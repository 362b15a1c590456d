"""What a compiled call does after its graph has run: which tensors it returns, and what it writes to its inputs.

The graph computes values. These records say how each output of the captured program comes from them, so that the caller
sees the aliasing, the writes and the autograd history that eager would have shown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from stoker.nest import map_leaves


@dataclass(frozen=True, slots=True)
class Given:
    """The input at `index`, itself."""

    index: int


@dataclass(frozen=True, slots=True)
class GraphResult:
    """The graph's result at `position`."""

    position: int


@dataclass(frozen=True, slots=True)
class Step:
    """One view operator to run again. A `GraphResult` among the arguments stands for a size that the graph returns."""

    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    index: int | None
    grad: bool

    def apply(self, base: torch.Tensor, results: Any) -> torch.Tensor:
        """The view of `base`, made under the grad mode that the program made it under."""
        args = tuple(_filled(a, results) for a in self.args)
        kwargs = {k: _filled(v, results) for k, v in self.kwargs.items()}
        if self.grad or not torch.is_grad_enabled():
            made = self.operator(base, *args, **kwargs)
        else:
            with torch.no_grad():
                made = self.operator(base, *args, **kwargs)
        return made if self.index is None else made[self.index]


def _filled(value: Any, results: Any) -> Any:
    return map_leaves(lambda leaf: results[leaf.position] if isinstance(leaf, GraphResult) else leaf, value)


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A view: `steps` from an input or a result."""

    source: Given | GraphResult
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class ConstantResult:
    """The same at every call: None, a number, a string."""

    value: Any


@dataclass(frozen=True, slots=True)
class MadeLeaf:
    """The graph's result at `position`, as a leaf of autograd."""

    position: int


Outcome = MadeLeaf | Given | GraphResult | Rebuilt | ConstantResult


@dataclass(frozen=True, slots=True)
class Write:
    """The input at `index` gets the content of result `position`; `differentiable` if autograd should see it.

    The result is laid out as the input was, or, if `moved`, as its moves leave it. `versions` is how often the program wrote:
    through `x.data`, or by a batch norm to its statistics, is not counted.
    """

    index: int
    position: int
    differentiable: bool
    moved: bool = False
    versions: int = 1


@dataclass(frozen=True, slots=True)
class Move:
    """The input at `index` becomes a view of itself by in-place operators such as `t_`."""

    index: int
    operator: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    grad: bool
