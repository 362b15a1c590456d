"""Which sizes and ints are symbolic, and their nodes in the graph.

`History` outlives a capture: it remembers the sizes seen at each source of one function, so that a size that changed is
symbolic the next time. `Sizes` belongs to one capture: it makes the symbols and the graph inputs that carry them.
"""

from __future__ import annotations

import itertools
import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch.fx import Node

from stoker.capture.machine import Machine
from stoker.guard.guard import Check, Equals, Guard, Holds, HoldsTogether
from stoker.guard.program import SizeRelations
from stoker.guard.source import Size, Source, Stride
from stoker.marks import SIZE_RANGES
from stoker.shape import Eq, Expr, Ge, Le, ShapeEnv, Symbol, constant, free_symbols, program
from stoker.shape.condition import Comparison, condition_text, symbols_of, written
from stoker.shape.env import FloatGuard
from stoker.shape.expr import FloorDiv, Max, Min, Mod
from stoker.shape.prove import Proof
from stoker.shape.recipe import SYMBOL, TO_INTEGER, Recipe, integer_of_truth
from stoker.shape.symnode import BoolNode, expr_of, symfloat, symint
from stoker.shape.walk import atoms, evaluate

DYNAMIC = object()
WORD = re.compile(r"\b[A-Za-z_]\w*\b")


MOST_POSITIONS = 3
"""Places where a loop goes on after a break, each with code of its own."""


@dataclass
class History:
    """What has been seen at each source: sizes, or DYNAMIC where they differed."""

    shapes: dict[str, list[Any]] = field(default_factory=dict)
    strides: dict[str, list[Any]] = field(default_factory=dict)
    numbers: dict[str, Any] = field(default_factory=dict)
    texts: dict[str, Any] = field(default_factory=dict)
    positions: dict[str, set[int]] = field(default_factory=dict)
    hears_eager: bool = False
    """Does it hear that it is not compiled? It has raised where it heard otherwise."""
    hooks_called_later: set[int] = field(default_factory=set)
    """Instructions that put hooks on tensors, which only code behind the graph calls."""
    first_calls: dict[Any, Any] = field(default_factory=dict)
    """Calls of functions under functools.lru_cache that capture has made itself, which count once (`remembered.Again`)."""
    number: int = field(default_factory=itertools.count().__next__)
    """Which function it is of: what tools count by."""

    def see_shape(self, source: Source, sizes: tuple[int, ...]) -> list[bool]:
        """Record the sizes; tell which dimensions have been seen to change."""
        return _see(self.shapes, source, sizes)

    def see_strides(self, source: Source, strides: tuple[int, ...]) -> list[bool]:
        """Record the strides; tell which have been seen to change."""
        return _see(self.strides, source, strides)

    def see_number(self, source: Source, value: float) -> bool:
        """Record an int or a float; tell whether it has been seen to change."""
        return _differs(self.numbers, source, value)

    def see_text(self, source: Source, value: str) -> bool:
        """Record text; tell whether it has been seen to change."""
        return _differs(self.texts, source, value)

    def expect(self, known: History) -> None:
        """Take over what another function has seen, and knows to vary, of what it hands to this one."""
        for mine, theirs in ((self.shapes, known.shapes), (self.strides, known.strides)):
            for text, numbers in theirs.items():
                seen = mine.setdefault(text, numbers)
                if DYNAMIC in numbers and len(seen) == len(numbers):
                    mine[text] = [DYNAMIC if b is DYNAMIC else a for a, b in zip(seen, numbers)]
        self.numbers |= known.numbers
        self.texts |= known.texts

    def hand_on(self, source: Source, to: History, text: str) -> None:
        """Tell another function what is known to vary at a source."""
        for mine, theirs in ((self.shapes, to.shapes), (self.strides, to.strides)):
            if source.text in mine:
                theirs[text] = list(mine[source.text])
        for known, told in ((self.numbers, to.numbers), (self.texts, to.texts)):
            if known.get(source.text) is DYNAMIC:
                told[text] = DYNAMIC

    def has_varied(self, *origins: Source | None) -> bool:
        """Has a size, a stride or an int been seen to change?"""
        return any(self._seen(origin) is DYNAMIC for origin in origins)

    def _seen(self, origin: Source | None) -> Any:
        match origin:
            case Size(base, dimension):
                return self.shapes[base.text][dimension]
            case Stride(base, dimension):
                return self.strides[base.text][dimension]
            case Source():
                return self.numbers.get(origin.text)


def _differs(known: dict[str, Any], source: Source, value: Any) -> bool:
    """Was a number or text another at the same source? It is recorded."""
    seen = known.setdefault(source.text, value)
    if seen is not DYNAMIC and seen != value:
        known[source.text] = seen = DYNAMIC
    return seen is DYNAMIC


def _see(table: dict[str, list[Any]], source: Source, numbers: tuple[int, ...]) -> list[bool]:
    seen = table.get(source.text)
    if seen is None or len(seen) != len(numbers):
        table[source.text] = seen = list(numbers)
    else:
        for index, number in enumerate(numbers):
            if seen[index] is not DYNAMIC and seen[index] != number:
                seen[index] = DYNAMIC
    return [number is DYNAMIC for number in seen]


class Sizes:
    """The symbols of one capture."""

    def __init__(
        self, env: ShapeEnv, history: History, dynamic: bool | None, unrolls: bool = False, least: int = 2
    ) -> None:
        self.env, self.history, self.dynamic, self.unrolls = env, history, dynamic, unrolls
        self.least = least  # what a size that is a symbol is, where nothing asks for more
        self.strides: list[tuple[Source, int, Expr]] = []
        self.behind: dict[CodeType, History] = {}  # what is known to vary in the functions that go on behind a break
        self._nodes: dict[Expr, Any] = {}
        self._made: dict[Expr, tuple[Node, str, int]] = {}
        self._conditions: dict[Any, Any] = {}
        self._floats: dict[Source, Recipe] = {}
        self._float_nodes: dict[Recipe, Any] = {}

    def int_is_dynamic(self, source: Source, value: int) -> bool:
        if self.dynamic is False:
            return False
        return self.history.see_number(source, value)

    def hand_on(self, code: CodeType, parameters: Mapping[str, Any]) -> None:
        """Say what varies of what a resume function gets: fakes, or sizes and strides; symbols; and the sources of what nobody looked
        at; by the texts of its parameters."""
        known = self.behind.setdefault(code, History())
        for text, part in parameters.items():
            match (part.shape, part.stride()) if isinstance(part, torch.Tensor) else part:
                case Source() as source:
                    self.history.hand_on(source, known, text)
                case (sizes, strides):
                    known.shapes[text] = [self.fixed(size) for size in sizes]
                    known.strides[text] = [self.fixed(stride) for stride in strides]
                case number if self.fixed(number) is DYNAMIC:
                    known.numbers[text] = DYNAMIC

    def fixed(self, size: Any) -> Any:
        """The number that a size is in this version, or DYNAMIC."""
        if not isinstance(size, torch.SymInt):
            return size
        simplified = self.env.simplify(expr_of(size))
        return simplified.value if simplified.is_constant else DYNAMIC

    def has_varied(self, symbol: Any) -> bool:
        """Was an int seen to be another, or does only data tell it? Where loops are unrolled whatever it costs, that is no matter."""
        if self.unrolls or not isinstance(symbol, torch.SymInt):
            return False
        return not symbol.node.has_hint() or self._have_varied(free_symbols(self.env.simplify(expr_of(symbol))))

    def _have_varied(self, symbols: Iterable[Symbol]) -> bool:
        return any(self.history.has_varied(*self.env.origins[s]) for s in symbols)

    def decides_otherwise(self, symbol: Any) -> bool:
        """May a condition, or whether an int is 0, be otherwise in another call, because a size was seen to be another? Not of what is
        divided again and again: that ends after few rounds, and most sizes have as many."""
        if isinstance(symbol, torch.SymFloat) or self.unrolls or not symbol.node.has_hint():
            return False
        asked = symbol if isinstance(symbol, torch.SymBool) else symbol != 0
        if not isinstance(asked, torch.SymBool) or self.env.prove(asked.node.expr) is not Proof.UNKNOWN:
            return False
        condition = self.env.simplify_condition(asked.node.expr)
        divided = isinstance(condition, Comparison) and any(isinstance(a, FloorDiv) for a in atoms(condition.expr))
        return not divided and self._have_varied(symbols_of(condition))

    def was_elsewhere(self, source: Source, position: int) -> bool:
        """Has a number that can be no symbol been seen to be many?"""
        seen = self.history.positions.setdefault(source.text, set())
        seen.add(position)
        return len(seen) > MOST_POSITIONS

    def float_varies(self, source: Source, value: float) -> bool:
        return self.dynamic is not False and self.history.see_number(source, value)

    def text_varies(self, source: Source, value: str) -> bool:
        return self.dynamic is not False and self.history.see_text(source, value)

    def symbol_for_int(self, m: Machine, value: int, source: Source) -> Any:
        return symint(self.env, self.env.new_symbol(value, source, minimum=-LARGEST, maximum=LARGEST))

    def symbol_for_float(self, value: float, source: Source) -> Any:
        if source not in self._floats:
            self._floats[source] = self.env.new_float(value, source)
        return symfloat(self.env, self._floats[source])

    def place_of(self, symbol: Any) -> Source | None:
        """Where an int is read that is a symbol and nothing else."""
        if not isinstance(symbol, torch.SymInt):
            return None
        expression = self.env.simplify(expr_of(symbol))
        if not isinstance(expression, Symbol) or not self.env.can_ask([expression]):
            return None
        place: Source = self.env.origins[expression][0]
        return place

    def computed_from(self, symbol: Any) -> tuple[list[tuple[Source, int]], Callable[[Sequence[int]], int]] | None:
        """Where the ints are read that an int is computed from, with those seen, and how it is."""
        if not isinstance(symbol, torch.SymInt):
            return None
        expression = self.env.simplify(expr_of(symbol))
        symbols = sorted(free_symbols(expression), key=repr)
        if not self.env.can_ask(symbols):
            return None
        read = [(self.env.origins[name][0], self.env.hints[name]) for name in symbols]
        return read, lambda numbers: evaluate(expression, dict(zip(symbols, numbers)))

    def shape_of(self, m: Machine, real: torch.Tensor, source: Source) -> tuple[Any, Any, tuple, tuple]:
        """Sizes and strides for the fake tensor, and for the guard (-1: any)."""
        sizes, strides = tuple(real.shape), tuple(real.stride()) if real.layout is torch.strided else ()
        changed = self.history.see_shape(source, sizes)
        wanted = [self.is_dynamic(real, dim, size, changed[dim]) for dim, size in enumerate(sizes)]
        varying = self.varying_strides(real, source, strides)
        if not any(wanted) and not any(varying):
            return None, None, sizes, strides
        symbols: list[Expr] = [
            self.env.new_symbol(size, Size(source, dim), minimum=self.least) if wanted[dim] else constant(size)
            for dim, size in enumerate(sizes)
        ]
        for known in getattr(real, SIZE_RANGES, ()):
            self.bound(symbols[known.dim], known.min, known.max)
        stride_exprs = [
            self.env.new_symbol(strides[dim], Stride(source, dim)) if e.is_constant and varying[dim] else e
            for dim, e in enumerate(_symbolic_strides(symbols, sizes, strides))
        ]
        fake_sizes = [symint(self.env, s) for s in symbols]
        fake_strides = [symint(self.env, s) for s in stride_exprs]
        size_spec = tuple(-1 if want else size for want, size in zip(wanted, sizes))
        stride_spec = tuple(stride if e.is_constant else -1 for stride, e in zip(strides, stride_exprs))
        self.strides += [
            (source, dim, e) for dim, e in enumerate(stride_exprs) if not e.is_constant and not _is_own(self.env, e)
        ]
        return fake_sizes, fake_strides, size_spec, stride_spec

    def bound(self, size: Expr, least: int | None, most: int | None) -> None:
        """Take the user's word for what a size is, with a guard."""
        for condition in (None if least is None else Ge(size, least), None if most is None else Le(size, most)):
            if condition is not None:
                self.env.decide(condition, "it was marked so")

    def varying_strides(self, real: torch.Tensor, source: Source, strides: tuple[int, ...]) -> list[bool]:
        """Which strides have changed from call to call, as those of a window into a buffer that grows. 0 and 1 stay numbers."""
        changed = self.history.see_strides(source, strides)
        if self.dynamic is False or isinstance(real, torch.nn.Parameter):
            return [False] * len(strides)
        return [c and s > 1 for c, s in zip(changed, strides)]

    def is_dynamic(self, real: torch.Tensor, dim: int, size: int, changed: bool) -> bool:
        if dim in getattr(real, "_dynamo_static_indices", ()):
            return False
        if dim in getattr(real, "_dynamo_dynamic_indices", ()) or dim in getattr(
            real, "_dynamo_weak_dynamic_indices", ()
        ):
            return size not in (0, 1)
        if self.dynamic is False or size in (0, 1):
            return False
        if isinstance(real, torch.nn.Parameter):
            return False
        return bool(self.dynamic) or changed

    def node_for(self, m: Machine, symbol: Any) -> Any:
        """The graph's value of a symbolic number: an input for a symbol, operators for the rest."""
        if isinstance(symbol, torch.SymBool):
            return self.condition_node(m, symbol)
        if isinstance(symbol, torch.SymFloat):
            return self.recipe_node(m, symbol.node.recipe)
        return self.expression_node(m, expr_of(symbol))

    def made(self, node: Node, result: Any) -> None:
        """A node's result may be a number, or have sizes, that only running it tells."""
        if isinstance(result, torch.SymInt):
            self._nodes.setdefault(expr_of(result), node)
        elif isinstance(result, torch.SymFloat):
            self._float_nodes.setdefault(result.node.recipe, node)
        elif isinstance(result, torch.Tensor):
            strides = result.stride() if result.layout is torch.strided else ()
            for method, sizes in (("size", result.shape), ("stride", strides)):
                for dim, size in enumerate(sizes):
                    if (
                        isinstance(size, torch.SymInt)
                        and not size.node.has_hint()
                        and isinstance(expr_of(size), Symbol)
                    ):
                        self._made.setdefault(expr_of(size), (node, method, dim))

    def tells(self, symbol: Symbol) -> bool:
        """Has the graph this number? One that the operator at hand makes comes only behind it."""
        env = self.env
        return any(symbol in known for known in (env.hints, env.roundings, env.truths, self._made, self._nodes))

    def condition_node(self, m: Machine, symbol: Any) -> Any:
        """The graph's value of a condition that only data tells; others are decided."""
        if symbol.node.expr not in self._conditions and not symbol.node.is_unknown():
            return symbol.node.guard_bool("", 0)
        return self.compute(m, symbol)

    def compute(self, m: Machine, symbol: torch.SymBool) -> Any:
        """The graph's value of a condition, which no guard decides."""
        condition = symbol.node.expr
        if condition not in self._conditions:
            node = written(
                condition, lambda e: self.expression_node(m, e), lambda function, a, b: _emit(m, function, (a, b))
            )
            node.meta["example_value"] = symbol
            self._conditions[condition] = node
        return self._conditions[condition]

    def recipe_node(self, m: Machine, recipe: Recipe) -> Any:
        """The graph's value of a float. One whose operation has no form in a graph is fixed."""
        if recipe.number is not None:
            return recipe.number
        if recipe not in self._float_nodes:
            self._float_nodes[recipe] = self._build_float(m, recipe)
        return self._float_nodes[recipe]

    def _build_float(self, m: Machine, recipe: Recipe) -> Any:
        if recipe.operation is SYMBOL:
            (symbol,) = recipe.parts
            node = m.record.graph.placeholder(symbol.name)
            m.record.inputs.append((node, self.env.float_origins[symbol], self.env.float_hints[symbol]))
        elif recipe.operation.target is None:
            return float(symfloat(self.env, recipe))
        else:
            parts = tuple(
                self.recipe_node(m, p) if isinstance(p, Recipe) else self.expression_node(m, p) for p in recipe.parts
            )
            node = _emit(m, recipe.operation.target, parts)
        if isinstance(node, Node):
            node.meta["example_value"] = symfloat(self.env, recipe)
        return node

    def float_guards(self) -> list[Guard]:
        """What was asked of floats, as guards."""
        found: dict[Any, Guard] = {}
        for asked in self.env.float_guards:
            source, *others = (
                self.env.origins[s][0] if isinstance(s, Symbol) else self.env.float_origins[s] for s in asked.symbols
            )
            check = Equals(asked.answer) if asked.question is None else _holds(asked, tuple(others))
            found.setdefault((source, asked.question is None or asked.words), Guard(source, check))
        return list(found.values())

    def expression_node(self, m: Machine, expression: Expr) -> Any:
        simplified = self.env.simplify(expression)
        if simplified.is_constant:
            return simplified.value
        found = self._nodes.get(simplified)
        if found is None:
            found = self._nodes[simplified] = self._build(m, simplified)
            if isinstance(found, Node):  # what it is made of may have been fixed meanwhile
                found.meta["example_value"] = symint(self.env, simplified)
        return found

    def _build(self, m: Machine, expression: Expr) -> Any:
        match expression:
            case Symbol() if expression in self._made:
                node, method, dim = self._made[expression]
                return m.record.graph.call_method(method, (node, dim))
            case Symbol() if expression in self.env.roundings:
                function, recipe = self.env.roundings[expression]
                return _emit(m, TO_INTEGER[function], (self.recipe_node(m, recipe),))
            case Symbol() if expression in self.env.truths:
                condition = torch.SymBool(BoolNode(self.env, self.env.truths[expression]))
                return _emit(m, integer_of_truth, (self.condition_node(m, condition),))
            case Symbol():
                return self._input(m, expression)
            case FloorDiv():
                return self._apply(m, operator.floordiv, [expression.numerator, expression.denominator])
            case Mod():
                return self._apply(m, operator.mod, [expression.numerator, expression.denominator])
            case Min():
                return self._apply(m, torch.sym_min, list(expression.arguments))
            case Max():
                return self._apply(m, torch.sym_max, list(expression.arguments))
        total: Any = None
        for monomial, coefficient in expression.terms:
            product: Any = None if coefficient == 1 else coefficient
            for atom in monomial:
                part = self.expression_node(m, atom)
                product = part if product is None else _emit(m, operator.mul, (product, part))
            total = product if total is None else _emit(m, operator.add, (total, product))
        return total if expression.offset == 0 else _emit(m, operator.add, (total, expression.offset))

    def _apply(self, m: Machine, target: Any, parts: list[Expr]) -> Any:
        result = self.expression_node(m, parts[0])
        for part in parts[1:]:
            result = _emit(m, target, (result, self.expression_node(m, part)))
        return result

    def _input(self, m: Machine, symbol: Symbol) -> Node:
        node = m.record.graph.placeholder(symbol.name)
        m.record.inputs.append((node, self.env.origins[symbol][0], self.env.size_hint(symbol)))
        return node

    def relations(self, slot_of: Callable[[Source], int], guards: list[Guard]) -> SizeRelations:
        """The engine's guards, ranges and strides as programs over the fetched slots; appends their guards' words."""
        told = [s for s in self.env.symbols if s in self.env.hints and s not in self.env.roundings]
        index = {symbol: number for number, symbol in enumerate(told)}
        bindings = [_binding(slot_of, self.env.origins[symbol][0]) for symbol in told]
        conditions = [guard.condition for guard in self.env.guards]
        least = {Size: self.least, Stride: 2}
        conditions += [Ge(s, least[kind]) for s in told if (kind := type(self.env.origins[s][0])) in least]
        for source, dim, expression in self.strides:
            stride = self.env.new_symbol(self.env.size_hint(expression), None, minimum=0)
            index[stride] = len(bindings)
            bindings.append((slot_of(source), ~dim))
            conditions.append(Eq(stride, expression))
        programs, numbers = [], []
        for condition in dict.fromkeys(conditions):
            programs.append(program(condition, index))
            numbers.append(len(guards))
            read = tuple(self.origins_in(condition))
            guards.append(Guard(None, None, description=f"sizes: {self.words(condition)}", reads=read))
        return SizeRelations(bindings, programs, numbers)

    def words(self, condition: Any) -> str:
        origins = {symbol.name: self.env.origins[symbol][0] for symbol in self.env.symbols}
        place = lambda name: origin.text if (origin := origins[name]) is not None else "the stride"  # noqa: E731
        return WORD.sub(lambda word: place(word[0]) if word[0] in origins else word[0], condition_text(condition))

    def origins_in(self, condition: Any) -> list[Source]:
        names = set(WORD.findall(condition_text(condition)))
        origins = [self.env.origins[symbol][0] for symbol in self.env.symbols if symbol.name in names]
        return [origin for origin in origins if origin is not None]


LARGEST = 2**62


def _binding(slot_of: Callable[[Source], int], origin: Source) -> tuple[int, int | None]:
    if isinstance(origin, Size):
        return slot_of(origin.base), origin.dimension
    if isinstance(origin, Stride):
        return slot_of(origin.base), ~origin.dimension
    return slot_of(origin), None


def _is_own(env: ShapeEnv, stride: Expr) -> bool:
    """Is it a symbol for this very stride, not a relation to sizes that a guard must hold?"""
    return isinstance(stride, Symbol) and isinstance(env.origins[stride][0], Stride)


def _holds(asked: FloatGuard, others: tuple[Source, ...]) -> Check:
    def holds(*now: float) -> bool:
        assert asked.question is not None
        try:
            return asked.question(dict(zip(asked.symbols, now))) is asked.answer
        except (ArithmeticError, ValueError):  # Python does not compute it of these numbers: the program would raise
            return False

    words = f"answers {asked.answer} to {asked.words}"
    return HoldsTogether(holds, words, others) if others else Holds(holds, words)


def _emit(m: Machine, target: Any, args: tuple) -> Any:
    if not any(isinstance(a, Node) for a in args):
        return target(*args)
    node = m.record.graph.create_node("call_function", target, args, {})
    node.meta["location"] = m.location()
    return node


def _symbolic_strides(symbols: list[Expr], sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[Expr]:
    """Strides as products of the sizes inside them, where the numbers say so; constants elsewhere."""
    found: list[Any] = [None] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda d: (strides[d], sizes[d] == 1, -d))
    running_expr: Expr = constant(1)
    running = 1
    for dim in order:
        if strides[dim] == running and sizes[dim] != 1:
            found[dim] = running_expr
            running_expr, running = running_expr * symbols[dim], running * sizes[dim]
        elif strides[dim] == running and sizes[dim] == 1:
            found[dim] = running_expr
        else:
            found[dim] = constant(strides[dim])
            running_expr, running = found[dim] * symbols[dim], strides[dim] * sizes[dim]
    return found
