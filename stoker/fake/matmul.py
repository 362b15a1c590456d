"""`matmul` and `linear` of symbolic sizes, for torch versions whose C++ `matmul` asks for plain numbers.

In:  two fake tensors of any rank.
Out: their product, by the operators that eager's `matmul` itself picks (mm, bmm, mv, dot) after folding batches.

torch 2.13 folds symbolic sizes itself; before it, `with FakeMode(...)` puts this in its place.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from stoker.fake.tensor import FakeTensor

NEEDED = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2]) < (2, 13)


class SymbolicMatmul(TorchFunctionMode):
    """Takes `a @ b` apart where a size is symbolic; everything else goes through."""

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("matmul", "__matmul__", "__rmatmul__") and not kwargs and len(args) == 2:
            left, right = args if name != "__rmatmul__" else (args[1], args[0])
            if _is_symbolic(left) or _is_symbolic(right):
                return matmul(left, right)
        if name == "linear" and args and _is_symbolic(args[0]):
            return linear(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def taken_apart(shape_env: Any) -> AbstractContextManager[Any]:
    """The mode where this torch needs it and there are symbols; otherwise a context that does nothing."""
    symbolic = NEEDED and shape_env is not None and bool(shape_env.symbols)
    return SymbolicMatmul() if symbolic else nullcontext()


def _is_symbolic(value: Any) -> bool:
    return isinstance(value, FakeTensor) and value.meta.symbolic


def matmul(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """As eager: vectors grow a dimension that goes away again; a matrix on one side folds the other's batches."""
    if left.dim() == 1:
        return matmul(left.unsqueeze(0), right).squeeze(-2 if right.dim() > 1 else 0)
    if right.dim() == 1:
        return matmul(left, right.unsqueeze(1)).squeeze(-1)
    if left.dim() == 2 and right.dim() == 2:
        return torch.mm(left, right)
    if right.dim() == 2:
        folded = left.reshape(-1, left.shape[-1])
        return torch.mm(folded, right).reshape(*left.shape[:-1], right.shape[-1])
    batch = _broadcast(left.shape[:-2], right.shape[:-2])
    a = left.expand(*batch, *left.shape[-2:]).reshape(-1, *left.shape[-2:])
    b = right.expand(*batch, *right.shape[-2:]).reshape(-1, *right.shape[-2:])
    return torch.bmm(a, b).reshape(*batch, left.shape[-2], right.shape[-1])


def linear(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """As eager: rows folded into one matrix, the bias added by the product itself."""
    if input.dim() == 1 or weight.dim() == 1:
        product = matmul(input, weight.t())
        return product if bias is None else product + bias
    rows = input.reshape(-1, input.shape[-1])
    product = torch.mm(rows, weight.t()) if bias is None else torch.addmm(bias, rows, weight.t())
    return product.reshape(*input.shape[:-1], weight.shape[0])


def _broadcast(a: Any, b: Any) -> list[Any]:
    rank = max(len(a), len(b))
    left, right = [1] * (rank - len(a)) + list(a), [1] * (rank - len(b)) + list(b)
    return [y if isinstance(x, int) and x == 1 else x for x, y in zip(left, right)]
