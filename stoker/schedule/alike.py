"""Kernels of drafts that are alike are built once: a deep network repeats its blocks.

In:  drafts of one program, each with the buffers that are needed after it.
Out: for each, the kernel and what it is called on (`stoker.schedule.kernel.build`).

Requirement, held by tests/unit/schedule/test_alike.py: a kernel depends on nothing of a draft but what `_key` tells. That is everything but the names
of buffers, of which the types, the devices, and whether they are needed later count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stoker.loop.instruction import Load, LoopInstruction, Store
from stoker.loop.layout import Layout
from stoker.loop.target import Targets
from stoker.schedule.draft import Draft
from stoker.schedule.kernel import Call, Kernel, build
from stoker.shape.expr import Symbol


@dataclass(frozen=True, slots=True)
class Kernels:
    """Those of one program, so far."""

    layouts: Mapping[str, Layout]
    targets: Targets
    known: dict[Any, tuple[Kernel, tuple[int, ...], tuple[Symbol, ...]]] = field(default_factory=dict)
    """For each draft's key a kernel, the numbers of the buffers it is called on, and its sizes."""

    def build(self, draft: Draft, kept: frozenset[str]) -> Call:
        """The kernel of a draft. `kept` names buffers that are needed after it."""
        numbers: dict[str, int] = {}
        key = self._key(draft, kept, numbers)
        found = self.known.get(key)
        if found is None:
            made = build(draft, kept, self.layouts, self.targets[draft.device.type])
            self.known[key] = (made.kernel, tuple(numbers[b] for b in made.buffers), made.sizes)
            return made
        names, (kernel, buffers, sizes) = list(numbers), found
        return Call(kernel, tuple(names[n] for n in buffers), sizes, draft.origins)

    def _key(self, draft: Draft, kept: frozenset[str], numbers: dict[str, int]) -> Any:
        """What a draft computes. Its buffers are numbered as they come."""
        bodies = [
            (m.across, m.reduces, *m.place.items(), *(_instruction_key(i, numbers) for i in m.node.body))
            for m in draft.members
        ]
        facts = [(self.layouts[name].dtype, self.layouts[name].device.type, name in kept) for name in numbers]
        return draft.device, draft.outer, draft.inner, tuple(bodies), tuple(facts)


def _instruction_key(i: LoopInstruction, numbers: dict[str, int]) -> Any:
    if isinstance(i, (Load, Store)):
        number = numbers.setdefault(i.buffer, len(numbers))
        return type(i), i.arguments, i.dtype, number, i.index, i.combine if isinstance(i, Store) else None
    return i
