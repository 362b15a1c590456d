"""What an instruction costs, in additions."""

from __future__ import annotations

from stoker.loop.instruction import Apply, Load, LoopInstruction, Store
from stoker.loop.op import ELEMENTWISE


def cost(i: LoopInstruction) -> int:
    return ELEMENTWISE[i.operation].cost if isinstance(i, Apply) else int(isinstance(i, (Load, Store)))
