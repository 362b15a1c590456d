"""Scans: running reductions along the inner loops, which run in order.

Threads take outer points. Where the last outer loop walks along memory, vectors hold neighbouring outer points and the running
values are an array over a strip of them; otherwise each outer point has a variable.
"""

from __future__ import annotations

from stoker.codegen.cpp.function import FunctionText
from stoker.codegen.cpp.operation import TYPES
from stoker.codegen.cpp.shape import Shape
from stoker.loop.index import Dimension
from stoker.loop.instruction import Scan
from stoker.schedule.kernel import Kernel
from stoker.schedule.merge import position_in
from stoker.shape.expr import symbol, text

STRIP = 64
"""Outer points in a strip."""

_FORMS: dict[str, tuple[str, str]] = {
    "sum": ("0", "{0} + {v}"),
    "prod": ("1", "{0} * {v}"),
    "max": ("lowest_of<{t}>()", ""),
    "min": ("highest_of<{t}>()", ""),
    "logaddexp": ("lowest_of<{t}>()", "log_add_exp({0}, {v})"),
}
"""How a kind starts, and its next value from the last ({0}) and the element ({v}); for extremes see `scan_step`."""


def scans(kernel: Kernel) -> bool:
    return any(isinstance(i, Scan) for p in kernel.phases for _, i in p.lines)


def emit_scan(emitter: FunctionText) -> None:
    """The loops of a kernel that scans."""
    kernel = emitter.kernel
    columns = emitter.shape is Shape.COLUMNS and bool(kernel.outer)
    lead, last = (kernel.outer[:-1], kernel.outer[-1]) if columns else (kernel.outer, None)
    strips = () if last is None else (Dimension(symbol("strip"), (last.size + (STRIP - 1)) // STRIP),)
    emitter.scan_place = "" if last is None else f"[{text(last.symbol)} - first]"
    with emitter.shared((*lead, *strips)):
        if last is not None:
            emitter.out.line(f"const int64_t first = strip * {STRIP};")
            emitter.out.line(f"const int64_t end = minimum<int64_t>(first + {STRIP}, {emitter.extent(last)});")
        _start(emitter, kernel, columns=last is not None)
        if last is None:
            for phase in kernel.phases:
                with emitter.loops(kernel.inner if phase.across else ()):
                    emitter.lines(phase)
            return
        with emitter.loops(kernel.inner):
            emitter.simd(True)
            with emitter.out.block(emitter.head(last, "first", "end")):
                for phase in kernel.phases:
                    emitter.lines(phase)


def _start(emitter: FunctionText, kernel: Kernel, *, columns: bool) -> None:
    for number, i in ((n, i) for p in kernel.phases for n, i in p.lines if isinstance(i, Scan)):
        for name, kind, start in _variables(emitter, number, i):
            if columns:
                emitter.out.line(f"{kind} {name}[{STRIP}];")
                emitter.out.line(f"for (int64_t k = 0; k < {STRIP}; ++k) {name}[k] = {start};")
            else:
                emitter.out.line(f"{kind} {name} = {start};")


def _variables(emitter: FunctionText, number: int, i: Scan) -> list[tuple[str, str, str]]:
    """(name, type, start) of what a scan keeps."""
    kind = TYPES[emitter.types[i.arguments[0]]]
    start = _FORMS[i.kind.removeprefix("arg")][0].format(t=kind)
    kept = [(f"v{number}_scan", kind, start)]
    if i.kind.startswith("arg"):
        kept.append((f"v{number}_at", "int64_t", "0"))
    return kept


def scan_step(emitter: FunctionText, number: int, i: Scan, value: str) -> str:
    """Take one more element in; the expression of the value so far.

    Outside of strips a new extreme is a jump: it is rare, and the next element need not wait for the comparison.
    """
    place = emitter.scan_place
    last, kind = f"v{number}_scan{place}", i.kind.removeprefix("arg")
    if kind not in ("max", "min"):
        emitter.out.line(f"{last} = {_FORMS[kind][1].format(last, v=value)};")
        return last
    newer = f"({value} != {value} || {value} {'>=' if kind == 'max' else '<='} {last})"
    named = i.kind.startswith("arg")
    position = emitter.expr(position_in(emitter.kernel.inner))
    if place:
        if named:
            emitter.out.line(f"v{number}_at{place} = {newer} ? ({position}) : v{number}_at{place};")
        emitter.out.line(f"{last} = {newer} ? {value} : {last};")
    else:
        also = f" v{number}_at = {position};" if named else ""
        emitter.out.line(f"if (__builtin_expect({newer}, 0)) {{ {last} = {value};{also} }}")
    return f"v{number}_at{place}" if named else last
