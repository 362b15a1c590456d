"""Stoker compiles unmodified PyTorch programs.

    import stoker
    model = stoker.compile(model)

Reading order of the package: api, frame, bytecode, guard, capture, fake, shape. See docs/layout.md.
"""

from stoker.api import (
    allow_in_graph,
    compile,
    disable,
    is_compiling,
    mark_dynamic,
    mark_static,
    reset,
)
from stoker.backends import list_backends, register_backend
from stoker.options import Options

__all__ = [
    "Options",
    "allow_in_graph",
    "compile",
    "disable",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "register_backend",
    "reset",
]
