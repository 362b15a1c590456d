"""The door: `stoker.compile` and what stands beside it.

In:  a function, method, callable object or nn.Module, and settings named as torch.compile names them.
Out: something that is called the same way. A module gets a twin (stoker/twin.py) and stays as it is.
"""

from __future__ import annotations

import copyreg
import dataclasses
import functools
import inspect
import sys
import types
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from stoker import _C, log, torch_private
from stoker.backends import Backend, checked, look_up
from stoker.errors import BadArgument, NotCallable
from stoker.marks import ALLOWED_IN_GRAPH, DISABLED_BECAUSE, SIZE_RANGES, SizeRange
from stoker.options import Options, resolve
from stoker.twin import Origin, can_have_twin, is_twin, make_twin, origin_of

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
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Options | dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = True,
    shapes_spec: None = None,
) -> Any:
    """Compile a function, a method, a callable object or a module. Usable as a decorator, with or without arguments.

    A module is left as it is: what comes back is its twin, an object of the same class that shares all of its state.

    fullgraph: raise at a graph break instead of going on with partial graphs.
    dynamic:   True makes every size symbolic at once, None those that change, False none.
    backend:   a name of `list_backends()`, or `(graph_module, example_inputs) -> callable`.
    mode:      a named set of options: default, reduce-overhead, max-autotune, max-autotune-no-cudagraphs.
    options:   a dict of, or a `stoker.Options`; torch.compile's names are taken where there is a counterpart.
    name:      what events call it, instead of the function's name.
    disable:   compile nothing, give back what was given.
    recompile_limit:    the option `version_limit`.
    isolate_recompiles: each call of `compile` has versions of its own, whatever is said here.
    shapes_spec:        refused; use `stoker.mark_dynamic`.
    """
    settings: dict[str, Any] = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "mode": mode,
        "options": options,
    }
    settings |= {"name": name, "recompile_limit": recompile_limit, "shapes_spec": shapes_spec}
    checked_settings = _checked(settings)
    if model is None:
        return functools.partial(compile, disable=disable, **settings)
    if not callable(model):
        raise NotCallable(model)
    return model if disable else _wrap(model, _new_frames(checked_settings))


def compile_in_place(module: torch.nn.Module, **settings: Any) -> torch.nn.Module:
    """Make a module itself run compiled code when it is called. The settings are those of `compile`."""
    if not isinstance(module, torch.nn.Module):
        raise BadArgument(f"a module is compiled in place, not a {type(module).__name__}.")
    if not torch_private.is_modules_own(type(module).__call__):
        raise BadArgument(f"{type(module).__name__} has a __call__ of its own: use stoker.compile(module).")
    if not settings.pop("disable", False):
        frames = _new_frames(_checked(settings))
        compiled = _C.Compiled(torch_private.module_call(module), frames.compiler)
        torch_private.set_compiled_call(module, compiled)
    return module


def revive(pair: tuple[torch.nn.Module, dict[str, Any]]) -> Any:
    """The twin that was pickled. It compiles when it is called."""
    module, settings = pair
    return compile(module, **settings)


def _compile_again(model: Any, settings: dict[str, Any]) -> Any:
    return compile(model, **settings)


def _reduced(compiled: Any) -> str | tuple[Any, ...]:
    """How a compiled function is copied and pickled: as functions are, by name, and methods with their objects. Where the name is
    that of the function it is made from, that one is, and is compiled again."""
    wrapped = compiled.__wrapped__
    if isinstance(wrapped, types.FunctionType) and _found_by_name(wrapped) is not wrapped:
        return wrapped.__qualname__
    frames = _frames_of(compiled)
    assert frames is not None
    return _compile_again, (wrapped, frames.settings.given)


def _found_by_name(function: types.FunctionType) -> Any:
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = inspect.getattr_static(found, name, None)
    return found


copyreg.pickle(_C.Compiled, _reduced)  # type: ignore[arg-type]  # a name is as good as a tuple


@dataclasses.dataclass(frozen=True)
class Settings:
    """What one call of `compile` asked for."""

    given: dict[str, Any]
    """As keywords of `compile`, plain data but for a back end of the user's: this is pickled with a twin."""
    backend_name: str
    backend: Backend
    options: Options
    dynamic: bool | None
    fullgraph: bool
    name: str | None


def _checked(given: dict[str, Any]) -> Settings:
    dynamic, options, limit = given.get("dynamic"), given.get("options"), given.get("recompile_limit")
    if given.get("shapes_spec") is not None:
        raise BadArgument("shapes_spec is not taken; mark tensors with stoker.mark_dynamic and stoker.mark_static.")
    if dynamic not in (None, True, False):
        raise BadArgument(f"dynamic is True, False or None, not {dynamic!r}.")
    name, backend = look_up(given.get("backend") or DEFAULT_BACKEND)
    resolved = resolve(given.get("mode"), options)
    if limit is not None:
        resolved = dataclasses.replace(resolved, version_limit=limit)
    if isinstance(options, Options):
        given = {**given, "options": dataclasses.asdict(options)}
    given = {key: value for key, value in given.items() if value is not None and value is not False}
    return Settings(given, name, backend, resolved, dynamic, bool(given.get("fullgraph")), given.get("name"))


def _new_frames(settings: Settings) -> Frames:
    """The compiler is loaded when something is to be compiled, so that importing stoker stays cheap."""
    from stoker.frame import Frames

    name, backend = settings.backend_name, settings.backend
    if name in TAKES_OPTIONS:
        backend = functools.partial(backend, options=settings.options)  # type: ignore[call-arg]  # a back end that takes options
    frames = Frames(
        checked(name, backend),
        dynamic=settings.dynamic,
        fullgraph=settings.fullgraph,
        version_limit=settings.options.version_limit,
        name=settings.name,
    )
    frames.settings = settings
    _frames.add(frames)
    return frames


def _wrap(model: Any, frames: Frames) -> Any:
    if isinstance(model, type):
        return _compiled_class(model, frames)
    if isinstance(model, torch.nn.Module):
        return _twin(model, frames)
    if isinstance(model, functools.partial):
        return functools.partial(_wrap(model.func, frames), *model.args, **model.keywords)
    return _C.Compiled(_plain(model), frames.compiler)


def _plain(model: Any) -> Any:
    """What runs when something is called: a function or a method; an object whose class says it in Python, as it stands at each call; a
    new function where there is no Python to be seen."""
    if isinstance(model, _C.Compiled):
        return model.__wrapped__
    if isinstance(model, (types.FunctionType, types.MethodType)):
        return model
    call = inspect.getattr_static(type(model), "__call__", None)
    if isinstance(model, torch.nn.Module) and torch_private.is_modules_own(call):
        return torch_private.module_call(model)
    if isinstance(call, types.FunctionType):
        return model

    def call_through(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    return functools.update_wrapper(call_through, model, updated=())


def _twin(model: torch.nn.Module, frames: Frames) -> Any:
    module: Any = origin_of(model).module if is_twin(model) else model
    if isinstance(module, torch_private.ScriptModule):
        log.record(log.Event("skip", type(module).__name__, "?", "TorchScript has compiled this module already"))
        return module
    says = inspect.getattr_static(type(module), "__call__", None)
    compiled = _C.Compiled(_plain(module), frames.compiler, says)
    if can_have_twin(module):
        return make_twin(Origin(module, compile, frames.settings.given), compiled)
    why = f"a {type(module).__name__} has state outside of its __dict__; use stoker.compile_in_place(module)."
    raise BadArgument(f"a twin shares a module's __dict__, and {why}")


def _compiled_class(cls: type, frames: Frames) -> Any:
    """Compiling a class compiles the calls of its instances."""
    if issubclass(cls, torch.nn.Module):

        @functools.wraps(cls)
        def construct(*args: Any, **kwargs: Any) -> Any:
            return _wrap(cls(*args, **kwargs), frames)

        return construct
    raise NotCallable(cls)


def explain(
    function: Any,
    *args: Any,
    backend: str | Backend | None = None,
    mode: str | None = None,
    options: Options | dict[str, Any] | None = None,
    dynamic: bool | None = None,
    **kwargs: Any,
) -> Explanation:
    """Call a function or module once, compiled, and tell what happened.

    What is compiled already is called as it is, unless settings are given; without arguments, it is told of as it stands.
    """
    if not callable(function):
        raise NotCallable(function)
    from stoker.debug.explain import explain_call

    given = {"backend": backend, "mode": mode, "options": options, "dynamic": dynamic}
    frames = _frames_of(function)
    if frames is None or any(value is not None for value in given.values()):
        frames = _new_frames(_checked(given))
        function = _wrap(function, frames)
    if not args and not kwargs and frames.captured:
        return explain_call(lambda: None, frames, (), {})
    return explain_call(function, frames, args, kwargs)


def _frames_of(compiled: Any) -> Frames | None:
    """The configuration that something was compiled with; None if it was not."""
    if isinstance(compiled, torch.nn.Module):
        compiled = compiled.__call__ if is_twin(compiled) else torch_private.compiled_call(compiled)
    if isinstance(compiled, types.MethodType):
        compiled = compiled.__func__
    return compiled.compiler.on_miss.__self__ if isinstance(compiled, _C.Compiled) else None  # type: ignore[attr-defined]  # the bound method that `compile` gave it


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


def disable(function: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep a function out of compiled code. With `recursive=False`, functions it calls may still be compiled. The reason is told where
    captured code breaks at a call of it."""
    if function is None:
        return functools.partial(disable, recursive=recursive, reason=reason)
    if isinstance(function, torch.nn.Module):
        function.forward = disable(function.forward, recursive, reason=reason)
        return function
    if not callable(function):
        raise NotCallable(function)
    plain = function.__wrapped__ if isinstance(function, _C.Compiled) else function
    if recursive:
        disabled = _C.Disabled(plain)
        if reason is not None:
            DISABLED_BECAUSE[disabled] = reason
        return disabled

    @functools.wraps(plain)
    def not_entered(*args: Any, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    not_entered._stoker_disabled = True  # type: ignore[attr-defined]  # a mark on a function
    if reason is not None:
        DISABLED_BECAUSE[not_entered] = reason
    return not_entered


def allow_in_graph(function: F) -> F:
    """Put calls of a function into graphs as one node, without looking inside."""
    if isinstance(function, (list, tuple)):
        return type(function)(allow_in_graph(f) for f in function)
    if not callable(function):
        raise NotCallable(function)
    ALLOWED_IN_GRAPH[id(function)] = function
    return function


def reset() -> None:
    """Forget every compiled version, and free the memory kept between calls; the next calls compile anew."""
    for frames in _frames:
        frames.compiler.forget()
        frames.histories.clear()
        frames.captured.clear()
        frames.told.clear()
        frames.happened.clear()
    _C.release_arenas()
    log.clear()


def mark_dynamic(
    tensor: torch.Tensor, index: int | list[int] | tuple[int, ...], *, min: int | None = None, max: int | None = None
) -> None:
    """Make a dimension symbolic at the first capture that sees this tensor. Its size must lie between `min` and `max`, where these are
    given: compiled code may rely on it, and a call with another size is compiled anew."""
    _mark(tensor, "_dynamo_dynamic_indices", index)
    if min is None and max is None:
        return
    dimensions = [index] if isinstance(index, int) else index
    for size in (tensor.shape[dimension] for dimension in dimensions):
        if (min is not None and size < min) or (max is not None and size > max):
            raise BadArgument(f"a size of {size} is marked as one from {min} to {max}.")
    ranges = {SizeRange(dimension % tensor.dim(), min, max) for dimension in dimensions}
    setattr(tensor, SIZE_RANGES, getattr(tensor, SIZE_RANGES, set()) | ranges)


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
