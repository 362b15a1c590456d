"""Kernels that are launched on many rows of buffers at once.

A table in the device's memory has a line for each row: what the kernel would be given for it alone, addresses and numbers, as words. Which
row a program works for, and on which part of it, is known when the plan is made: `owners` has a row for each program, `firsts` the first
program and `points` the length of each row. The table is written by launches of another kernel, which takes words as its parameters: so
it needs no copy, and a recording of it follows inputs that move.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from stoker.codegen.triton.operation import TYPES
from stoker.codegen.writer import Writer
from stoker.schedule.kernel import Kernel

PARAMETERS = (("table", "*i64"), ("owners", "*i32"), ("firsts", "*i32"), ("points", "*i32"))
"""What a kernel of a batch takes, with Triton's types."""
ALIGNMENT_BYTES = 16
"""Of addresses in the table."""
WORDS = 256
"""How many words one launch writes to the table: as parameters they are 2 KB, of the 4 that every driver takes."""
FILL = "stoker_fill_table"


def write_row(out: Writer, kernel: Kernel, *, wide: bool) -> None:
    """What this program works on: its number within the row, the row's length, and its buffers, under the names of a kernel for one."""
    out.line("program = tl.program_id(0)")
    out.line("row = tl.load(owners + program)")
    widened = ".to(tl.int64)" if wide else ""
    out.line(f"program = (program - tl.load(firsts + row)){widened}")
    out.line(f"n0 = tl.load(points + row){widened}")
    out.line(f"words = table + row * {len(kernel.arguments)}")
    for number, dtype in enumerate(kernel.arguments):
        word = f"tl.load(words + {number})"
        if number not in kernel.values:
            word = f"tl.multiple_of({word}.to(tl.pointer_type({TYPES[dtype]})), {ALIGNMENT_BYTES})"
        out.line(f"a{number} = {word}")


def fill_source() -> str:
    """The kernel that writes words to a table, from a place on."""
    names = [f"w{number}" for number in range(WORDS)]
    out = Writer("    ")
    out.line("import triton")
    out.line("import triton.language as tl")
    out.line("")
    out.line("")
    out.line("@triton.jit")
    with out.indented(f"def {FILL}(table, {', '.join(names)}, place):"):
        for number, name in enumerate(names):
            out.line(f"tl.store(table + place + {number}, {name})")
    return out.text()


def fill_signature() -> tuple[tuple[str, str], ...]:
    return (("table", "*i64"), *((f"w{number}", "i64") for number in range(WORDS)), ("place", "i64"))


def places(lengths: Sequence[int], points_each: int, device: torch.device) -> list[torch.Tensor]:
    """`owners`, `firsts` and `points` of a batch of rows."""
    each = torch.tensor([-(-length // points_each) for length in lengths])
    owners = torch.repeat_interleave(torch.arange(len(lengths)), each)
    found = (owners, each.cumsum(0) - each, torch.tensor(lengths))
    return [part.to(device=device, dtype=torch.int32) for part in found]
