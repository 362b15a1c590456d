"""The numbers of a plan: every size, stride and offset, computed once per call.

In:  expressions over the plan's symbols.
Out: for each its place in a table, whose entries are constants, symbols that the call reads, or results of the steps beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce

from stoker.codegen.plan_records import Arithmetic, Number, NumberStep
from stoker.shape.expr import Atom, Expr, Extreme, FloorDiv, Max, Min, Mod, Symbol, as_expr
from stoker.shape.walk import atoms


class TooLarge(Exception):
    """A number of a plan does not fit into 64 bits."""


class Numbers:
    """The table of numbers. Equal expressions share an entry."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.steps: list[NumberStep] = []
        self._known: dict[Expr, Number] = {}
        self._made: dict[tuple[Arithmetic, Number, Number], Number] = {}

    def new(self, value: int = 0) -> Number:
        if not -(2**63) <= value < 2**63:
            raise TooLarge(f"the number {value} does not fit into 64 bits")
        self.values.append(value)
        return Number(len(self.values) - 1)

    def symbol(self, name: Symbol) -> Number:
        number = self._known[name] = self.new()
        return number

    def each(self, values: Sequence[Expr | int]) -> tuple[Number, ...]:
        return tuple(self.of(v) for v in values)

    def of(self, value: Expr | int) -> Number:
        """The number of an expression."""
        expr = as_expr(value)
        if expr not in self._known:
            for atom in atoms(expr):
                if atom not in self._known:
                    self._known[atom] = self._atom(atom)
            if expr not in self._known:
                self._known[expr] = self._sum(expr)
        return self._known[expr]

    def _sum(self, expr: Expr) -> Number:
        if expr.is_constant:
            return self.new(expr.offset)
        summands = [self._product(monomial, factor) for monomial, factor in expr.terms]
        return self._all(Arithmetic.ADD, [*summands, self.of(expr.offset)] if expr.offset else summands)

    def _product(self, monomial: Iterable[Atom], factor: int) -> Number:
        factors = [self._known[atom] for atom in monomial]
        return self._all(Arithmetic.MUL, factors if factor == 1 else [self.of(factor), *factors])

    def _atom(self, atom: Atom) -> Number:
        match atom:
            case FloorDiv():
                return self._do(Arithmetic.FLOORDIV, self.of(atom.numerator), self.of(atom.denominator))
            case Mod():
                return self._do(Arithmetic.MOD, self.of(atom.numerator), self.of(atom.denominator))
            case Extreme():
                how = {Min: Arithmetic.MIN, Max: Arithmetic.MAX}[type(atom)]
                return self._all(how, self.each(atom.arguments))
        raise AssertionError(f"no input tells {atom}")

    def _all(self, how: Arithmetic, numbers: Sequence[Number]) -> Number:
        return reduce(lambda a, b: self._do(how, a, b), numbers)

    def _do(self, how: Arithmetic, a: Number, b: Number) -> Number:
        key = (how, a, b)
        if key not in self._made:
            self._made[key] = self.new()
            self.steps.append(NumberStep(how, self._made[key], a, b))
        return self._made[key]
