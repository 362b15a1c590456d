"""Operators with graphs inside: a branch, a loop, a scan.

In:  graphs, as captured, whose inputs are tensors and then sizes, and whose outputs are new contiguous tensors.
Out: `Cond`, `Loop` and `ScanLoop`: what a captured graph calls. On real tensors they are Python's own branch and loops; on fakes each is one
     operator, and its gradient another of the same kind, around graphs that differentiate the ones inside.

An operator names its graphs by a key (`Key`). The back end compiles them and leaves what it made in `Nested.compiled`; until then
an operator runs them as captured.

Requirements, held by tests/differential/test_control_flow.py:
  1. A graph inside writes to none of its inputs, and no output shares memory with an input or another output.
  2. What is carried from step to step keeps its shape and dtype.
"""

from __future__ import annotations

import itertools
import weakref
from collections import UserList
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph, GraphModule

from stoker import _C, torch_private
from stoker.fake import FakeStorage, FakeTensor
from stoker.fake.meta import Meta, meta_of
from stoker.fake.rule import IMPURE
from stoker.fake.tensor import data_dependent, make_fake
from stoker.graph.modes import read_modes, set_modes
from stoker.shape.symnode import symint

Tensors = Sequence[torch.Tensor]
Inside = Callable[..., Sequence[torch.Tensor]]

_library = torch.library.Library("stoker", "FRAGMENT")
_SCHEMAS = {
    "cond": "Tensor predicate, Tensor[] operands, SymInt[] sizes, str key",
    "loop": "Tensor[] carried, Tensor[] operands, SymInt[] sizes, str key",
    "loop_keeping": "Tensor[] carried, Tensor[] operands, SymInt[] sizes, str key",
    "scan": "Tensor[] carried, Tensor[] sequences, Tensor[] operands, SymInt[] sizes, bool backwards, str key",
}
for _name, _schema in _SCHEMAS.items():
    _library.define(f"{_name}({_schema}) -> Tensor[]")
    _library.define(f"{_name}_drawing({_schema}) -> Tensor[]", tags=(torch.Tag.nondeterministic_seeded,))

_ALIVE: weakref.WeakValueDictionary[str, _Graphs] = weakref.WeakValueDictionary()
_numbers = itertools.count()


@dataclass(slots=True, eq=False)
class Nested:
    """One graph inside an operator."""

    graph: Inside
    compiled: Inside | None = None

    def __call__(self, *inputs: Any) -> Sequence[torch.Tensor]:
        if self.compiled is not None:
            return self.compiled(*inputs)
        with torch.no_grad(), torch_private.above_autograd():
            return self.graph(*inputs)


@dataclass(frozen=True, slots=True, eq=False)
class UnderModes:
    """A graph that was captured under modes of torch (autocast, the default dtype), which it is run under wherever that is. Whether
    grad is on is its caller's business. Casts are not remembered: a trace would leave its own behind."""

    graph: GraphModule
    modes: list[Any]

    @staticmethod
    def of(graph: GraphModule) -> Inside:
        """The graph, as it is to be run if it was captured under the present modes."""
        plain = not any(torch.is_autocast_enabled(device) for device in ("cpu", "cuda"))
        return graph if plain and torch.get_default_dtype() is torch.float32 else UnderModes(graph, read_modes())

    @property
    def meta(self) -> dict[str, Any]:
        return self.graph.meta

    def __call__(self, *inputs: Any) -> Sequence[torch.Tensor]:
        found, grad = read_modes(), torch.is_grad_enabled()
        try:
            set_modes(self.modes)
            torch.set_autocast_cache_enabled(False)
            with torch.set_grad_enabled(grad):
                return self.graph(*inputs)  # type: ignore[no-any-return]  # of a graph
        finally:
            set_modes(found)


class _Graphs(UserList[Nested]):
    """The graphs of one operator; unlike a tuple, something to refer to weakly."""

    metas: Sequence[Meta]
    """Of the results of the first, as it was last called on fakes."""


class Key(str):
    """The name of an operator's graphs, which keeps them alive."""

    graphs: _Graphs

    @staticmethod
    def of(*graphs: Callable[..., Any]) -> Key:
        name = f"nested {next(_numbers)}"
        key = Key(name)
        key.graphs = _ALIVE[name] = _Graphs(Nested(graph) for graph in graphs)
        return key


def kept_alive(value: Any) -> Any:
    """An argument of an operator as a graph should hold it: a key that came through the dispatcher is plain text."""
    if type(value) is str and (graphs := _ALIVE.get(value)) is not None:
        value = Key(value)
        value.graphs = graphs
    return value


class _Operator:
    """What the three have in common: they are called by a graph, under a name of their own."""

    __name__: str

    def __init__(self, *graphs: Callable[..., Any]) -> None:
        self.key = Key.of(*graphs)
        self.__qualname__ = self.__name__
        self.__module__ = __name__


class Cond(_Operator):
    """The first graph if the predicate holds, else the second."""

    __name__ = "cond"

    def __call__(self, predicate: torch.Tensor, operands: Tensors, sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
        if isinstance(predicate, FakeTensor):
            return tuple(_Cond.apply(self.key, tuple(sizes), predicate, *operands))
        return tuple(self.key.graphs[0 if predicate else 1].graph(*operands, *sizes))


class Loop(_Operator):
    """While the first graph gives true: the second, of what is carried."""

    __name__ = "while_loop"

    def __call__(self, carried: Tensors, operands: Tensors, sizes: Sequence[int]) -> tuple[torch.Tensor, ...]:
        if any(isinstance(t, FakeTensor) for t in carried):
            tensors = (*carried, *operands)
            step = Key.of(self.key.graphs[1].graph)
            how = _Scanned(step, len(carried), 0, tuple(sizes), False, _is_differentiated(tensors))
            return how.apply(_Loop, self.key, *tensors)
        condition, body = (nested.graph for nested in self.key.graphs)
        return tuple(_looped(condition, body, carried, (*operands, *sizes)))


class ScanLoop(_Operator):
    """The graph of what is carried and of one element of each sequence after the other: what is carried last, and its other results."""

    __name__ = "scan"

    def __call__(
        self, carried: Tensors, sequences: Tensors, operands: Tensors, sizes: Sequence[int], backwards: bool
    ) -> tuple[torch.Tensor, ...]:
        if any(isinstance(t, FakeTensor) for t in sequences):
            tensors = (*carried, *sequences, *operands)
            differentiated = _is_differentiated(tensors)
            how = _Scanned(self.key, len(carried), len(sequences), tuple(sizes), backwards, differentiated)
            return how.apply(_Scan, *tensors)
        step = self.key.graphs[0].graph
        return tuple(_scanned(step, carried, sequences, (*operands, *sizes), backwards))


def _operator(name: str, key: str) -> Any:
    """The operator for a key. One whose graphs draw random numbers says so."""
    return getattr(torch.ops.stoker, f"{name}_drawing" if draws_inside(key) else name).default


def draws_inside(key: str) -> bool:
    """Does a graph of the operator draw random numbers? Capture has found out."""
    return any(isinstance(n.graph, (GraphModule, UnderModes)) and n.graph.meta.get("draws") for n in _ALIVE[key])


# What runs.


def _cond(predicate: torch.Tensor, operands: Tensors, sizes: Sequence[int], key: str) -> list[torch.Tensor]:
    return list(_ALIVE[key][0 if predicate else 1](*operands, *sizes))


def _loop(carried: Tensors, operands: Tensors, sizes: Sequence[int], key: str) -> list[torch.Tensor]:
    condition, body = _ALIVE[key]
    return _looped(condition, body, carried, (*operands, *sizes))


def _loop_keeping(carried: Tensors, operands: Tensors, sizes: Sequence[int], key: str) -> list[torch.Tensor]:
    """A loop, and what was carried into each of its steps."""
    condition, body = _ALIVE[key]
    found, rest = carried, (*operands, *sizes)
    steps: list[Tensors] = []
    while condition(*found, *rest)[0]:
        steps.append(found)
        found = body(*found, *rest)
    kept = [torch.stack(rows) for rows in zip(*steps)] if steps else [t.new_empty((0, *t.shape)) for t in carried]
    return [*(found if steps else (t.clone() for t in found)), *kept]


def _looped(condition: Callable[..., Any], body: Callable[..., Any], carried: Tensors, rest: Any) -> list[torch.Tensor]:
    found = carried
    while condition(*found, *rest)[0]:
        found = body(*found, *rest)
    return [t.clone() for t in found] if found is carried else list(found)


def _scan(
    carried: Tensors, sequences: Tensors, operands: Tensors, sizes: Sequence[int], backwards: bool, key: str
) -> list[torch.Tensor]:
    return _scanned(_ALIVE[key][0], carried, sequences, (*operands, *sizes), backwards)


def _scanned(
    step: Callable[..., Any], carried: Tensors, sequences: Tensors, rest: Any, backwards: bool
) -> list[torch.Tensor]:
    count = sequences[0].shape[0]
    found: list[Any] = [None] * count
    for index in reversed(range(count)) if backwards else range(count):
        results = step(*carried, *(s[index] for s in sequences), *rest)
        carried, found[index] = results[: len(carried)], results[len(carried) :]
    if not count:
        shapes = step(*carried, *(s.new_zeros(s.shape[1:]) for s in sequences), *rest)[len(carried) :]
        return [*(t.clone() for t in carried), *(row.new_empty((0, *row.shape)) for row in shapes)]
    return [*carried, *(torch.stack(parts) for parts in zip(*found))]


for _name, _kernel in (("cond", _cond), ("loop", _loop), ("loop_keeping", _loop_keeping), ("scan", _scan)):
    for _suffix in ("", "_drawing"):
        _library.impl(_name + _suffix, _kernel, "CompositeExplicitAutograd")


# What is known without running.


def _fresh(mode: Any, metas: Sequence[Meta]) -> list[FakeTensor]:
    return [make_fake(meta_of(m.dtype, m.sizes, None, m.device), FakeStorage(mode)) for m in metas]


def _foretell(key: Key, mode: Any, inputs: Sequence[Any]) -> None:
    """Find out the metadata of a graph's results: it is run on fakes of its own. (Not by the operator's rule: what differentiates
    the graph cannot do so below autograd.)"""
    fakes = [make_fake(t.meta, FakeStorage(mode)) if isinstance(t, FakeTensor) else t for t in inputs]
    with mode, torch.no_grad():
        key.graphs.metas = [mode.as_fake(t).meta for t in key.graphs[0].graph(*fakes)]


def inputs_of(operator: Any, args: Sequence[Any]) -> list[list[Any]]:
    """For each graph of an operator what it is given, as fakes."""
    if operator in _CONDS:
        _, operands, sizes, key = args
        given = [*operands, *sizes]
    elif operator in _LOOPS or operator in _KEEPING:
        carried, operands, sizes, key = args
        given = [*_dense(carried), *operands, *sizes]
    else:
        carried, sequences, operands, sizes, _, key = args
        given = [*_dense(carried), *(_element(s) for s in sequences), *operands, *sizes]
    return [given] * len(_ALIVE[key])


def _dense(fakes: Sequence[FakeTensor]) -> list[FakeTensor]:
    return _fresh(fakes[0].memory.mode, [f.meta for f in fakes]) if fakes else []


def _element(sequence: FakeTensor) -> FakeTensor:
    m = sequence.meta
    return make_fake(meta_of(m.dtype, m.sizes[1:], m.strides[1:], m.device), FakeStorage(sequence.memory.mode))


def _cond_rule(mode: Any, func: Any, predicate: Any, operands: Any, sizes: Any, key: str) -> list[FakeTensor]:
    return _fresh(mode, _ALIVE[key].metas)


def _loop_rule(mode: Any, func: Any, carried: Any, operands: Any, sizes: Any, key: str) -> list[FakeTensor]:
    return _fresh(mode, [mode.as_fake(t).meta for t in carried])


def _keeping_rule(mode: Any, func: Any, carried: Any, operands: Any, sizes: Any, key: str) -> list[FakeTensor]:
    if mode.shape_env is None:
        raise data_dependent(str(func))
    mode.told_by_data += 1
    count = symint(mode.shape_env, mode.shape_env.new_unbacked())
    metas = [mode.as_fake(t).meta for t in carried]
    return _fresh(mode, [*metas, *(meta_of(m.dtype, (count, *m.sizes), None, m.device) for m in metas)])


def _scan_rule(
    mode: Any, func: Any, carried: Any, sequences: Any, operands: Any, sizes: Any, backwards: bool, key: str
) -> list[FakeTensor]:
    metas, count, length = _ALIVE[key].metas, len(carried), mode.as_fake(sequences[0]).meta.sizes[0]
    rows = [meta_of(m.dtype, (length, *m.sizes), None, m.device) for m in metas[count:]]
    return _fresh(mode, [*metas[:count], *rows])


_CONDS, _LOOPS, _KEEPING, _SCANS = (
    tuple(getattr(torch.ops.stoker, f"{name}{suffix}").default for suffix in ("", "_drawing")) for name in _SCHEMAS
)
OPERATORS = frozenset((*_CONDS, *_LOOPS, *_KEEPING, *_SCANS))
for _forms, _rule in zip((_CONDS, _LOOPS, _KEEPING, _SCANS), (_cond_rule, _loop_rule, _keeping_rule, _scan_rule)):
    IMPURE.update(dict.fromkeys(_forms, _rule))


def runner(operator: Any, args: Sequence[Any]) -> Callable[..., Any]:
    """What runs an operator's compiled graphs without Python in between; of its arguments, those in groups are given when it is
    called, one after the other."""
    first, *others = [nested.compiled or nested for nested in args[-1].graphs]
    if operator in _CONDS:
        return _C.Branch(first, others[0])
    if operator in _LOOPS:
        return _C.Loop(first, others[0], len(args[0]))
    if operator in _KEEPING:  # its results have sizes that only data tells: it is never a step of a plan
        raise TypeError(f"{operator} runs by itself")
    return _C.Scan(first, len(args[0]), len(args[1]), args[4])


# Gradients.


@dataclass(frozen=True, slots=True)
class Gradient:
    """From a graph's inputs and gradients of its results to gradients of some of the inputs; the graph is run again."""

    graph: Callable[..., Any]
    wanted: tuple[bool, ...]
    """For each tensor among the inputs."""
    came: tuple[bool, ...]
    """For each result."""
    __name__ = "gradient"

    def __call__(self, operands: Tensors, gradients: Tensors, sizes: Sequence[int]) -> list[torch.Tensor]:
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            leaves = [_leaf(t, want, again) for t, want in zip(operands, self.wanted)]
            results = [r for r, came in zip(self.graph(*leaves, *sizes), self.came) if came]
            known = [(r, g) for r, g in zip(results, gradients) if r.requires_grad]
            asked = tuple(t for t, want in zip(leaves, self.wanted) if want)
            with torch.autograd.set_multithreading_enabled(False), torch.set_grad_enabled(again):
                found = torch_private.run_backward(
                    tuple(r for r, _ in known), tuple(g for _, g in known), asked, keep_graph=again, create_graph=again
                )
        made = (torch.zeros_like(t) if g is None else g for t, g in zip(asked, found))
        return [gradient.clone(memory_format=torch.contiguous_format) for gradient in made]


def _leaf(tensor: torch.Tensor, wanted: bool, again: bool) -> torch.Tensor:
    """A tensor to differentiate by: one of its own, or, if it will be differentiated again, a name of what it is."""
    if tensor.requires_grad and again:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_(wanted)


def _differentiable(tensors: Tensors) -> tuple[bool, ...]:
    return tuple(t.dtype.is_floating_point or t.dtype.is_complex for t in tensors)


def _mark_others(ctx: Any, results: Tensors) -> None:
    ctx.mark_non_differentiable(*(t for t, is_one in zip(results, _differentiable(results)) if not is_one))
    ctx.came = _differentiable(results)


class _Cond(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, key: Key, sizes: Any, predicate: torch.Tensor, *operands: torch.Tensor) -> Any:
        ctx.key, ctx.sizes = key, sizes
        ctx.save_for_backward(predicate, *operands)
        _foretell(key, predicate.memory.mode, (*operands, *sizes))  # type: ignore[attr-defined]  # a FakeTensor
        results = tuple(_operator("cond", key)(predicate, operands, sizes, key))
        _mark_others(ctx, results)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        _refuse_drawing(ctx.key)
        predicate, *operands = ctx.saved_tensors
        wanted = tuple(ctx.needs_input_grad[3:])
        given = [g for g, came in zip(gradients, ctx.came) if came]
        way_back = [Gradient(nested.graph, wanted, ctx.came) for nested in ctx.key.graphs]
        key = Key.of(*(_called(gradient, (len(operands), len(given)), len(ctx.sizes)) for gradient in way_back))
        found = iter(_Cond.apply(key, ctx.sizes, predicate, *operands, *given))
        return None, None, None, *(next(found) if want else None for want in wanted)


@dataclass(frozen=True, slots=True)
class _Scanned:
    """What is not a tensor of a scan."""

    key: Key
    carried: int
    sequences: int
    sizes: tuple[int, ...]
    backwards: bool
    differentiated: bool
    """Then each step gives back what was carried into it, too, as further results."""

    @property
    def step(self) -> Callable[..., Any]:
        graph = self.key.graphs[0].graph
        return _Keeping(graph, self.carried) if self.differentiated else graph

    def apply(self, function: Any, *given: Any) -> tuple[torch.Tensor, ...]:
        """The results of a function of autograd, without what it keeps."""
        results = tuple(function.apply(self, *given))
        return results[: len(results) - self.carried] if self.differentiated else results

    def split(self, tensors: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        first, second = self.carried, self.carried + self.sequences
        return tensors[:first], tensors[first:second], tensors[second:]


def _is_differentiated(tensors: Tensors) -> bool:
    return torch.is_grad_enabled() and any(t.requires_grad for t in tensors)


class _Scan(torch.autograd.Function):
    """A scan. For its gradient it keeps what was carried into each step; among its results, so that gradients of gradients pass."""

    @staticmethod
    def forward(ctx: Any, how: _Scanned, *tensors: torch.Tensor) -> Any:
        carried, sequences, operands = how.split(tensors)
        key = Key.of(how.step)
        mode = sequences[0].memory.mode
        _foretell(key, mode, [*_dense(carried), *(_element(s) for s in sequences), *operands, *how.sizes])
        results = tuple(_operator("scan", how.key)(carried, sequences, operands, how.sizes, how.backwards, key))
        _keep(ctx, how, (*sequences, *operands), results)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, *_steps_back(ctx, gradients, ctx.needs_input_grad[1:])


class _Loop(torch.autograd.Function):
    """A loop. Where a gradient may be asked for, it keeps what was carried into each step; the way back is that of a scan."""

    @staticmethod
    def forward(ctx: Any, how: _Scanned, key: Key, *tensors: torch.Tensor) -> Any:
        carried, _, operands = how.split(tensors)
        name = "loop_keeping" if how.differentiated else "loop"
        results = tuple(_operator(name, key)(carried, operands, how.sizes, key))
        _keep(ctx, how, operands, results)
        return results

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> Any:
        return None, None, *_steps_back(ctx, gradients, ctx.needs_input_grad[2:])


def _keep(ctx: Any, how: _Scanned, inputs: Tensors, results: Tensors) -> None:
    """Keep what `_steps_back` reads."""
    ctx.how = how
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*inputs, *(results[len(results) - how.carried :] if how.differentiated else ()))
    ctx.mark_non_differentiable(*(t for t, is_one in zip(results, _differentiable(results)) if not is_one))


def _steps_back(ctx: Any, gradients: Sequence[torch.Tensor | None], wanted: Sequence[bool]) -> Any:
    """The gradients of what a scan or a loop was given: a scan in the other direction."""
    how = ctx.how
    _refuse_drawing(how.key)
    saved = ctx.saved_tensors
    sequences, kept = saved[: how.sequences], saved[len(saved) - how.carried :]
    operands = saved[how.sequences : len(saved) - how.carried]
    differentiable = tuple(_differentiable([*kept, *sequences, *operands]))
    of_carried, of_sequences, of_operands = how.split(
        [d and (i < how.carried or want) for i, (d, want) in enumerate(zip(differentiable, wanted))]
    )
    last = [t.new_zeros(t.shape[1:]) if g is None else g for t, g in zip(kept, gradients)]
    came = (*of_carried, *(g is not None for g in gradients[how.carried :]))
    step = _StepBack(how.step, how, tuple(of_carried), tuple(of_sequences), tuple(of_operands), came)
    coming = [g for g, is_one in zip((*last, *gradients[how.carried :]), came) if is_one and g is not None]
    count = sum(of_carried)
    sums = [torch.zeros_like(t, memory_format=torch.contiguous_format) for t, w in zip(operands, of_operands) if w]
    first = (t.contiguous() for t in coming[:count])
    rows = (t.contiguous() for t in (*kept, *sequences, *coming[count:]))
    tensors = (*first, *sums, *rows, *operands)
    length = how.carried + how.sequences + len(coming) - count
    back = _Scanned(Key.of(step), count + len(sums), length, how.sizes, not how.backwards, _is_differentiated(tensors))
    found = iter(back.apply(_Scan, *tensors))
    starts = [next(found) if want else None for want in of_carried]
    totals = [next(found) if want else None for want in of_operands]
    return *starts, *(next(found) if want else None for want in of_sequences), *totals


@dataclass(frozen=True, slots=True)
class _Keeping:
    """A step that gives back what was carried into it, too."""

    graph: Callable[..., Any]
    carried: int

    def __call__(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        return (*self.graph(*inputs), *(t.clone() for t in inputs[: self.carried]))


@dataclass(frozen=True, slots=True)
class _StepBack:
    """A step of a scan's way back: carried are the gradients of what was carried, and sums of those of the operands."""

    graph: Callable[..., Any]
    how: _Scanned
    of_carried: tuple[bool, ...]
    of_sequences: tuple[bool, ...]
    of_operands: tuple[bool, ...]
    came: tuple[bool, ...]

    def __call__(self, *inputs: Any) -> tuple[torch.Tensor, ...]:
        how, count, sums = self.how, sum(self.of_carried), sum(self.of_operands)
        coming, totals, rest = inputs[:count], inputs[count : count + sums], inputs[count + sums :]
        element, rest = rest[: how.carried + how.sequences], rest[how.carried + how.sequences :]
        rows = sum(self.came) - count
        gradients, rest = rest[:rows], rest[rows:]
        end = len(rest) - len(how.sizes)
        gradient = Gradient(self.graph, (*self.of_carried, *self.of_sequences, *self.of_operands), self.came)
        found = gradient((*element, *rest[:end]), (*coming, *gradients), rest[end:])
        rows = count + sum(self.of_sequences)
        added = [total + new for total, new in zip(totals, found[rows:])]
        return (*found[:count], *added, *found[count:rows])


def _refuse_drawing(key: Key) -> None:
    if draws_inside(key):
        raise RuntimeError("a branch or loop that draws random numbers cannot be run again for its gradient")


def _called(gradient: Gradient, counts: tuple[int, int], sizes: int) -> Callable[..., Any]:
    """A gradient as a function of a flat list of inputs."""
    operands, total = counts[0], sum(counts)

    def call(*inputs: Any) -> Any:
        return gradient(inputs[:operands], inputs[operands:total], inputs[total:])

    return call


def as_graph(nested: Nested, inputs: Sequence[Any]) -> GraphModule:
    """A graph that calls what is inside an operator; `inputs` are fakes, or sizes."""
    if isinstance(nested.graph, GraphModule):
        for node, value in zip((n for n in nested.graph.graph.nodes if n.op == "placeholder"), inputs, strict=True):
            node.meta["example_value"] = value
        return nested.graph
    graph = Graph()
    given = [graph.placeholder(f"input_{index}") for index in range(len(inputs))]
    for node, value in zip(given, inputs):
        node.meta["example_value"] = value
    function = nested.graph

    def inside(*values: Any) -> Any:
        return function(*values)

    graph.output(graph.call_function(inside, tuple(given)))
    return torch_private.graph_module(torch.nn.Module(), graph)
