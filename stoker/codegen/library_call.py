"""A library call as a step of the executor's plan.

In:  a `Library` step.
Out: a `CallStep`, an operator that C++ calls through the dispatcher; or, where an argument is something that only Python can pass, a
     `PythonStep`, a function of Python that is given the tensors and numbers among its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker import torch_private
from stoker.codegen import plan_records as record
from stoker.codegen.encoding import Encoding, dtype_name
from stoker.codegen.plan_records import LiteralKind, Plain
from stoker.graph import nested
from stoker.loop.view import Scalar, Stored
from stoker.nest import map_leaves
from stoker.schedule.step import Library
from stoker.shape.expr import Expr, as_expr


class Unencodable(Exception):
    """An argument that C++ cannot be given: the call is made from Python."""


def library_call(coding: Encoding, step: Library) -> record.CallStep | record.PythonStep:
    results = tuple(None if name is None else coding.slot(name) for name in step.results)
    layouts = tuple(None if layout is None else coding.layout(layout) for layout in step.layouts)
    if isinstance(step.operator, torch_private.OpOverload):
        schema = torch_private.schema_of(step.operator)
        try:
            return record.CallStep(_operator(schema), _arguments(coding, schema, step), results, layouts)
        except Unencodable:
            pass
    callee, parts = _control(step) if step.operator in nested.OPERATORS else _through_python(step)
    values = tuple(coding.part(part) for part in parts)
    return record.PythonStep(record.HeldObject(coding.hold(callee)), values, results, layouts, step.several)


def _operator(schema: torch.FunctionSchema) -> record.Operator:
    return record.Operator(f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name)


def _arguments(coding: Encoding, schema: torch.FunctionSchema, step: Library) -> tuple[record.CallArgument, ...]:
    """Each argument of the operator, in the schema's order."""
    if len(schema.returns) == 1 and "List" in str(schema.returns[0].type):
        raise Unencodable  # one list, which C++ would have to take apart
    keywords = dict(step.keywords)
    found = []
    for position, argument in enumerate(schema.arguments):
        if position < len(step.arguments):
            value = step.arguments[position]
        elif argument.name in keywords:
            value = keywords[argument.name]
        elif argument.has_default_value():
            value = argument.default_value
        else:
            raise Unencodable
        found.append(_argument(coding, str(argument.type), value))
    return tuple(found)


def _literal(kind: LiteralKind, value: Plain) -> record.LiteralArgument:
    return record.LiteralArgument(record.Literal(kind, value))


def _argument(coding: Encoding, words: str, value: object) -> record.CallArgument:
    if value is None:
        return _literal(LiteralKind.UNDEFINED if words == "Tensor" else LiteralKind.NONE, None)
    words = words.removeprefix("Optional[").removesuffix("]") if words.startswith("Optional[") else words
    if isinstance(value, Scalar):
        raise Unencodable
    if isinstance(value, Stored):
        return coding.view(value)
    if words == "Tensor":
        raise Unencodable  # a number in place of a tensor, which torch's Python layer makes one of
    if isinstance(value, Expr):
        return record.NumberArgument(coding.numbers.of(value))
    if value is torch.strided:
        return _literal(LiteralKind.NONE, None)
    if isinstance(value, (list, tuple)):
        return _sequence(coding, words, value)
    return _plain(words, value)


def _plain(words: str, value: object) -> record.LiteralArgument:
    match value:
        case bool():
            return _literal(LiteralKind.BOOL, value)
        case int() if words != "float":
            return _literal(LiteralKind.INT, value)
        case int() | float():
            return _literal(LiteralKind.FLOAT, float(value))
        case str():
            return _literal(LiteralKind.TEXT, value)
        case torch.dtype():
            return _literal(LiteralKind.DTYPE, dtype_name(value))
        case torch.device():
            return _literal(LiteralKind.DEVICE, str(value))
    raise Unencodable


def _sequence(coding: Encoding, words: str, value: Sequence[Any]) -> record.CallArgument:
    if "Optional[Tensor]" in words:
        return record.OptionalViewsArgument(tuple(None if v is None else coding.view(v) for v in value))
    if "Tensor" in words:
        return record.ViewsArgument(tuple(coding.view(v) for v in value))
    if words == "List[bool]":
        return _literal(LiteralKind.BOOLS, tuple(value))
    if words == "List[Optional[number]]" and all(isinstance(v, float) for v in value):
        return _literal(LiteralKind.SCALARS, tuple(value))
    if words == "List[float]":
        return _literal(LiteralKind.FLOATS, tuple(float(v) for v in value))
    if words in ("List[int]", "List[SymInt]") and all(isinstance(v, (int, Expr)) for v in value):
        return record.NumbersArgument(coding.numbers.each(value))
    raise Unencodable


def _control(step: Library) -> tuple[Callable[..., object], list[Stored | Expr]]:
    """Control flow over graphs, which C++ runs: the operator's graphs as compiled, and all that they are given."""
    groups = [g for g in step.arguments if isinstance(g, (list, tuple, Stored))]
    parts = [v for g in groups for v in (g if isinstance(g, (list, tuple)) else [g])]
    made = nested.runner(step.operator, step.arguments)
    return made, [v if isinstance(v, Stored) else as_expr(v) for v in parts]


def _through_python(step: Library) -> tuple[Callable[..., object], list[Stored | Expr]]:
    """The call as a function of the tensors and numbers among its arguments, and these."""
    found: list[Stored | Expr] = []

    def hole(value: object) -> object:
        if isinstance(value, (Stored, Expr)):
            found.append(value)
            return (_NumberHole if isinstance(value, Scalar) else _Hole)(len(found) - 1)
        return value

    arguments, keywords = map_leaves(hole, step.arguments), map_leaves(hole, dict(step.keywords))
    operator = step.operator

    def call(*values: Any) -> object:
        def filled(value: object) -> object:
            if isinstance(value, _NumberHole):
                return values[value].item()
            return values[value] if isinstance(value, _Hole) else value

        return operator(*map_leaves(filled, arguments), **map_leaves(filled, keywords))

    return call, found


class _Hole(int):
    """The place of a value among those the executor passes."""


class _NumberHole(_Hole):
    """The place of a number that the executor passes as a tensor."""
