"""The decision at a miss: capture this frame, or say why not.

In:  a code object about to run, its arguments, and which guard failed in each version tried.
Out: a `_C.Entry`, or an action (RUN_ONCE, SKIP, FREEZE) and an event with the reason.

Requirements:
  1. A frame is never left half captured: whatever capture raises besides the user's own errors leads to CPython
     running the frame, with an event (tests/unit/frame/test_entry.py).
  2. Versions are counted for each function and the modules it runs on (tests/unit/frame/test_entry.py).
  3. Only one thread compiles at a time; a second thread that waited looks again before it compiles.
"""

from __future__ import annotations

import logging
import threading
import types
import weakref
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stoker import _C
from stoker.capture.capture import Captured, capture
from stoker.capture.evaluator import Request
from stoker.capture.place import MODULE_CALLS
from stoker.capture.policy import OWN_CODE, Policy
from stoker.capture.sizes import History
from stoker.collector import collector_paused
from stoker.errors import (
    DEFAULT_FIX,
    BreakReason,
    GraphBreakError,
    RecompileForbidden,
    SkipFrame,
    StokerError,
    VersionLimitError,
)
from stoker.guard.explain import why_failed
from stoker.log import Event, collecting, record
from stoker.stance import forbids_compiling
from stoker.strict import strict
from stoker.took import WHOLE, timed

_compiling = threading.RLock()
EVENTS_KEPT = 1024
MODULES_LIMIT = 32  # times the version limit: how many versions a function has for all modules it runs on


@dataclass(frozen=True)
class Version:
    """The tag of an entry: what was captured, and the modules it was captured for."""

    captured: Captured
    runs_on: tuple[weakref.ref[torch.nn.Module], ...]

    @classmethod
    def of(cls, captured: Captured, request: Request) -> Version:
        return cls(captured, tuple(weakref.ref(module) for module in _modules(request)))

    def is_for(self, request: Request) -> bool:
        """Were these its modules? Twelve blocks of one class share their code, and not their versions."""
        modules = _modules(request)
        return len(modules) == len(self.runs_on) and all(a is b() for a, b in zip(modules, self.runs_on))


def _modules(request: Request) -> list[torch.nn.Module]:
    """The modules that a frame gets as arguments, or in cells: `self`, where a function inside the method reads it."""
    values = [*request.bound, *map(_contents, request.function.__closure__ or ())]
    return [value for value in values if issubclass(type(value), torch.nn.Module)]


def _contents(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return None


class Frames:
    """One configuration of `stoker.compile`: its back end, its limits, what it has captured."""

    settings: Any = None
    """What its maker wants to remember."""

    def __init__(
        self,
        compile_graph: Callable[..., Any],
        *,
        dynamic: bool | None,
        fullgraph: bool,
        version_limit: int,
        name: str | None = None,
        policy: Policy | None = None,
    ) -> None:
        self.compile_graph, self.dynamic, self.fullgraph = compile_graph, dynamic, fullgraph
        self.version_limit, self.name = version_limit, name
        self.policy = policy or Policy()
        self.histories: weakref.WeakKeyDictionary[types.CodeType, History] = weakref.WeakKeyDictionary()
        self.captured: list[Captured] = []
        self.happened: deque[Event] = deque(maxlen=EVENTS_KEPT)
        self.told: set[tuple[str, str]] = (
            set()
        )  # breaks, by their own places: every caller on the way meets the same one
        self.compiler = _C.Compiler(self.on_miss)

    def on_miss(self, code: types.CodeType, function: Any, bound: list[Any], failures: list[tuple[Any, int]]) -> Any:
        with collecting(self.happened):
            request = Request(code, function, bound)
            refusal = self.policy.refuse_root(code, function)
            if refusal is not None:
                if refusal != OWN_CODE:
                    self.tell("skip", request, refusal)
                return _C.SKIP_DEEP if self.policy.refuses_callees(code) else _C.SKIP
            surroundings = self.policy.refuse_now()
            if surroundings is not None:
                self.tell("skip", request, surroundings)
                return _C.RUN_ONCE
            with collector_paused(), _compiling, timed(WHOLE):
                answer = self.made_meanwhile(request, failures)
                if answer is None:
                    answer = self.compile_frame(request, failures)
                    self.keep(code, answer)
                return answer

    def made_meanwhile(self, request: Request, failures: list[tuple[Any, int]]) -> Any:
        """What another thread has found out while this one waited for its turn, if it settles this call. Versions that do not fit
        join the failures."""
        tried = {id(entry) for entry, _ in failures}
        for entry in self.compiler.entries(request.code):
            if id(entry) in tried:
                continue
            answer = entry.guards.check(request.bound, request.function)
            if not isinstance(answer, int):
                return entry
            failures.append((entry, answer))
        state = self.compiler.state(request.code)
        return None if state == _C.RUN_ONCE else state

    def keep(self, code: types.CodeType, answer: Any) -> None:
        """Let other threads know it when their turn comes, which may be before this one is back in the extension."""
        if isinstance(answer, _C.Entry):
            self.compiler.add(code, answer)
        elif answer != _C.RUN_ONCE:
            self.compiler.set_state(code, answer)

    def tell(
        self, kind: str, request: Request, reason: str = "", *, level: int = logging.DEBUG, data: object = None
    ) -> None:
        """Record an event. It is said aloud only if it is about a function that the user can change."""
        place = request.place
        level = level if place.is_users else logging.DEBUG
        record(Event(kind, self.name or place.subject, place.location, reason, data), level=level)

    def compile_frame(self, request: Request, failures: list[tuple[Any, int]]) -> Any:
        place = request.place
        same = [failure for failure in failures if failure[0].tag.is_for(request)]
        entry, number = same[-1] if same else (None, 0)
        why = why_failed(entry.tag.captured, number, request) if entry else "it has not been compiled before"
        if forbids_compiling():
            raise RecompileForbidden(place.subject, place.location, why)
        history = self.histories.setdefault(request.code, History())
        if entry is not None:
            self.tell("recompile", request, why, data=history.number)
        if len(same) >= self.version_limit or len(failures) >= self.version_limit * MODULES_LIMIT:
            return self.give_up(request, len(same), why)
        try:
            found = capture(
                request,
                self.compile_graph,
                policy=self.policy,
                history=history,
                dynamic=self.generality(len(same)),
                fullgraph=self.fullgraph,
            )
        except SkipFrame as skip:
            if self.fullgraph:
                reason = BreakReason("this function", skip.reason, DEFAULT_FIX, place.text)
                raise GraphBreakError(reason) from skip
            if request.code.co_filename != MODULE_CALLS:
                self.tell("skip", request, skip.reason)
            return _C.SKIP_DEEP if skip.deep else _C.SKIP
        except StokerError:
            raise
        except RecursionError:
            self.tell("skip", request, "calls are nested so deep that there is no room for a capture")
            return _C.RUN_ONCE
        except Exception as error:
            if strict():
                raise
            words = f"a defect of Stoker's: {type(error).__name__}: {error}; the function runs in CPython"
            self.tell("defect", request, words, level=logging.ERROR)
            return _C.SKIP
        self.captured.append(found)
        for code, known in found.behind.items():
            self.histories.setdefault(code, History()).expect(known)
        graph = (history.number, *map(id, _modules(request))) if found.graph is not None else None
        self.tell("captured", request, data=graph)
        if found.reason is not None and found.reason.key not in self.told:
            self.told.add(found.reason.key)
            words = f"{found.reason.construct}: {found.reason.reason}"
            record(Event("break", self.name or place.subject, found.reason.location, words, found.reason))
        return _C.Entry(found.code, found.program, found.breaks, Version.of(found, request))

    def generality(self, versions: int) -> bool | None:
        """Which sizes are symbolic: those that changed, or all in the last version that the limit allows."""
        return True if self.dynamic is None and 0 < versions == self.version_limit - 1 else self.dynamic

    def give_up(self, request: Request, versions: int, why: str) -> Any:
        """The version limit: say once which guard kept failing and what to change. Other modules' versions still come."""
        words = (
            f"{request.place.subject} has been compiled {versions} times; new kinds of calls run in CPython from now on. "
            f"Last guard that failed: {why}. Pass such values as tensors, make "
            "sizes dynamic with dynamic=True or stoker.mark_dynamic, or raise options={'version_limit': ...}"
        )
        if self.fullgraph:
            raise VersionLimitError(words)
        self.tell("limit", request, words, level=logging.WARNING)
        return _C.FREEZE if (not _modules(request) or versions < self.version_limit) else _C.RUN_ONCE
