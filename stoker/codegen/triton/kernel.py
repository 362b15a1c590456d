"""A kernel as a Triton function.

A program of the grid computes a tile of outer points (axis X; with a second axis Y where memory is walked along two loops), across
the inner points (axis R): all at once if they fit registers, otherwise in a loop around each phase. Values are tiles: scalars,
columns over X, or whole tiles; which axes a value varies along follows from the loops it depends on.

Requirements, held by tests/stages/test_triton.py under Triton's interpreter:
  1. The function computes what the kernel says, for every dtype and for sizes that no block divides.
  2. It reads and writes inside its buffers alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import assert_never

from stoker.codegen.triton.batch import PARAMETERS, write_row
from stoker.codegen.triton.early import early_lines
from stoker.codegen.triton.expression import expression
from stoker.codegen.triton.once import each_once
from stoker.codegen.triton.operation import TYPES, converted, given, interleaved, literal, operation
from stoker.codegen.triton.product import places_in_product, write_product
from stoker.codegen.triton.reduction import SCANS, Form, form_of
from stoker.codegen.triton.shifted import shifted_decays
from stoker.codegen.triton.tiling import LANES, Tiling
from stoker.codegen.triton.together import sums_together
from stoker.codegen.triton.width import Width, width_of
from stoker.codegen.writer import Writer
from stoker.errors import OUTSIDE
from stoker.loop.index import Dimension, Dimensions, count, ranges_of
from stoker.loop.instruction import Apply, Convert, Index, Indirect, Load, LoopInstruction, Number, Reduce, Scan, Store
from stoker.loop.interval import Intervals
from stoker.loop.philox import WORDS
from stoker.schedule.kernel import Kernel, Line, Phase
from stoker.schedule.product import PRODUCT, Prologue
from stoker.shape.expr import Expr, Symbol, constant, symbol, text
from stoker.shape.prove import Interval, bounds
from stoker.shape.walk import free_symbols, substitute

Axes = frozenset[str]
"""The axes of a tile that something varies along: "x", "y", "r"."""
NONE: Axes = frozenset()
MEMORY_BYTES = 16
"""What a thread reads or writes at once."""


@dataclass(frozen=True, slots=True)
class Written:
    """A kernel's source, and what its launch needs to know."""

    text: str
    programs: Expr
    """How many programs the grid has, of the kernel's sizes."""
    warps: int
    watches: bool
    """Does it take a pointer to flags, for indices out of range?"""
    limited: bool
    """Does it compute in 32 bits what sizes may make too large?"""


def emit(name: str, kernel: Kernel, tiling: Tiling, *, overlaps: bool = False) -> Written:
    """The Triton of a kernel; with `overlaps` of one that may be placed before the kernel ahead of it has ended."""
    emitter = _Emitter(name, each_once(kernel) if kernel.inner and tiling.persistent else kernel, tiling)
    source, limited = emitter.function(overlaps=overlaps), emitter.width is Width.LIMITED
    return Written(source, emitter.programs(), tiling.warps, emitter.watches, limited)


def _wait(out: Writer, fresh: set[str]) -> None:
    """Threads of a program read what others of it wrote."""
    out.line("tl.debug_barrier()")
    fresh.clear()


class _Emitter:
    """The state of one function being written."""

    def __init__(self, name: str, kernel: Kernel, tiling: Tiling) -> None:
        self.name, self.kernel, self.tiling = name, kernel, tiling
        self.out = Writer("    ")
        self.ranges = _ranges(kernel)
        self.lines = [line for phase in kernel.phases for line in phase.lines]
        self.made = dict(self.lines)
        self.types = {n: i.dtype for n, i in self.lines}
        intervals = Intervals(self.made, self.ranges)
        self.inside_always = {i.name for _, i in self.lines if isinstance(i, Indirect) and _is_inside(i, intervals)}
        """Computed indices that need no check."""
        self.watches = any(isinstance(i, Indirect) and i.name not in self.inside_always for _, i in self.lines)
        self.width = width_of(kernel, self.ranges)
        self.wide = self.width is Width.WIDE
        self.axes_of: dict[Symbol, Axes] = {d.symbol: frozenset("r") for d in kernel.inner}
        self.axes_of |= {d.symbol: frozenset("y" if d == tiling.y else "x") for d in kernel.outer}
        if tiling.y is not None:
            for d in kernel.outer[:-1]:
                if d != tiling.y:
                    self.axes_of[d.symbol] = NONE
        self.unsure = self.unsure_axes()
        self.shifted = shifted_decays(kernel)
        self.numbers = frozenset(f"a{n}" for n in kernel.values)
        """Parameters that are numbers, not memory."""
        self.begin()

    def begin(self) -> None:
        """Nothing is written yet."""
        self.limits: dict[Symbol, Expr] = {}
        """For each computed index, what it is below."""
        self.axes: dict[int, Axes] = {}
        """For each value, what it varies along."""
        self.held: dict[tuple[object, ...], str] = {}
        """What is in registers of memory, as the type it is stored in: (buffer, index, condition) to the value's name."""
        self.fresh: set[str] = set()
        """Buffers written since threads last waited for each other."""
        self.held |= {(PRODUCT, place, ()): PRODUCT for place in places_in_product(i for _, i in self.lines)}

    def programs(self) -> Expr:
        tiling = self.tiling
        if tiling.y is None:
            return _pieces(count(self.kernel.outer), tiling.x_block)
        rest = count([d for d in self.kernel.outer[:-1] if d != tiling.y])
        return rest * _pieces(tiling.y.size, tiling.y_block) * _pieces(self.kernel.outer[-1].size, tiling.x_block)

    def unsure_axes(self) -> Axes:
        """The axes along which the last tile may reach past the loops; loops that never run have a tile, too."""
        points = {axis: count(loops).value for axis, loops in self.loops_of_axes().items()}
        return frozenset(axis for axis, number in points.items() if not number or number % self.sizes[axis])

    def expr(self, expr: Expr) -> str:
        return expression(expr, self.ranges)

    def function(self, *, overlaps: bool) -> str:
        kernel, out = self.kernel, self.out
        names = [f"a{n}" for n in range(len(kernel.arguments))] + [f"n{n}" for n in range(kernel.sizes)]
        names += ["flags"] if self.watches else []
        names = [name for name, _ in PARAMETERS] if kernel.batched else names
        out.line("@triton.jit")
        with out.indented(f"def {self.name}({', '.join(names)}):"):
            if overlaps:
                out.line("gdc_wait()")  # until those before have ended, and what they wrote is seen
            if kernel.batched:
                self.of_a_row()
            else:
                out.line(f"program = tl.program_id(0){'.to(tl.int64)' if self.wide else ''}")
                self.body()
        return out.text()

    def of_a_row(self) -> None:
        """The body twice: without conditions where the tile is inside the row, which only a program knows, and with them at its end."""
        write_row(self.out, self.kernel, wide=self.wide)
        with self.out.indented(f"if (program + 1) * {self.tiling.x_block} <= n0:"):
            self.unsure = NONE
            self.body()
        with self.out.indented("else:"):
            self.unsure = self.unsure_axes()
            self.begin()
            self.body()

    def body(self) -> None:
        self.place()
        early = early_lines(self.kernel, self.tiling, self.programs())
        self.straight(early)
        done = {number for number, _ in early}
        for phase in self.kernel.phases:
            lines = [line for line in phase.lines if line[0] not in done]
            if phase.across and not self.tiling.persistent:
                self.looped(lines)
            else:
                self.straight(lines)

    def place(self) -> None:
        """Which points this program computes."""
        tiling, out, kernel = self.tiling, self.out, self.kernel
        if kernel.product is not None:
            rows, columns = (text(d.symbol) for d in kernel.outer[-2:])
            write_product(out, kernel.product, tiling, rows, columns, self.operand)
            self.unravel("rest", kernel.outer[:-2])
            return
        two = bool(kernel.inner) or tiling.y is not None
        column = "[:, None]" if two else ""
        if tiling.y is None:
            # divisions of numbers that may be negative are longer
            out.line(f"tl.assume(program * {tiling.x_block} >= 0)")
            out.line(f"x = program * {tiling.x_block} + tl.arange(0, {tiling.x_block}){column}")
            out.line(f"x_inside = x < {self.expr(count(kernel.outer))}")
            self.unravel("x", kernel.outer)
        else:
            self.place_in_two()
        if kernel.inner:
            out.line(f"r_first = tl.arange(0, {tiling.r_block})[None, :]{'.to(tl.int64)' if self.wide else ''}")
            if tiling.persistent:
                out.line("r = r_first")
                self.inner_point()

    def operand(self, made: Prologue, side: str) -> str:
        """An operand of the product that is computed: its tile is one of a kernel of its own, with `shared` for one of its two loops."""
        assert self.kernel.product is not None
        *lead, down, across = made.loops
        step, left = self.tiling.k_block, side == "left"
        high, wide = (self.tiling.y_block, step) if left else (step, self.tiling.x_block)
        kernel = replace(self.kernel, outer=made.loops, phases=(Phase(False, made.lines),), product=None)
        inner = _Emitter(self.name, kernel, replace(self.tiling, y=down, y_block=high, x_block=wide))
        inner.out = self.out
        names = ("near_rows", "shared[None, :]") if left else ("shared[:, None]", "near_columns")
        for loop, name in zip((down, across), names):
            self.out.line(f"{text(loop.symbol)} = {name}")
        inner.unravel("rest", tuple(lead))
        axis, inside = ("x", "k_inside[None, :]") if left else ("y", "k_inside[:, None]")
        sure = self.kernel.product.shared % step == 0
        inner.unsure = NONE if sure else frozenset(axis)
        if not sure:
            self.out.line(f"{axis}_inside = {inside}")
        inner.straight(made.lines)
        value = f"tl.broadcast_to(v{made.value}, [{high}, {wide}])"
        return value if sure else f"tl.where({inside}, {value}, 0).to({TYPES[self.kernel.product.dtype]})"

    def place_in_two(self) -> None:
        """Two loops are axes of the tile, the others are taken from the program's number."""
        tiling, out = self.tiling, self.out
        assert tiling.y is not None
        last = self.kernel.outer[-1]
        lead = tuple(d for d in self.kernel.outer[:-1] if d != tiling.y)
        wide, high = self.expr(_pieces(last.size, tiling.x_block)), self.expr(_pieces(tiling.y.size, tiling.y_block))
        out.line(f"across = program % ({wide})")
        out.line(f"down = (program // ({wide})) % ({high})")
        out.line(f"rest = program // (({wide}) * ({high}))")
        out.line(f"{text(last.symbol)} = across * {tiling.x_block} + tl.arange(0, {tiling.x_block})[None, :]")
        out.line(f"{text(tiling.y.symbol)} = down * {tiling.y_block} + tl.arange(0, {tiling.y_block})[:, None]")
        out.line(f"x_inside = {text(last.symbol)} < {self.expr(last.size)}")
        out.line(f"y_inside = {text(tiling.y.symbol)} < {self.expr(tiling.y.size)}")
        self.unravel("rest", lead)

    def inner_point(self) -> None:
        self.out.line(f"r_inside = r < {self.expr(count(self.kernel.inner))}")
        self.unravel("r", self.kernel.inner)

    def unravel(self, axis: str, loops: Dimensions) -> None:
        """The loops' own numbers, from how far all of them have come."""
        stride = constant(1)
        for position, loop in reversed(list(enumerate(loops))):
            words = axis if stride.value == 1 else f"({axis} // ({self.expr(stride)}))"
            if position:
                words = f"{words} % ({self.expr(loop.size)})"
            self.out.line(f"{text(loop.symbol)} = {words}")
            stride = stride * loop.size

    def straight(self, lines: Sequence[Line]) -> None:
        """Lines whose points are all in the tile."""
        for (number, i), *another in sums_together(lines) if self.kernel.inner else zip(lines):
            if isinstance(i, Reduce):
                self.reduce_at_once((number, i), *another)
            else:
                self.instruction(number, i)

    def looped(self, lines: Sequence[Line]) -> None:
        """A phase in a loop over the inner points, with accumulators around it."""
        out, tiling = self.out, self.tiling
        if self.fresh & {i.buffer for _, i in lines if isinstance(i, Load)}:
            _wait(out, self.fresh)
        reductions = [(n, form_of(i.kind, self.types[i.arguments[0]])) for n, i in lines if isinstance(i, Reduce)]
        for n, form in reductions:
            for k, (start, dtype) in enumerate(form.starts):
                out.line(f"v{n}_{k} = tl.full([{tiling.x_block}, {tiling.r_block}], {start}, {dtype})")
        held = dict(self.held)
        turns = f"0, {self.expr(points := count(self.kernel.inner))}, {tiling.r_block}"
        if (points.value or 0) >= 1 << 31:  # Triton would count with 32 bits up to 1 << 32
            turns = f"0, tl.full([], {points.value}, tl.int64), {tiling.r_block}"
        walk = f"range({turns})" if tiling.ahead == 1 else f"tl.range({turns}, num_stages={tiling.ahead})"
        with out.indented(f"for r_start in {walk}:"):
            out.line("r = r_start + r_first")
            self.inner_point()
            for n, i in lines:
                if isinstance(i, Reduce):
                    self.accumulate(n, i, dict(reductions)[n])
                else:
                    self.instruction(n, i)
        self.held = held
        for n, form in reductions:
            self.finish((n, form, [f"v{n}_{k}" for k in range(len(form.starts))]))

    def given(self, n: int, i: Reduce, form: Form) -> list[str]:
        """What each point of the tile brings to the accumulators; what is outside the loops changes nothing."""
        tile = f"[{self.tiling.x_block}, {self.tiling.r_block}]"
        value, made = f"v{i.arguments[0]}", []
        for k, (words, (start, dtype)) in enumerate(zip(form.given, form.starts)):
            words = words.format(v=f"({value})", k="r")
            self.out.line(f"v{n}_in{k} = {self.where_inside(words, f'tl.full([], {start}, {dtype})')}")
            made.append(f"tl.broadcast_to(v{n}_in{k}, {tile})")
        return made

    def reduce_at_once(self, *lines: Line) -> None:
        """One reduction, or two sums."""
        made = []
        for n, i in lines:
            assert isinstance(i, Reduce)
            if not self.kernel.inner:
                self.of_one(n, i)
            elif i.kind in ("mean", "moment"):
                self.moments_at_once(n, i)
            else:
                form = form_of(i.kind, self.types[i.arguments[0]])
                made.append((n, form, self.given(n, i, form)))
        self.finish(*made)

    def of_one(self, n: int, i: Reduce | Scan) -> None:
        """A reduction, or a running one, of single elements."""
        nothing, value = i.kind.startswith("arg"), f"v{i.arguments[0]}"
        alone = f"{value} - {value}" if i.kind == "moment" else value
        self.out.line(f"v{n} = {literal(0, i.dtype, self.shape(NONE)) if nothing else alone}")
        self.axes[n] = NONE if nothing else self.axes[i.arguments[0]]

    def moments_at_once(self, n: int, i: Reduce) -> None:
        """A row in registers is walked twice: the mean, then the distances from it."""
        out, tile = self.out, f"[{self.tiling.x_block}, {self.tiling.r_block}]"
        value, dtype = f"v{i.arguments[0]}", TYPES[self.types[i.arguments[0]]]
        known = self.held.get(("mean", i.arguments[0]))
        if known is None:
            size = f"tl.full([], {self.expr(count(self.kernel.inner))}, {dtype})"
            out.line(f"v{n}_row = tl.broadcast_to({self.where_inside(value, '0.0')}, {tile})")
            out.line(f"v{n}_mean = divide(tl.sum(v{n}_row, 1)[:, None], {size})")
            known = self.held["mean", i.arguments[0]] = f"v{n}_mean"
        self.axes[n] = frozenset("x")
        if i.kind == "mean":
            out.line(f"v{n} = {known}")
            return
        out.line(f"v{n}_apart = tl.broadcast_to({self.where_inside(f'{value} - {known}', '0.0')}, {tile})")
        out.line(f"v{n} = tl.sum(v{n}_apart * v{n}_apart, 1)[:, None]")

    def accumulate(self, n: int, i: Reduce, form: Form) -> None:
        given = self.given(n, i, form)
        targets = ", ".join(f"v{n}_{k}" for k in range(len(given)))
        self.out.line(f"{targets} = {form.combine}({targets}, {', '.join(given)})")

    def finish(self, *reductions: tuple[int, Form, Sequence[str]]) -> None:
        """From tiles to one value for each row: of one reduction, or of two sums."""
        names = [f"v{n}_all{k}" for n, _, tiles in reductions for k in range(len(tiles))]
        given = ", ".join(tile for _, _, tiles in reductions for tile in tiles)
        match [form.combine for _, form, _ in reductions]:
            case ["add_up"]:
                self.out.line(f"{names[0]} = tl.sum({given}, 1)")
            case ["add_up", "add_up"]:
                self.out.line(f"{', '.join(names)} = tl.reduce(({given}), 1, add_pairs)")
            case [combine]:
                self.out.line(f"{', '.join(names)} = tl.reduce(({given}), 1, {combine})")
        for n, form, tiles in reductions:
            rows = (f"v{n}_all{k}[:, None]" for k in range(len(tiles)))
            self.out.line(f"v{n} = {form.result.format(*rows)}")
            if n in self.shifted:
                self.out.line(f"v{n} = v{n} * decay_beyond(v{self.shifted[n].shift})")
            self.axes[n] = frozenset("x")

    def instruction(self, n: int, i: LoopInstruction) -> None:
        arguments = [f"v{a}" for a in i.arguments]
        along = frozenset().union(*(self.axes[a] for a in i.arguments))
        match i:
            case Load():
                self.load(n, i)
                return
            case Store():
                self.store(i)
                return
            case Indirect():
                self.indirect(n, i)
                return
            case Scan():
                self.scan(n, i)
                return
            case Number():
                words = literal(i.value, i.dtype, self.shape(NONE))
            case Index():
                along = self.varies(i.expr)
                words = f"({self.expr(i.expr)} + tl.zeros({self.shape(NONE)}, tl.int64)).to({TYPES[i.dtype]})"
            case Convert():
                words = converted(arguments[0], self.types[i.arguments[0]], i.dtype)
            case Apply() if i.operation == "philox" and (words_at := self.words(i)) is not None:
                along, words = words_at
            case Apply() if n in self.shifted:
                words = f"decay_from(v{self.shifted[n].value}, v{self.shifted[n].shift})"
            case Apply():
                words = operation(i.operation, i.dtype, self.types[i.arguments[0]], arguments)
            case Reduce():
                raise AssertionError("a reduction is written by its phase")
            case _:
                assert_never(i)
        self.out.line(f"v{n} = {words}")
        self.axes[n] = along

    def words(self, i: Apply) -> tuple[Axes, str] | None:
        """Random words where four neighbours along an axis share a call of the generator: each call is made once, by the thread that has
        the four."""
        seed, offset, block, lane, word = i.arguments
        last = self.made[word]
        for axis, loops in self.loops_of_axes().items():
            four = loops[-1].symbol % WORDS if loops else None
            if not isinstance(last, Index) or last.expr is not four or self.sizes[axis] < WORDS:
                continue
            along = self.axes[block] | self.axes[lane]
            if (len(loops) > 1 and (loops[-1].size % WORDS).value != 0) or not self.is_last(axis, along):
                continue
            run = self.run_length(axis, loops)
            self.out.line(f"{axis}_run = {self.first_of_runs(axis, run)}")
            parts: list[str] = []
            for call in range(run // WORDS):
                there = {d.symbol: symbol(f"{text(d.symbol)}_run{call}") for d in loops}
                self.ranges |= {name: self.ranges[old] for old, name in there.items()}
                self.out.line(f"{axis}_run{call} = {axis}_run + {call * WORDS}")
                self.unravel(f"{axis}_run{call}", tuple(Dimension(there[d.symbol], d.size) for d in loops))
                places = [self.renamed_index(n, there) for n in (block, lane)]
                made = [f"v{word}_{call * WORDS + k}" for k in range(WORDS)]
                self.out.line(f"{', '.join(made)} = philox_words(v{seed}, v{offset}, {', '.join(places)})")
                parts += made
            return along, f"{interleaved(parts)}.reshape({self.shape(along)}).to(tl.int64)"
        return None

    def run_length(self, axis: str, loops: Dimensions) -> int:
        """How many neighbours a thread has: as many as it reads or writes at once, if the tile is so large."""
        smallest = min(d.itemsize for d in self.kernel.arguments)
        each = math.prod(self.sizes.values()) // (LANES * self.tiling.warps)
        run = max(WORDS, min(MEMORY_BYTES // smallest, each, self.sizes[axis]))
        while len(loops) > 1 and (loops[-1].size % run).value != 0:
            run //= 2
        return run

    def loops_of_axes(self) -> dict[str, Dimensions]:
        """The loops that an axis walks, the innermost last."""
        outer, y = self.kernel.outer, self.tiling.y
        if y is not None:
            return {"y": (y,), "x": outer[-1:]}
        return {"x": outer, "r": self.kernel.inner}

    @property
    def sizes(self) -> dict[str, int]:
        return {"x": self.tiling.x_block, "y": self.tiling.y_block, "r": self.tiling.r_block}

    def is_last(self, axis: str, along: Axes) -> bool:
        """Is an axis the last of a tile that varies along some?"""
        order = "yx" if self.tiling.y is not None else "xr"
        return axis in along and not any(a in along for a in order[order.index(axis) + 1 :])

    def first_of_runs(self, axis: str, run: int) -> str:
        """Where runs of neighbours begin, along an axis of this program's tile."""
        size, two = self.sizes[axis], bool(self.kernel.inner) or self.tiling.y is not None
        across = axis == "r" or (axis == "x" and self.tiling.y is not None)
        shape = "" if not two else "[None, :]" if across else "[:, None]"
        first = "0" if self.tiling.persistent else "r_start"
        along = f"program * {size}" if self.tiling.y is None else f"across * {size}"
        start = {"x": along, "y": f"down * {size}", "r": first}[axis]
        return f"{start} + tl.arange(0, {size // run}){shape} * {run}"

    def renamed_index(self, n: int, names: Mapping[Symbol, Symbol]) -> str:
        """A whole number that depends on loops, where these have other names."""
        i = self.made[n]
        if not isinstance(i, Index):
            return f"v{n}"
        return f"({self.expr(substitute(i.expr, dict(names)))} + tl.zeros({self.shape(NONE)}, tl.int64))"

    def varies(self, expr: Expr) -> Axes:
        return frozenset().union(*(self.axes_of.get(s, NONE) for s in free_symbols(expr)))

    def inside(self, axes: Axes) -> list[str]:
        """Conditions that keep an access inside the loops, but for those that always hold."""
        return [f"{axis}_inside" for axis in sorted(axes & self.unsure)]

    def where_inside(self, words: str, otherwise: str) -> str:
        """A value of a reduction's tile; what changes nothing, outside the loops."""
        conditions = self.inside(frozenset("xr"))
        return f"tl.where({' & '.join(conditions)}, {words}, {otherwise})" if conditions else words

    def somewhere(self, index: Expr) -> list[str]:
        """Conditions that keep an access off memory without elements: an index out of range is taken for 0, which there is none either."""
        limits = [self.limits[s] for s in sorted(free_symbols(index), key=text) if s in self.limits]
        return [f"(({self.expr(limit)}) > 0)" for limit in dict.fromkeys(limits) if not limit.value]

    def load(self, n: int, i: Load) -> None:
        buffer, index = i.buffer, i.index
        key = (buffer, index, i.arguments)
        stored = self.kernel.arguments[int(buffer[1:])] if buffer[0] == "a" else i.dtype
        name = f"v{n}" if stored is i.dtype else f"v{n}_bits"
        along = self.varies(index)
        held = self.held.get((buffer, index, ())) or self.held.get(key)  # a condition says only where it is wanted
        if held is not None:
            self.out.line(f"{name} = {held}")
            along = self.axes[int(held[1:])] if buffer[0] == "s" else along
        elif buffer in self.numbers:
            assert index.value == 0, "a number given by value is one element"
            self.out.line(f"{name} = {given(buffer, stored, self.shape(NONE))}")
            self.held[buffer, index, ()] = name
        else:
            conditions = self.inside(along)
            place = self.expr(index)
            if i.arguments:
                along |= self.axes[i.arguments[0]]
                conditions = [*self.inside(along), f"(v{i.arguments[0]} != 0)"]
            conditions += self.somewhere(index)
            if i.arguments or not along:
                place = f"{place} + {self.zeros(along)}"
            mask = f", {' & '.join(conditions)}, other=0" if conditions else ""
            if buffer in self.fresh:
                _wait(self.out, self.fresh)
            self.out.line(f"{name} = tl.load({buffer} + ({place}){mask})")
            self.held[key] = name
        if stored is not i.dtype:
            self.out.line(f"v{n} = {name}.to({TYPES[i.dtype]}, bitcast=True)")
        self.axes[n] = along

    def shape(self, axes: Axes) -> list[int]:
        """The sizes of a tile that varies along some axes."""
        tiling = self.tiling
        if tiling.y is not None:
            return [tiling.y_block if "y" in axes else 1, tiling.x_block if "x" in axes else 1]
        if self.kernel.inner:
            return [tiling.x_block if "x" in axes else 1, tiling.r_block if "r" in axes else 1]
        return [tiling.x_block if axes else 1]

    def zeros(self, axes: Axes) -> str:
        """A tile of zeros over some axes: what is added to it varies along them."""
        return f"tl.zeros({self.shape(axes)}, tl.int32)"

    def store(self, i: Store) -> None:
        buffer, index = i.buffer, i.index
        value = f"v{i.arguments[0]}"
        self.held = {key: name for key, name in self.held.items() if key[0] != buffer}
        if buffer[0] == "s":
            self.held[buffer, index, ()] = value
            return  # memory of one outer point is registers
        if i.dtype is self.kernel.arguments[int(buffer[1:])]:
            self.held[buffer, index, ()] = value
        self.fresh.add(buffer)
        whole = frozenset("xy") if self.tiling.y is not None else frozenset("x")
        along = self.varies(index) | self.axes[i.arguments[0]] | whole
        place = f"{buffer} + ({self.expr(index)} + {self.zeros(along)})"
        mask = " & ".join([*self.inside(along), *self.somewhere(index)]) or "None"
        stored = TYPES[self.kernel.arguments[int(buffer[1:])]]
        if self.axes[i.arguments[0]] != along:
            value = f"tl.broadcast_to({value}, {self.shape(along)})"
        if i.dtype is not self.kernel.arguments[int(buffer[1:])]:
            value = f"{value}.to({stored}, bitcast=True)"
        if i.combine == "add":
            self.out.line(f"tl.atomic_add({place}, {value}, mask={mask}, sem='relaxed')")
        else:
            self.out.line(f"tl.store({place}, {value}, {mask})")

    def indirect(self, n: int, i: Indirect) -> None:
        out = self.out
        limit, value, result = self.expr(i.size), f"v{i.arguments[0]}", text(i.name)
        along = frozenset().union(*(self.axes[a] for a in i.arguments)) | self.varies(i.size)
        self.axes_of[i.name] = self.axes[n] = along
        self.limits[i.name] = i.size
        if i.name in self.inside_always:
            out.line(f"{result} = {value}{'' if self.wide else '.to(tl.int32)'}")
            return
        out.line(f"{result} = tl.where({value} < 0, {value} + ({limit}), {value})")
        out.line(f"{result}_bad = ({result} < 0) | ({result} >= ({limit}))")
        reached = [f"{result}_bad", *(f"(v{a} != 0)" for a in i.arguments[1:]), *self.inside(along)]
        out.line(f"note_outside(flags, {' & '.join(reached)}, {list(OUTSIDE).index(i.family)})")
        out.line(f"{result} = tl.where({result}_bad, 0, {result})")

    def scan(self, n: int, i: Scan) -> None:
        """Along the whole row, which is in the tile."""
        if not self.kernel.inner:
            self.of_one(n, i)
            return
        tile = f"[{self.tiling.x_block}, {self.tiling.r_block}]"
        value = f"tl.broadcast_to(v{i.arguments[0]}, {tile})"
        name = SCANS[i.kind]
        if i.kind.startswith("arg"):
            place = f"tl.broadcast_to(r.to(tl.int64), {tile})"
            self.out.line(f"v{n}_best, v{n} = tl.associative_scan(({value}, {place}), 1, {name})")
        else:
            self.out.line(f"v{n} = tl.associative_scan({value}, 1, {name})")
        self.axes[n] = frozenset("xr")


def _pieces(size: Expr, block: int) -> Expr:
    return (size + (block - 1)) // block


def _is_inside(i: Indirect, intervals: Intervals) -> bool:
    """Is a computed index never negative, and always below its limit?"""
    found = intervals.of(i.arguments[0])
    return i.size.value is not None and found.low >= 0 and found.high < i.size.value


def _ranges(kernel: Kernel) -> dict[Symbol, Interval]:
    """What is known of loops, and of indices that are computed: they are inside the size they index."""
    known = dict(ranges_of((*kernel.outer, *kernel.inner)))
    for phase in kernel.phases:
        for _, i in phase.lines:
            if isinstance(i, Indirect):
                known[i.name] = Interval(0, max(bounds(i.size, known).high - 1, 0))
    return known
