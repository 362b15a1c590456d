"""The plan as the record that the C++ executor reads.

Buffers become slots, every size and offset becomes a number: a constant, a symbol read from an input, or the result of
arithmetic that runs once per call. csrc/plan_executor.h has the same records; tests/stages holds that both agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

import torch

from stoker import _C, torch_private
from stoker.codegen.backend import Built, Launch, Native
from stoker.loop.layout import Layout
from stoker.loop.node import Source
from stoker.loop.view import Scalar, Stored
from stoker.runtime.device import index_flags
from stoker.schedule.memory import Arena
from stoker.schedule.plan import Plan
from stoker.schedule.step import Allocate, Free, Library, Run
from stoker.shape.expr import (
    Atom,
    Expr,
    Extreme,
    FloorDiv,
    Max,
    Min,
    Mod,
    Symbol,
    as_expr,
    atoms,
    free_symbols,
    substitute,
    symbol,
)  # fmt: skip

NOTHING = 2**32 - 1


class Arithmetic(IntEnum):
    """Operations on numbers, as csrc/plan_executor.h lists them."""

    ADD = 0
    MUL = 1
    FLOORDIV = 2
    MOD = 3
    MIN = 4
    MAX = 5


class TooLarge(Exception):
    """A number of a plan does not fit into 64 bits."""


class Unencodable(Exception):
    """An argument that C++ cannot be given: the call is made from Python."""


class Numbers:
    """The table of numbers. Equal expressions share an entry."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.steps: list[tuple[int, int, int, int]] = []
        self._known: dict[Expr, int] = {}
        self._made: dict[tuple[int, int, int], int] = {}

    def new(self, value: int = 0) -> int:
        if not -(2**63) <= value < 2**63:
            raise TooLarge(f"the number {value} does not fit into 64 bits")
        self.values.append(value)
        return len(self.values) - 1

    def symbol(self, name: Symbol) -> int:
        number = self._known[name] = self.new()
        return number

    def of(self, value: Expr | int) -> int:
        """The number of an expression."""
        expr = as_expr(value)
        if expr not in self._known:
            for atom in atoms(expr):
                if atom not in self._known:
                    self._known[atom] = self._atom(atom)
            if expr not in self._known:
                self._known[expr] = self._sum(expr)
        return self._known[expr]

    def _sum(self, expr: Expr) -> int:
        if expr.is_constant:
            return self.new(expr.offset)
        total: int | None = None
        for monomial, factor in expr.terms:
            product = None if factor == 1 else self.of(factor)
            for atom in monomial:
                product = self._known[atom] if product is None else self._do(Arithmetic.MUL, product, self._known[atom])
            total = product if total is None else self._do(Arithmetic.ADD, total, product)  # type: ignore[arg-type]
        return self._do(Arithmetic.ADD, total, self.of(expr.offset)) if expr.offset else total  # type: ignore[arg-type, return-value]

    def _atom(self, atom: Any) -> int:
        match atom:
            case FloorDiv():
                return self._do(Arithmetic.FLOORDIV, self.of(atom.numerator), self.of(atom.denominator))
            case Mod():
                return self._do(Arithmetic.MOD, self.of(atom.numerator), self.of(atom.denominator))
            case Extreme():
                how = {Min: Arithmetic.MIN, Max: Arithmetic.MAX}[type(atom)]
                first, *rest = (self.of(a) for a in atom.arguments)
                for other in rest:
                    first = self._do(how, first, other)
                return first
        raise AssertionError(f"no input tells {atom}")

    def _do(self, how: Arithmetic, a: int, b: int) -> int:
        key = (int(how), a, b)
        if key not in self._made:
            self._made[key] = self.new()
            self.steps.append((int(how), self._made[key], a, b))
        return self._made[key]


class _Encoding:
    def __init__(self, plan: Plan, kernels: Sequence[Built]) -> None:
        self.plan, self.kernels = plan, kernels
        self.numbers = Numbers()
        self.slots: dict[str, int] = {}

    def slot(self, name: str | None) -> int:
        return NOTHING if name is None else self.slots.setdefault(name, len(self.slots))

    def list(self, values: Sequence[Any]) -> tuple[int, ...]:
        return tuple(self.numbers.of(v) for v in values)

    def layout(self, layout: Layout | None) -> Any:
        if layout is None:
            return None
        return layout.dtype, self.list(layout.sizes), self.list(layout.strides), str(layout.device)

    def view(self, tensor: Stored, layouts: dict[str, Layout]) -> tuple[Any, ...]:
        layout = layouts[tensor.buffer]
        whole = (
            tensor.sizes == layout.sizes
            and tensor.strides == layout.strides
            and tensor.offset.value == 0
            and tensor.dtype is layout.dtype
        )
        return (
            self.slot(tensor.buffer), tensor.dtype, self.list(tensor.sizes), self.list(tensor.strides),
            self.numbers.of(tensor.offset), whole,
        )  # fmt: skip


def executor(plan: Plan, layouts: dict[str, Layout], kernels: Sequence[Built], otherwise: Any = None) -> Any:
    """A callable that runs without Python: of the plan's inputs, or of a list of them if its `_boxed_call` is true.

    `otherwise`, of the inputs, is called where a size or number, which the plan computes with 64 bits, does not fit.
    """
    return _C.Plan(encode(plan, layouts, kernels), otherwise if plan.symbols else None)


def encode(plan: Plan, layouts: dict[str, Layout], kernels: Sequence[Built]) -> tuple[Any, ...]:
    """The description that `_C.Plan` takes."""
    coding = _Encoding(plan, kernels)
    symbols = tuple((coding.numbers.symbol(name), source.argument, _dimension(source)) for name, source in plan.symbols)
    inputs = tuple(coding.slot(name) for name in plan.inputs)
    constants = tuple((coding.slot(name), value.detach()) for name, value in plan.constants)
    arenas = tuple(_arena(coding, arena) for arena in plan.arenas)
    steps = tuple(_step(coding, step, layouts) for step in plan.steps)
    outputs = tuple(_output(coding, value, layouts) for value in plan.outputs)
    _count_in_kernels(coding)
    device, flags = _launching(plan, kernels)
    return (
        len(coding.slots), inputs, constants, tuple(coding.numbers.values), symbols, tuple(coding.numbers.steps), arenas, steps,
        outputs, plan.takes_list, device, flags,
    )  # fmt: skip


def _arena(coding: _Encoding, arena: Arena) -> tuple[Any, ...]:
    places = tuple((coding.slot(name), coding.numbers.of(offset)) for name, offset, _ in arena.offsets)
    return str(arena.device), coding.numbers.of(arena.size_bytes), places


def _launching(plan: Plan, kernels: Sequence[Built]) -> tuple[int, int]:
    """The device that kernels are launched on (-1 if none are), and the address of the flags they set (0 if none do)."""
    found = {k.device.index or 0 for k, b in zip(plan.kernels, kernels) if isinstance(b.launchable, Launch)}
    if len(found) > 1:
        raise TooLarge("kernels of one graph are on several devices")
    watched = any(isinstance(b.launchable, Launch) and b.launchable.watches for b in kernels)
    return found.pop() if found else -1, index_flags().data_ptr() if watched else 0


def _dimension(source: Source) -> int:
    """A dimension whose size is read; from -2 down one whose stride is; -1 for a number."""
    if source.dimension is None:
        return -1
    return -2 - source.dimension if source.stride else source.dimension


def _count_in_kernels(coding: _Encoding) -> None:
    """Numbers that kernels compute from sizes: computed here as well, because the executor notices if one does not fit."""
    for step in coding.plan.steps:
        if not isinstance(step, Run) or not step.sizes:
            continue
        known: dict[Atom, Expr] = {symbol(f"n{i}"): as_expr(size) for i, size in enumerate(step.sizes)}
        for phase in coding.plan.kernels[step.kernel].phases:
            for _, i in phase.lines:
                if i.op == "index" and free_symbols(i.data) <= known.keys():
                    coding.numbers.of(substitute(i.data, known))


def _output(coding: _Encoding, value: Any, layouts: dict[str, Layout]) -> tuple[str, Any]:
    if isinstance(value, Stored):
        view = coding.view(value, layouts)
        if any(value.buffer == name for name, _ in coding.plan.constants):
            view = (*view[:-1], False)  # a tensor of its own; an input is itself, as a gradient that is passed on
        return "tensor", view
    if isinstance(value, Expr):
        return "number", coding.numbers.of(value)
    return "object", value


def _step(coding: _Encoding, step: Any, layouts: dict[str, Layout]) -> tuple[Any, ...]:
    match step:
        case Allocate():
            return "allocate", coding.slot(step.buffer), coding.layout(step.layout)
        case Free():
            return "free", coding.slot(step.buffer)
        case Run():
            return _run(coding, step)
        case Library():
            return _library(coding, step, layouts)
    raise AssertionError(step)


def _run(coding: _Encoding, step: Run) -> tuple[Any, ...]:
    slots, sizes = tuple(coding.slot(b) for b in step.buffers), coding.list(step.sizes)
    match coding.kernels[step.kernel].launchable:
        case Native(address):
            return "run", address, slots, sizes
        case Launch() as launch:
            known: dict[Atom, Expr] = {symbol(f"n{i}"): as_expr(size) for i, size in enumerate(step.sizes)}
            programs = coding.numbers.of(substitute(launch.programs, known))
            written = coding.plan.kernels[step.kernel].written
            words = ", ".join(coding.plan.origins[step.kernel])
            described = (
                launch.function, launch.threads, launch.shared_bytes, programs,
                tuple(n in written for n in range(len(slots))), launch.watches, words,
            )  # fmt: skip
            return "launch", described, slots, sizes
    raise AssertionError("a kernel that the executor cannot run")


def _library(coding: _Encoding, step: Library, layouts: dict[str, Layout]) -> tuple[Any, ...]:
    results = tuple(coding.slot(r) for r in step.results)
    expected = tuple(coding.layout(layout) for layout in step.layouts)
    if not isinstance(step.operator, torch_private.OpOverload) or _returns_list(step.operator):
        return _through_python(coding, step, layouts, results, expected)
    schema = torch_private.schema_of(step.operator)
    try:
        arguments = tuple(
            _argument(coding, argument.type, value, layouts) for argument, value in zip(schema.arguments, _given(step))
        )
    except Unencodable:
        return _through_python(coding, step, layouts, results, expected)
    return "call", schema.name, schema.overload_name, arguments, results, expected, step.several


def _returns_list(operator: Any) -> bool:
    """Is the result one list, which C++ would have to take apart?"""
    returns = torch_private.schema_of(operator).returns
    return len(returns) == 1 and "List" in str(returns[0].type)


def _given(step: Library) -> list[Any]:
    """A value for each argument of the operator, in the schema's order."""
    keywords = dict(step.keywords)
    values = []
    for position, argument in enumerate(torch_private.schema_of(step.operator).arguments):
        if position < len(step.arguments):
            values.append(step.arguments[position])
        elif argument.name in keywords:
            values.append(keywords[argument.name])
        elif argument.has_default_value():
            values.append(argument.default_value)
        else:
            raise Unencodable
    return values


def _argument(coding: _Encoding, kind: Any, value: Any, layouts: dict[str, Layout]) -> tuple[str, Any]:
    words = str(kind)
    optional = words.startswith("Optional[")
    if value is None:
        return "undefined" if words == "Tensor" else "none", None
    if optional:
        words = words.removeprefix("Optional[").removesuffix("]")
    if isinstance(value, Scalar):
        raise Unencodable
    if isinstance(value, Stored):
        return "tensor", coding.view(value, layouts)
    if words == "Tensor":
        raise Unencodable  # a number in place of a tensor, which torch's Python layer makes one of
    if isinstance(value, Expr):
        return "number", coding.numbers.of(value)
    if isinstance(value, torch.dtype):
        return "dtype", value
    if isinstance(value, torch.device):
        return "device", str(value)
    if isinstance(value, (torch.layout, torch.memory_format, torch.Tensor, complex)):
        if value is torch.strided:
            return "none", None
        raise Unencodable
    if isinstance(value, (list, tuple)):
        return _sequence(coding, words, value, layouts)
    return _plain(words, value)


def _plain(words: str, value: Any) -> tuple[str, Any]:
    if isinstance(value, bool):
        return "bool", value
    if isinstance(value, int):
        return ("float", float(value)) if words == "float" else ("int", value)
    if isinstance(value, float):
        return "float", value
    if isinstance(value, str):
        return "str", value
    raise Unencodable


def _sequence(coding: _Encoding, words: str, value: Any, layouts: dict[str, Layout]) -> tuple[str, Any]:
    if "Optional[Tensor]" in words:
        return "optional_tensors", tuple(None if v is None else coding.view(v, layouts) for v in value)
    if "Tensor" in words:
        return "tensors", tuple(coding.view(v, layouts) for v in value)
    if words == "List[bool]":
        return "bools", tuple(value)
    if words == "List[Optional[number]]" and all(isinstance(v, float) for v in value):
        return "scalars", tuple(value)
    if words == "List[float]":
        return "floats", tuple(float(v) for v in value)
    if words in ("List[int]", "List[SymInt]") and all(isinstance(v, (int, Expr)) for v in value):
        return "numbers", coding.list(value)
    raise Unencodable


def _through_python(
    coding: Any, step: Library, layouts: dict[str, Layout], results: Any, expected: Any
) -> tuple[Any, ...]:
    """A call with arguments that only Python can pass: the tensors and numbers among them are filled in by the executor."""
    found: list[Any] = []

    def hole(value: Any) -> Any:
        if isinstance(value, (Stored, Expr)):
            found.append(value)
            return (_NumberHole if isinstance(value, Scalar) else _Hole)(len(found) - 1)
        if isinstance(value, (list, tuple)):
            return type(value)(hole(v) for v in value)
        return value

    arguments, keywords = hole(step.arguments), {name: hole(v) for name, v in step.keywords}
    operator = step.operator

    def call(*values: Any) -> Any:
        return operator(*_filled(arguments, values), **{n: _filled(v, values) for n, v in keywords.items()})

    parts = tuple(
        ("tensor", coding.view(v, layouts)) if isinstance(v, Stored) else ("number", coding.numbers.of(v))
        for v in found
    )
    return "python", call, parts, results, expected, step.several


class _Hole(int):
    """The place of a value among those the executor passes."""


class _NumberHole(_Hole):
    """The place of a number that the executor passes as a tensor."""


def _filled(value: Any, values: Sequence[Any]) -> Any:
    if isinstance(value, _NumberHole):
        return values[value].item()
    if isinstance(value, _Hole):
        return values[value]
    if isinstance(value, (list, tuple)):
        return type(value)(_filled(v, values) for v in value)
    return value
