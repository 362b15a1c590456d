"""Symbolic sizes as nodes of a graph.

In:  placeholders with symbolic sizes, and symbolic integers and floats that operators take as arguments.
Out: for each a node: the placeholder that carries it, a size of an input, or arithmetic on those.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.autograd.refusal import CannotTrace
from stoker.shape.condition import written
from stoker.shape.expr import Expr, FloorDiv, Max, Min, Mod, Symbol
from stoker.shape.recipe import TO_INTEGER, Recipe, integer_of_truth
from stoker.shape.symnode import BoolNode, symfloat, symint


class SizeNodes:
    """One graph's symbolic integers, each computed once."""

    def __init__(self, graph: Graph, note: Callable[[Node, Any], Node]) -> None:
        self._graph, self._note = graph, note
        self._nodes: dict[Any, Node] = {}
        self._places: dict[Any, tuple[Node, Any, int]] = {}

    def know(self, size: Any, node: Node) -> None:
        """This node carries this symbolic integer."""
        self._nodes.setdefault(size.node.expr, node)

    def offer(self, tensor: torch.Tensor, node: Node, *, without_hint: bool = False) -> None:
        """The sizes and strides of an input may be asked of it when needed; of other tensors those symbols that no input tells."""
        questions = ((tensor.shape, torch.ops.aten.sym_size.int), (tensor.stride(), torch.ops.aten.sym_stride.int))
        for sizes, question in questions:
            for dim, size in enumerate(sizes):
                if isinstance(size, torch.SymInt) and not (without_hint and not _is_fresh(size)):
                    self._places.setdefault(size.node.expr, (node, question, dim))

    def node(self, size: Any) -> Any:
        """The node that carries a symbolic integer; a plain number for one that turned out to be constant."""
        if isinstance(size, torch.SymBool):
            return self._condition(size)
        if isinstance(size, torch.SymFloat):
            return self._float(size.node.env, size.node.recipe)
        return self._of(size.node.env, size.node.expr)

    def _condition(self, size: torch.SymBool) -> Any:
        """The node that carries a condition, where only data tells; others are decided."""
        if not size.node.is_unknown():
            return bool(size)
        env = size.node.env

        def apply(function: Any, *parts: Any) -> Node:
            values = (p.meta["val"] if isinstance(p, Node) else p for p in parts)
            return self._note(self._graph.call_function(function, parts), function(*values))

        return written(size.node.expr, lambda e: self._of(env, e), apply)

    def _float(self, env: Any, recipe: Recipe) -> Any:
        """The node that carries a float. One whose operation has no form in a graph is fixed."""
        if recipe.number is not None:
            return recipe.number
        if recipe not in self._nodes:
            target = recipe.operation.target
            if target is None:
                return float(symfloat(env, recipe))
            parts = tuple(self._float(env, p) if isinstance(p, Recipe) else self._of(env, p) for p in recipe.parts)
            if not any(isinstance(p, Node) for p in parts):
                return target(*parts)
            self._nodes[recipe] = self._note(self._graph.call_function(target, parts), symfloat(env, recipe))
        return self._nodes[recipe]

    def _of(self, env: Any, expr: Expr) -> Any:
        if expr.is_constant:
            return expr.offset
        if expr not in self._nodes:
            self._nodes[expr] = self._make(env, expr)
        return self._nodes[expr]

    def _make(self, env: Any, expr: Expr) -> Node:
        if expr in self._places:
            tensor, question, dim = self._places[expr]
            return self._note(self._graph.call_function(question, (tensor, dim)), symint(env, expr))
        if (simpler := env.simplify(expr)) is not expr:
            return self._of(env, simpler)
        if expr in env.roundings:
            function, recipe = env.roundings[expr]
            made = self._graph.call_function(TO_INTEGER[function], (self._float(env, recipe),))
            return self._note(made, symint(env, expr))
        if expr in env.truths:
            truth = self._condition(torch.SymBool(BoolNode(env, env.truths[expr])))
            return self._note(self._graph.call_function(integer_of_truth, (truth,)), symint(env, expr))
        match expr:
            case FloorDiv(numerator=above, denominator=below):
                return self._fold(env, operator.floordiv, (above, below))
            case Mod(numerator=above, denominator=below):
                return self._fold(env, operator.mod, (above, below))
            case Min(arguments=parts):
                return self._fold(env, torch.sym_min, parts)
            case Max(arguments=parts):
                return self._fold(env, torch.sym_max, parts)
        return self._polynomial(env, expr)

    def _polynomial(self, env: Any, expr: Expr) -> Node:
        total: Any = expr.offset
        for atoms, coefficient in expr.terms:
            if atoms == (expr,):
                raise CannotTrace(f"the size {expr} is needed before anything tells it")
            product: Any = coefficient
            for atom in atoms:
                product = self._call(env, operator.mul, product, self._of(env, atom))
            total = self._call(env, operator.add, total, product)
        total.meta["val"] = symint(env, expr)
        return total

    def _fold(self, env: Any, function: Any, parts: tuple[Expr, ...]) -> Node:
        made = self._of(env, parts[0])
        for part in parts[1:]:
            made = self._call(env, function, made, self._of(env, part))
        return made

    def _call(self, env: Any, function: Any, a: Any, b: Any) -> Any:
        """A node, unless the numbers allow to do without."""
        if function is operator.mul and a == 1 or function is operator.add and a == 0:
            return b
        values = [v.meta["val"] if isinstance(v, Node) else v for v in (a, b)]
        return self._note(self._graph.call_function(function, (a, b)), function(*values))


def _is_fresh(size: torch.SymInt) -> bool:
    """Is it a symbol that only data tells?"""
    return isinstance(size.node.expr, Symbol) and not size.node.has_hint()
