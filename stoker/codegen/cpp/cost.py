"""What an instruction costs, in additions."""

from __future__ import annotations

from stoker.loop.body import Instruction
from stoker.loop.op import ELEMENTWISE


def cost(i: Instruction) -> int:
    operation = ELEMENTWISE.get(i.op)
    return operation.cost if operation is not None else int(i.op in ("load", "store"))
