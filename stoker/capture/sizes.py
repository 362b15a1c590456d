"""Which sizes and ints are symbolic, and their nodes in the graph.

`History` outlives a capture: it remembers the sizes seen at each source of one function, so that a size that changed is
symbolic the next time. `Sizes` belongs to one capture: it makes the symbols and the graph inputs that carry them.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from stoker.guard.source import Size, Source
from stoker.shape import ShapeEnv, expr_of, symint
from stoker.shape import expr as expressions

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

DYNAMIC = object()


@dataclass
class History:
    """What has been seen at each source: sizes, or DYNAMIC where they differed."""

    shapes: dict[str, list[Any]] = field(default_factory=dict)
    ints: dict[str, Any] = field(default_factory=dict)

    def see_shape(self, source: Source, sizes: tuple[int, ...]) -> list[bool]:
        """Record the sizes; tell which dimensions have been seen to change."""
        seen = self.shapes.get(source.text)
        if seen is None or len(seen) != len(sizes):
            self.shapes[source.text] = seen = list(sizes)
        else:
            for index, size in enumerate(sizes):
                if seen[index] is not DYNAMIC and seen[index] != size:
                    seen[index] = DYNAMIC
        return [size is DYNAMIC for size in seen]

    def see_int(self, source: Source, value: int) -> bool:
        seen = self.ints.setdefault(source.text, value)
        if seen is not DYNAMIC and seen != value:
            self.ints[source.text] = seen = DYNAMIC
        return seen is DYNAMIC


class Sizes:
    """The symbols of one capture."""

    def __init__(self, env: ShapeEnv, history: History, dynamic: bool | None) -> None:
        self.env, self.history, self.dynamic = env, history, dynamic
        self.places: dict[Any, Source] = {}
        self._nodes: dict[Any, Any] = {}

    def int_is_dynamic(self, source: Source, value: int) -> bool:
        if self.dynamic is False:
            return False
        changed = self.history.see_int(source, value)
        return changed and value not in (0, 1)

    def symbol_for_int(self, m: Machine, value: int, source: Source) -> Any:
        return symint(self.env, self.new_symbol(m, value, source, minimum=None))

    def new_symbol(self, m: Machine, hint: int, source: Source, minimum: int | None) -> Any:
        expression = self.env.new_symbol(hint, origin=source, minimum=minimum)
        self.places.setdefault(expression, source)
        return expression

    def shape_of(self, m: Machine, real: torch.Tensor, source: Source) -> tuple[Any, Any, tuple, tuple]:
        """Sizes and strides for the fake tensor, and for the guard (-1: any)."""
        sizes, strides = tuple(real.shape), tuple(real.stride()) if real.layout is torch.strided else ()
        changed = self.history.see_shape(source, sizes)
        wanted = [self.is_dynamic(real, dim, size, changed[dim]) for dim, size in enumerate(sizes)]
        if not any(wanted):
            return None, None, sizes, strides
        symbols: list[Any] = [
            self.new_symbol(m, size, Size(source, dim), minimum=2) if wanted[dim] else expressions.constant(size)
            for dim, size in enumerate(sizes)
        ]
        stride_exprs = _symbolic_strides(symbols, sizes, strides)
        fake_sizes = [symint(self.env, s) for s in symbols]
        fake_strides = [symint(self.env, s) for s in stride_exprs]
        size_spec = tuple(-1 if want else size for want, size in zip(wanted, sizes))
        stride_spec = tuple(
            stride if expressions.is_constant(e) else -1 for stride, e in zip(strides, stride_exprs)
        )
        self.guard_strides(m, source, stride_exprs)
        return fake_sizes, fake_strides, size_spec, stride_spec

    def guard_strides(self, m: Machine, source: Source, stride_exprs: list[Any]) -> None:
        """Strides that are expressions of sizes are part of what was assumed."""
        self.stride_relations = getattr(self, "stride_relations", [])
        for dim, expression in enumerate(stride_exprs):
            if not expressions.is_constant(expression):
                self.stride_relations.append((source, dim, expression))

    def is_dynamic(self, real: torch.Tensor, dim: int, size: int, changed: bool) -> bool:
        if dim in getattr(real, "_dynamo_static_indices", ()):
            return False
        if dim in getattr(real, "_dynamo_dynamic_indices", ()) or dim in getattr(real, "_dynamo_weak_dynamic_indices", ()):
            return size not in (0, 1)
        if self.dynamic is False or size in (0, 1):
            return False
        if isinstance(real, torch.nn.Parameter):
            return False
        return bool(self.dynamic) or changed

    def node_for(self, m: Machine, symbol: Any) -> Any:
        """The graph's value of a symbolic number: an input for a symbol, operators for the rest."""
        if not isinstance(symbol, torch.SymInt):
            return symbol.node.guard_bool("", 0) if isinstance(symbol, torch.SymBool) else float(symbol)
        return self.expression_node(m, expr_of(symbol))

    def expression_node(self, m: Machine, expression: Any) -> Any:
        simplified = self.env.simplify(expression)
        if expressions.is_constant(simplified):
            return expressions.constant_value(simplified)
        found = self._nodes.get(simplified)
        if found is None:
            found = self._nodes[simplified] = self._build(m, simplified)
        return found

    def _build(self, m: Machine, expression: Any) -> Any:
        if expressions.is_symbol(expression):
            source = self.places[expression]
            node = m.graph.placeholder(str(expression))
            node.meta["example_value"] = symint(self.env, expression)
            m.inputs.append((node, source, self.env.size_hint(expression)))
            return node
        name, parts = expressions.operands(expression)
        nodes = [self.expression_node(m, part) for part in parts]
        result = nodes[0]
        for part in nodes[1:]:
            result = _emit(m, OPERATORS[name], (result, part))
        if isinstance(result, Node):
            result.meta["example_value"] = symint(self.env, expression)
        return result


OPERATORS = {
    "add": operator.add,
    "mul": operator.mul,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": torch.sym_min,
    "max": torch.sym_max,
}


def _emit(m: Machine, target: Any, args: tuple) -> Any:
    if not any(isinstance(a, Node) for a in args):
        return target(*args)
    node = m.graph.create_node("call_function", target, args, {})
    node.meta["location"] = m.location()
    return node


def _symbolic_strides(symbols: list[Any], sizes: tuple[int, ...], strides: tuple[int, ...]) -> list[Any]:
    """Strides as products of the sizes inside them, where the numbers say so; constants elsewhere."""
    found: list[Any] = [None] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda d: (strides[d], sizes[d] == 1, -d))
    running_expr: Any = expressions.constant(1)
    running = 1
    for dim in order:
        if strides[dim] == running and sizes[dim] != 1:
            found[dim] = running_expr
            running_expr, running = running_expr * symbols[dim], running * sizes[dim]
        elif strides[dim] == running and sizes[dim] == 1:
            found[dim] = running_expr
        else:
            found[dim] = expressions.constant(strides[dim])
            running_expr, running = found[dim] * symbols[dim], strides[dim] * sizes[dim]
    return found
