"""The shape environment: symbols, what is known of them, and what had to be assumed.

In:  symbols with the values they have now (hints), and questions about them.
Out: answers. A proven answer costs nothing; otherwise the answer for the hints is taken and becomes a guard.

What must hold:
  1. For values that satisfy every guard, each answer given is the right one (tests/unit/shape/test_env.py).
  2. Simplification is sound under the guards, idempotent, and only gets better as guards are added.
"""

from __future__ import annotations

import itertools
import math
import sys
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar

from stoker.shape import condition as cond
from stoker.shape.condition import Comparison, Condition, Junction, Relation
from stoker.shape.expr import Atom, Expr, FloorDiv, Max, Mod, Symbol, constant, modulo, rejoined, symbol
from stoker.shape.prove import Interval, Proof, bounds, prove, prove_by_cases
from stoker.shape.recipe import SYMBOL, FloatSymbol, Numbers, Recipe
from stoker.shape.walk import atoms, evaluate, free_symbols, substitute

LARGEST_SIZE = sys.maxsize - 1


class DataDependent(RuntimeError):
    """A question whose answer is in the data of a tensor, asked where only metadata is known."""

    def __init__(self, operator: str, words: str) -> None:
        super().__init__(f"{operator}: {words}")
        self.operator = operator
        self.words = words
        self.env: ShapeEnv | None = None
        self.condition: Condition | None = None
        """What was asked, if it was a condition on sizes."""
        self.needed = False
        """Does eager refuse to run where the condition does not hold?"""


@dataclass(frozen=True, slots=True)
class SizeGuard:
    """A condition that was taken to hold."""

    condition: Condition
    reason: str = ""
    """Who asked, in words for the user."""
    stack: Any = None
    """Where in the user's program, if the environment was told how to find out."""

    def __str__(self) -> str:
        return cond.condition_text(self.condition)


@dataclass(frozen=True, slots=True)
class FloatGuard:
    """A question about floats, and the answer it had. Without a question, the float is to stay what it was."""

    symbols: tuple[FloatSymbol | Symbol, ...]
    question: Callable[[Numbers], bool] | None
    answer: Any
    words: str


class _Serial:
    """The number by which a living environment's symbols are told from those of others. The next environment takes it from one that has
    died: expressions are kept for good, and many of them are then the same."""

    __slots__ = ("number",)
    fresh: ClassVar[Iterator[int]] = itertools.count(1)
    free: ClassVar[deque[int]] = deque()
    """Of the dead. An environment may die in any thread, so nothing is locked."""

    def __init__(self) -> None:
        try:
            self.number = self.free.popleft()
        except IndexError:
            self.number = next(self.fresh)

    def __del__(self) -> None:
        self.free.append(self.number)

    def __deepcopy__(self, memo: Any) -> _Serial:
        return self


@dataclass(slots=True)
class ShapeEnv:
    """Symbols and what is known of them. `locate`, if given, tells the user's stack when a guard is made."""

    duck_shaping: bool = False
    """Sizes with equal hints share a symbol: fewer symbols, more guards."""
    locate: Callable[[], Any] | None = None
    symbols: list[Symbol] = field(default_factory=list)
    guards: list[SizeGuard] = field(default_factory=list)
    hints: dict[Symbol, int] = field(default_factory=dict)
    ranges: dict[Symbol, Interval] = field(default_factory=dict)
    origins: dict[Symbol, list[Any]] = field(default_factory=dict)
    assertions: list[SizeGuard] = field(default_factory=list)
    """What the program promised of values without hints; to be checked when they are known."""
    float_hints: dict[FloatSymbol, float] = field(default_factory=dict)
    float_origins: dict[FloatSymbol, Any] = field(default_factory=dict)
    float_guards: list[FloatGuard] = field(default_factory=list)
    roundings: dict[Symbol, tuple[Callable[[float], int], Recipe]] = field(default_factory=dict)
    """Integers made of floats: the function of Python that makes them, and the float. They have hints where the floats have."""
    questions: dict[Symbol, str] = field(default_factory=dict)
    """Those that answer a question about floats, and the question."""
    truths: dict[Symbol, Condition] = field(default_factory=dict)
    """Integers, 1 or 0, made of conditions that only data tells."""
    interned: weakref.WeakValueDictionary[Any, Any] = field(default_factory=weakref.WeakValueDictionary)
    """Metadata that mentions its symbols, each once (`stoker.fake.meta`)."""
    _replacements: dict[Atom, Expr] = field(default_factory=dict)
    _facts: dict[Condition, None] = field(default_factory=dict)
    _derived: dict[Any, Symbol] = field(default_factory=dict)
    _ducks: dict[tuple[int, int], Symbol] = field(default_factory=dict)
    _simplified: dict[Expr, Expr] = field(default_factory=dict)
    _decided: dict[Condition, bool] = field(default_factory=dict)
    _guesses: Callable[[Condition], bool] | None = None
    _serial: _Serial = field(default_factory=_Serial)

    def new_symbol(
        self, hint: int, origin: Any = None, *, minimum: int = 2, maximum: int = LARGEST_SIZE, duck: bool | None = None
    ) -> Symbol:
        """A symbol whose value is `hint` now. `origin` says where to read it on later calls."""
        share = self.duck_shaping if duck is None else duck
        if share and (hint, minimum) in self._ducks:
            made = self._ducks[hint, minimum]
            self.origins[made].append(origin)
            return made
        made = self._add("s", origin, Interval(min(minimum, hint), max(maximum, hint)))
        self.hints[made] = hint
        if share:
            self._ducks[hint, minimum] = made
        return made

    def new_unbacked(self, origin: Any = None, *, minimum: int = 0, maximum: int = LARGEST_SIZE) -> Symbol:
        """A symbol whose value only running the program tells. Deciding on it raises DataDependent."""
        return self._add("u", origin, Interval(minimum, maximum))

    def derived(self, key: Any, *, minimum: int = 0, maximum: int = LARGEST_SIZE) -> Symbol:
        """The symbol of a number that only running the program tells, and that is the same wherever the key is."""
        if key not in self._derived:
            self._derived[key] = self.new_unbacked(minimum=minimum, maximum=maximum)
        return self._derived[key]

    def rounded(self, function: Callable[[float], int], recipe: Recipe) -> Symbol:
        """The symbol of the integer that a function of Python makes of a float."""
        made = self.derived((function, recipe), minimum=-LARGEST_SIZE)
        self.roundings[made] = (function, recipe)
        if all(map(self.knows, recipe.symbols)):
            self.hints[made] = function(recipe.evaluate(self.number_hint))
        return made

    def truth(self, condition: Condition) -> Symbol:
        """The symbol that is 1 where a condition without a hint holds, else 0."""
        made = self.derived(condition, maximum=1)
        self.truths[made] = condition
        return made

    def _add(self, letter: str, origin: Any, interval: Interval) -> Symbol:
        made = symbol(f"{letter}{len(self.symbols)}", self._serial.number)
        self.symbols.append(made)
        self.ranges[made] = interval
        self.origins[made] = [origin]
        return made

    def new_float(self, hint: float | None, origin: Any = None) -> Recipe:
        """A float whose value is `hint` now; without one, only running the program tells it."""
        made = FloatSymbol(f"f{len(self.float_origins)}", self._serial.number)
        self.float_origins[made] = origin
        if hint is not None:
            self.float_hints[made] = hint
        return Recipe(SYMBOL, (made,))

    def knows(self, name: Symbol | FloatSymbol) -> bool:
        """Has it a hint?"""
        return name in (self.float_hints if isinstance(name, FloatSymbol) else self.hints)

    def number_hint(self, part: Expr | FloatSymbol) -> float:
        """The value for the hints, of a size or a float."""
        if not isinstance(part, FloatSymbol):
            return self.size_hint(part)
        if part not in self.float_hints:
            raise DataDependent(
                part.name, "the value of this float comes from the data of a tensor and is not known here"
            )
        return self.float_hints[part]

    def fix(self, part: Expr | FloatSymbol, reason: str = "") -> float:
        """The number that a size or a float is now, guarded to stay it."""
        if not isinstance(part, FloatSymbol):
            return self.specialize(part, reason)
        hint = self.number_hint(part)
        self.float_guards.append(FloatGuard((part,), None, hint, reason))
        return hint

    def can_ask(self, symbols: Collection[FloatSymbol | Symbol]) -> bool:
        """Can a guard ask them: are all of them floats, or integers that are read from one place, or rounded of such?"""
        return bool(symbols) and all(isinstance(s, FloatSymbol) or self._is_read(s) for s in self._made_of(symbols))

    def _is_read(self, name: Symbol) -> bool:
        read = name in self.hints and self.simplify(name) is name and None not in self.origins.get(name, (None,))
        return read and name not in self.roundings and name not in self.truths

    def ask(self, symbols: Collection[FloatSymbol | Symbol], question: Callable[[Numbers], bool], words: str) -> bool:
        """What floats answer now, guarded to stay the answer."""
        parts = self._made_of(symbols)
        rounded = [s for s in symbols if isinstance(s, Symbol) and s in self.roundings]
        asked = (lambda now: question(dict(now) | self._rounded_at(rounded, now))) if rounded else question
        answer = asked({s: self.number_hint(s) for s in parts})
        self.float_guards.append(FloatGuard(tuple(sorted(parts, key=str)), asked, answer, words))
        return answer

    def simplify(self, expr: Expr) -> Expr:
        """The expression under what is known: equalities put in, exact divisions undone."""
        if not expr.terms:
            return expr
        found = self._simplified.get(expr)
        if found is None:
            found = expr
            for _ in range(8):
                previous = found
                if self._replacements:
                    found = substitute(found, self._replacements)
                    found = _exact(found, self._replacements)
                found = self._drop_extremes(rejoined(found))
                if found is previous:
                    break
            self._simplified[expr] = found
        return found

    def _drop_extremes(self, expr: Expr) -> Expr:
        """Replace min and max by the argument the ranges single out, and x // d, x % d by what the range of x says."""
        replaced: dict[Atom, Expr] = {}
        for atom in atoms(expr):
            if isinstance(atom, Symbol):
                continue
            interval = bounds(atom, self.ranges)
            if interval.low == interval.high:
                replaced[atom] = constant(int(interval.low))
            elif isinstance(atom, Mod) and bounds(atom.numerator - atom.denominator, self.ranges).high < 0:
                if bounds(atom.numerator, self.ranges).low >= 0:
                    replaced[atom] = atom.numerator
            elif not isinstance(atom, (FloorDiv, Mod)):
                best = _dominant(atom, self.ranges) or self._dominant_by_facts(atom)
                if best is not None:
                    replaced[atom] = best
        return substitute(expr, replaced) if replaced else expr

    def _dominant_by_facts(self, extreme: Any) -> Expr | None:
        """As `_dominant`, of sizes that only data tells: pieces of a tensor are no longer than all of it, if it is said that they are its
        pieces. Sizes with hints are asked, and guarded."""
        if all(s in self.hints for s in free_symbols(extreme)):
            return None
        larger = isinstance(extreme, Max)
        for best in extreme.arguments:
            others = [other for other in extreme.arguments if other is not best]
            conditions = [cond.Le(other, best) if larger else cond.Le(best, other) for other in others]
            if all(prove(condition, self.ranges, self._facts) is Proof.YES for condition in conditions):
                return best
        return None

    def simplify_condition(self, condition: Condition) -> Condition:
        """The condition under what is known."""
        return cond.map_condition(condition, self.simplify)

    def prove(self, condition: Condition) -> Proof:
        """Does the condition follow from what is known? Never makes a guard."""
        return prove(self.simplify_condition(condition), self.ranges, self._facts)

    def size_hint(self, expr: Expr) -> int:
        """The value for the hints."""
        try:
            return evaluate(expr, self.hints)
        except KeyError:
            raise self._no_hint(free_symbols(expr), str(expr)) from None

    def has_hint(self, expr: Expr) -> bool:
        """Are all symbols of the expression known now?"""
        return all(s in self.hints for s in free_symbols(expr))

    def _no_hint(self, symbols: frozenset[Symbol], words: str) -> DataDependent:
        words = next((self.questions[s] for s in symbols if s in self.questions), words)
        untold = self._made_of(s for s in symbols if s not in self.hints)
        missing = ", ".join(sorted(s.name for s in untold))
        asked = DataDependent(words, f"the value of {missing} comes from the data of a tensor and is not known here")
        asked.env = self
        return asked

    @contextmanager
    def guessing(self, about: Callable[[Condition], bool] = lambda condition: True) -> Iterator[None]:
        """Inside, questions that only data answers are answered for some large size, without a guard: for what may be otherwise
        without being wrong, as the order of dimensions in memory."""
        before, self._guesses = self._guesses, about
        try:
            yield
        finally:
            self._guesses = before

    def _guessed(self, condition: Condition) -> bool:
        unknown = (s for s in cond.symbols_of(condition) if s not in self.hints)
        return cond.holds(condition, {**self.hints, **{s: 4096 + self.symbols.index(s) for s in unknown}})

    def decide(self, condition: Condition, reason: str = "") -> bool:
        """The answer; unproven ones are those of the hints, and make a guard."""
        known = self._decided.get(condition)
        if known is not None:
            return known
        simple = self.simplify_condition(condition)
        answer = prove(simple, self.ranges, self._facts)
        if answer is Proof.UNKNOWN:
            involved = cond.symbols_of(simple)
            if any(s not in self.hints for s in involved):
                answer = prove_by_cases(simple, self.ranges, self._facts)
                if answer is not Proof.UNKNOWN:
                    return answer is Proof.YES
                if self._guesses is not None and self._guesses(simple):
                    return self._guessed(simple)
                asked = self._no_hint(involved, cond.condition_text(simple))
                asked.condition = simple
                raise asked
            truth = cond.holds(simple, self.hints)
            held = simple if truth else cond.Not(simple)
            if self.roundings.keys().isdisjoint(involved):
                self._guard(held, reason)
            elif self.can_ask(parts := self._made_of(involved)):
                self.ask(
                    parts, lambda now: cond.holds(held, self._rounded_at(involved, now)), cond.condition_text(held)
                )
                self._learn(held)
            else:
                self._fix_roundings(involved)
                return self.decide(condition, reason)
        else:
            truth = answer is Proof.YES
        self._decided[condition] = truth
        return truth

    def _made_of(self, symbols: Iterable[Symbol | FloatSymbol]) -> frozenset[Symbol | FloatSymbol]:
        """What decides the values of these symbols: itself, or the symbols of the float that it is made of."""
        made = ((s, self.roundings.get(s) if isinstance(s, Symbol) else None) for s in symbols)
        parts = ({s} if rounding is None else rounding[1].symbols for s, rounding in made)
        return frozenset().union(*parts)

    def _rounded_at(self, symbols: Iterable[Symbol], numbers: Numbers) -> dict[Symbol, int]:
        """The values of integers that are made of numbers, or are such, where these are they."""
        rounded = {s: self.roundings[s] for s in symbols if s in self.roundings}
        plain = {s: int(numbers[s]) for s in symbols if s not in rounded}
        return plain | {s: function(recipe.at(numbers)) for s, (function, recipe) in rounded.items()}

    def _fix_roundings(self, symbols: Iterable[Symbol]) -> None:
        """Integers made of floats meet something else, and no guard sees both: they stay what they are now."""
        for name in symbols:
            if name not in self.roundings:
                continue
            if not self.can_ask(self._made_of([name])):
                self.roundings[name][1].evaluate(self.fix)
                self._learn(cond.Eq(name, self.hints[name]))
            else:
                self.decide(cond.Eq(name, self.hints[name]))

    def require(self, condition: Condition, reason: str = "") -> bool:
        """Take a condition the program promises. Without hints it becomes an assertion to check at run time."""
        simple = self.simplify_condition(condition)
        if any(s not in self.hints for s in cond.symbols_of(simple)) and self.prove(simple) is Proof.UNKNOWN:
            self.assertions.append(SizeGuard(simple, reason, self.locate() if self.locate else None))
            self._learn(simple)
            return True
        return self.decide(condition, reason)

    def asks_for_one(self, condition: Condition) -> bool:
        """Is it asked whether a size is 1, of a symbol that may be, and is more now? Where torch's own code has an answer for sizes that
        it does not know, that answer serves both."""
        (only, *others) = cond.symbols_of(condition) or (None,)
        if only is None or others or self.ranges[only].low != 1:
            return False
        return condition in (cond.Eq(only, 1), cond.Ne(only, 1), cond.Ge(only, 2)) and self.hints.get(only, 1) > 1

    def evaluate_sym_node(self, node: Any, size_oblivious: bool = False, fallback_value: Any = None) -> Any:
        """What torch's own Python (`guard_or_false` and its kin, in meta kernels) asks: the truth of a BoolNode; the fallback
        where only data would tell."""
        try:
            return self.decide(node.expr, "torch asked")
        except DataDependent:
            if fallback_value is None:
                raise
            return fallback_value

    def _maybe_evaluate_static(self, condition: Condition) -> bool | None:
        """As torch calls it in `statically_known_true`: what is proven, or None. Makes no guard."""
        return {Proof.YES: True, Proof.NO: False}.get(self.prove(condition))

    def specialize(self, expr: Expr, reason: str = "") -> int:
        """The number an expression is now, guarded to stay it."""
        simple = self.simplify(expr)
        if simple.is_constant:
            return simple.offset
        hint = self.size_hint(simple)
        self.decide(cond.Not(cond.Ne(simple, hint)), reason)
        return hint

    def _guard(self, condition: Condition, reason: str) -> None:
        if not any(g.condition is condition for g in self.guards):
            self.guards.append(SizeGuard(condition, reason, self.locate() if self.locate else None))
        self._learn(condition)

    def _learn(self, condition: Condition) -> None:
        """Draw the consequences of a condition that holds from here on."""
        self._facts[condition] = None
        match condition:
            case Junction(conjunction=True):
                for part in condition.parts:
                    self._learn(part)
            case Comparison(relation=Relation.EQ):
                self._learn_equal(condition.expr)
            case Comparison(relation=Relation.LE):
                self._learn_bound(condition.expr)
            case Comparison(relation=Relation.NE):
                self._learn_different(condition.expr)
        self._simplified.clear()

    def _learn_equal(self, expr: Expr) -> None:
        solved = _solve(expr, self.symbols)
        if solved is None:
            return
        atom, value = solved
        self._replacements[atom] = value
        if isinstance(atom, Symbol) and isinstance(value, Symbol):
            self._narrow(value, self.ranges[atom])
        elif isinstance(atom, Symbol) and atom not in self.hints:
            self._facts[cond.Ge(value, int(self.ranges[atom].low))] = None
        if isinstance(atom, Symbol) and atom not in self.hints:
            self._simplified.clear()
            facts = [fact for fact in self._facts if atom in cond.symbols_of(fact)]
            self._facts.update(dict.fromkeys(self.simplify_condition(fact) for fact in facts))

    def _learn_bound(self, expr: Expr) -> None:
        if len(expr.terms) != 1:
            return
        ((monomial, coefficient),) = expr.terms
        if len(monomial) != 1 or not isinstance(monomial[0], Symbol):
            return
        if coefficient > 0:
            self._narrow(monomial[0], Interval(-math.inf, -expr.offset // coefficient))
        else:
            self._narrow(monomial[0], Interval(-(-expr.offset // -coefficient), math.inf))

    def _learn_different(self, expr: Expr) -> None:
        monomial, coefficient = expr.terms[0]
        only = monomial[0]
        if len(expr.terms) == len(monomial) == coefficient == 1 and isinstance(only, Symbol):
            current = self.ranges[only]
            if current.low == -expr.offset:
                self._narrow(only, Interval(current.low + 1, math.inf))
            elif current.high == -expr.offset:
                self._narrow(only, Interval(-math.inf, current.high - 1))

    def _narrow(self, name: Symbol, interval: Interval) -> None:
        narrowed = self.ranges[name] & interval
        self.ranges[name] = narrowed
        if narrowed.low == narrowed.high:
            self._replacements[name] = constant(int(narrowed.low))

    def program(self, guard: SizeGuard) -> list[cond.Instruction]:
        """The guard for the stack machine; see `stoker.shape.condition.program`."""
        return cond.program(guard.condition, self.symbol_index)

    @property
    def symbol_index(self) -> Mapping[Symbol, int]:
        """The position of each symbol, as SYMBOL instructions name it."""
        return {s: i for i, s in enumerate(self.symbols)}


def _dominant(atom: Any, ranges: Mapping[Symbol, Interval]) -> Expr | None:
    """The argument of a min or max that the ranges prove to be it."""
    for candidate in atom.arguments:
        differences = [bounds(candidate - other, ranges) for other in atom.arguments if other is not candidate]
        if all(d.low >= 0 if isinstance(atom, Max) else d.high <= 0 for d in differences):
            return candidate
    return None


def _exact(expr: Expr, replacements: Mapping[Atom, Expr]) -> Expr:
    """Write d * (x // d) as x where x % d is known to be zero."""
    result = expr
    for monomial, coefficient in expr.terms:
        for atom in monomial:
            if not isinstance(atom, FloorDiv) or (d := atom.denominator.value) is None or coefficient % d:
                continue
            rest = modulo(atom.numerator, atom.denominator)
            if isinstance(rest, Atom) and (found := replacements.get(rest)) is not None and found.value is not None:
                others = constant(coefficient // d)
                skipped = False
                for other in monomial:
                    if other is atom and not skipped:
                        skipped = True
                    else:
                        others = others * other
                result = result + others * (atom.numerator - found - d * atom)
    return result


def _solve(expr: Expr, symbols: list[Symbol]) -> tuple[Atom, Expr] | None:
    """From expr == 0, an atom and what it equals: later symbols in terms of earlier ones, else a function's value."""
    candidates: list[tuple[tuple[int, int], Atom, int]] = []
    for monomial, coefficient in expr.terms:
        if len(monomial) != 1 or abs(coefficient) != 1:
            continue
        atom = monomial[0]
        if isinstance(atom, Symbol):
            candidates.append(((1, symbols.index(atom)), atom, coefficient))
        else:
            candidates.append(((0, len(atoms(atom))), atom, coefficient))
    for _, atom, coefficient in sorted(candidates, key=lambda c: c[0], reverse=True):
        value = (atom * coefficient - expr) * coefficient
        if atom not in atoms(value):
            return atom, value
    return None
