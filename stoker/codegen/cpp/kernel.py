"""A kernel as a C++ function.

The shapes, chosen by how memory is walked:
  plain    no inner loops: outer loops in parallel, the last one as vectors
  crosswise  plain, but operands walk along different loops: two loops run in square tiles (`crosswise.py`)
  rows     inner loops walk along memory: threads take outer points, vectors run inside the reduction
  columns  the last outer loop walks along memory: threads take strips of it, vectors hold neighbouring outer points, and what
           outlives a phase is an array over the strip
  whole    rows, but with few outer points and long inner loops: threads share each reduction
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import assert_never

from stoker.codegen.cpp import moments as measuring
from stoker.codegen.cpp.ahead import AHEAD, requests
from stoker.codegen.cpp.cost import cost
from stoker.codegen.cpp.crosswise import emit_crosswise
from stoker.codegen.cpp.expression import MARKED, declared, expression
from stoker.codegen.cpp.invariant import lift
from stoker.codegen.cpp.mark import constant, large, long, marked, plain
from stoker.codegen.cpp.operation import TYPES, literal, operation
from stoker.codegen.cpp.reduction import Accumulator, accumulator
from stoker.codegen.cpp.scan import emit_scan, scan_step, scans
from stoker.codegen.cpp.scatter import combined, combines, emit_scatter
from stoker.codegen.cpp.shape import Shape, shape_of_kernel
from stoker.codegen.cpp.spread import spread
from stoker.codegen.cpp.tiles import USUAL, Tiles
from stoker.codegen.writer import Writer
from stoker.loop.index import Dimension, count, ranges_of
from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number, Reduce, Scan, Store
from stoker.loop.op import MOMENTS, outside_code
from stoker.schedule.kernel import Kernel, Phase
from stoker.schedule.merge import position_in
from stoker.shape.expr import Expr, symbol, text
from stoker.shape.walk import substitute

PARALLEL_WORK = 1 << 15
"""Additions below which threads cost more than they bring."""
COARSE_WORK = 1 << 10
"""Additions beside which a division does not count."""
_STRIP_SYMBOL = symbol("strip")
_ROW_START = symbol("row_start")


SHARED_CHUNK = 4096
"""Elements of an inner loop that one of several threads reduces together."""
WAYS, CHEAP_STEP = 4, 6
"""A reduction whose step costs at most so many additions is found in so many ways at once."""
STRIP_CHUNK = 256
"""Rows above a strip that are reduced together."""

Reductions = list[tuple[int, Accumulator, Reduce]]
_JOIN = {
    "+": "{0} += {1};", "*": "{0} *= {1};", "|": "{0} |= {1};", "&": "{0} &= {1};", "^": "{0} ^= {1};",
    "max": "{0} = {0} < {1} ? {1} : {0};", "min": "{0} = {0} > {1} ? {1} : {0};",
}  # fmt: skip


def emit(name: str, kernel: Kernel, tiles: Tiles = USUAL) -> str:
    """The C++ of a kernel."""
    return declared(plain(emit_marked(name, kernel, tiles)))


def emit_marked(name: str, kernel: Kernel, tiles: Tiles = USUAL) -> str:
    """The same with marks around its large numbers, and without its declarations of numbers."""
    return _Emitter(name, kernel, tiles).function()


class _Emitter:
    """The state of one function being written."""

    def __init__(self, name: str, kernel: Kernel, tiles: Tiles) -> None:
        self.name, self.tiles = name, tiles
        self.out = Writer()
        self.shape = shape_of_kernel(kernel)
        self.work = _work(kernel)
        """Additions in all, roughly."""
        spreads = self.shape in (Shape.PLAIN, Shape.CROSSWISE) and not combines(kernel) and not scans(kernel)
        self.kernel, self.copies = spread(kernel) if spreads else (kernel, ())
        kernel = self.kernel
        self.ranges = ranges_of((*kernel.outer, *kernel.inner))
        self.instructions = [line for p in kernel.phases for line in p.lines]
        self.types = {n: i.dtype for n, i in self.instructions}
        self.reduces = {n: i for n, i in self.instructions if isinstance(i, Reduce)}
        lasting = self._lasting()
        self.lifted = self._lifted(lasting) if self.shape is Shape.COLUMNS and not scans(kernel) else {}
        self.lasting = lasting - self.lifted.keys()
        self.asking, self.requests = requests(kernel, self.shape)
        self.watches = sorted({outside_code(i.family) for _, i in self.instructions if isinstance(i, Indirect)})
        """The families of indices that must not be out of range."""
        self.scan_place = ""
        """Which element of the arrays that a scan keeps, if it keeps arrays."""

    def _lasting(self) -> set[int]:
        """Values made in one phase and used in another."""
        made: dict[int, int] = {}
        found: set[int] = set()
        for position, phase in enumerate(self.kernel.phases):
            for number, i in phase.lines:
                made[number] = position
                found |= {a for a in i.arguments if made[a] != position or a in self.reduces}
        return found

    def _lifted(self, lasting: set[int]) -> dict[int, Number]:
        """Numbers that several phases use: they are no columns, and conditions on them are the same for all of a strip."""
        measured = {i.arguments[0] for i in self.reduces.values() if i.kind in MOMENTS}
        return {n: i for n, i in self.instructions if isinstance(i, Number) and n in lasting - measured}

    def expr(self, expr: Expr) -> str:
        return expression(expr, self.ranges, MARKED)

    def known(self, expr: Expr) -> str:
        """An expression whose numbers the compiler is to know."""
        return expression(expr, self.ranges)

    def extent(self, loop: Dimension) -> str:
        """How often a loop runs."""
        return long(loop.size.value, self.known(loop.size))

    def around(self, loop: Dimension) -> str:
        """How often a loop runs around another one that is vectors: only a few times are worth knowing."""
        text = self.known(loop.size)
        return text if loop.size.value is None else large(loop.size.value, text)

    def bound(self, expr: Expr) -> str:
        """How often something is done that is long: no number of it is worth knowing."""
        return self.known(expr) if expr.value is None else marked(self.known(expr))

    def is_coarse(self, dimensions: tuple[Dimension, ...]) -> bool:
        """Is what these loops do at each point so long that dividing by a variable is nothing beside it?"""
        work, points = self.work.value, count(dimensions).value
        return work is not None and points is not None and work >= COARSE_WORK * points

    def function(self) -> str:
        out = self.out
        with out.block(f'extern "C" int {self.name}(void* const* arguments, const int64_t* sizes)'):
            for code in self.watches:
                out.line(f"int64_t outside{code} = 0;")
            copied = {position for copies in self.copies for position in copies.others}
            for position, dtype in enumerate(self.kernel.arguments):
                if position in copied:
                    continue
                const = "" if position in self.kernel.written else "const "
                kind = f"{const}{TYPES[dtype]}*"
                alone = "" if position in self.kernel.shared else "__restrict "
                out.line(f"{kind} {alone}a{position} = static_cast<{kind}>(arguments[{position}]);")
            for position in range(self.kernel.sizes):
                out.line(f"const int64_t n{position} = sizes[{position}];")
            self.refuse_empty()
            match self.shape:
                case Shape.PLAIN if combines(self.kernel):
                    emit_scatter(self)
                case _ if scans(self.kernel):
                    emit_scan(self)
                case Shape.PLAIN:
                    self.plain()
                case Shape.CROSSWISE:
                    emit_crosswise(self)
                case Shape.ROWS | Shape.WHOLE:
                    self.rows(threads=self.shape is Shape.WHOLE)
                case Shape.COLUMNS:
                    self.columns()
            out.line(f"return {' | '.join(f'(outside{code} ? {code} : 0)' for code in self.watches) or '0'};")
        return out.text()

    def refuse_empty(self) -> None:
        """An index out of range is taken for 0. Where that is none either, because there is no element, nothing may be looked at."""
        for phase in self.kernel.phases:
            loops = (*self.kernel.outer, *(self.kernel.inner if phase.across else ()))
            run = "".join(f" && ({self.known(d.size)}) > 0" for d in loops if not d.size.value)
            for _, i in phase.lines:
                if isinstance(i, Indirect) and len(i.arguments) == 1 and not i.size.value:
                    self.out.line(f"if (({self.known(i.size)}) <= 0{run}) return {outside_code(i.family)};")

    def parallel(self, kind: str, clauses: str = "") -> None:
        """Share the loop that follows among threads, if there is work for them."""
        clauses += self.watched()
        work = self.work
        if work.value is not None:
            if work.value > PARALLEL_WORK:
                self.out.line(f"#pragma omp {kind} schedule(static){clauses}")
            elif "simd" in kind:
                self.out.line(f"#pragma omp simd{clauses}")
            return
        self.out.line(f"#pragma omp {kind} schedule(static){clauses} if(parallel: {self.expr(work)} > {PARALLEL_WORK})")

    @contextmanager
    def loops(self, dimensions: tuple[Dimension, ...], *, around: bool = False) -> Iterator[None]:
        """Nested loops, in order. They may stand around another one that is vectors."""
        if not dimensions:
            yield
            return
        first, *rest = dimensions
        end = self.around(first) if around else None
        with self.out.block(self.head(first, end=end)), self.loops(tuple(rest), around=around):
            yield

    def head(self, loop: Dimension, start: str = "0", end: str | None = None) -> str:
        name = text(loop.symbol)
        return f"for (int64_t {name} = {start}; {name} < {end or self.extent(loop)}; ++{name})"

    @contextmanager
    def shared(self, dimensions: tuple[Dimension, ...]) -> Iterator[None]:
        """Loops in parallel: several become one, taken apart inside."""
        if not dimensions:
            with self.out.block():
                yield
            return
        size_of = self.bound if len(dimensions) == 1 or self.is_coarse(dimensions) else self.known
        self.parallel("parallel for")
        if len(dimensions) == 1:
            with self.out.block(self.head(dimensions[0], end=size_of(dimensions[0].size))):
                yield
            return
        with self.out.block(f"for (int64_t point = 0; point < {size_of(count(dimensions))}; ++point)"):
            self.out.line("int64_t rest = point;")
            for loop in reversed(dimensions[1:]):
                size = size_of(loop.size)
                self.out.line(f"const int64_t {text(loop.symbol)} = rest % ({size}); rest /= ({size});")
            self.out.line(f"const int64_t {text(dimensions[0].symbol)} = rest;")
            yield

    def plain(self) -> None:
        lifted, kernel = lift(self.kernel)
        if lifted and any(d.size.value is None for d in kernel.outer):
            self.out.line(f"if ({self.expr(count(kernel.outer))} <= 0) return 0;")  # there may be nothing to read
        for number, i in lifted:
            self.instruction(number, i, [f"v{a}" for a in i.arguments])
        (phase,) = kernel.phases
        outer = kernel.outer
        simd = self.vectorizable(phase)
        if len(outer) <= 1:
            if outer:
                self.parallel("parallel for simd" if simd else "parallel for")
            with self.loops(outer):
                self.lines(phase)
            return
        with self.shared(outer[:-1]):
            self.simd(simd)
            with self.loops(outer[-1:]):
                self.lines(phase)
            self.copy_rows(outer[-1], "0", self.expr(outer[-1].size))

    def copy_rows(self, last: Dimension, start: str, end: str) -> None:
        """Copy what the last loop has written between two of its positions."""
        for copies in self.copies:
            kind, others = TYPES[copies.store.dtype], copies.others
            row = {last.symbol: _ROW_START}
            source = f"{copies.store.buffer} + ({self.expr(substitute(copies.store.index, row))})"
            place = self.expr(substitute(copies.index, row))
            with self.out.block():
                self.out.line(f"const int64_t {text(_ROW_START)} = {start};")
                limits = marked(str(others.start)), marked(str(others.stop))
                with self.out.block("for (int64_t copy = {}; copy < {}; ++copy)".format(*limits)):
                    if copies.step.value != 0:
                        place += f" + (copy - {limits[0]}) * ({self.expr(copies.step)})"
                    target = f"static_cast<{kind}*>(arguments[copy]) + ({place})"
                    size = f"({end} - {text(_ROW_START)}) * sizeof({kind})"
                    self.out.line(f"__builtin_memcpy({target}, {source}, {size});")

    def simd(self, possible: bool, clauses: str = "") -> None:
        if possible:
            self.out.line(f"#pragma omp simd{clauses}{self.watched()}")

    def watched(self) -> str:
        """Lanes and threads count indices out of range together."""
        return f" reduction(+: {', '.join(f'outside{code}' for code in self.watches)})" if self.watches else ""

    def vectorizable(self, phase: Phase) -> bool:
        """Can iterations of the innermost loop run at once? Not if they add to computed places."""
        return not any(isinstance(i, Store) and i.combine for _, i in phase.lines)

    def rows(self, *, threads: bool) -> None:
        """Threads take outer points, or share each reduction."""
        with self.loops(self.kernel.outer) if threads else self.shared(self.kernel.outer):
            for position, dtype in enumerate(self.kernel.scratch):
                self.out.line(f"alignas(64) {TYPES[dtype]} s{position}[{self.known(count(self.kernel.inner))}];")
            for phase in self.kernel.phases:
                if phase.across:
                    self.across(phase, threads=threads)
                else:
                    self.lines(phase)

    def accumulators(self, phase: Phase) -> Reductions:
        return [
            (n, accumulator(i.kind, i.dtype, self.types[i.arguments[0]]), i)
            for n, i in phase.lines
            if isinstance(i, Reduce) and i.kind not in MOMENTS
        ]

    def across(self, phase: Phase, *, threads: bool) -> None:
        """The inner loops of one phase."""
        reductions, moments = self.accumulators(phase), measuring.measured(phase)
        for n, form, _ in reductions:
            for suffix, kind, start in form.variables:
                self.out.line(f"{kind} v{n}_acc{suffix} = {start};")
        if moments is not None:
            measuring.start_row(self, moments)
        ordered = any(not form.clause for _, form, _ in reductions)
        simd = self.vectorizable(phase) and not ordered
        *outside, last = self.kernel.inner
        clauses = _clauses(reductions)
        chunk = SHARED_CHUNK if threads else self.tiles.chunk
        chunked = not outside and simd and (last.size.value is None or last.size.value > 2 * chunk)
        if threads and not ordered and (chunked or outside or moments is not None):
            self.parallel("parallel for", clauses + measuring.clauses(moments))
        if moments is not None:
            with self.loops(tuple(outside)):
                self.chunks(phase, last, reductions, SHARED_CHUNK if threads else measuring.PIECE, moments)
            measuring.finish_row(self, moments)
        elif chunked:
            self.chunks(phase, last, reductions, chunk)
        else:
            self.ask(phase, "0", self.extent(last))
            with self.loops(tuple(outside)):
                self.simd(simd, clauses)
                with self.loops((last,)):
                    self.lines(phase)
        for n, form, i in reductions:
            self.out.line(f"const {TYPES[i.dtype]} v{n} = {form.result.format(f'v{n}_acc')};")

    def ask(self, phase: Phase, start: str, end: str) -> None:
        """Ask for what the next row reads between two positions."""
        if phase is self.asking:
            for buffer, place, step in self.requests:
                name = text(AHEAD)
                with self.out.block(f"for (int64_t {name} = {start}; {name} < {end}; {name} += {step})"):
                    self.out.line(f"__builtin_prefetch({buffer} + ({self.expr(place)}));")

    def chunks(
        self,
        phase: Phase,
        last: Dimension,
        reductions: Reductions,
        chunk: int,
        moments: measuring.Measured | None = None,
    ) -> None:
        """A long inner loop in pieces, each reduced on its own: sums of sums lose fewer digits, and threads take pieces."""
        out, size = self.out, self.extent(last)
        parts = [r for r in reductions if r[1].clause]
        ways = self.ways(phase, reductions) if moments is None else 1
        chunk = _for_ways(chunk, last.size.value) if ways > 1 else chunk
        whole = last.size.value is not None and last.size.value % chunk == 0
        with out.block(f"for (int64_t chunk = 0; chunk < {size}; chunk += {chunk})"):
            end = f"chunk + {chunk}" if whole else f"minimum<int64_t>(chunk + {chunk}, {size})"
            out.line(f"const int64_t chunk_end = {end};")
            self.ask(phase, "chunk", "chunk_end")
            for n, form, _ in parts:
                for suffix, kind, start in form.variables:
                    out.line(f"{kind} v{n}_part{suffix} = {start};")
            with contextlib.ExitStack() as stack:
                if ways > 1:
                    self.side_by_side(phase, last, parts, chunk, whole=whole)
                    if not whole:
                        stack.enter_context(out.block("else"))
                if ways == 1 or not whole:
                    self.simd(len(parts) == len(reductions), _clauses(parts, "part") + measuring.sums(self, moments))
                    with out.block(self.head(last, "chunk", "chunk_end")):
                        self.lines(phase if moments is None else moments.rest, accumulator="part")
                        measuring.add(self, moments)
            self.join(parts, "acc", "part")
            if moments is not None:
                measuring.distances(self, moments, last)

    def ways(self, phase: Phase, reductions: Reductions) -> int:
        """How many partial results are found at once: a cheap step must not wait for the one before it."""
        cheap = sum(cost(i) for _, i in phase.lines) <= CHEAP_STEP
        return WAYS if reductions and cheap and all(form.clause for _, form, _ in reductions) else 1

    def side_by_side(self, phase: Phase, last: Dimension, parts: Reductions, chunk: int, *, whole: bool) -> None:
        """A full piece of a row in several ways, which the same vectors of several partial results take."""
        out, share = self.out, chunk // WAYS
        with out.block("" if whole else f"if (chunk_end - chunk == {chunk})"):
            names = ["part"] + [f"part{way}" for way in range(1, WAYS)]
            for name in names[1:]:
                for n, form, _ in parts:
                    for suffix, kind, start in form.variables:
                        out.line(f"{kind} v{n}_{name}{suffix} = {start};")
            self.simd(True, "".join(_clauses(parts, name) for name in names))
            with out.block(f"for (int64_t lane = chunk; lane < chunk + {share}; ++lane)"):
                for way, name in enumerate(names):
                    with out.block():
                        out.line(f"const int64_t {text(last.symbol)} = lane + {way * share};")
                        self.lines(phase, accumulator=name)
            for name in names[1:]:
                self.join(parts, "part", name)

    def join(self, reductions: Reductions, into: str, other: str) -> None:
        """Take other partial results into some."""
        for n, form, _ in reductions:
            for sign, suffix in form.clause:
                self.out.line(_JOIN[sign].format(f"v{n}_{into}{suffix}", f"v{n}_{other}{suffix}"))

    def columns(self) -> None:
        *lead, last = self.kernel.outer
        strips = Dimension(_STRIP_SYMBOL, (last.size + (self.tiles.strip - 1)) // self.tiles.strip)
        with self.shared((*lead, strips)):
            out = self.out
            out.line(f"const int64_t first = strip * {self.tiles.strip};")
            out.line(f"const int64_t end = minimum<int64_t>(first + {self.tiles.strip}, {self.around(last)});")
            for n, i in self.lifted.items():
                self.instruction(n, i, [])
            for n in sorted(self.lasting):
                if n not in self.reduces:
                    out.line(f"{TYPES[self.types[n]]} v{n}_all[{self.tiles.strip}];")
            for phase in self.kernel.phases:
                self.strip(phase, last)

    def strip(self, phase: Phase, last: Dimension) -> None:
        """One phase over a strip of outer points."""
        out, name = self.out, text(last.symbol)
        head = self.head(last, "first", "end")
        if not phase.across:
            if self.lifted.keys() >= {n for n, _ in phase.lines}:
                return
            self.simd(True)
            with out.block(head):
                self.lines(phase, strip=f"[{name} - first]")
            return
        self.strip_across(phase, last, self.accumulators(phase))

    def strip_across(self, phase: Phase, last: Dimension, reductions: Reductions) -> None:
        """The inner loops around a strip. Long ones run in pieces, as in `chunks`."""
        out = self.out
        for n, form, i in reductions:
            self.fill(n, "acc", form)
            out.line(f"{TYPES[i.dtype]} v{n}_all[{self.tiles.strip}];")
        moments = measuring.measured(phase)
        if moments is not None:
            measuring.strip_moments(self, moments, last)
        else:
            self.strip_loops(phase, last, reductions)
        for n, form, _ in reductions:
            result = form.result.replace("{0}_nan", f"v{n}_acc_nan[k]").replace("{0}", f"v{n}_acc[k]")
            out.line(f"for (int64_t k = 0; k < {self.tiles.strip}; ++k) v{n}_all[k] = {result};")

    def strip_loops(self, phase: Phase, last: Dimension, reductions: Reductions) -> None:
        out, name = self.out, text(last.symbol)
        first, *rest = self.kernel.inner
        long = first.size.value is None or first.size.value > 2 * STRIP_CHUNK
        pieces = reductions and long and all(form.clause for _, form, _ in reductions)
        with contextlib.ExitStack() as stack:
            if pieces:
                size = self.around(first)
                head = f"for (int64_t chunk = 0; chunk < {size}; chunk += {STRIP_CHUNK})"
                stack.enter_context(out.block(head))
                out.line(f"const int64_t chunk_end = minimum<int64_t>(chunk + {STRIP_CHUNK}, {size});")
                for n, form, _ in reductions:
                    self.fill(n, "part", form)
            bounds = ("chunk", "chunk_end") if pieces else ("0", self.around(first))
            with out.block(self.head(first, *bounds)), self.loops(tuple(rest), around=True):
                self.simd(self.vectorizable(phase))
                with out.block(self.head(last, "first", "end")):
                    self.lines(phase, strip=f"[{name} - first]", accumulator="part" if pieces else "acc")
            if pieces:
                for n, form, _ in reductions:
                    for sign, suffix in form.clause:
                        words = _JOIN[sign].format(f"v{n}_acc{suffix}[k]", f"v{n}_part{suffix}[k]")
                        out.line(f"for (int64_t k = 0; k < {self.tiles.strip}; ++k) {words}")

    def fill(self, number: int, name: str, form: Accumulator) -> None:
        """The arrays of a reduction over a strip, at their start."""
        for suffix, kind, start in form.variables:
            array = f"v{number}_{name}{suffix}"
            self.out.line(f"{kind} {array}[{self.tiles.strip}];")
            self.out.line(f"for (int64_t k = 0; k < {self.tiles.strip}; ++k) {array}[k] = {start};")

    def lines(self, phase: Phase, strip: str = "", accumulator: str = "acc") -> None:
        """The straight-line code of a phase. In a strip, values of other phases are elements of arrays."""
        own = {n for n, _ in phase.lines} - set(self.reduces) | self.lifted.keys()

        def value(number: int) -> str:
            return f"v{number}" if not strip or number in own else f"v{number}_all{strip}"

        for number, i in phase.lines:
            if number in self.lifted:
                continue
            arguments = [value(a) for a in i.arguments]
            if isinstance(i, Reduce):
                self.combine(number, i, arguments[0], strip, accumulator)
            else:
                self.instruction(number, i, arguments)
            if strip and number in self.lasting and not isinstance(i, Reduce):
                self.out.line(f"v{number}_all{strip} = v{number};")

    def instruction(self, number: int, i: LoopInstruction, arguments: list[str]) -> None:
        kind = TYPES[i.dtype]
        match i:
            case Load():
                words = self.load(i, arguments)
            case Store():
                place = f"{i.buffer}[{self.expr(i.index)}]"
                self.out.line(f"{place} = {combined(place, arguments[0], i.combine, i.dtype)};")
                return
            case Number():
                words = constant(i)
            case Index():
                words = f"convert<{kind}>(int64_t({self.expr(i.expr)}))"
            case Indirect():
                self.indirect(i, arguments)
                return
            case Scan():
                words = scan_step(self, number, i, arguments[0])
            case Convert():
                words = f"convert<{kind}>({arguments[0]})"
            case Apply():
                words = operation(i.operation, i.dtype, self.types[i.arguments[0]], arguments)
            case Reduce():
                raise AssertionError("a reduction is combined, by its shape")
            case _:
                assert_never(i)
        self.out.line(f"const {kind} v{number} = {words};")

    def load(self, i: Load, condition: list[str]) -> str:
        words = f"{i.buffer}[{self.expr(i.index)}]"
        if i.buffer[0] == "a" and self.kernel.arguments[int(i.buffer[1:])] is not i.dtype:
            words = f"bit_cast<{TYPES[i.dtype]}>({words})"
        return f"{condition[0]} ? {words} : {literal(0, i.dtype)}" if condition else words

    def indirect(self, i: Indirect, arguments: list[str]) -> None:
        """A computed index, in range or counted."""
        out, limit = self.out, self.expr(i.size)
        wrapped, result = f"{text(i.name)}_wrapped", text(i.name)
        out.line(f"const int64_t {wrapped} = {arguments[0]} < 0 ? {arguments[0]} + ({limit}) : {arguments[0]};")
        out.line(f"const bool {result}_bad = {wrapped} < 0 || {wrapped} >= ({limit});")
        reached = f"{result}_bad && {arguments[1]}" if len(arguments) > 1 else f"{result}_bad"
        out.line(f"outside{outside_code(i.family)} += int64_t({reached});")
        out.line(f"const int64_t {result} = {result}_bad ? 0 : {wrapped};")

    def combine(self, number: int, i: Reduce, value: str, strip: str, name: str) -> None:
        form = accumulator(i.kind, i.dtype, self.types[i.arguments[0]])
        name = name if form.clause else "acc"
        position = self.expr(position_in(self.kernel.inner))
        for words in form.combine:
            words = words.replace("{0}_nan", f"v{number}_{name}_nan{strip}")
            words = words.replace("{0}_best", f"v{number}_{name}_best")
            self.out.line(words.format(f"v{number}_{name}{strip}", v=value, k=position))


def _work(kernel: Kernel) -> Expr:
    across = sum(cost(i) for p in kernel.phases if p.across for _, i in p.lines)
    once = sum(cost(i) for p in kernel.phases if not p.across for _, i in p.lines)
    return count(kernel.outer) * (count(kernel.inner) * across + once)


def _for_ways(chunk: int, size: int | None) -> int:
    """A piece of a row that is large enough for several ways: the row itself, if it can be."""
    usual = max(chunk, WAYS * 256)
    return size if size is not None and size <= usual and size % (WAYS * 16) == 0 else usual


def _clauses(reductions: Reductions, name: str = "acc") -> str:
    """How OpenMP joins the lanes, or threads, of a loop."""
    return "".join(
        f" reduction({sign}: v{n}_{name}{suffix})" for n, form, _ in reductions for sign, suffix in form.clause
    )
