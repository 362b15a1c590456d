"""Sizes not yet known: expressions, proofs, and an environment that answers questions and remembers what it assumed.

>>> from stoker.shape import ShapeEnv, Eq, Gt
>>> env = ShapeEnv()
>>> batch, length = env.new_symbol(4, "x.size(0)"), env.new_symbol(16, "x.size(1)")
>>> (batch * length) // length
s0
>>> env.decide(Gt(batch, 1)), env.guards
(True, [])
>>> env.decide(Eq(length % 8, 0)), [str(g) for g in env.guards]
(True, ['s1 % 8 == 0'])
>>> env.simplify(length // 8 * 8)
s1

Reading order: `expr` (canonical integer expressions), `walk` (what is inside them), `condition` (comparisons, and their stack
program), `prove` (intervals and three-valued proofs), `recipe` (floats), `env` (hints, guards, learning), `contiguity` (layouts),
`symnode` (how torch's C++ and Python reach all this).
"""

from stoker.shape.condition import And, Comparison, Condition, Eq, Ge, Gt, Le, Lt, Ne, Not, Or, holds, program
from stoker.shape.env import DataDependent, ShapeEnv, SizeGuard
from stoker.shape.expr import Expr, Symbol, constant, maximum, minimum, symbol, text
from stoker.shape.prove import Interval, Proof, bounds, prove
from stoker.shape.walk import evaluate, free_symbols, substitute

__all__ = [
    "And", "Comparison", "Condition", "DataDependent", "Eq", "Expr", "Ge", "Gt", "SizeGuard", "Interval", "Le", "Lt",
    "Ne", "Not", "Or", "Proof", "ShapeEnv", "Symbol", "bounds", "constant", "evaluate", "free_symbols", "holds",
    "maximum", "minimum", "program", "prove", "substitute", "symbol", "text",
]  # fmt: skip
