"""Matrix products, and convolutions, that become a part of the kernel that reads them, its epilogue.

In:  the steps of a plan, without memory; and somebody who says of each candidate whether it is worth it, by measuring or by rule.
Out: the steps, in which the chosen kernels compute their product themselves; some of them nothing else.

Requirements, held by tests/stages/test_products.py:
  1. A candidate reads each element of the product once, in the iteration of its own place, and nobody else reads the product.
  2. What is read has its value at the place of the kernel as it had at the place of the library call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from stoker.loop.index import Dimension, Dimensions, count, loops_by_place, ranges_of, simplify
from stoker.loop.instruction import Indirect, Load, LoopInstruction, Store, with_expressions
from stoker.loop.layout import Layouts
from stoker.schedule.factor import product_of
from stoker.schedule.kernel import Kernel, Phase
from stoker.schedule.product import PRODUCT, Product
from stoker.schedule.step import Library, Run, Step, Steps
from stoker.shape.expr import Expr, Symbol, constant, symbol
from stoker.shape.walk import substitute

Part = tuple[Library, None] | tuple[Run, Kernel]
"""A step, and the kernel that it runs."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel that computes its product, and the steps it would replace, in their order."""

    kernel: Kernel
    run: Run
    parts: tuple[Part, ...]


Choose = Callable[[Candidate], bool]
"""Is a candidate worth it?"""
Ask = Callable[[Library], bool]


def join_products(
    steps: Steps, kernels: list[Kernel], layouts: Layouts, outputs: set[str], choose: Choose, among: Ask, alone: Ask
) -> list[Step]:
    """The steps with products where they were chosen; their kernels are added to the list. Some may become a kernel
    `alone`, whoever reads them."""
    found = list(steps)
    for library in [s for s in steps if isinstance(s, Library) and among(s)]:
        candidates = [_with_reader(found, library, kernels, layouts, outputs)]
        candidates += [product_alone(library, layouts)] if alone(library) else []
        chosen = next((c for c in candidates if c is not None and choose(c)), None)
        if chosen is not None:
            take(found, chosen, kernels)
    return found


def _with_reader(
    steps: Steps, library: Library, kernels: Sequence[Kernel], layouts: Layouts, outputs: set[str]
) -> Candidate | None:
    """A product in the one kernel that reads it."""
    readers = [s for s in steps if library.results[0] in read_by(s)]
    if len(readers) != 1 or library.results[0] in outputs or not isinstance(readers[0], Run):
        return None
    candidate = candidate_of(library, readers[0], kernels, layouts)
    return candidate if candidate is not None and undisturbed(steps, library, readers[0], kernels) else None


def _loops(product: Product) -> Dimensions:
    return tuple(Dimension(symbol(f"o{n}"), constant(size)) for n, size in enumerate(product.sizes))


def product_alone(library: Library, layouts: Layouts) -> Candidate | None:
    """A kernel that computes a product and nothing else."""
    (name,) = library.results
    found = None if name is None else product_of(library, layouts[name], [name])
    if name is None or found is None:
        return None
    (product, buffers), layout = found, layouts[name]
    outer = _loops(product)
    place = product.place(*(loop.symbol for loop in outer))
    lines = ((0, Load((), layout.dtype, PRODUCT, place)), (1, Store((0,), layout.dtype, "a0", place, None)))
    dtypes = tuple(layouts[b].dtype for b in buffers)
    kernel = Kernel(layout.device, outer, (), (Phase(False, lines),), dtypes, frozenset({0}), (), 0, product=product)
    return Candidate(kernel, Run(0, tuple(buffers), ()), ((library, None),))


def take(steps: list[Step], candidate: Candidate, kernels: list[Kernel]) -> Step:
    """Put a candidate where the last of the steps stands that it replaces."""
    if candidate.kernel not in kernels:
        kernels.append(candidate.kernel)
    *others, (last, _) = candidate.parts
    made = replace(candidate.run, kernel=kernels.index(candidate.kernel))
    steps[steps.index(last)] = made
    for step, _ in others:
        steps.remove(step)
    return made


def read_by(step: Step) -> set[str]:
    """The buffers that a step uses, but for those that a call makes."""
    return set(step.buffers if isinstance(step, Run) else step.given if isinstance(step, Library) else ())


def undisturbed(steps: Steps, first: Step, last: Step, kernels: Sequence[Kernel]) -> bool:
    """Does nothing between the two write to what the first one reads, nor the last one itself?"""
    used = read_by(first)
    for step in steps[steps.index(first) + 1 : steps.index(last)]:
        if isinstance(step, Run) and any(step.buffers[n] in used for n in kernels[step.kernel].written):
            return False
        if isinstance(step, Library) and step.aliases:
            return False
    return not isinstance(last, Run) or not any(last.buffers[n] in used for n in kernels[last.kernel].written)


def candidate_of(library: Library, run: Run, kernels: Sequence[Kernel], layouts: Layouts) -> Candidate | None:
    """The kernel with the product in it; None where it reads the product in another way than element by element."""
    kernel, (name,) = kernels[run.kernel], library.results
    lines = [i for phase in kernel.phases for _, i in phase.lines]
    if name is None or kernel.inner or kernel.product is not None or run.sizes:
        return None
    if any(isinstance(i, Indirect) or (isinstance(i, Store) and i.combine) for i in lines):
        return None
    position = run.buffers.index(name)
    loads = {(i.index, i.dtype, i.arguments) for i in lines if isinstance(i, Load) and i.buffer == f"a{position}"}
    if len(loads) != 1 or run.buffers.count(name) > 1 or position in kernel.written:
        return None
    ((index, dtype, conditions),) = loads
    if conditions or dtype is not layouts[name].dtype:
        return None
    found, place = product_of(library, layouts[name], [b for b in run.buffers if b != name]), None
    if found is None or (place := loops_by_place(kernel.outer, index)) is None:
        return None
    product, buffers = found
    if count(kernel.outer).value != product.batch * product.rows * product.columns:
        return None
    made = _with_product(kernel, product, position, place, [layouts[b].dtype for b in buffers])
    return Candidate(made, replace(run, buffers=tuple(buffers)), ((library, None), (run, kernel)))


def _with_product(
    kernel: Kernel, product: Product, position: int, place: Callable[[Expr], dict[Symbol, Expr]], dtypes: Sequence[Any]
) -> Kernel:
    """The kernel over (batch, rows, columns), its loads of the product marked."""
    outer = _loops(product)
    ranges, total = ranges_of(outer), product.place(*(loop.symbol for loop in outer))
    moved = place(total)

    def line(i: LoopInstruction) -> LoopInstruction:
        i = with_expressions(i, lambda e: simplify(substitute(e, dict(moved)), ranges))
        if isinstance(i, (Load, Store)):
            number = int(i.buffer[1:])
            name = PRODUCT if number == position else f"a{number - (number > position)}"
            return replace(i, buffer=name, index=total) if name == PRODUCT else replace(i, buffer=name)
        return i

    phases = tuple(Phase(p.across, tuple((n, line(i)) for n, i in p.lines)) for p in kernel.phases)
    written, values = (frozenset(n - (n > position) for n in numbers) for numbers in (kernel.written, kernel.values))
    return replace(
        kernel, outer=outer, phases=phases, arguments=tuple(dtypes), written=written, values=values, product=product
    )
