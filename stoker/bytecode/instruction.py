"""One instruction of a code object, as data.

An instruction names its operand by meaning, never by index: a local by its name, a constant by the object, a jump by
the instruction it lands on. So a list of instructions can be cut, joined and reordered without renumbering anything.

Identity matters: two equal looking instructions are different jump targets. Copy with `dataclasses.replace`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


class Positions(NamedTuple):
    """Where in the source an instruction comes from (PEP 657). One that comes from nowhere has None instead."""

    lineno: int
    end_lineno: int | None = None
    col_offset: int | None = None
    end_col_offset: int | None = None


@dataclass(slots=True, eq=False)
class Instruction:
    """An opcode name and what it works on.

    value:   str for names, locals and cells; the object for constants; the target for jumps; the operator's text for
             COMPARE_OP; the plain int for any other operand (counts, masks, BINARY_OP's index); None without operand.
    flag:    the bits that the version packs beside the operand: LOAD_GLOBAL's push-null, LOAD_ATTR's method bit (3.12),
             LOAD_SUPER_ATTR's two bits, COMPARE_OP's to-bool (3.13).
    handler: the exception-table entry that covers this instruction. The table is flat, so there is at most one.
    offset:  the byte offset of the opcode, after its EXTENDED_ARGs; None for one that was not decoded. It is the
             `tb_lasti` of what it raises; a frame that waits in a call may stand on one of the caches behind it.
    """

    name: str
    value: Any = None
    flag: int = 0
    positions: Positions | None = None
    handler: Handler | None = None
    offset: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """Where an exception goes: unwind the stack to `depth`, push the offset if `lasti`, push the exception."""

    target: Instruction
    depth: int
    lasti: bool

    @property
    def entry_depth(self) -> int:
        """The stack depth at which the target starts."""
        return self.depth + self.lasti + 1


Code = list[Instruction]
"""A piece of code: pieces are put together with `+`."""
