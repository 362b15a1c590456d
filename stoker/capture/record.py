"""Tensor operations become graph nodes; their results' metadata comes from running them on fake tensors.

In:  a torch function or tensor method, and Values.
Out: a Value for the result. Results that are plain data (sizes, dtypes) leave no node.
"""

from __future__ import annotations

import collections
import itertools
import keyword
import operator
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker.capture.machine import Machine
from stoker.capture.python_operators import BINARY, COMPARE
from stoker.capture.raising import assumes_sizes_fit
from stoker.capture.static import HEAP_TYPE
from stoker.capture.values.array import ArrayValue
from stoker.capture.values.cached import Kept
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant, is_numpy_scalar, is_plain, python_number
from stoker.capture.values.function import BuiltinValue
from stoker.capture.values.instance import InstanceValue, ObjectValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import ListValue, SequenceValue, TupleValue
from stoker.capture.values.size import SYMBOLIC, SymbolicValue
from stoker.capture.values.slices import SliceValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Arguments, Keywords, Lazy, Value
from stoker.capture.values.varying import VaryingFloat
from stoker.capture.warned import TellingMode, telling
from stoker.errors import Break
from stoker.fake import DataDependent, FakeMode
from stoker.fake.recurrent import whole
from stoker.guard.source import Source
from stoker.shape import ShapeEnv


class GraphRecorder:
    """The graph of one capture: its nodes, its inputs and where they come from."""

    def __init__(self, m: Machine, env: ShapeEnv) -> None:
        self.m = m
        self.graph = Graph()
        self.fake_mode: FakeMode = TellingMode(env)
        self.inputs: list[tuple[Node, Source, Any]] = []
        self.names: collections.Counter[str] = collections.Counter()
        self.conversions: dict[Node, Callable[[Any], Any]] = {}  # what objects go through before they enter the graph
        self.leaves: dict[Node, int] = {}  # tensors that became leaves of autograd inside, and by which instruction
        self.watched: dict[TensorValue, int] = {}  # in the middle, with hooks that do more, and by which instruction
        self.called_later: list[TensorValue] = []  # with hooks that only code behind the graph calls
        self.filled: list[Any] = []  # leaves that the graph fills, and what they are made of
        self.kept: list[Kept] = []  # tensors that the program's caches keep, made anew
        self.retained: list[TensorValue] = []  # tensors in the middle of the program whose gradient is kept
        self.tensor_of_fake: dict[int, tuple[torch.Tensor, Value]] = {}
        self.object_nodes: dict[int, Node] = {}
        self.labels: dict[str, None] = {}  # for a profiler, in the order in which the program enters them
        self.rehearsed: list[type] = []  # autograd functions whose backward is evaluated on the side, outermost first

    def hold(self, fake: torch.Tensor, value: Value) -> None:
        """Results that are this very fake tensor are this value."""
        self.tensor_of_fake[id(fake)] = (fake, value)

    def input(self, source: Source, real: Any, fake: Any) -> Node:
        """A new input of the graph, found at a source."""
        name = input_name(source)
        self.names[name] += 1
        node = self.graph.placeholder(name if self.names[name] == 1 else f"{name}_{self.names[name]}")
        node.meta["example_value"] = fake
        self.inputs.append((node, source, real))
        return node

    def call(self, target: Callable[..., Any], args: Arguments, kwargs: Keywords, *, keep: bool = False) -> Value:
        """Record `target(*args, **kwargs)`. `keep` keeps a node whose result is not a tensor."""
        return self.node("call_function", target, args, kwargs, keep)

    def method(self, receiver: Value, name: str, args: Arguments, kwargs: Keywords) -> Value:
        return self.node("call_method", name, [receiver, *args], kwargs, _mutates(name))

    def node(self, kind: str, target: Any, args: Arguments, kwargs: Keywords, keep: bool) -> Value:
        if self.m.overrides.active and self.m.overrides.intercepts(args, kwargs):
            raise Break(f"`{_name(target)}`", "it is reached by a way on which __torch_function__ is not captured")
        needs = kwargs.get("requires_grad")
        if needs is not None and needs.python_type() is bool and needs.truth(self.m):  # others eager refuses
            made = self.node(kind, target, args, {k: v for k, v in kwargs.items() if k != "requires_grad"}, keep)
            return made.method(self.m, "requires_grad_", [], {})
        if any(map(keyword.iskeyword, kwargs)):
            args, kwargs = _without_keywords(target, args, kwargs)
        fake_args = [self.to_fake(a) for a in args]
        fake_kwargs = {name: self.to_fake(a) for name, a in kwargs.items()}
        result = self.run_fake(kind, target, fake_args, fake_kwargs)
        if not keep and _is_plain_result(result) and not _is_fresh(result):
            return self.m.wrap.constant(result)
        node_args = tuple(self.to_node(a) for a in args)
        node_kwargs = {name: self.to_node(a) for name, a in kwargs.items()}
        node = self.graph.create_node(kind, target, node_args, node_kwargs)
        node.meta["location"] = self.m.location()
        node.meta["example_value"] = result
        value = self.wrap_result(node, result)
        if target in UNIT_INTERVAL and isinstance(value, TensorValue):
            value.fake.memory.bounds = (0.0, 1.0)  # type: ignore[attr-defined]  # a FakeTensor
        return value

    def run_fake(self, kind: str, target: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        try:
            with self.fake_mode.capturing():
                if kind == "call_method":
                    return self.m.here(getattr(args[0], target), args[1:], kwargs)
                return self.m.here(whole(target, args, kwargs) or telling(target), args, kwargs)
        except DataDependent as error:
            if assumes_sizes_fit(self.m, error):
                return self.run_fake(kind, target, args, kwargs)
            raise Break(
                f"`{_name(target)}`", f"its result depends on data: {error}", "keep it outside the compiled function"
            ) from error
        except Break:
            raise
        except Exception as error:
            text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise Break(
                f"`{_name(target)}`",
                f"it raised {type(error).__name__}: {text[:300]}",
                "the operation runs in eager instead, which raises the error if it is one",
            ) from error

    def wrap_result(self, node: Node, result: Any) -> Value:
        """A result of fakes and plain data to a Value; parts of a structure become getitem nodes."""
        if isinstance(result, torch.Tensor):
            known = self.tensor_of_fake.get(id(result))
            if known is not None and known[0] is result:
                return known[1]
            value = TensorValue(node, result, _public_class(result))
            self.hold(result, value)
            self.m.sizes.made(node, result)
            return value
        if isinstance(result, SYMBOLIC):
            self.m.sizes.made(node, result)
            return SymbolicValue(result)
        if result is None or is_plain(result) and not isinstance(result, tuple):
            return Constant(result)
        if isinstance(result, (tuple, list)):
            parts = [self.wrap_part(node, index, part) for index, part in enumerate(result)]
            return ListValue(parts) if isinstance(result, list) else TupleValue(parts, type(result))
        if isinstance(result, dict):
            return DictValue({k: (self.m.wrap.constant(k), self.wrap_part(node, k, v)) for k, v in result.items()})
        raise Break(f"`{_name(node.target)}`", f"it returns a {type(result).__qualname__}")

    def wrap_part(self, node: Node, index: Any, part: Any) -> Value:
        if _is_plain_result(part):
            return self.m.wrap.constant(part)
        piece = self.graph.create_node("call_function", operator.getitem, (node, index), {})
        piece.meta["location"] = node.meta["location"]
        piece.meta["example_value"] = part
        return self.wrap_result(piece, part)

    def to_fake(self, value: Value) -> Any:
        """The argument for the fake run."""
        match value:
            case TensorValue():
                return value.fake
            case VaryingFloat():
                return value.symbolic().symbol
            case Constant():
                return python_number(value.value)
            case BuiltinValue() | ClassValue():
                return value.constant()
            case SymbolicValue():
                return value.symbol
            case TupleValue():
                parts = [self.to_fake(element) for element in value.elements(self.m)]
                return tuple(parts) if value.cls in (tuple, torch.Size) else _rebuild(value.cls, parts)
            case ListValue():
                return [self.to_fake(element) for element in value.elements(self.m)]
            case SliceValue():
                return slice(*(self.to_fake(part) for part in value.parts))
            case DictValue():
                return {key.constant(): self.to_fake(part) for key, part in value.pairs(self.m)}
            case Lazy():
                return self.to_fake(self.m.wrap.force(value))
            case InstanceValue(storage=(SequenceValue() | Constant()) as storage) if not self.is_overridden(value.cls):
                return self.to_fake(storage)
            case ObjectValue(real=real) if real is not None and not isinstance(real, types.FunctionType):
                return real
        value.unsupported("an argument of a tensor operation")
        return None

    def is_overridden(self, cls: type) -> bool:
        """Does a subclass of a sequence show other elements than it holds?"""
        found = [self.m.attributes.class_lookup(cls, name) for name in ("__len__", "__getitem__", "__iter__")]
        return any(isinstance(raw, types.FunctionType) for raw in found)

    def to_node(self, value: Value) -> Any:
        """The argument as the graph holds it."""
        match value:
            case TensorValue():
                return value.node
            case ClassValue(real=real) if real in DTYPE_OF:
                return DTYPE_OF[real]
            case VaryingFloat():
                return self.to_node(value.symbolic())
            case Constant():
                return python_number(value.value)
            case SymbolicValue():
                return self.m.sizes.node_for(self.m, value.symbol)
            case TupleValue():
                parts = tuple(self.to_node(element) for element in value.elements(self.m))
                return parts if value.cls in (tuple, torch.Size) else _rebuild(value.cls, list(parts))
            case ListValue():
                return [self.to_node(element) for element in value.elements(self.m)]
            case SliceValue():
                return slice(*(self.to_node(part) for part in value.parts))
            case DictValue():
                return {key.constant(): self.to_node(part) for key, part in value.pairs(self.m)}
            case Lazy():
                return self.to_node(self.m.wrap.force(value))
            case InstanceValue(storage=(SequenceValue() | Constant()) as storage):
                return self.to_node(storage)
            case ObjectValue(real=real, source=source) if real is not None and source is not None:
                return self.object_input(value, real, source)
        value.unsupported("an argument of a tensor operation")
        return None

    def object_input(self, value: Value, real: Any, source: Any) -> Node:
        """An opaque object (a generator, a process group, a class) goes into the graph as an input."""
        known = self.object_nodes.get(id(value))
        if known is None:
            known = self.object_nodes[id(value)] = self.input(source, real, real)
        return known

    def binary(self, text: str, left: Value, right: Value) -> Value:
        if isinstance(left, TensorValue):
            right = self.number_of(right)
        self.refuse_foreign(left, right)
        operation = text if isinstance(left, TensorValue) else text.removesuffix("=")
        if operation == "**" and any(isinstance(value, (VaryingFloat, SymbolicValue)) for value in (left, right)):
            return self.m.wrap.object(torch.pow).call(self.m, [left, right], {})
        return self.call(BINARY[operation], [left, right], {})

    def compare(self, text: str, left: Value, right: Value) -> Value:
        if isinstance(left, TensorValue):
            right = self.number_of(right)
        self.refuse_foreign(*(v for v in (left, right) if isinstance(v, ArrayValue)))
        if text in ("==", "!=") and not all(_is_numeric(v) for v in (left, right)):
            return Constant(text == "!=")
        result = self.call(COMPARE[text], [left, right], {})
        known_number = isinstance(right, Constant) and not isinstance(right, VaryingFloat)
        if isinstance(result, TensorValue) and isinstance(left, TensorValue) and known_number:
            known = _compare_bounds(text, left.fake.memory.bounds, right.value)  # type: ignore[attr-defined]  # a FakeTensor
            if known is not None:
                result.fake.memory.bounds = (float(known), known + 1.0)  # type: ignore[attr-defined]  # a FakeTensor
        return result

    def number_of(self, value: Value) -> Value:
        """Beside a tensor, on its right, a number of numpy is one of Python."""
        if isinstance(value, ArrayValue) and value.scalar and value.dtype.kind in "fi":
            return value.method_item(self.m)
        return value

    def refuse_foreign(self, *values: Value) -> None:
        for value in values:
            if isinstance(value, ArrayValue):
                raise Break(
                    "an operator on a tensor and an array", "numpy and torch decide by precedence who computes it"
                )
            if isinstance(value, Constant) and value.python_type() in (str, bytes):
                raise Break("an operator on a tensor and text", "torch refuses it, in words of its own")


DTYPE_OF = {int: torch.int64, float: torch.float64, bool: torch.bool, complex: torch.complex128}
"""What torch takes a Python type for where it wants a dtype; the code of a graph can name dtypes, not types."""

UNIT_INTERVAL = (torch.rand, torch.rand_like)  # elements from 0 up to, not including, 1


def _compare_bounds(text: str, bounds: tuple[float, float] | None, number: float) -> bool | None:
    """What a comparison of a tensor in [low, high) with a number is, if it is the same for every element."""
    if bounds is None:
        return None
    low, high = bounds
    if text in ("<", ">="):
        below = False if number <= low else True if number >= high else None
        return below if text == "<" or below is None else not below
    if text in ("<=", ">"):
        below = False if number < low else True if number >= high else None
        return below if text == "<=" or below is None else not below
    return None


def _rebuild(cls: type, parts: list[Any]) -> Any:
    if cls.__flags__ & HEAP_TYPE and not hasattr(cls, "n_sequence_fields"):
        return tuple.__new__(cls, parts)
    return cls(parts)


def _is_plain_result(result: Any) -> bool:
    if isinstance(result, (torch.Tensor, list)):
        return False
    if isinstance(result, SYMBOLIC):
        return True
    if isinstance(result, (tuple, torch.Size)):
        return all(_is_plain_result(part) for part in result)
    return result is not None and is_plain(result)


def _is_fresh(result: Any) -> bool:
    """Is it a number that only running the program tells?"""
    return isinstance(result, (torch.SymInt, torch.SymFloat)) and not result.node.has_hint()


def input_name(source: Source) -> str:
    """A name for a graph's input, after the place where it is found."""
    text = "".join(c if c.isalnum() or c == "_" else "_" for c in source.text).strip("_") or "input"
    if text == "self":  # torch.fx takes a first input of this name for the module itself
        return "self_"
    return text if not text[0].isdigit() else f"input_{text}"


def _mutates(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _is_numeric(value: Value) -> bool:
    if isinstance(value, Constant) and not isinstance(value, VaryingFloat):
        return isinstance(value.value, (int, float, complex)) or is_numpy_scalar(value.value)
    return isinstance(value, (TensorValue, SymbolicValue, VaryingFloat))


def _public_class(result: torch.Tensor) -> type:
    return torch.nn.Parameter if isinstance(result, torch.nn.Parameter) else torch.Tensor


def _without_keywords(target: Any, args: Arguments, kwargs: Keywords) -> tuple[Arguments, Keywords]:
    """A graph is written as Python, where `x.uniform_(from=0)` is no call: such an argument is given by its position."""
    packet = getattr(torch.ops.aten, target if isinstance(target, str) else target.__name__, None)
    for overload in packet.overloads() if packet is not None else ():
        names = [argument.name for argument in getattr(packet, overload)._schema.arguments]
        taken = list(itertools.takewhile(kwargs.__contains__, names[len(args) :]))
        rest = {name: value for name, value in kwargs.items() if name not in taken}
        if set(rest) <= set(names) and not any(map(keyword.iskeyword, rest)):
            return [*args, *(kwargs[name] for name in taken)], rest
    raise Break(f"`{_name(target)}`", "it is given an argument by a word of Python's own", "give it by its position")


def _name(target: Any) -> str:
    if isinstance(target, str):
        return f"Tensor.{target}"
    return getattr(target, "__qualname__", None) or getattr(target, "__name__", None) or repr(target)
