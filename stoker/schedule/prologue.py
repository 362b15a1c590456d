"""Kernels that become a part of the matrix product that reads what they make, its prologue.

In:  the steps of a plan in which products are library calls, or parts of kernels (`stoker.schedule.epilogue`); and somebody who says of each
     candidate whether it is worth it, by measuring: what is read by several tiles of a product is computed by each of them.
Out: the steps, in which the chosen kernels compute an operand of their product where they read it.

Requirements, held by tests/stages/test_prologues.py:
  1. A candidate's operand is made by one kernel, element by element, which makes nothing else, and nobody else reads it.
  2. What is read has its value at the place of the product as it had at the place of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

from stoker.loop.index import Dimension, loops_by_place, ranges_of, simplify
from stoker.loop.instruction import Apply, Indirect, Load, LoopInstruction, Store, with_expressions
from stoker.loop.layout import Layouts
from stoker.schedule.epilogue import Candidate, Choose, Part, product_alone, read_by, take, undisturbed
from stoker.schedule.factor import LARGEST, multiplies
from stoker.schedule.kernel import Kernel, Line, Phase
from stoker.schedule.product import PRODUCT, Factor, Product, Prologue, Windows
from stoker.schedule.step import Library, Run, Step, Steps
from stoker.shape.expr import constant, symbol
from stoker.shape.walk import substitute

Side = Literal["left", "right"]
MOST_READS = 4
"""Of memory, for an element of an operand: each is read again by every tile of the product that needs it."""
_NUMBERS: dict[Side, int] = {"left": 10_000, "right": 20_000}
"""Where the numbers of an operand's lines begin."""


def join_prologues(
    steps: Steps, kernels: list[Kernel], layouts: Layouts, outputs: set[str], choose: Choose
) -> list[Step]:
    """The steps with operands inside products where that was chosen; their kernels are added to the list."""
    found = list(steps)
    for first in steps:
        step = first
        for side in _NUMBERS:
            candidate = _candidate(found, step, side, kernels, layouts, outputs)
            if candidate is not None and choose(candidate):
                step = take(found, candidate, kernels)
    return found


def _candidate(
    steps: Steps, step: Step, side: Side, kernels: Sequence[Kernel], layouts: Layouts, outputs: set[str]
) -> Candidate | None:
    if not isinstance(step, (Library, Run)) or (whole := _as_kernel(step, kernels, layouts)) is None:
        return None
    maker = _maker(steps, step, *whole, side, kernels, outputs)
    if maker is None or not undisturbed(steps, maker, step, kernels):
        return None
    made = _with_operand(*whole, side, kernels[maker.kernel], maker, layouts)
    part: Part = (step, None) if isinstance(step, Library) else (step, kernels[step.kernel])
    return None if made is None else Candidate(*made, ((maker, kernels[maker.kernel]), part))


def _as_kernel(step: Step, kernels: Sequence[Kernel], layouts: Layouts) -> tuple[Kernel, Run] | None:
    """A step that multiplies as a kernel with a product; a call as one that stores what it multiplied."""
    if isinstance(step, Run):
        return None if kernels[step.kernel].product is None else (kernels[step.kernel], step)
    found = product_alone(step, layouts) if isinstance(step, Library) and multiplies(step) else None
    return None if found is None else (found.kernel, found.run)


def _maker(
    steps: Steps, step: Step, kernel: Kernel, run: Run, side: Side, kernels: Sequence[Kernel], outputs: set[str]
) -> Run | None:
    """The step that makes an operand of a product, for nothing but the product."""
    product = kernel.product
    operand = None if product is None else product.left if side == "left" else product.right
    if product is None or not isinstance(operand, Factor) or isinstance(product.left, Windows):
        return None
    name = run.buffers[operand.argument]
    makers = [s for s in steps if isinstance(s, Run) and name in _written(s, kernels)]
    users = [s for s in steps if name in read_by(s) and s not in makers]
    if name in outputs or len(makers) != 1 or users != [step] or _written(makers[0], kernels) != {name}:
        return None
    lines = [i for phase in kernel.phases for _, i in phase.lines]
    others = [f for f in (product.left, product.right, product.bias) if f is not None and f is not operand]
    taken = {a for f in others for a in (f.arguments if isinstance(f, Prologue) else {f.argument})}
    read = {int(i.buffer[1:]) for i in lines if isinstance(i, (Load, Store)) and i.buffer != PRODUCT}
    return makers[0] if operand.argument not in taken | read else None


def _written(run: Run, kernels: Sequence[Kernel]) -> set[str]:
    return {run.buffers[n] for n in kernels[run.kernel].written}


def _with_operand(
    kernel: Kernel, run: Run, side: Side, maker: Kernel, maker_run: Run, layouts: Layouts
) -> tuple[Kernel, Run] | None:
    """The kernel that computes an operand of its product, with the buffers it is run on."""
    product = kernel.product
    assert product is not None
    operand = product.left if side == "left" else product.right
    assert isinstance(operand, Factor)
    name = run.buffers[operand.argument]
    store = _only_store(maker, maker_run, layouts)
    place = None if store is None else loops_by_place(maker.outer, store.index, gaps=True)
    if store is None or place is None or store.dtype is not product.dtype:
        return None
    buffers = [b for b in run.buffers if b != name]
    buffers += [b for b in dict.fromkeys(maker_run.buffers) if b != name and b not in buffers]
    loops = _loops(product, side)
    total = constant(operand.offset)
    for loop, stride in zip(reversed(loops), reversed(operand.strides)):
        total = total + loop.symbol * stride
    first, ranges, moved = _NUMBERS[side], ranges_of(loops), dict(place(total))

    def renamed(i: LoopInstruction, names: Sequence[str]) -> LoopInstruction:
        if not isinstance(i, (Load, Store)) or i.buffer == PRODUCT:
            return i
        return replace(i, buffer=f"a{buffers.index(names[int(i.buffer[1:])])}")

    def line(n: int, i: LoopInstruction) -> Line:
        i = with_expressions(i, lambda e: simplify(substitute(e, moved), ranges))
        return first + n, replace(renamed(i, maker_run.buffers), arguments=tuple(first + a for a in i.arguments))

    body = tuple(line(n, i) for p in maker.phases for n, i in p.lines if i is not store)
    made = Prologue(loops, body, first + store.arguments[0])
    number = lambda old: buffers.index(run.buffers[old])  # noqa: E731
    phases = tuple(Phase(p.across, tuple((n, renamed(i, run.buffers)) for n, i in p.lines)) for p in kernel.phases)
    whole = replace(
        kernel,
        phases=phases,
        arguments=tuple(layouts[b].dtype for b in buffers),
        written=frozenset(map(number, kernel.written)),
        values=frozenset(map(number, kernel.values)),
        product=_renumbered(product, side, made, number),
    )
    return whole, replace(run, buffers=tuple(buffers))


def _only_store(maker: Kernel, run: Run, layouts: Layouts) -> Store | None:
    """What a kernel stores, if it goes from element to element, and reads little."""
    lines = [i for p in maker.phases for _, i in p.lines]
    stores = [i for i in lines if isinstance(i, Store)]
    drawn = any(isinstance(i, Apply) and i.operation == "philox" for i in lines)
    if maker.inner or maker.product is not None or maker.values or run.sizes or len(stores) != 1 or drawn:
        return None
    if stores[0].combine or any(isinstance(i, Indirect) for i in lines):
        return None
    reads = [i for i in lines if isinstance(i, Load)]
    small = all((layouts[b].reach.value or LARGEST) < LARGEST for b in run.buffers)
    own = any(i.buffer == stores[0].buffer or i.buffer[0] != "a" for i in reads)
    return stores[0] if small and not own and len(reads) <= MOST_READS else None


def _loops(product: Product, side: Side) -> tuple[Dimension, ...]:
    """Of an operand; their names are none of the kernel's own."""
    across = (product.rows, product.shared) if side == "left" else (product.shared, product.columns)
    sizes = [n for n in (product.batch,) if n > 1] + [*across]
    return tuple(Dimension(symbol(f"{side}{n}"), constant(size)) for n, size in enumerate(sizes))


def _renumbered(product: Product, side: Side, made: Prologue, number: Callable[[int], int]) -> Product:
    """The product with an operand that is made; the others are arguments with other numbers."""

    def moved(operand: Factor | Windows | Prologue) -> Factor | Windows | Prologue:
        if not isinstance(operand, Prologue):
            return replace(operand, argument=number(operand.argument))
        lines = tuple(
            (n, replace(i, buffer=f"a{number(int(i.buffer[1:]))}") if isinstance(i, Load) else i)
            for n, i in operand.lines
        )
        return replace(operand, lines=lines)

    left = made if side == "left" else moved(product.left)
    right = made if side == "right" else moved(product.right)
    bias = None if product.bias is None else moved(product.bias)
    assert not isinstance(right, Windows) and (bias is None or isinstance(bias, Factor))
    return replace(product, left=left, right=right, bias=bias)
