"""Back ends by name: what turns a captured graph into a callable.

A back end is `(graph_module, example_inputs) -> callable`. The names are torch.compile's, so that a user changes one word.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

from torch.fx import GraphModule

from stoker import defect
from stoker.errors import BackendFailed, BadArgument, UnknownBackend
from stoker.graph.undo import UNEXPECTED, Undoable
from stoker.strict import strict

Backend = Callable[[GraphModule, list[Any]], Callable[..., Any]]
_backends: dict[str, Backend] = {}
_built_in = {
    "aot_eager": ("stoker.autograd", "aot_eager"),
    "stoker": ("stoker.pipeline", "compile_captured"),
    "inductor": ("stoker.pipeline", "compile_captured"),
}
"""Back ends that are loaded when first asked for: module and name."""


def register_backend(function: Backend | None = None, *, name: str | None = None) -> Any:
    """Make a back end known by name; usable as a decorator."""
    if function is None:
        return lambda f: register_backend(f, name=name)
    if not callable(function):
        raise BadArgument("a back end is a function (graph_module, example_inputs) -> callable.")
    _backends[name or function.__name__] = function
    return function


def list_backends() -> list[str]:
    return sorted({*_backends, *_built_in})


def look_up(backend: str | Backend) -> tuple[str, Backend]:
    """The name and the function of a back end given by either."""
    if callable(backend):
        return getattr(backend, "__name__", type(backend).__name__), backend
    if backend not in _backends and backend in _built_in:
        module, attribute = _built_in[backend]
        _backends[backend] = getattr(importlib.import_module(module), attribute)
    if backend not in _backends:
        raise UnknownBackend(str(backend), list_backends())
    return backend, _backends[backend]


def checked(name: str, backend: Backend) -> Backend:
    """A back end whose failures say so, with the graph's place in the user's source. Where ours fails, the graph runs as it was
    captured."""
    ours = name in _built_in

    def compile_graph(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        location = graph_module.meta.get("location", "?")
        try:
            compiled = backend(graph_module, example_inputs)
        except Exception as error:
            if not ours or strict():
                raise BackendFailed(name, f"{type(error).__name__}: {error}", location) from error
            options = getattr(backend, "keywords", {}).get("options")
            defect.tell("a graph runs as it was captured, not compiled", graph_module, error, options)
            return Undoable(graph_module)
        if not callable(compiled):
            raise BackendFailed(name, f"it returned a {type(compiled).__name__}, not a callable", location)
        expects = any(UNEXPECTED in node.args for node in graph_module.graph.nodes)
        return Undoable(graph_module, compiled) if expects and not ours and name != "eager" else compiled

    return compile_graph


@register_backend(name="eager")
def eager(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """Run the captured graph with eager PyTorch: no compilation, for looking at capture alone."""
    return Undoable(graph_module)
