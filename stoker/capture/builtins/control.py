"""Control flow on data: `torch.cond`, `while_loop`, `scan`, `map` and `associative_scan`, each one operator with graphs inside.

In:  functions of the program and nested tensors.
Out: nested tensors. What the functions do besides computing tensors is a break (`stoker.capture.subgraph`).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stoker import torch_private
from stoker.capture import subgraph
from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import scanning
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.errors import Break
from stoker.graph.nested import Cond, Loop, ScanLoop

FALSE = Constant(False)


@handles(torch.cond)
def cond(m: Machine, pred: Value, true_fn: Value, false_fn: Value, operands: Value | None = None) -> Value:
    """With a predicate that is known, the branch itself."""
    pred = m.wrap.force(pred)
    given = operands.items_list(m) if operands is not None else []
    if not isinstance(pred, TensorValue):
        return (true_fn if pred.truth(m) else false_fn).call(m, given, {})
    if not _kinds(m, given) <= {torch.Tensor}:
        raise Break("torch.cond", "its operands hold something that is no tensor")
    if pred.fake.numel() != 1:
        raise Break("torch.cond", f"{pred.describe()} has more than one element")
    branches = [
        subgraph.capture_branch(m, "torch.cond", function, given, as_they_lie=True) for function in (true_fn, false_fn)
    ]
    first, second = branches
    if not subgraph.same_structure(m, first.returned, second.returned):
        raise Break("torch.cond", "its branches return different structures, or different plain values")
    if first.orders != second.orders:
        raise Break("torch.cond", "its branches return tensors that lie in memory in different orders")
    _refuse_other_tensors("torch.cond", "one branch", first.tensors, second.tensors)
    closed = subgraph.close(m, branches)
    results = subgraph.call(m, Cond(*closed.inside), [pred.node], closed)
    laid = (subgraph.back_in_order(m, result, order) for result, order in zip(results, first.orders, strict=True))
    return subgraph.rebuilt(m, first.returned, laid)


@handles(torch_private.call_of_cond)
def cond_operator(m: Machine, operator: Value, pred: Value, true_fn: Value, false_fn: Value, operands: Value) -> Value:
    return cond(m, pred, true_fn, false_fn, operands)


@handles(torch_private.call_of_while_loop)
def while_loop_operator(m: Machine, operator: Value, cond_fn: Value, body_fn: Value, *groups: Value) -> Value:
    return while_loop(m, cond_fn, body_fn, *groups)


@handles(torch_private.call_of_map)
def map_operator(m: Machine, operator: Value, function: Value, xs: Value, others: Value) -> Value:
    return m.wrap.object(scanning.flat_map).call(m, [function, xs, others], {})


@handles(torch_private.call_of_region)
def nested_region(m: Machine, function: Value, *args: Value, **kwargs: Value) -> Value:
    """A region that the user asks to compile once is entered as others are: kernels of one text are shared anyway."""
    return function.call(m, list(args), kwargs)


@handles(torch_private.call_of_wrap)
def wrap(m: Machine, operator: Value, function: Value, *args: Value, **kwargs: Value) -> Value:
    return function.call(m, list(args), kwargs)


@handles(torch_private.while_loop)
def while_loop(m: Machine, cond_fn: Value, body_fn: Value, carried_inputs: Value, *more: Value) -> Value:
    kinds = _kinds(m, [carried_inputs])
    if not kinds <= {torch.Tensor, int}:
        raise Break("while_loop", "it carries something that is neither a tensor nor an integer")
    if int in kinds:
        others = TupleValue([v for group in more for v in group.items_list(m)])
        return m.wrap.object(scanning.counting).call(
            m, [cond_fn, body_fn, TupleValue(carried_inputs.items_list(m)), others], {}
        )
    ordered = _in_order_of_memory(m, cond_fn, body_fn, carried_inputs.items_list(m), more)
    if ordered is not None:
        return ordered
    carried = _contiguous(m, carried_inputs, "while_loop")
    tensors = subgraph.tensors_of(m, "while_loop", carried)
    given = [subgraph.stand_in(m, t) for t in tensors]
    inside = _like(m, carried, given).items_list(m) + [v for group in more for v in group.items_list(m)]
    condition = subgraph.capture_branch(m, "while_loop", cond_fn, inside)
    if len(condition.tensors) != 1 or condition.tensors[0].fake.numel() != 1:
        raise Break("while_loop", "its condition is not one element of a tensor")
    body = subgraph.capture_branch(m, "while_loop", body_fn, inside)
    _refuse_other_structure(m, "while_loop", carried, body.returned)
    _refuse_other_tensors("while_loop", "what is carried", given, body.tensors)
    closed = subgraph.close(m, [condition, body], given)
    results = subgraph.call(m, Loop(*closed.inside), [tuple(t.node for t in tensors)], closed)
    return subgraph.rebuilt(m, body.returned, iter(results))


def _in_order_of_memory(
    m: Machine, cond_fn: Value, body_fn: Value, carried: list[Value], more: Sequence[Value]
) -> Value | None:
    """A loop over tensors that lie densely, and not in the plain order; None if there is none."""
    tensors = [m.wrap.force(v) for v in carried]
    orders = [subgraph.order_of(t) if isinstance(t, TensorValue) else None for t in tensors]
    if all(order is None for order in orders):
        return None
    backs = [None if order is None else subgraph.inverse(order) for order in orders]
    others = TupleValue([v for group in more for v in group.items_list(m)])
    given = [cond_fn, body_fn, TupleValue(tensors), others, Constant(tuple(orders)), Constant(tuple(backs))]
    return m.wrap.object(scanning.laid_out).call(m, given, {})


@handles(torch_private.scan)
def scan(
    m: Machine,
    combine_fn: Value,
    init: Value,
    xs: Value,
    *,
    dim: Value = Constant(0),  # noqa: B008
    reverse: Value = FALSE,
) -> Value:
    carried = _contiguous(m, init, "scan")
    place = m.concrete.integer(dim)
    sequences = _contiguous(m, _moved(m, xs, place), "scan")
    starts, rows = subgraph.tensors_of(m, "scan", carried), subgraph.tensors_of(m, "scan", sequences)
    if not rows or any(row.fake.dim() == 0 for row in rows):
        raise Break("scan", "it is given no sequence")
    given = [*(subgraph.stand_in(m, t) for t in starts), *(subgraph.stand_in(m, t, element=True) for t in rows)]
    inside = [_like(m, carried, given[: len(starts)]), _like(m, sequences, given[len(starts) :])]
    step = subgraph.capture_branch(m, "scan", combine_fn, inside)
    parts = step.returned.items_list(m)
    if len(parts) != 2:
        raise Break("scan", "its function does not return what is carried and a result")
    _refuse_other_structure(m, "scan", carried, parts[0])
    _refuse_other_tensors("scan", "what is carried", given[: len(starts)], step.tensors[: len(starts)])
    closed = subgraph.close(m, [step], given)
    groups = [tuple(t.node for t in starts), tuple(t.node for t in rows)]
    results = iter(subgraph.call(m, ScanLoop(*closed.inside), groups, closed, reverse.truth(m)))
    last = subgraph.rebuilt(m, parts[0], results)
    made = subgraph.rebuilt(m, parts[1], results)
    return TupleValue([last, subgraph.replaced(m, "scan", made, lambda t: _back(m, t, place))])


@handles(torch_private.map_)
def map_(m: Machine, f: Value, xs: Value, *args: Value) -> Value:
    rows = subgraph.tensors_of(m, "map", xs)
    if not rows:
        raise Break("map", "it is given no sequence")
    return m.wrap.object(scanning.mapped).call(m, [f, xs, *args], {})


@handles(torch_private.associative_scan)
def associative_scan(
    m: Machine,
    combine_fn: Value,
    xs: Value,
    dim: Value,
    reverse: Value = FALSE,
    combine_mode: Value = Constant("pointwise"),  # noqa: B008
) -> Value:
    """A scan of torch where the function is one it knows; in a few steps over all elements where it works on each alone."""
    place = m.concrete.integer(dim)
    sequences = _moved(m, xs, place)
    if reverse.truth(m):
        sequences = _flipped(m, sequences)
    rows = subgraph.tensors_of(m, "associative_scan", sequences)
    given = [subgraph.stand_in(m, t, element=True) for t in (*rows, *rows)]
    halves = [_like(m, sequences, given[: len(rows)]), _like(m, sequences, given[len(rows) :])]
    combined = subgraph.capture_branch(m, "associative_scan", combine_fn, halves)
    _refuse_other_structure(m, "associative_scan", sequences, combined.returned)
    _refuse_other_tensors("associative_scan", "an element", given[: len(rows)], combined.tensors)
    closed = subgraph.close(m, [combined], given)
    found = _scanned(m, combine_fn, sequences, rows, closed)
    if reverse.truth(m):
        found = _flipped(m, found)
    return subgraph.replaced(m, "associative_scan", found, lambda t: _back(m, t, place))


def _scanned(
    m: Machine, combine_fn: Value, sequences: Value, rows: Sequence[TensorValue], closed: subgraph.Closed
) -> Value:
    """The scan over the first dimension."""
    known = KNOWN.get(_only_operation(closed)) if len(rows) == 1 else None
    if known is not None:
        return subgraph.replaced(m, "associative_scan", sequences, lambda t: known(m, t))
    length = rows[0].fake.shape[0]
    if closed.graphs[0].meta["pointwise"] and isinstance(length, int):
        together: Value = sequences
        for distance in (1 << n for n in range((length - 1).bit_length())):
            together = _doubled(m, combine_fn, together, distance)
        return together
    return m.wrap.object(scanning.one_by_one).call(m, [combine_fn, *_first_and_rest(m, sequences)], {})


def _first_and_rest(m: Machine, sequences: Value) -> list[Value]:
    first = subgraph.replaced(m, "associative_scan", sequences, lambda t: t.item(m, Constant(0)))
    rest = subgraph.replaced(m, "associative_scan", sequences, lambda t: _part(m, t, 1, None))
    return [first, rest]


def _doubled(m: Machine, combine_fn: Value, sequences: Value, distance: int) -> Value:
    """Each element combined with the one `distance` before it."""
    what = "associative_scan"
    before = subgraph.replaced(m, what, sequences, lambda t: _part(m, t, None, -distance))
    after = subgraph.replaced(m, what, sequences, lambda t: _part(m, t, distance, None))
    made = iter(subgraph.tensors_of(m, what, combine_fn.call(m, [before, after], {})))
    start = lambda t: _part(m, t, None, distance)  # noqa: E731
    return subgraph.replaced(
        m, what, sequences, lambda t: m.record.call(torch.cat, [ListValue([start(t), next(made)])], {})
    )


def _part(m: Machine, tensor: TensorValue, start: int | None, stop: int | None) -> Value:
    return tensor.item(m, m.operators.slice(Constant(start), Constant(stop), Constant(None)))


def _only_operation(closed: subgraph.Closed) -> Any:
    """The function of a graph that is one call of it on its two inputs; None otherwise."""
    nodes = list(closed.graphs[0].graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder"]
    calls = [n for n in nodes if n.op.startswith("call_")]
    whole = len(calls) == 1 and not calls[0].kwargs and set(calls[0].args) == set(inputs) and len(inputs) == 2
    return calls[0].target if whole else None


def _running(function: Callable[..., Any], part: int | None = None) -> Callable[[Machine, TensorValue], Value]:
    def run(m: Machine, tensor: TensorValue) -> Value:
        found = m.record.call(function, [tensor, Constant(0)], {})
        return found if part is None else found.items_list(m)[part]

    return run


KNOWN: dict[Any, Callable[[Machine, TensorValue], Value]] = {
    **dict.fromkeys((operator.add, torch.add, "add", "__add__"), _running(torch.cumsum)),
    **dict.fromkeys((operator.mul, torch.mul, "mul", "__mul__"), _running(torch.cumprod)),
    **dict.fromkeys((torch.maximum, torch.max, "maximum"), _running(torch.cummax, 0)),
    **dict.fromkeys((torch.minimum, torch.min, "minimum"), _running(torch.cummin, 0)),
    **dict.fromkeys((torch.logaddexp, "logaddexp"), _running(torch.logcumsumexp)),
}
"""Functions of two tensors whose scan torch has, as a graph names them."""


def _kinds(m: Machine, values: Sequence[Value]) -> set[type]:
    """The types of what nested containers hold; tensors of any class count as such."""
    found: set[type] = set()
    for value in map(m.wrap.force, values):
        if isinstance(value, DictValue):
            found |= _kinds(m, [inside for _, inside in value.pairs(m)])
        elif isinstance(value, (ListValue, TupleValue)):
            found |= _kinds(m, value.items_list(m))
        else:
            found.add(torch.Tensor if isinstance(value, TensorValue) else value.python_type())
    return found


def _like(m: Machine, value: Value, tensors: Sequence[TensorValue]) -> Value:
    """The same structure of other tensors."""
    left = iter(tensors)
    return subgraph.replaced(m, "", value, lambda _: next(left))


def _contiguous(m: Machine, value: Value, what: str) -> Value:
    return subgraph.replaced(m, what, value, lambda t: m.record.method(t, "contiguous", [], {}))


def _moved(m: Machine, value: Value, dim: int) -> Value:
    """With the dimension first."""
    move = lambda t: m.record.method(t, "movedim", [Constant(dim), Constant(0)], {})  # noqa: E731
    return value if dim == 0 else subgraph.replaced(m, "a scan", value, move)


def _back(m: Machine, tensor: TensorValue, dim: int) -> Value:
    if dim == 0 or dim >= tensor.fake.dim():
        return tensor
    return m.record.method(tensor, "movedim", [Constant(0), Constant(dim)], {})


def _flipped(m: Machine, value: Value) -> Value:
    flip = lambda t: m.record.method(t, "flip", [TupleValue([Constant(0)])], {})  # noqa: E731
    return subgraph.replaced(m, "a scan", value, flip)


def _refuse_other_structure(m: Machine, what: str, carried: Value, made: Value) -> None:
    """What one step gives is what the next is given: the same containers, the same plain values."""
    pair = [TupleValue(v.items_list(m)) if isinstance(v, (ListValue, TupleValue)) else v for v in (carried, made)]
    if not subgraph.same_structure(m, *pair):
        raise Break(what, "its function returns another structure, or other plain values, than it is given")


def _refuse_other_tensors(what: str, of: str, first: Sequence[TensorValue], second: Sequence[TensorValue]) -> None:
    """Tensors that stand for each other have the same sizes and dtypes."""
    facts = [[(t.fake.dtype, t.fake.device, *t.fake.shape) for t in group] for group in (first, second)]
    if facts[0] != facts[1]:
        raise Break(what, f"a function that it was given returns tensors of other sizes or dtypes than {of}")
