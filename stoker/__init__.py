"""Stoker compiles unmodified PyTorch programs.

    import stoker
    model = stoker.compile(model)

Reading order of the package: docs/layout.md follows a call through it.
"""

from stoker import extension as _extension

_extension.load()  # before the others, which would fail with it in more words

from stoker.api import (
    allow_in_graph,
    aot,
    compile,
    compile_in_place,
    default_backend,
    disable,
    explain,
    mark_dynamic,
    mark_static,
    reset,
)
from stoker.api import revive as _revive  # noqa: F401  (what pickled twins ask for)
from stoker.backends import list_backends, register_backend
from stoker.log import events
from stoker.marks import is_compiling
from stoker.options import Options
from stoker.stance import stance

__all__ = [
    "Options",
    "allow_in_graph",
    "aot",
    "compile",
    "compile_in_place",
    "default_backend",
    "disable",
    "events",
    "explain",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "register_backend",
    "reset",
    "stance",
]
