"""Every non-public PyTorch name we use: one entry each, why, and the versions it was seen in.

Nothing else in the project spells a private torch name of this list. Each entry is looked up when this module loads,
so a version of torch that lost one fails here, with a line that says what it was for. A version is listed once our
tests ran on it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.fx._lazy_graph_module
from torch.autograd import Variable
from torch.utils._python_dispatch import TorchDispatchMode as _TorchDispatchMode

make_wrapper_subclass = torch.Tensor._make_wrapper_subclass
"""Makes a tensor of metadata alone that reports any device. 2.13."""

TorchDispatchMode = _TorchDispatchMode
"""Intercepts operators below autograd; the public name for it does not exist. 2.13."""

disabled_torch_function = torch._C._disabled_torch_function_impl
"""Given as `__torch_function__` of a subclass: no Python detour above autograd. 2.13."""

SKIP_DYNAMO_HOOK = "_should_skip_dynamo"
"""A classmethod of TorchDispatchMode. True (the default) wraps `__torch_dispatch__` in a decorator that imports Dynamo
on the first call; our mode answers False. 2.13."""

DispatchKey = torch._C.DispatchKey
"""Names of the dispatcher's keys, for `OpOverload.py_kernels` and `has_kernel_for_dispatch_key`. 2.13."""


def dispatch_modes_off() -> AbstractContextManager[object]:
    """A context in which no dispatch mode is active. 2.13: `torch.utils._python_dispatch`."""
    return torch.utils._python_dispatch._disable_current_modes()


def run_backward(
    outputs: tuple[torch.Tensor, ...],
    gradients: tuple[torch.Tensor | None, ...],
    inputs: tuple[torch.Tensor, ...],
    *,
    keep_graph: bool = False,
    create_graph: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """The autograd engine. `torch.autograd.grad` first checks shapes with a helper that imports SymPy. 2.13."""
    return Variable._execution_engine.run_backward(  # type: ignore[attr-defined, no-any-return]
        outputs, gradients, keep_graph, create_graph, inputs, allow_unreachable=True, accumulate_grad=False
    )


def registered_fake_kernel(qualified_name: str) -> Callable[..., object] | None:
    """The function given to `torch.library.register_fake`, or None. 2.13: `torch._library.simple_registry`."""
    entry = torch._library.simple_registry.singleton._data.get(qualified_name)
    kernel = entry.fake_impl.kernel if entry is not None else None
    return None if kernel is None else kernel.func


def fake_kernel_context(get: Callable[[], object]) -> AbstractContextManager[object]:
    """What `torch.library.get_ctx()` answers inside a fake kernel. 2.13: `torch._library.fake_impl`."""
    return torch._library.fake_impl.set_ctx_getter(get)


# Asked by libraries' Python code while it is captured; capture answers without calling them. Public, but of a namespace
# that the rest of our code does not name. 2.11, 2.13.
is_scripting = torch.jit.is_scripting
is_tracing = torch.jit.is_tracing
script_annotate = torch.jit.annotate
# For stoker.autograd.


def function_apply(function: type[torch.autograd.Function]) -> Callable[..., Any]:
    """`apply` of an autograd function without the Python above it (for functorch, default arguments). 2.11, 2.13."""
    return super(torch.autograd.Function, function).apply  # type: ignore[misc, no-any-return]


functorch_is_active = torch._C._are_functorch_transforms_active
"""Is a torch.func transform running? Then autograd functions must go through their own `apply`. 2.11, 2.13."""

current_autograd_node = torch._C._current_autograd_node
"""The autograd node whose backward runs at this moment, for the sequence number of the forward operator. 2.11, 2.13."""

next_sequence_number = torch.autograd._get_sequence_nr
"""The number that the next autograd node of this thread will get. 2.11, 2.13."""

has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
"""Has an operator, by name, a kernel for a device: tells what eager runs from what it takes apart. 2.11, 2.13."""

LazyGraphModule = torch.fx._lazy_graph_module._LazyGraphModule
"""A GraphModule that writes its Python code when first called: compilers that only read the graph never pay. 2.13."""


def write_code(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The module with its Python code written, so that its `forward` is the code itself. 2.13."""
    if isinstance(module, LazyGraphModule):
        module.real_recompile()
    return module
