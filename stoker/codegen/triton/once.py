"""Each value once, in a kernel whose rows are in registers.

In:  a kernel.
Out: the same kernel, for a program that holds all inner points: what a phase computes is there in later phases, which use it instead of
     computing it again. Triton itself finds equal arithmetic, but no equal reads where an index is checked between them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from stoker.loop.instruction import Indirect, Load, LoopInstruction, Reduce, Scan, Store, with_expressions
from stoker.schedule.kernel import Kernel, Line, Phase
from stoker.shape.expr import Atom, Expr, Symbol, symbol
from stoker.shape.walk import substitute

_ANY = symbol("x")
"""In place of the name that a checked index has: equal ones have different names."""


def each_once(kernel: Kernel) -> Kernel:
    """The kernel without instructions that repeat an earlier one."""
    found = _Found()
    phases = (Phase(p.across, tuple(line for line in p.lines if found.is_new(line))) for p in kernel.phases)
    return replace(kernel, phases=tuple(Phase(p.across, tuple(map(found.renamed, p.lines))) for p in phases))


class _Found:
    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        """Values that repeat another: its number."""
        self.names: dict[Atom, Symbol] = {}
        self.known: dict[tuple[LoopInstruction, int], tuple[int, LoopInstruction]] = {}
        self.writes: Counter[str] = Counter()

    def renamed(self, line: Line) -> Line:
        number, i = line
        i = replace(i, arguments=tuple(self.numbers.get(a, a) for a in i.arguments))
        return number, with_expressions(i, self._expression)

    def is_new(self, line: Line) -> bool:
        number, i = self.renamed(line)
        match i:
            case Store():
                self.writes[i.buffer] += 1
                return True
            case Reduce() | Scan():
                return True
        key = replace(i, name=_ANY) if isinstance(i, Indirect) else i
        moment = self.writes[i.buffer] if isinstance(i, Load) else 0
        first, same = self.known.setdefault((key, moment), (number, i))
        if first == number:
            return True
        self.numbers[number] = first
        if isinstance(i, Indirect) and isinstance(same, Indirect):
            self.names[i.name] = same.name
        return False

    def _expression(self, expr: Expr) -> Expr:
        return substitute(expr, self.names)
