"""How torch reaches the shape engine: the nodes behind torch.SymInt, SymBool and SymFloat.

In:  calls from Python's operators on a SymInt, and from C++ (sizes, numel, contiguity, guards).
Out: further nodes; at a decision, an answer of the environment.

Methods bear the names torch calls. What must hold: SymInt arithmetic equals int arithmetic (tests/fuzz/test_shape.py),
and each method that C++ may call exists (tests/unit/shape/test_symnode.py reads the list from torch's header).

A float made of sizes and of other floats (n / 2, sqrt(n), scale * 2) is kept as a recipe (`stoker.shape.recipe`): it has a
hint, prints itself, and only a question about its value (float(x), x > 1.5) guards what it came from.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker.shape import condition as cond
from stoker.shape.condition import Condition, Known
from stoker.shape.contiguity import channels_innermost, channels_last, contiguous, dense
from stoker.shape.env import LARGEST_SIZE, ShapeEnv
from stoker.shape.expr import Expr, as_expr, constant, maximum, minimum, text
from stoker.shape.prove import Proof
from stoker.shape.recipe import (
    ANSWERS,
    BINARY,
    MAGNITUDE,
    MATH,
    NEGATIVE,
    NUMBER,
    OF_INTEGER,
    OF_QUOTIENT,
    ROUNDED,
    FloatSymbol,
    Operation,
    Recipe,
    as_question,
    of_integers,
)
from stoker.shape.walk import free_symbols


def symint(env: ShapeEnv, expr: Expr | int) -> Any:
    """The torch.SymInt of an expression; an int where it is one."""
    simple = env.simplify(as_expr(expr))
    return simple.offset if simple.is_constant else torch.SymInt(IntNode(env, simple))


def expr_of(value: int | torch.SymInt) -> Expr:
    """The expression of a size."""
    return value.node.expr if isinstance(value, torch.SymInt) else constant(int(value))


class Node:
    """What all kinds share. Each answer of "no" is a question C++ asks before using an optional ability."""

    __slots__ = ("env",)

    env: ShapeEnv

    @property
    def shape_env(self) -> ShapeEnv:
        return self.env

    @property
    def _hint(self) -> Any:
        """As torch's Python calls the hint."""
        return getattr(self, "hint", None)

    def is_constant(self) -> bool:
        return False

    is_int = is_float = is_bool = is_nested_int = is_constant

    def is_symbolic(self) -> bool:
        return not self.is_constant()

    def maybe_as_int(self) -> int | None:
        return None

    def maybe_as_bool(self) -> bool | None:
        return None

    def maybe_as_float(self) -> float | None:
        return None

    def nested_int(self) -> None:
        return None

    nested_int_coeff = nested_int

    def constant_int(self) -> int | None:
        return self.maybe_as_int()

    def constant_bool(self) -> bool | None:
        return self.maybe_as_bool()

    def clone(self) -> Node:
        return self

    def wrap_int(self, value: int) -> IntNode:
        return IntNode(self.env, constant(value))

    def wrap_float(self, value: float) -> FloatNode:
        return FloatNode(self.env, Recipe(NUMBER, (value,)))

    def wrap_bool(self, value: bool) -> BoolNode:
        return BoolNode(self.env, cond.known(value))

    def _graph_repr(self) -> str:
        return repr(self)

    def sym_sum(self, nodes: Sequence[IntNode]) -> IntNode:
        total = constant(0)
        for node in nodes:
            total = total + node.expr
        return IntNode(self.env, total)

    str = _graph_repr


class IntNode(Node):
    """An integer expression."""

    __slots__ = ("expr",)

    def __init__(self, env: ShapeEnv, expr: Expr) -> None:
        self.env = env
        self.expr = expr

    def __repr__(self) -> str:
        return text(self.expr)

    def _same(self, expr: Expr) -> IntNode:
        return IntNode(self.env, self.env.simplify(expr))

    def _truth(self, condition: Condition) -> BoolNode:
        return BoolNode(self.env, condition)

    def is_int(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return self.env.simplify(self.expr).is_constant

    def maybe_as_int(self) -> int | None:
        return self.env.simplify(self.expr).value

    def has_hint(self) -> bool:
        return self.env.has_hint(self.expr)

    @property
    def hint(self) -> int | None:
        return self.env.size_hint(self.expr) if self.has_hint() else None

    def require_hint(self, fallback: int | None = None) -> int:
        return self.env.size_hint(self.expr) if fallback is None or self.has_hint() else fallback

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return self.env.specialize(self.expr, "its value was asked for")

    int_ = guard_int

    def guard_float(self, file: str, line: int) -> float:
        return float(self.guard_int(file, line))

    def guard_bool(self, file: str, line: int) -> bool:
        return self._truth(cond.Ne(self.expr, 0)).guard_bool(file, line)

    bool_ = guard_bool

    def expect_size(self, file: str, line: int) -> bool:
        return self.env.require(cond.Ge(self.expr, 0), "a size is not negative")

    def mod(self, other: IntNode) -> IntNode:
        self._not_zero(other)
        return self._same(self.expr % other.expr)

    def int_floordiv(self, other: IntNode) -> IntNode:
        self._not_zero(other)
        return self._same(self.expr // other.expr)

    floordiv = int_floordiv

    def _not_zero(self, other: IntNode) -> None:
        if self.env.decide(cond.Eq(other.expr, 0), "it divides"):
            raise ZeroDivisionError("integer division or modulo by zero")

    def pow_by_natural(self, other: IntNode) -> IntNode:
        if (varying := self._varying_power(other)) is not None:
            return varying
        result = constant(1)
        for _ in range(self.env.specialize(other.expr, "it is an exponent")):
            result = result * self.expr
        return self._same(result)

    pow = pow_by_natural

    def _varying_power(self, other: IntNode) -> IntNode | None:
        """A number to an exponent that varies, as long as it is so small that a float has all its digits: the integer of that float."""
        base, exponent = self.env.simplify(self.expr), self.env.simplify(other.expr)
        if not base.is_constant or abs(base.offset) < 2 or exponent.is_constant or not other.has_hint():
            return None
        if not self.env.can_ask(frozenset(free_symbols(exponent))):
            return None
        largest = int(MANTISSA_BITS / math.log2(abs(base.offset)))
        if not (self.env.decide(cond.Ge(exponent, 0)) and self.env.decide(cond.Le(exponent, largest))):
            return None
        return self.sym_float()._with(BINARY["float_pow"], other.sym_float()).trunc()

    def neg(self) -> IntNode:
        return self._same(-self.expr)

    def pos(self) -> IntNode:
        return self

    ceil = floor = trunc = round = sym_int = pos

    def abs(self) -> IntNode:
        return self._same(maximum(self.expr, -self.expr))

    def _bitwise(self, other: IntNode, function: Callable[[int, int], int]) -> IntNode:
        left = self.env.specialize(self.expr, "its bits were used")
        return self.wrap_int(function(left, self.env.specialize(other.expr, "its bits were used")))

    def lshift(self, other: IntNode) -> IntNode:
        return self._same(self.expr * self._shift(other))

    def rshift(self, other: IntNode) -> IntNode:
        return self._same(self.expr // self._shift(other))

    def _shift(self, other: IntNode) -> Expr:
        """The power of two that shifting multiplies or divides by."""
        varying = self.wrap_int(2)._varying_power(other)
        return constant(1 << self.env.specialize(other.expr, "it is a shift")) if varying is None else varying.expr

    def sym_float(self) -> FloatNode:
        return FloatNode(self.env, Recipe(OF_INTEGER, (self.expr,)))

    def int_truediv(self, other: IntNode) -> FloatNode:
        self._not_zero(other)
        return FloatNode(self.env, Recipe(OF_QUOTIENT, (self.expr, other.expr)))

    truediv = int_truediv

    def _layout(
        self, question: Callable[..., Condition], sizes: Sequence[IntNode], strides: Sequence[IntNode], *rank: int
    ) -> BoolNode:
        known = [[self.env.simplify(node.expr) for node in nodes] for nodes in (sizes, strides)]
        return self._truth(question(self.env, *known, *rank))


class BoolNode(Node):
    """A condition."""

    __slots__ = ("expr",)

    def __init__(self, env: ShapeEnv, expr: Condition) -> None:
        self.env = env
        self.expr = expr

    def __repr__(self) -> str:
        return cond.condition_text(self.expr)

    def is_bool(self) -> bool:
        return True

    def is_constant(self) -> bool:
        return isinstance(self.expr, Known)

    def maybe_as_bool(self) -> bool | None:
        return self.expr.value if isinstance(self.expr, Known) else None

    def has_hint(self) -> bool:
        return all(s in self.env.hints for s in cond.symbols_of(self.expr))

    @property
    def hint(self) -> bool | None:
        return cond.holds(self.expr, self.env.hints) if self.has_hint() else None

    def require_hint(self, fallback: bool | None = None) -> bool | None:
        return self.hint if self.has_hint() else fallback

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        return self.env.decide(self.expr)

    bool_ = guard_bool
    expect_true = guard_bool
    """Asked by torch's own code. What only data tells is not taken on trust: nothing would check it (`is_unknown`)."""

    def guard_int(self, file: str = "", line: int = 0) -> int:
        return int(self.env.decide(self.expr))

    int_ = guard_int

    def sym_int(self) -> IntNode:
        """1 or 0: where only data tells, as a symbol."""
        return IntNode(self.env, self.env.truth(self.expr)) if self.is_unknown() else self.wrap_int(self.int_())

    def is_unknown(self) -> bool:
        """Does only data tell?"""
        return not self.has_hint() and self.env.prove(self.expr) is Proof.UNKNOWN

    def guard_size_oblivious(self, file: str, line: int) -> bool:
        return self.guard_or_false(file, line)

    def guard_or_false(self, file: str, line: int) -> bool:
        return self._guard_or(False)

    def guard_or_true(self, file: str, line: int) -> bool:
        return self._guard_or(True)

    def _guard_or(self, otherwise: bool) -> bool:
        answer = self.env.prove(self.expr)
        if answer is not Proof.UNKNOWN:
            return answer is Proof.YES
        if not self.has_hint() or (self.hint is otherwise and self.env.asks_for_one(self.expr)):
            return otherwise
        return self.env.decide(self.expr)

    def statically_known_true(self, file: str, line: int) -> bool:
        return self.env.prove(self.expr) is Proof.YES

    def sym_and(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.env, cond.And(self.expr, other.expr))

    def sym_or(self, other: BoolNode) -> BoolNode:
        return BoolNode(self.env, cond.Or(self.expr, other.expr))

    and_, or_ = sym_and, sym_or

    def sym_not(self) -> BoolNode:
        return BoolNode(self.env, cond.Not(self.expr))

    def eq(self, other: BoolNode) -> BoolNode:
        both = cond.And(self.expr, other.expr)
        return BoolNode(self.env, cond.Or(both, cond.And(cond.Not(self.expr), cond.Not(other.expr))))

    def ne(self, other: BoolNode) -> BoolNode:
        return self.eq(other).sym_not()

    def sym_ite(self, then: Node, otherwise: Node) -> Node:
        return then if self.env.decide(self.expr) else otherwise

    def sym_float(self) -> FloatNode:
        return self.sym_int().sym_float()


MANTISSA_BITS, FRACTION_BITS = 53, 12
"""Of a double; and of the numbers by which a size may be multiplied without loss."""


class FloatNode(Node):
    """A float computed from sizes and from other floats: its recipe."""

    __slots__ = ("recipe",)

    def __init__(self, env: ShapeEnv, recipe: Recipe) -> None:
        self.env = env
        self.recipe = recipe

    def __repr__(self) -> str:
        return str(self.recipe)

    @property
    def expr(self) -> Recipe:
        """What identifies the value in a memo key."""
        return self.recipe

    def is_float(self) -> bool:
        return True

    def has_hint(self) -> bool:
        return all(self.env.knows(s) for s in self.recipe.symbols)

    @property
    def hint(self) -> float | None:
        return self.recipe.evaluate(self.env.number_hint) if self.has_hint() else None

    def require_hint(self, fallback: float | None = None) -> float | None:
        return self.hint if self.has_hint() else fallback

    def guard_float(self, file: str = "", line: int = 0) -> float:
        return self.recipe.evaluate(lambda part: self.env.fix(part, f"the value of {self} was asked for"))

    def guard_bool(self, file: str = "", line: int = 0) -> bool:
        return self.asked(operator.ne, self.wrap_float(0.0)).bool_()

    bool_ = guard_bool

    def maybe_as_float(self) -> float | None:
        return self.recipe.number

    def _with(self, operation: Operation, *others: FloatNode) -> FloatNode:
        """What Python refuses to compute (a division by zero) is refused for the numbers of now, under guards."""
        made = FloatNode(self.env, Recipe(operation, (self.recipe, *(o.recipe for o in others))))
        if made.has_hint():
            try:
                real = isinstance(made.hint, float)
            except (ArithmeticError, ValueError):
                real = False
            if not real:
                return self.wrap_float(operation.function(self.guard_float(), *(o.guard_float() for o in others)))
        return made

    def asked(self, function: Callable[..., bool], *others: FloatNode) -> BoolNode:
        """A question about floats is guarded by its answer; by their values where a guard cannot ask it."""
        nodes = (self, *others)
        recipes = [node.recipe for node in nodes]
        if (exact := of_integers(function, recipes)) is not None and self._is_exact(recipes):
            return BoolNode(self.env, exact)
        if not all(node.has_hint() for node in nodes) and (asked := as_question(function, recipes)) is not None:
            made = self.env.rounded(asked.asks, asked.recipe)
            self.env.questions[made] = asked.words
            return BoolNode(self.env, (cond.Ne if asked.answer else cond.Eq)(made, 0))
        symbols = frozenset().union(*(recipe.symbols for recipe in recipes))
        if not self.env.can_ask(symbols):
            return self.wrap_bool(function(*(node.guard_float() for node in nodes)))
        words = f"{function.__name__}({', '.join(map(str, recipes))})"
        answer = self.env.ask(symbols, lambda now: function(*(recipe.at(now) for recipe in recipes)), words)
        return self.wrap_bool(answer)

    def _is_exact(self, recipes: Sequence[Recipe]) -> bool:
        """Are the integers so small that they are floats? A guard says so."""
        limit = 1 << MANTISSA_BITS
        integers = [r.parts[0] for r in recipes if r.operation is OF_INTEGER]
        return all(self.env.decide(cond.Ge(n, -limit)) and self.env.decide(cond.Le(n, limit)) for n in integers)

    def _to_int(self, function: Callable[[float], int]) -> IntNode:
        if self.recipe.operation is OF_INTEGER:
            return IntNode(self.env, self.recipe.parts[0])
        is_quotient = self.recipe.operation is OF_QUOTIENT
        if (fraction := self.recipe.parts if is_quotient else self._exact_product()) is not None:
            above, below = fraction
            if function is math.floor or (function is math.trunc and not is_quotient):
                return IntNode(self.env, self.env.simplify(above // below))
            if function is math.ceil:
                return IntNode(self.env, self.env.simplify(-(-above // below)))
        if not self.has_hint() or self._rounds_to_a_size(function):
            return IntNode(self.env, self.env.rounded(function, self.recipe))
        symbols = self.recipe.symbols
        if not self.env.can_ask(symbols):
            return self.wrap_int(function(self.guard_float()))
        result = function(self.recipe.evaluate(self.env.number_hint))
        words = f"{function.__name__}({self.recipe}) == {result}"
        self.env.ask(symbols, lambda now: function(self.recipe.at(now)) == result, words)
        return self.wrap_int(result)

    def _rounds_to_a_size(self, function: Callable[[float], int]) -> bool:
        """Does it depend on a float, or on sizes that guards can ask, and is it finite and small now?"""
        hint, symbols = self.hint, self.recipe.symbols
        varies = any(isinstance(s, FloatSymbol) for s in symbols) or self.env.can_ask(symbols)
        return varies and hint is not None and math.isfinite(hint) and abs(function(hint)) < LARGEST_SIZE

    def _exact_product(self) -> tuple[Expr, Expr] | None:
        """A size times a number that is a fraction of few bits, as in `int(height * 0.5)`: above and below the line. No digit
        of the product is lost as long as the size is of a sensible magnitude, which becomes a guard."""
        if self.recipe.operation is not BINARY["mul"]:
            return None
        sizes = [p.parts[0] for p in self.recipe.parts if p.operation is OF_INTEGER]
        numbers = [p.number for p in self.recipe.parts if p.number is not None and math.isfinite(p.number)]
        if len(sizes) != 1 or len(numbers) != 1 or not self.env.has_hint(sizes[0]):
            return None
        above, below = numbers[0].as_integer_ratio()
        if not 0 < above < 1 << FRACTION_BITS or below >= 1 << FRACTION_BITS:
            return None
        largest = 1 << (MANTISSA_BITS - FRACTION_BITS)
        sensible = self.env.decide(cond.Ge(sizes[0], 0)) and self.env.decide(cond.Le(sizes[0], largest))
        return (sizes[0] * above, constant(below)) if sensible else None

    def floor(self) -> IntNode:
        return self._to_int(math.floor)

    def ceil(self) -> IntNode:
        return self._to_int(math.ceil)

    def trunc(self) -> IntNode:
        if self.recipe.operation is OF_QUOTIENT:
            above, below = self.recipe.parts
            if self.env.prove(cond.And(cond.Ge(above, 0), cond.Gt(below, 0))) is Proof.YES:
                return self._to_int(math.floor)
        return self._to_int(math.trunc)

    sym_int = trunc

    def round(self, digits: Any = None) -> Node:
        if digits is None:
            return self._to_int(round)
        return FloatNode(self.env, Recipe(ROUNDED, (self.recipe, constant(int(digits)))))

    def is_integer(self) -> BoolNode:
        if self.recipe.operation is OF_QUOTIENT:
            return BoolNode(self.env, cond.Eq(self.recipe.parts[0] % self.recipe.parts[1], 0))
        return self.wrap_bool(self.guard_float().is_integer())

    def sym_float(self) -> FloatNode:
        return self

    pos = sym_float

    def neg(self) -> FloatNode:
        return self._with(NEGATIVE)

    def abs(self) -> FloatNode:
        return self._with(MAGNITUDE)


_COMPARED = {"eq": cond.Eq, "ne": cond.Ne, "lt": cond.Lt, "le": cond.Le, "gt": cond.Gt, "ge": cond.Ge}
_COMPUTED: dict[str, Callable[[Expr, Expr], Expr]] = {
    "add": operator.add, "sub": operator.sub, "mul": operator.mul, "sym_min": minimum, "sym_max": maximum,
}  # fmt: skip
_OF_BITS = {"bitwise_and": operator.and_, "bitwise_or": operator.or_, "bitwise_xor": operator.xor}
_LAYOUTS: dict[str, tuple[Any, ...]] = {
    "is_contiguous": (contiguous,),
    "is_channels_last_contiguous_2d": (channels_last, 4),
    "is_channels_last_contiguous_3d": (channels_last, 5),
    "is_channels_last_strides_2d": (channels_innermost, 4),
    "is_channels_last_strides_3d": (channels_innermost, 5),
    "is_non_overlapping_and_dense": (dense,),
}
"""Questions about the sizes and strides of a tensor, and its rank where that is one."""


def _install() -> None:
    """Give nodes the methods that differ only in a function."""
    for name, compare in _COMPARED.items():
        setattr(IntNode, name, lambda self, other, c=compare: self._truth(c(self.expr, other.expr)))
    for name, compute in _COMPUTED.items():
        setattr(IntNode, name, lambda self, other, c=compute: self._same(c(self.expr, other.expr)))
    for name, combine in _OF_BITS.items():
        setattr(IntNode, name, lambda self, other, c=combine: self._bitwise(other, c))
    for name, (question, *rank) in _LAYOUTS.items():
        setattr(IntNode, name, lambda self, *lists, q=question, r=rank: self._layout(q, *lists, *r))
    for name, operation in BINARY.items():
        setattr(FloatNode, name, lambda self, other, o=operation: self._with(o, other))
    for name in _COMPARED:
        function = getattr(operator, name)
        setattr(FloatNode, name, lambda self, other, f=function: self.asked(f, other))
    for answer in ANSWERS:
        setattr(FloatNode, answer.__name__, lambda self, a=answer: IntNode(self.env, self.env.rounded(a, self.recipe)))
    for name, operation in MATH.items():
        setattr(FloatNode, f"sym_{name}", lambda self, *others, o=operation: self._with(o, *others))


_install()


def symfloat(env: ShapeEnv, recipe: Recipe) -> Any:
    """The torch.SymFloat of a recipe; a float where it is one."""
    return torch.SymFloat(FloatNode(env, recipe)) if recipe.number is None else recipe.number


def size_of(value: Any) -> Expr:
    """A size as an expression, with what its environment has learned."""
    if isinstance(value, torch.SymInt):
        node = value.node
        return node.env.simplify(node.expr)
    return constant(int(value))
