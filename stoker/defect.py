"""A defect of Stoker's own: the user's program runs on, and a report says what happened.

In:  an exception in a stage of a back end, the graph it was given, and the options.
Out: an event, one line that the user reads, and a file that the line names: versions, options, graph, traceback.

With STOKER_STRICT=1 nothing of this happens: the exception goes its way.
"""

from __future__ import annotations

import copy
import logging
import platform
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from stoker import log, torch_private
from stoker.cache import cache_directory, private_directory
from stoker.errors import is_outside_error
from stoker.strict import strict


def tell(what: str, graph_module: GraphModule, error: Exception, options: Any = None) -> None:
    """Record that a graph runs without a stage of ours, and where the report is."""
    location = str(graph_module.meta.get("location", "?"))
    path = _written(_report(what, graph_module, error, options))
    words = f"{type(error).__name__}: {_first_line(error)}"
    where = "no report could be written" if path is None else f"the report is {path}"
    event = log.Event("defect", what, location, f"{words}; {where}", {"report": path, "error": error})
    log.record(event, level=logging.WARNING, once=(what, location, words))


def may_be_defect(error: Exception) -> bool:
    """Should a graph raise this only where the program does? Kernels look at every index, also where there is nothing to read, and some of
    eager's do not; and plans need other memory than eager."""
    return not isinstance(error, torch.OutOfMemoryError) and not is_outside_error(error)


def contradicted(error: Exception, captured: object) -> None:
    """A compiled graph raised this, and the program as captured, run in its place, raised nothing."""
    if not may_be_defect(error):
        return
    if strict():
        raise error
    module = getattr(captured, "graph_module", getattr(captured, "__self__", None))
    tell("a compiled graph failed where the program does not", module or GraphModule({}, Graph()), error)


def survive(
    what: str,
    graph_module: GraphModule,
    compile: Callable[[GraphModule], Any],
    otherwise: Callable[[GraphModule], Any],
) -> Any:
    """`compile(graph_module)`; where that fails, `otherwise` of the graph as it was: passes change it in place."""
    untouched = torch_private.LazyGraphModule(graph_module, copy.deepcopy(graph_module.graph))
    untouched.meta.update(graph_module.meta)
    try:
        return compile(graph_module)
    except Exception as error:
        if strict():
            raise
        tell(what, untouched, error)
        return otherwise(torch_private.write_code(untouched))


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else ""


def _report(what: str, graph_module: GraphModule, error: Exception, options: Any) -> str:
    inputs = [
        f"{node.name}: {node.meta.get('example_value', node.meta.get('val'))!r}"
        for node in graph_module.graph.nodes
        if node.op == "placeholder"
    ]
    parts = {
        "what": what,
        "where": str(graph_module.meta.get("location", "?")),
        "versions": f"Python {sys.version}\ntorch {torch.__version__}\n{platform.platform()}",
        "options": repr(options),
        "inputs": "\n".join(inputs),
        "graph": str(graph_module.graph),
        "traceback": "".join(traceback.format_exception(error)),
    }
    return "\n\n".join(f"== {title}\n{text}" for title, text in parts.items()) + "\n"


def _written(text: str) -> Path | None:
    for directory in (cache_directory, private_directory):
        try:
            place = directory() / "reports"
            place.mkdir(mode=0o700, exist_ok=True)
            with tempfile.NamedTemporaryFile("w", prefix="report-", suffix=".txt", dir=place, delete=False) as file:
                file.write(text)
            return Path(file.name)
        except OSError:
            continue
    return None
