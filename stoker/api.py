"""The door: `stoker.compile` and what stands beside it.

In:  a function, method, callable object or nn.Module, and settings named as torch.compile names them.
Out: something that is called the same way. A module stays that module.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from stoker import _C, log
from stoker.backends import Backend, checked, look_up
from stoker.errors import BadArgument, NotCallable
from stoker.marks import ALLOWED_IN_GRAPH
from stoker.options import Options, resolve

if TYPE_CHECKING:
    from stoker.debug.explain import Explanation
    from stoker.frame import Frames

DEFAULT_BACKEND = "stoker"
TAKES_OPTIONS = frozenset({"stoker", "inductor"})
F = TypeVar("F", bound=Callable[..., Any])
_frames: weakref.WeakSet[Frames] = weakref.WeakSet()


def compile(
    model: Any = None,
    *,
    backend: str | Backend = DEFAULT_BACKEND,
    mode: str | None = None,
    options: Options | dict[str, Any] | None = None,
    dynamic: bool | None = None,
    fullgraph: bool = False,
) -> Any:
    """Compile a function, a method, a callable object or a module. Usable as a decorator, with or without arguments.

    backend:   a name of `list_backends()`, or `(graph_module, example_inputs) -> callable`.
    mode:      a named set of options: default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs.
    options:   a dict of, or a `stoker.Options`.
    dynamic:   True makes every size symbolic at once, None those that change, False none.
    fullgraph: raise at a graph break instead of going on with partial graphs.
    """
    name, function = look_up(backend)
    settings = resolve(mode, options)
    if dynamic not in (None, True, False):
        raise BadArgument(f"dynamic is True, False or None, not {dynamic!r}.")
    if model is None:
        return functools.partial(
            compile, backend=backend, mode=mode, options=options, dynamic=dynamic, fullgraph=fullgraph
        )
    if not callable(model):
        raise NotCallable(model)
    return _wrap(model, _new_frames(name, function, settings, dynamic, fullgraph))


def _new_frames(name: str, backend: Backend, settings: Options, dynamic: bool | None, fullgraph: bool) -> Frames:
    """The compiler is loaded when something is to be compiled, so that importing stoker stays cheap."""
    from stoker.frame import Frames

    if name in TAKES_OPTIONS:
        backend = functools.partial(backend, options=settings)  # type: ignore[call-arg]
    frames = Frames(checked(name, backend), dynamic=dynamic, fullgraph=fullgraph, version_limit=settings.version_limit)
    _frames.add(frames)
    return frames


def _wrap(model: Any, frames: Frames) -> Any:
    if isinstance(model, torch.nn.Module):
        model._compiled_call_impl = _C.Compiled(model._call_impl, frames.compiler)
        return model
    if isinstance(model, (types.FunctionType, types.MethodType)):
        return _C.Compiled(model, frames.compiler)
    if isinstance(model, _C.Compiled):
        return _C.Compiled(model.__wrapped__, frames.compiler)
    if isinstance(model, type):
        return _compiled_class(model, frames)
    if isinstance(model, functools.partial):
        return functools.partial(_wrap(model.func, frames), *model.args, **model.keywords)
    call = vars(type(model)).get("__call__") or getattr(type(model), "__call__", None)  # noqa: B004
    if isinstance(call, types.FunctionType):
        return _C.Compiled(types.MethodType(call, model), frames.compiler)

    def call_through(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    functools.update_wrapper(call_through, model, updated=())
    return _C.Compiled(call_through, frames.compiler)


def _compiled_class(cls: type, frames: Frames) -> Any:
    """Compiling a class compiles the calls of its instances."""
    if issubclass(cls, torch.nn.Module):

        @functools.wraps(cls)
        def construct(*args: Any, **kwargs: Any) -> Any:
            return _wrap(cls(*args, **kwargs), frames)

        return construct
    raise NotCallable(cls)


def explain(function: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Compile a function or module for one call with the default back end, call it, and tell what happened."""
    if not callable(function):
        raise NotCallable(function)
    from stoker.debug.explain import explain_call

    frames = _new_frames(*look_up(DEFAULT_BACKEND), Options(), None, False)
    target = function._call_impl if isinstance(function, torch.nn.Module) else function
    return explain_call(_wrap(target, frames), frames.captured, args, kwargs)


def aot(
    fw_compiler: Callable[..., Any],
    bw_compiler: Callable[..., Any] | None = None,
    partition_fn: Any = "min-cut",
    decompositions: Any = None,
) -> Backend:
    """A back end out of two functions that compile functional ATen graphs: `(graph_module, fake_inputs) -> callable`."""

    from stoker import autograd

    def backend(graph_module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        return autograd.aot(
            graph_module,
            example_inputs,
            forward_compiler=fw_compiler,
            backward_compiler=bw_compiler,
            partition=partition_fn,
            decompositions=decompositions,
        )

    return backend


def disable(function: Any = None, *, recursive: bool = True) -> Any:
    """Keep a function out of compiled code. With `recursive=False`, functions it calls may still be compiled."""
    if function is None:
        return functools.partial(disable, recursive=recursive)
    if isinstance(function, torch.nn.Module):
        function.forward = disable(function.forward, recursive=recursive)
        return function
    if not callable(function):
        raise NotCallable(function)
    plain = function.__wrapped__ if isinstance(function, _C.Compiled) else function
    if recursive:
        return _C.Disabled(plain)

    @functools.wraps(plain)
    def not_entered(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    not_entered._stoker_disabled = True  # type: ignore[attr-defined]
    return not_entered


def allow_in_graph(function: F) -> F:
    """Put calls of a function into graphs as one node, without looking inside."""
    if isinstance(function, (list, tuple)):
        return type(function)(allow_in_graph(f) for f in function)  # type: ignore[return-value]
    if not callable(function):
        raise NotCallable(function)
    ALLOWED_IN_GRAPH.add(function)
    return function


def reset() -> None:
    """Forget every compiled version, and free the memory kept between calls; the next calls compile anew."""
    for frames in _frames:
        frames.compiler.forget()
        frames.histories.clear()
        frames.captured.clear()
    _C.release_arenas()
    log.clear()


def mark_dynamic(tensor: torch.Tensor, index: int | list[int] | tuple[int, ...]) -> None:
    """Make a dimension symbolic at the first capture that sees this tensor."""
    _mark(tensor, "_dynamo_dynamic_indices", index)


def mark_static(tensor: torch.Tensor, index: int | list[int] | tuple[int, ...] | None = None) -> None:
    """Keep a dimension (all, without index) specialised for this tensor."""
    _mark(tensor, "_dynamo_static_indices", index if index is not None else tuple(range(tensor.dim())))


def _mark(tensor: torch.Tensor, attribute: str, index: int | list[int] | tuple[int, ...]) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise BadArgument(f"a tensor is marked, not a {type(tensor).__name__}.")
    marks = set(getattr(tensor, attribute, ()))
    for dimension in [index] if isinstance(index, int) else index:
        if not -tensor.dim() <= dimension < tensor.dim():
            raise BadArgument(f"dimension {dimension} of a tensor with {tensor.dim()} dimensions.")
        marks.add(dimension % tensor.dim())
    setattr(tensor, attribute, marks)


def default_backend() -> Backend:
    """The back end that `compile` uses when none is named."""
    return look_up(DEFAULT_BACKEND)[1]
