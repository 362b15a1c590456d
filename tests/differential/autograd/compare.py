"""Eager against `aot`: values, metadata, aliasing, what was written to inputs, gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.autograd import aot, run_eagerly


def fresh(make: Callable[[], Sequence[Any]]) -> list[Any]:
    torch.manual_seed(7)
    return list(make())


def leaves(tensors: Sequence[Any]) -> list[torch.Tensor]:
    found = []
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor) and tensor.requires_grad:
            found += [tensor] if tensor.is_leaf else origins(tensor.grad_fn)
    return list({id(t): t for t in found}.values())


def origins(node: Any) -> list[torch.Tensor]:
    if node is None:
        return []
    if hasattr(node, "variable"):
        return [node.variable]
    return [t for following, _ in node.next_functions for t in origins(following)]


def sharing(tensors: Sequence[Any]) -> list[list[bool]]:
    keys = [t.untyped_storage()._cdata if isinstance(t, torch.Tensor) else id(t) for t in tensors]
    return [[a == b for b in keys] for a in keys]


def same(a: Any, b: Any, exact: bool, where: str) -> None:
    assert isinstance(a, torch.Tensor) == isinstance(b, torch.Tensor), where
    if not isinstance(a, torch.Tensor):
        assert a == b, where
        return
    assert a.dtype is b.dtype and a.shape == b.shape, where
    assert a.requires_grad == b.requires_grad, f"{where}: requires_grad {a.requires_grad} {b.requires_grad}"
    if exact and not where.startswith("gradient"):
        assert a.stride() == b.stride() or a.numel() < 2, f"{where}: strides {a.stride()} {b.stride()}"
    if exact:
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True)
    else:
        torch.testing.assert_close(a, b, equal_nan=True)


def check(
    graph: Any, make: Callable[[], Sequence[Any]], *, exact: bool = True, grad: bool = True, **options: Any
) -> None:
    """Run the graph eagerly and compiled, each on inputs that `make` makes anew, and compare all there is to see."""
    with torch.set_grad_enabled(grad):
        compiled = aot(graph, fresh(make), forward_compiler=run_eagerly, **options)
        for _ in range(2):
            _compare(graph, compiled, make, exact)


def _compare(graph: Any, compiled: Any, make: Any, exact: bool) -> None:
    seen = []
    for call in (graph, compiled):
        inputs = fresh(make)
        wanted = leaves(inputs)
        torch.manual_seed(3)
        outputs = list(call(*inputs))
        state = torch.get_rng_state()
        results = [t for t in (*outputs, *inputs) if isinstance(t, torch.Tensor) and t.requires_grad and t.grad_fn]
        gradients: list[Any] = []
        if results and wanted:
            torch.manual_seed(5)
            seeds = [
                torch.randn_like(r) if not r.is_complex() else torch.randn(r.shape, dtype=r.dtype) for r in results
            ]
            gradients = list(torch.autograd.grad(results, wanted, seeds, allow_unused=True))
        seen.append((outputs, inputs, gradients, sharing([*outputs, *inputs]), state))
    (e_out, e_in, e_grad, e_share, e_state), (c_out, c_in, c_grad, c_share, c_state) = seen
    for kind, ours, theirs in (("output", c_out, e_out), ("input", c_in, e_in), ("gradient", c_grad, e_grad)):
        assert len(ours) == len(theirs), kind
        for index, (a, b) in enumerate(zip(ours, theirs)):
            same(a, b, exact, f"{kind} {index}")
    assert c_share == e_share, "who shares memory with whom"
    assert torch.equal(c_state, e_state), "state of the random generator"
