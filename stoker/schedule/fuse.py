"""May two drafts share one kernel, and what would it save?

In:  two drafts, the first before the second, and the limits of the target.
Out: the joined draft, or a Refusal, so that stoker.explain can say why not.

Requirements, held by tests/stages against the oracle of loops:
  1. Joining never changes what any stored buffer holds.
  2. The answer depends on the arguments alone.
"""

from __future__ import annotations

from enum import Enum

from stoker.loop.target import Target
from stoker.schedule.draft import Draft, agree, align, align_by_places, joined


class Refusal(Enum):
    """Why not, in the words the user will read."""

    DEVICE = "they run on different devices"
    SIZE = "together they would be too large"
    RANGES = "their loops run over different ranges"
    ORDER = "the second reads elements that the first writes in other iterations, or as another type"
    NOTHING_SHARED = "they share no memory access"
    SCATTER = "one of them writes to computed places"
    SCAN = "one of them runs its inner loops in order"


def fuse(
    first: Draft, second: Draft, target: Target, *, strangers: bool = False, columns: bool = False
) -> Draft | Refusal:
    """Decide, cheapest test first. `strangers` may share nothing; for `columns` the first may change the order of its loops."""
    if first.device != second.device:
        return Refusal.DEVICE
    if first.length + second.length > target.largest_body or len(first.reads | second.reads) > target.most_buffers:
        return Refusal.SIZE
    if first.scatters or second.scatters:
        return Refusal.SCATTER
    if first.scans or second.scans:
        return Refusal.SCAN
    found = align_by_places(first, second) if columns else align(first, second)
    if found is None:
        return Refusal.RANGES
    first, second = found
    if not agree(first, second):
        return Refusal.ORDER
    if not strangers and not first.writes & second.reads and not first.loads & second.loads:
        return Refusal.NOTHING_SHARED
    return joined(first, second)
