"""A code object as data: taken apart, asked about, written anew.

    >>> from stoker.bytecode import decode, encode, render
    >>> def double(x):
    ...     return x + x
    >>> instructions = decode(double.__code__)
    >>> [instruction.name for instruction in instructions]
    ['RESUME', 'LOAD_FAST', 'LOAD_FAST', 'BINARY_OP', 'RETURN_VALUE']
    >>> instructions[3].value = BINARY_OPS.index("*")
    >>> double.__code__ = encode(instructions, double.__code__)
    >>> double(5)
    25

The same names come out on CPython 3.11, 3.12 and 3.13 wherever the versions mean the same thing, so that what reads
instructions reads one dialect. What the versions really do differently is in `versions`, as tables.

Reading order: instruction, versions, table, decode, effect, flow, encode, build, text.
Imports neither torch nor anything else of stoker.
"""

from . import build
from .build import assemble
from .decode import decode
from .effect import stack_effect
from .encode import EncodeError, encode, encode_entered
from .flow import live_cells, live_locals, loops, reachable, stack_depth, stack_depths, successors
from .instruction import Code, Handler, Instruction, Positions
from .text import render
from .versions import BINARY_OPS, COMPARE_OPS, CONDITIONAL_JUMPS, SUPPORTED, TERMINAL, VERSION, opnames

__all__ = [
    "Code",
    "BINARY_OPS",
    "COMPARE_OPS",
    "CONDITIONAL_JUMPS",
    "SUPPORTED",
    "TERMINAL",
    "VERSION",
    "EncodeError",
    "Handler",
    "Instruction",
    "Positions",
    "assemble",
    "build",
    "decode",
    "encode",
    "encode_entered",
    "live_cells",
    "live_locals",
    "loops",
    "opnames",
    "reachable",
    "render",
    "stack_depth",
    "stack_depths",
    "stack_effect",
    "successors",
]
