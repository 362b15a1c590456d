"""Sources: a module of Python for each kernel, whole in itself."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stoker.codegen.triton.batch import PARAMETERS
from stoker.codegen.triton.kernel import emit
from stoker.codegen.triton.operation import BITS, POINTERS
from stoker.codegen.triton.tiling import Tiling
from stoker.schedule.kernel import Kernel
from stoker.shape.expr import Expr

LIBRARY = (Path(__file__).parent / "library.py").read_text()
LONGEST_NAME = 60


@dataclass(frozen=True, slots=True)
class Unit:
    """A source and how it is to be compiled and launched."""

    name: str
    """Of the function that is launched: what profilers show."""
    source: str
    signature: tuple[tuple[str, str], ...]
    """Name and type of each parameter, in Triton's words."""
    aligned: tuple[int, ...]
    """Parameters whose addresses are multiples of 16."""
    warps: int
    stages: int
    programs: Expr
    watches: bool
    limited: bool
    value_bytes: tuple[int, ...]
    """For each buffer: the bytes of its number, where that is what the function takes, else 0."""
    batched: bool
    overlaps: bool
    """Does it wait by itself for the kernel ahead of it?"""
    points_each: int
    """Outer points of a program, where only they are cut into tiles."""


def unit_of(kernel: Kernel, tiling: Tiling, origins: Sequence[str] = (), *, overlaps: bool = False) -> Unit:
    """The unit of a kernel that stands for some operators."""
    name = _name(origins)
    written = emit(name, kernel, tiling, overlaps=overlaps)
    value_bytes = tuple(d.itemsize if n in kernel.values else 0 for n, d in enumerate(kernel.arguments))
    parameters = [
        (f"a{n}", BITS[value_bytes[n]] if value_bytes[n] else POINTERS[dtype])
        for n, dtype in enumerate(kernel.arguments)
    ]
    parameters += [(f"n{n}", "i32" if written.limited else "i64") for n in range(kernel.sizes)]
    parameters += [("flags", "*i32")] if written.watches else []
    aligned = tuple(n for n, size in enumerate(value_bytes) if not size)
    if kernel.batched:
        parameters, aligned = list(PARAMETERS), tuple(range(len(PARAMETERS)))
    source = f"{_needed(written.text)}\n\n{written.text}"
    return Unit(
        name, source, tuple(parameters), aligned, written.warps, tiling.stages, written.programs, written.watches,
        written.limited, value_bytes, kernel.batched, overlaps, tiling.x_block,
    )  # fmt: skip


def _name(origins: Sequence[str]) -> str:
    """The operators' names, once each, in words that Python takes."""
    short = dict.fromkeys(o.removeprefix("aten.").split(".")[0].strip("_") for o in origins)
    return "stoker_" + (re.sub(r"\W", "_", "_".join(short)) or "kernel")[:LONGEST_NAME]


_FUNCTION = re.compile(r"\n\n\n@triton\.jit\ndef (\w+)\(")


def _parts() -> tuple[str, dict[str, str]]:
    """The head of the library, and its functions by name."""
    first = _FUNCTION.search(LIBRARY)
    assert first is not None
    starts = [(m.group(1), m.start()) for m in _FUNCTION.finditer(LIBRARY)]
    ends = [start for _, start in starts[1:]] + [len(LIBRARY)]
    return LIBRARY[: first.start()], {n: LIBRARY[s:e].rstrip() for (n, s), e in zip(starts, ends)}


_HEAD, _FUNCTIONS = _parts()


def _needed(text: str) -> str:
    """The library without the functions that a source does not call."""
    wanted: set[str] = set()
    waiting = [text]
    while waiting:
        words = set(re.findall(r"\w+", waiting.pop()))
        for name in words & _FUNCTIONS.keys() - wanted:
            wanted.add(name)
            waiting.append(_FUNCTIONS[name])
    return _HEAD + "".join(body for name, body in _FUNCTIONS.items() if name in wanted)
