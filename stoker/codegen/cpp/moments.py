"""Means and moments: memory is walked once, in pieces that stay in the nearest cache while both are found.

A piece is summed, then the squared distances from its own mean are, and both join what earlier pieces gave (`moments.h`). Other
instructions of the phase run with the sums.
"""

from __future__ import annotations

from dataclasses import dataclass

from stoker.codegen.cpp.function import FunctionText
from stoker.codegen.cpp.operation import TYPES
from stoker.loop.index import Dimension, count
from stoker.loop.instruction import Indirect, Reduce
from stoker.loop.op import MOMENTS
from stoker.schedule.kernel import Phase, leading_to
from stoker.shape.expr import text

PIECE = 2048
"""Elements of a piece of a row."""
STRIP_PIECE = 64
"""Rows of a piece above a strip."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a phase does besides reducing to moments, and the values whose moments it finds."""

    rest: Phase
    values: tuple[tuple[int, str], ...]
    """Number and C++ type."""
    again: Phase
    """The lines that make those values, to be run a second time."""
    results: tuple[tuple[int, int, str], ...]
    """(result, value, kind)"""


def measured(phase: Phase) -> Measured | None:
    """The phase taken apart, if it finds moments."""
    found = [(n, i) for n, i in phase.lines if isinstance(i, Reduce) and i.kind in MOMENTS]
    if not found:
        return None
    values = tuple(dict.fromkeys((i.arguments[0], TYPES[i.dtype]) for _, i in found))
    checked = (n for n, i in phase.lines if isinstance(i, Indirect))
    needed = leading_to(phase.lines, [*(number for number, _ in values), *checked])
    reduces = {n for n, _ in found}
    return Measured(
        Phase(phase.across, tuple(line for line in phase.lines if line[0] not in reduces)),
        values,
        Phase(phase.across, tuple(line for line in phase.lines if line[0] in needed)),
        tuple((n, i.arguments[0], i.kind) for n, i in found),
    )


def start_row(emitter: FunctionText, moments: Measured) -> None:
    for number, kind in moments.values:
        emitter.out.line(f"Moments<{kind}> m{number};")


def finish_row(emitter: FunctionText, moments: Measured) -> None:
    types = dict(moments.values)
    for result, number, kind in moments.results:
        words = f"m{number}.mean()" if kind == "mean" else f"m{number}.moment"
        emitter.out.line(f"const {types[number]} v{result} = {words};")


def clauses(moments: Measured | None) -> str:
    """How OpenMP joins what threads found."""
    return "" if moments is None else "".join(f" reduction(join: m{number})" for number, _ in moments.values)


def distances(emitter: FunctionText, moments: Measured, last: Dimension) -> None:
    """The second walk over a piece of a row, whose sums are known, and its joining."""
    out = emitter.out
    for number, kind in moments.values:
        out.line(f"const {kind} m{number}_mean = m{number}_sum / {kind}(chunk_end - chunk);")
        out.line(f"{kind} m{number}_moment = 0;")
    emitter.simd(True, "".join(f" reduction(+: m{number}_moment)" for number, _ in moments.values))
    with out.block(emitter.head(last, "chunk", "chunk_end")):
        emitter.lines(moments.again)
        for number, kind in moments.values:
            out.line(f"const {kind} m{number}_apart = v{number} - m{number}_mean;")
            out.line(f"m{number}_moment += m{number}_apart * m{number}_apart;")
    for number, _ in moments.values:
        out.line(f"m{number}.take(chunk_end - chunk, m{number}_sum, m{number}_moment);")


def sums(emitter: FunctionText, moments: Measured | None) -> str:
    """Start the sums of a piece of a row; the clauses for them."""
    if moments is None:
        return ""
    for number, kind in moments.values:
        emitter.out.line(f"{kind} m{number}_sum = 0;")
    return "".join(f" reduction(+: m{number}_sum)" for number, _ in moments.values)


def add(emitter: FunctionText, moments: Measured | None) -> None:
    """Take one value of a row into the sums."""
    for number, _ in moments.values if moments is not None else ():
        emitter.out.line(f"m{number}_sum += v{number};")


def strip_moments(emitter: FunctionText, moments: Measured, last: Dimension) -> None:
    """Moments over the inner loops around a strip: the same with an array for each variable."""
    out, size = emitter.out, emitter.tiles.strip
    first, *rest = emitter.kernel.inner
    place = f"[{text(last.symbol)} - first]"
    every = f"for (int64_t k = 0; k < {size}; ++k)"
    for number, kind in moments.values:
        for name in ("total", "moment", "piece_sum", "piece_moment"):
            out.line(f"{kind} m{number}_{name}[{size}];")
        out.line(f"{every} m{number}_total[k] = m{number}_moment[k] = 0;")
    out.line("int64_t seen = 0;")

    made = {n for n, _ in moments.again.lines}
    names = {n: f"v{n}" if n in made else f"v{n}_all{place}" for n, _ in moments.values}

    def walk(phase: Phase, words: str) -> None:
        with out.block(emitter.head(first, "chunk", "chunk_end")), emitter.loops(tuple(rest), around=True):
            emitter.simd(emitter.vectorizable(phase))
            with out.block(emitter.head(last, "first", "end")):
                emitter.lines(phase, strip=place)
                for number, kind in moments.values:
                    out.line(words.format(n=number, k=place, t=kind, v=names[number]))

    extent = emitter.around(first)
    with out.block(f"for (int64_t chunk = 0; chunk < {extent}; chunk += {STRIP_PIECE})"):
        out.line(f"const int64_t chunk_end = minimum<int64_t>(chunk + {STRIP_PIECE}, {extent});")
        out.line(f"const int64_t here = (chunk_end - chunk) * ({emitter.expr(count(rest))});")
        for number, _ in moments.values:
            out.line(f"{every} m{number}_piece_sum[k] = m{number}_piece_moment[k] = 0;")
        walk(moments.rest, "m{n}_piece_sum{k} += {v};")
        walk(
            moments.again,
            "const {t} m{n}_apart = {v} - m{n}_piece_sum{k} / {t}(here); m{n}_piece_moment{k} += m{n}_apart * m{n}_apart;",
        )
        for number, _ in moments.values:
            parts = ", ".join(f"m{number}_{name}[k]" for name in ("total", "moment", "piece_sum", "piece_moment"))
            out.line(f"{every} join_moments(seen, here, {parts});")
        out.line("seen += here;")
    types = dict(moments.values)
    for result, number, kind in moments.results:
        words = f"m{number}_total[k] / {types[number]}(seen)" if kind == "mean" else f"m{number}_moment[k]"
        out.line(f"{types[number]} v{result}_all[{size}];")
        out.line(f"{every} v{result}_all[k] = {words};")
