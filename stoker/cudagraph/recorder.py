"""When to record a plan, and which recording serves a call.

The first calls of a size run the plan as it is, and tell which inputs stay where they are. Then it is recorded, the ways are measured,
and the fastest is kept: a graph that gains nothing from being recorded is not replayed. While somebody still has results of the last
replay, another recording, with memory of its own, serves the call; where there is none the plan runs as it is, which is always right.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import torch

from stoker import log
from stoker.cudagraph.choose import PLAIN, Choice, choose
from stoker.cudagraph.contents import Contents
from stoker.cudagraph.driver import CannotRecord
from stoker.cudagraph.recording import Held, PlanRecording, World, record
from stoker.strict import strict

WARM_CALLS = 2
"""Calls of a size before it is recorded."""
MOST_AT_ONCE = 3
"""Recordings of one size: results of that many calls may be in use."""
MOST_MADE = 8
"""Recordings of one size ever made: inputs that keep moving are not worth more."""
MOST_CASES = 8
"""Sizes that are recorded; the most used are kept."""


MOST_KNOWN = 256
"""Sizes that are remembered."""

RECORDING = threading.Lock()
"""Held by who records: to wait for the device, as is done before, breaks another thread's recording of whatever graph."""


Reason = IntEnum("Reason", "NONE MOVED OTHER_SIZE RESULTS_IN_USE OTHER_STREAM RUNNING REFUSED LAZY UNALIGNED", start=0)
"""Why a replay did not serve a call, as csrc/replay.cpp lists them."""


@dataclass(slots=True)
class _Case:
    """Calls of one size on one stream."""

    calls: int = 0
    addresses: dict[int, int] = field(default_factory=dict)
    moved: set[int] = field(default_factory=set)
    recordings: list[PlanRecording] = field(default_factory=list)
    made: int = 0
    choice: Choice | None = None
    off: str | None = None

    def note(self, inputs: Sequence[Any]) -> None:
        """Remember where the inputs lie, and which of them moved."""
        self.calls += 1
        for number, value in enumerate(inputs):
            if isinstance(value, torch.Tensor) and value.numel():
                address = value.data_ptr()
                if self.addresses.setdefault(number, address) != address:
                    self.moved.add(number)

    @property
    def used(self) -> int:
        return sum(recording.replay.replays for recording in self.recordings)


class PlanRecorder:
    """A compiled graph that is replayed where that is faster."""

    def __init__(
        self,
        world: World,
        held: Callable[[Sequence[Any]], tuple[Held, ...]],
        location: str,
        on_defect: Callable[[Exception], None],
    ) -> None:
        """`held`: the numbers of the inputs that a recording holds for. `on_defect` is told of failures of our own."""
        self.world, self.held, self.location, self.on_defect = world, held, location, on_defect
        self.cases: dict[tuple[int, tuple[Held, ...]], _Case] = {}
        self.replays: list[Any] = []

    def __call__(self, *inputs: Any) -> tuple[Any, ...]:
        for replay in self.replays:
            found = replay(*inputs)
            if found is not NotImplemented:
                return found
        return self._otherwise(inputs)

    def _otherwise(self, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        if not RECORDING.acquire(blocking=False):
            return self.world.run(*inputs)  # another thread is recording
        try:
            replay = None if self.world.driver.is_capturing() else self._replay(inputs)
        finally:
            RECORDING.release()
        found = NotImplemented if replay is None else replay(*inputs)
        return self.world.run(*inputs) if found is NotImplemented else found

    def _replay(self, inputs: tuple[Any, ...]) -> Any:
        """A recording made for these inputs; None if there is to be none."""
        held = self.held(inputs)
        if len(self.cases) >= MOST_KNOWN:
            self.cases = {key: case for key, case in self.cases.items() if case.recordings}
        case = self.cases.setdefault((self.world.driver.stream(), held), _Case())
        case.note(inputs)
        if case.off is not None or case.calls <= WARM_CALLS or not self._wanted(case):
            return None
        fixed = frozenset(case.addresses.keys() - case.moved)
        try:
            with Contents(inputs, self.world.written) as contents:
                recording = record(self.world, inputs, fixed, held)
                case.made += 1
                if case.choice is None or case.choice.way == PLAIN:
                    case.choice = choose(self.world, recording, inputs, contents)
                    self._tell(str(case.choice), case.choice)
                else:
                    recording.replay.patch(case.choice.followed)
        except (CannotRecord, torch.OutOfMemoryError) as error:
            case.off = str(error).splitlines()[0]
            self._tell(f"not recorded: {case.off}", None)
            return None
        except Exception as error:
            if strict():
                raise
            case.off = "a defect, which is reported"
            self.on_defect(error)
            return None
        if case.choice.way == PLAIN:
            case.off = "it gains nothing"
            return None
        case.recordings.append(recording)
        self._refresh(case)
        return recording.replay

    def _wanted(self, case: _Case) -> bool:
        """Is another recording of a size wanted, after those there are could not serve a call? Those that never will are dropped."""
        reasons = {Reason(recording.replay.reason) for recording in case.recordings}
        if Reason.REFUSED in reasons:
            case.off = "the driver refused to change a recorded graph"
            case.recordings.clear()
        if Reason.MOVED in reasons:
            case.recordings = [r for r in case.recordings if r.replay.reason != Reason.MOVED]
            case.choice = None
        if case.made >= MOST_MADE:
            case.off = case.off or "it had to be recorded too often"
        if case.off or Reason.MOVED in reasons:
            self._refresh()
        if case.off is not None or reasons & {Reason.RUNNING, Reason.LAZY, Reason.UNALIGNED, Reason.OTHER_STREAM}:
            return False
        return len(case.recordings) < MOST_AT_ONCE

    def _refresh(self, newest: _Case | None = None) -> None:
        """Keep the recordings of the newest and of the most used sizes; these are asked first."""
        others = [c for c in self.cases.values() if c.recordings and c is not newest]
        others.sort(key=lambda c: -c.used)
        for case in others[MOST_CASES - 1 :]:
            case.recordings.clear()
        kept = [*others[: MOST_CASES - 1], *([] if newest is None else [newest])]
        self.replays = [r.replay for case in kept for r in case.recordings]

    def _tell(self, words: str, data: Choice | None) -> None:
        log.record(log.Event("cudagraph", words, self.location, data=data))
