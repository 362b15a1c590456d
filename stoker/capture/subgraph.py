"""A function of the program as a graph of its own, for an operator that runs it zero, one or many times.

In:  a function and the Values it is given.
Out: `Branch`: the nodes that it recorded and what it returned; `close` makes graphs of several, with the same inputs: all that
     they read of the graph around them.

Requirements, held by tests/differential/test_control_flow.py:
  1. What the function does besides computing tensors is a break: nothing outside is changed, nothing is written.
  2. The graph around holds none of its nodes afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node
from torch.fx.node import map_arg

from stoker import torch_private
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SYMBOLIC
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Era, NotConstant, Value
from stoker.errors import Break, Raised
from stoker.fake import FakeStorage
from stoker.fake.meta import Meta, meta_of
from stoker.fake.tensor import make_fake
from stoker.graph.nested import Inside, UnderModes
from stoker.graph.walk import draws
from stoker.shape.env import DataDependent
from stoker.shape.symnode import symint
from stoker.shape.walk import free_symbols

CPU = Constant(torch.device("cpu"))


@dataclass(frozen=True, slots=True)
class Branch:
    """What a function recorded. `tensors` are its results, in the order in which `rebuilt` finds them in `returned`."""

    nodes: tuple[Node, ...]
    returned: Value
    tensors: tuple[TensorValue, ...]
    orders: tuple[tuple[int, ...] | None, ...] = ()
    """For each, in which order of its dimensions what the function returned lies in memory; None if that is the plain one, or has gaps."""


@dataclass(frozen=True, slots=True)
class Closed:
    """Graphs with the same inputs: some that were chosen, tensors that they read besides, and sizes."""

    graphs: tuple[GraphModule, ...]
    inside: tuple[Inside, ...]
    """The graphs as they are to be run: under the modes they were captured under."""
    tensors: tuple[Node, ...]
    sizes: tuple[Node, ...]


def capture_branch(
    m: Machine, what: str, function: Value, args: Sequence[Value], *, as_they_lie: bool = False
) -> Branch:
    """Evaluate a function; its nodes stand at the end of the graph until `close` takes them out. Its results are laid out plainly;
    with `as_they_lie`, those in another order are so by a view, with their dimensions in `orders`."""
    known = set(m.record.graph.nodes)
    versions = [(fake, fake._version) for fake, _ in m.record.tensor_of_fake.values()]
    with _inside(m):
        try:
            returned = m.wrap.force(function.call(m, list(args), {}))
        except Raised as raised:
            raise Break(what, f"{raised.value.describe()} leaves a function that it was given") from raised
        versions += [(fake, 0) for fake in _met(m, known)]
        outside = {id(fake.memory) for fake, _ in versions}  # type: ignore[attr-defined]  # a FakeTensor
        found: list[TensorValue] = []
        orders: list[tuple[int, ...] | None] = []

        def result(tensor: TensorValue) -> TensorValue:
            orders.append(order_of(tensor) if as_they_lie else None)
            return _result(m, _permuted(m, tensor, orders[-1]), outside, found)

        returned = _with_tensors(m, what, returned, result)
    if any(fake._version != version for fake, version in versions):
        raise Break(what, "a function that it was given writes to a tensor from outside", "return a new tensor instead")
    nodes = tuple(n for n in m.record.graph.nodes if n not in known and n.op != "placeholder")
    _refuse_untold(what, found, known)
    return Branch(needing(nodes), returned, tuple(found), tuple(orders))


def stand_in(m: Machine, value: TensorValue, *, element: bool = False) -> TensorValue:
    """A tensor like another, contiguous, or like one of its elements: what a graph inside is given in its place."""
    meta = value.fake.meta  # type: ignore[attr-defined]  # a FakeTensor
    sizes = meta.sizes[1:] if element else meta.sizes
    return of_meta(m, meta_of(meta.dtype, sizes, None, meta.device), value.fake.requires_grad)


def of_meta(m: Machine, meta: Meta, requires_grad: bool = False) -> TensorValue:
    """A tensor of which this is known: what a graph inside is given."""
    fake = make_fake(meta, FakeStorage(m.record.fake_mode), requires_grad)
    node = m.record.graph.create_node("call_function", stand_in, (), {})
    node.meta["example_value"] = fake
    made = TensorValue(node, fake)
    m.record.hold(fake, made)
    return made


def close(m: Machine, branches: Sequence[Branch], given: Sequence[TensorValue] = ()) -> Closed:
    """The graphs of branches, taken out of the graph around, and what stood for their first inputs with them."""
    inside = {node for branch in branches for node in branch.nodes}
    first = {value.node: None for value in given}
    read = dict.fromkeys(
        source
        for branch in branches
        for node in branch.nodes
        for source in node.all_input_nodes
        if source not in inside and source not in first
    )
    numbers = [n for n in read if isinstance(n.meta.get("example_value"), SYMBOLIC)]
    tensors = tuple(n for n in read if n not in numbers)
    sizes = _with_parts(m, [n for n in numbers if isinstance(n.meta["example_value"], torch.SymInt)])
    floats = [n for n in numbers if isinstance(n.meta["example_value"], torch.SymFloat)]
    try:
        boxes = {_boxed(m, n): n for n in floats}
        graphs = tuple(_graph(m, branch, (*first, *tensors, *boxes, *sizes), boxes) for branch in branches)
        tensors = (*tensors, *boxes)
    except DataDependent:
        graphs = tuple(_graph(m, branch, (*first, *tensors, *sizes), {}) for branch in branches)
    for node in reversed(list(m.record.graph.nodes)):
        if node in inside or node in first:
            m.record.graph.erase_node(node)
    return Closed(graphs, tuple(map(UnderModes.of, graphs)), tensors, sizes)


def call(m: Machine, operator: Any, groups: Sequence[Any], closed: Closed, *more: Any) -> list[Value]:
    """Record a call of an operator with graphs inside: of nodes, of tensors that the graphs read besides, and of sizes."""
    args = (*groups, closed.tensors, closed.sizes, *more)
    fakes = map_arg(args, lambda node: node.meta["example_value"])
    result = m.record.run_fake("call_function", operator, list(fakes), {})
    node = m.record.graph.create_node("call_function", operator, args, {})
    node.meta["location"] = m.location()
    node.meta["example_value"] = result
    return m.record.wrap_result(node, result).items_list(m)


def rebuilt(m: Machine, returned: Value, results: Iterator[Value]) -> Value:
    """What a branch returned, with other tensors in the place of its own."""
    return _with_tensors(m, "", returned, lambda _: next(results))


def same_structure(m: Machine, a: Value, b: Value) -> bool:
    """Do two results differ in nothing but their tensors?"""
    if isinstance(a, TensorValue) and isinstance(b, TensorValue):
        return True
    if type(a) is not type(b) or a.python_type() is not b.python_type():
        return False
    if isinstance(a, DictValue) and isinstance(b, DictValue):
        pairs = zip(a.pairs(m), b.pairs(m))
        return len(a.pairs(m)) == len(b.pairs(m)) and all(
            k.constant() == j.constant() and same_structure(m, v, w) for (k, v), (j, w) in pairs
        )
    if isinstance(a, (ListValue, TupleValue)):
        first, second = a.items_list(m), b.items_list(m)
        return len(first) == len(second) and all(same_structure(m, v, w) for v, w in zip(first, second))
    try:
        return bool(a.constant() == b.constant())
    except NotConstant:
        return False


def tensors_of(m: Machine, what: str, value: Value) -> list[TensorValue]:
    """The tensors of nested lists, tuples and dictionaries, in order."""
    found: list[TensorValue] = []

    def note(tensor: TensorValue) -> Value:
        found.append(tensor)
        return tensor

    _with_tensors(m, what, value, note)
    return found


def replaced(m: Machine, what: str, value: Value, new: Callable[[TensorValue], Value]) -> Value:
    """Nested lists, tuples and dictionaries with other tensors."""
    return _with_tensors(m, what, value, new)


@contextmanager
def _inside(m: Machine) -> Iterator[None]:
    mode = m.record.fake_mode
    around, mode.scope = mode.scope, object()
    Era.now += 1
    try:
        yield
    finally:
        Era.now -= 1
        mode.scope = around


def _met(m: Machine, known: set[Node]) -> list[torch.Tensor]:
    """Tensors from outside that were looked at for the first time. One with a history has been written to make it."""
    fakes = [node.meta["example_value"] for node, _, _ in m.record.inputs if node not in known]
    return [fake for fake in fakes if isinstance(fake, torch.Tensor) and fake.grad_fn is None]


def _with_tensors(m: Machine, what: str, value: Value, new: Callable[[TensorValue], Value]) -> Value:
    value = m.wrap.force(value)
    match value:
        case TensorValue():
            return new(value)
        case TupleValue():
            return TupleValue([_with_tensors(m, what, v, new) for v in value.items_list(m)], value.cls)
        case ListValue():
            return ListValue([_with_tensors(m, what, v, new) for v in value.items_list(m)])
        case DictValue():
            pairs = [(k, _with_tensors(m, what, v, new)) for k, v in value.pairs(m)]
            return DictValue({k.hash_key(m): (k, v) for k, v in pairs})
        case Constant():
            return value
    raise Break(what, f"it is given or returns {value.describe()}, which is no tensor and holds none")


def _result(m: Machine, value: TensorValue, outside: set[int], found: list[TensorValue]) -> TensorValue:
    """A result in memory of its own, contiguous."""
    shares = id(value.fake.memory) in outside or any(value.fake.memory is t.fake.memory for t in found)  # type: ignore[attr-defined]  # fakes
    if shares or not _surely_contiguous(value):
        copied = m.record.method(value, "clone", [], {"memory_format": Constant(torch.contiguous_format)})
        assert isinstance(copied, TensorValue)
        value = copied
    found.append(value)
    return value


def forget(m: Machine, known: set[Node]) -> None:
    """Take away what was recorded since, for a graph that cannot be."""
    for node in reversed(needing([n for n in m.record.graph.nodes if n not in known and n.op != "placeholder"])):
        m.record.graph.erase_node(node)


def needing(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes that belong inside. Sizes that are computed from what is outside stay there: others may refer to them."""
    inside: dict[Node, None] = {}
    for node in nodes:
        is_size = isinstance(node.meta.get("example_value"), SYMBOLIC)
        if not is_size or any(source in inside or source.target is stand_in for source in node.all_input_nodes):
            inside[node] = None
    return tuple(inside)


def order_of(value: TensorValue) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor lies densely in memory, if that is not the plain one and is known."""
    if _surely_contiguous(value) or any(not s.node.has_hint() for s in _sizes_of(value.fake)):
        return None
    sizes, strides = ([_hint(n) for n in numbers] for numbers in (value.fake.shape, value.fake.stride()))
    order = sorted(range(len(sizes)), key=lambda d: strides[d], reverse=True)
    dense = all(strides[d] == math.prod(sizes[e] for e in order[place + 1 :]) for place, d in enumerate(order))
    return tuple(order) if dense else None


def _hint(number: Any) -> int:
    return number if isinstance(number, int) else number.node.hint


def _permuted(m: Machine, value: TensorValue, order: Sequence[int] | None) -> TensorValue:
    if order is None:
        return value
    permuted = m.record.method(value, "permute", [Constant(d) for d in order], {})
    assert isinstance(permuted, TensorValue)
    return permuted


def back_in_order(m: Machine, result: Value, order: Sequence[int] | None) -> Value:
    """What a branch returned, of what it gave in the order of memory."""
    if order is None:
        return result
    assert isinstance(result, TensorValue)
    return _permuted(m, result, inverse(order))


def inverse(order: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted(range(len(order)), key=order.__getitem__))


def _surely_contiguous(value: TensorValue) -> bool:
    """Is it, whatever the sizes are that only data tells?"""
    try:
        return value.fake.is_contiguous()
    except DataDependent:
        return False


def _refuse_untold(what: str, results: Sequence[TensorValue], known: Iterable[Node]) -> None:
    """A size that data tells inside is not known outside; one that was known there before is."""
    sizes = [s for result in results for s in _sizes_of(result.fake) if not s.node.has_hint()]
    if not sizes:
        return
    values = [node.meta.get("example_value") for node in known]
    outside = {s for value in values for size in _sizes_of(value) for s in free_symbols(size.node.expr)}
    if any(s not in outside for size in sizes for s in free_symbols(size.node.expr)):
        raise Break(what, "a function that it was given returns a tensor of a size that only data tells")


def _sizes_of(value: Any) -> list[Any]:
    """The symbolic sizes of a tensor, or the number itself."""
    found = value.shape if isinstance(value, torch.Tensor) else (value,)
    return [size for size in found if isinstance(size, torch.SymInt)]


def _boxed(m: Machine, node: Node) -> Node:
    """A float from outside as a tensor, which is what operators take."""
    number = m.wrap.number(node.meta["example_value"])
    box = m.record.call(torch.full, [TupleValue([]), number], {"dtype": Constant(torch.float64), "device": CPU})
    assert isinstance(box, TensorValue)
    return box.node


def _graph(m: Machine, branch: Branch, given: Sequence[Node], boxes: Mapping[Node, Node]) -> GraphModule:
    """With `boxes`, tensors among what is given, each for the float that it holds."""
    graph = Graph()
    copies: dict[Node, Any] = {}
    for source in given:
        copies[source] = graph.placeholder(source.name)
        copies[source].meta["example_value"] = source.meta["example_value"]
    for box, number in boxes.items():
        copies[number] = graph.call_method("item", (copies[box],))
        copies[number].meta["example_value"] = number.meta["example_value"]
    for node in branch.nodes:
        copies |= {source: _fixed(m, source) for source in node.all_input_nodes if source not in copies}
        copies[node] = graph.node_copy(node, copies.__getitem__)
    graph.output(tuple(copies[t.node] for t in branch.tensors))
    module = torch_private.graph_module(torch.nn.Module(), graph)
    seen = Seen()
    with m.record.fake_mode, seen, torch.no_grad():
        module(*(n.meta["example_value"] for n in given))
    module.meta["draws"] = any(draws(operator) for operator in seen.operators)
    module.meta["pointwise"] = all(torch.Tag.pointwise in operator.tags for operator in seen.operators)
    return module


def _with_parts(m: Machine, sizes: Sequence[Node]) -> tuple[Node, ...]:
    """Sizes, and those that they are computed of: what is made of both inside is written in terms of the latter."""
    values = [node.meta["example_value"] for node in sizes]
    parts = [symint(v.node.env, s) for v in values for s in free_symbols(v.node.expr) if v.node.expr is not s]
    found = [m.record.to_node(m.wrap.number(part)) for part in parts]
    return tuple(dict.fromkeys((*sizes, *(node for node in found if isinstance(node, Node)))))


def _fixed(m: Machine, node: Node) -> float:
    """A truth from outside that a graph inside reads, or a float that it decides by: it is what it is now, under a guard."""
    value = node.meta["example_value"]
    return m.concrete.run(value.node.guard_bool if isinstance(value, torch.SymBool) else value.node.guard_float)


class Seen(torch_private.TorchDispatchMode):
    """Notes the operators that a graph reaches."""

    def __init__(self) -> None:
        super().__init__()
        self.operators: set[Any] = set()

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """See `torch_private.SKIP_DYNAMO_HOOK`."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.operators.add(func)
        return func(*args, **(kwargs or {}))
