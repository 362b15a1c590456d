"""The decision at a miss: capture this frame, or say why not.

In:  a code object about to run, its arguments, and which guard failed in each version tried.
Out: a `_C.Entry`, or an action (RUN_ONCE, SKIP, FREEZE) and an event with the reason.

Requirements:
  1. A frame is never left half captured: whatever capture raises besides the user's own errors leads to CPython
     running the frame, with an event (tests/unit/frame/test_entry.py).
  2. Only one thread compiles at a time; a second thread that waited looks again before it compiles.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import os
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from stoker import _C
from stoker.capture.capture import Captured, capture
from stoker.capture.machine import Request
from stoker.capture.policy import Policy
from stoker.capture.sizes import History
from stoker.errors import DEFAULT_FIX, BreakReason, GraphBreakError, SkipFrame, StokerError, VersionLimitError
from stoker.guard.explain import why_failed
from stoker.log import Event, record

_compiling = threading.RLock()
STRICT = os.environ.get("STOKER_STRICT") == "1"  # tests: a defect is an error, not an event


@contextlib.contextmanager
def _collector_paused() -> Iterator[None]:
    """A compilation makes many objects that live on, and the garbage collector would look at all of them again and
    again: a third of the time to compile a 12-layer BERT for training."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class Frames:
    """One configuration of `stoker.compile`: its back end, its limits, what it has captured."""

    def __init__(
        self,
        compile_graph: Callable[..., Any],
        *,
        dynamic: bool | None,
        fullgraph: bool,
        version_limit: int,
        policy: Policy | None = None,
    ) -> None:
        self.compile_graph, self.dynamic, self.fullgraph = compile_graph, dynamic, fullgraph
        self.version_limit = version_limit
        self.policy = policy or Policy()
        self.histories: weakref.WeakKeyDictionary[types.CodeType, History] = weakref.WeakKeyDictionary()
        self.captured: list[Captured] = []
        self.compiler = _C.Compiler(self.on_miss)

    def on_miss(self, code: types.CodeType, function: Any, bound: list[Any], failures: list[tuple[Any, int]]) -> Any:
        refusal = self.policy.refuse_root(code)
        if refusal is not None:
            record(Event("skip", code.co_qualname, f"{code.co_filename}:{code.co_firstlineno}", refusal))
            return _C.SKIP_DEEP if self.policy.refuses_callees(code) else _C.SKIP
        surroundings = self.policy.refuse_now()
        if surroundings is not None:
            record(Event("skip", code.co_qualname, f"{code.co_filename}:{code.co_firstlineno}", surroundings))
            return _C.RUN_ONCE
        with _compiling, _collector_paused():
            return self.compile_frame(Request(code, function, bound), failures)

    def compile_frame(self, request: Request, failures: list[tuple[Any, int]]) -> Any:
        code = request.code
        place = f"{code.co_filename}:{code.co_firstlineno}"
        for entry, number in failures[-1:]:
            record(Event("recompile", code.co_qualname, place, why_failed(entry.tag, number, request)))
        if len(failures) >= self.version_limit:
            return self.give_up(request, failures, place)
        history = self.histories.setdefault(code, History())
        try:
            found = capture(
                request,
                self.compile_graph,
                policy=self.policy,
                history=history,
                dynamic=self.dynamic,
                fullgraph=self.fullgraph,
            )
        except SkipFrame as skip:
            if self.fullgraph:
                reason = BreakReason("this function", skip.reason, DEFAULT_FIX, f"{place} in {code.co_qualname}")
                raise GraphBreakError(reason) from skip
            record(Event("skip", code.co_qualname, place, skip.reason))
            return _C.SKIP
        except StokerError:
            raise
        except Exception as error:
            if STRICT:
                raise
            words = f"a defect of Stoker's: {type(error).__name__}: {error}; the function runs in CPython"
            record(Event("defect", code.co_qualname, place, words), level=logging.ERROR)
            return _C.SKIP
        self.captured.append(found)
        record(Event("captured", code.co_qualname, place))
        if found.reason is not None:
            record(
                Event(
                    "break", code.co_qualname, found.reason.location, f"{found.reason.construct}: {found.reason.reason}"
                )
            )
        return _C.Entry(found.code, found.program, found.breaks, found)

    def give_up(self, request: Request, failures: list[tuple[Any, int]], place: str) -> Any:
        """The version limit: say once which guard kept failing and what to change."""
        code = request.code
        entry, number = failures[-1]
        words = (
            f"{code.co_qualname} has been compiled {len(failures)} times; new kinds of calls run in CPython from now on. "
            f"Last guard that failed: {why_failed(entry.tag, number, request)}. Pass such values as tensors, make "
            "sizes dynamic with dynamic=True or stoker.mark_dynamic, or raise options={'version_limit': ...}"
        )
        if self.fullgraph:
            raise VersionLimitError(words)
        record(Event("limit", code.co_qualname, place, words), level=logging.WARNING)
        return _C.FREEZE
