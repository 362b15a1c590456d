"""One functional graph that computes a program's results and, from gradients of those, the gradients of its inputs.

In:  a captured graph, and fake inputs (`stoker.autograd.inputs`).
Out: `Joint`: the graph, which results it has, what becomes of them after a call, and the gradients.

The program runs on fake tensors under autograd; then the engine runs backward on them. Both are written down by one
`Trace`.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Graph, GraphModule, Node

from stoker import torch_private
from stoker.autograd.alias import Alias, views_of
from stoker.autograd.histories import Histories, computed_from, histories, saved_memories
from stoker.autograd.inputs import Entry, Inputs
from stoker.autograd.interpret import run_captured
from stoker.autograd.inverse import PHYSICAL
from stoker.autograd.meeting import meets_itself
from stoker.autograd.outcome import ConstantResult, Given, GraphResult, MadeLeaf, Move, Outcome, Rebuilt, Step, Write
from stoker.autograd.overlap import refuse_written_overlap
from stoker.autograd.refusal import CannotTrace, raised_by_program
from stoker.autograd.standing import refuse_other_standing, standings
from stoker.autograd.trace import Decompositions, Trace
from stoker.fake import DataDependent, FakeStorage, FakeTensor, NoMetaRule
from stoker.fake.history import is_spent, leaves_behind
from stoker.fake.matmul import taken_apart
from stoker.fake.meta import meta_of, same
from stoker.fake.tensor import make_fake
from stoker.shape.contiguity import asks_for_unit_stride

Strides = Mapping[int, Sequence[int]]
"""Of the gradients of results, by the position of the result."""

_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)


@dataclass(frozen=True)
class Joint:
    """The whole program. `results` are nodes; `tangents` has a placeholder, or None, for each; `gradients` one for
    each input."""

    graph: Graph
    constants: dict[str, torch.Tensor]
    inputs: tuple[Node, ...]
    results: tuple[Node, ...]
    tangents: tuple[Node | None, ...]
    gradients: tuple[Node | None, ...]
    outcomes: tuple[Outcome, ...]
    writes: tuple[Write, ...]
    moves: tuple[Move, ...]
    detached: tuple[int, ...]
    """The inputs that `detach_` took out of autograd."""
    anchored: tuple[tuple[int, int], ...] = ()
    """Inputs, and where in their memory they must begin."""
    inference: bool = False
    """Are the results tensors of inference mode, which the program turned on itself?"""
    histories: Histories = ()
    """Sets of tangents that are used up together."""
    saved: frozenset[int] = frozenset()
    """The inputs that eager saves for the backward: to write to others before it is no error."""
    switched: tuple[int, ...] = ()
    """The inputs, leaves of autograd, whose `requires_grad` the program changed."""
    rebound: tuple[tuple[int, int], ...] = ()
    """Inputs that are given other memory, and the positions of the results that it holds."""
    spent: frozenset[int] = frozenset()
    """The results whose history a backward inside the program used up: they require a gradient that nobody can compute."""
    beneath: Histories = ()
    """For each tangent, those of the results that its own is computed from."""

    @property
    def differentiable(self) -> bool:
        return any(t is not None for t in self.tangents)


def trace_joint(
    captured: GraphModule,
    inputs: Inputs,
    decompositions: Decompositions | None,
    *,
    grad: bool,
    strides: Strides | None = None,
    only: frozenset[int] | None = None,
) -> Joint:
    """Trace a captured program forward and, where something requires a gradient, backward.

    `strides` are those of the gradient of a result, by its position; others are laid out as the result is. With `only`, the
    results at these positions get gradients, others none.
    """
    trace = Trace(inputs.mode, decompositions)
    with contextlib.closing(trace.aliases):
        return _traced(trace, captured, inputs, grad, strides or {}, only)


def _traced(
    trace: Trace, captured: GraphModule, inputs: Inputs, grad: bool, strides: Strides, only: frozenset[int] | None
) -> Joint:
    trace.differentiates = any(leaf is not None for leaf in inputs.leaves)
    nodes = tuple(
        trace.input(name, value, index) for index, (name, value) in enumerate(zip(inputs.names, inputs.values))
    )
    before = [(v.grad_fn, v._version) if isinstance(v, FakeTensor) else (None, 0) for v in inputs.values]
    with torch.set_grad_enabled(grad), taken_apart(inputs.mode.shape_env), trace:
        outputs = run_captured(captured, inputs.values, trace)
    stood = standings(outputs)
    _refuse_lost_history([*inputs.values, *outputs])
    with inputs.mode:
        spent = {id(t) for t in outputs if isinstance(t, FakeTensor) and t.requires_grad and is_spent(t)}
    _refuse_retained([value for value in (*inputs.values, *outputs) if id(value) not in spent])
    refuse_written_overlap(inputs.examples, inputs.written(trace.aliases), inputs.placed(trace.aliases))
    detached = _changed(inputs, leaves=False)
    given = [n.meta["val"] for n in trace.graph.nodes if n.op in ("placeholder", "get_attr")]
    results = _Results(trace, frozenset(v.memory for v in given if isinstance(v, FakeTensor)))
    with torch.no_grad(), trace:
        writes = _writes(trace, inputs, before, results)
        outcomes = tuple(_outcomes(trace, inputs, outputs, results))
        moves = _moves(trace, inputs)
        rebound = _rebound(trace, inputs, outputs, results)
    _refuse_views_of(outcomes, {w.index for w in writes if w.moved}, "written and moved")
    _refuse_views_of(outcomes, set(detached), "detached")
    refuse_other_standing(inputs, trace.aliases, outputs, outcomes, stood, grad=grad)
    wanted = [
        (p, t)
        for p, t in enumerate(results.tensors)
        if t is not None and t.requires_grad and (only is None or p in only) and id(t) not in spent
    ]
    _refuse_leaves_in_use(inputs, outputs, [t for _, t in wanted])
    _refuse_new_leaves(inputs, [t for _, t in wanted])
    _refuse_converted(inputs, [t for _, t in wanted])
    with inputs.mode:  # outside of it, torch's way to a tensor subclass's operators loads SymPy
        shared = histories([t for _, t in wanted])
        saved = saved_memories([t for _, t in wanted])
        beneath = computed_from([t for _, t in wanted])
    tangents, gradients = _backward(trace, inputs, results, wanted, strides)
    anchored, switched = inputs.anchored(trace.aliases), _changed(inputs, leaves=True)
    kept = frozenset(i for i, memory in enumerate(inputs.memories) if memory in saved)
    used_up = frozenset(p for p, t in enumerate(results.tensors) if t is not None and id(t) in spent)
    return Joint(
        trace.graph, trace.constants, nodes, tuple(results.nodes), tangents, gradients, outcomes, writes, moves,
        detached, anchored, _of_inference(results), shared, kept, switched, rebound, used_up, beneath,
    )  # fmt: skip


def _of_inference(results: _Results) -> bool:
    """Are the results made in inference mode? All are, or none."""
    found = {t.is_inference() for t in results.tensors if t is not None}
    if len(found) > 1:
        raise CannotTrace("some outputs are made in inference mode, others not")
    return found == {True}


@dataclass
class _Results:
    """The graph's results so far, each with the fake tensor that autograd knows it by."""

    trace: Trace
    given: frozenset[FakeStorage]
    """The memory of inputs and constants."""
    nodes: list[Node] = field(default_factory=list)
    asked: list[Node] = field(default_factory=list)
    tensors: list[FakeTensor | None] = field(default_factory=list)
    taken: set[FakeStorage] = field(default_factory=set)
    """The memory of results so far."""

    def add(self, node: Node, tensor: FakeTensor | None) -> int:
        """A result's position. One that would share memory with an input or another result is copied, and lies as it lay: values
        are separate."""
        for position, known in enumerate(self.tensors):
            if known is tensor and self.asked[position] is node:
                return position
        self.asked.append(node)
        if isinstance(node.meta["val"], FakeTensor):
            if not self.taken.isdisjoint(_memories(node)) or not self.given.isdisjoint(_memories(node)):
                lies = node.meta["val"].meta.strides
                node = self.trace.emit(torch.ops.aten.clone.default, node)
                if not same(node.meta["val"].meta.strides, lies):
                    raise CannotTrace("a result with gaps or overlaps shares memory with another value of the graph")
            self.taken |= _memories(node)
        self.nodes.append(node)
        self.tensors.append(tensor)
        return len(self.nodes) - 1

    def read(self, node: Node) -> int:
        """The position of a result that is only read, when an input is written: it may share memory with those given away. Inputs are
        written one after the other, so what lies in one is copied."""
        if not self.given.isdisjoint(_memories(node)):
            node = self.trace.emit(torch.ops.aten.clone.default, node)
        self.asked.append(node)
        self.nodes.append(node)
        self.tensors.append(None)
        return len(self.nodes) - 1

    def size(self, value: Any) -> Any:
        """A symbolic size that the caller needs."""
        node = self.trace.sizes.node(value)
        return GraphResult(self.add(node, None)) if isinstance(node, Node) else node


def _memories(node: Node) -> set[FakeStorage]:
    """Where a result lies: where the program has it, and where the graph does, which may look at another tensor of the same content
    (after `t.copy_(x)`, views of t are views of x)."""
    found = {node.meta["val"].memory}
    while node.target is operator.getitem or (
        isinstance(node.target, torch_private.OpOverload)
        and any(r.alias_info is not None for r in torch_private.schema_of(node.target).returns)
    ):
        node = node.args[0]  # type: ignore[assignment]  # what a view is of
        if isinstance(node.meta["val"], FakeTensor):
            found.add(node.meta["val"].memory)
    return found


def _writes(trace: Trace, inputs: Inputs, before: list[tuple[Any, int]], results: _Results) -> tuple[Write, ...]:
    """`before` are the autograd nodes and the versions of the inputs as they came."""
    found = []
    for index, fake in enumerate(inputs.values):
        memory = inputs.memories[index]
        storage = None if memory is None else trace.aliases.storage(memory)
        if storage is None or not storage.version or storage.input != index:
            continue
        if meets_itself(storage.entry.meta):
            raise CannotTrace("an input of which several elements are one in memory is written")
        node_before, version_before = before[index]
        seen_by_autograd = fake.requires_grad and fake.grad_fn is not node_before
        moved = seen_by_autograd and trace.aliases.alias(fake) is not storage.entry
        node = trace.read(fake) if moved else trace.aliases.content(storage.entry)
        position = results.add(node, fake) if seen_by_autograd else results.read(node)
        found.append(Write(index, position, seen_by_autograd, moved, fake._version - version_before))
    return tuple(found)


def _outcomes(trace: Trace, inputs: Inputs, outputs: Sequence[Any], results: _Results) -> list[Outcome]:
    shared: dict[int, set[int]] = {}
    for value in outputs:
        if isinstance(value, FakeTensor):
            trace.read(value)
            shared.setdefault(id(trace.aliases.alias(value).storage), set()).add(id(value))
    return [_outcome(trace, inputs, value, shared, results) for value in outputs]


def _refuse_retained(values: Sequence[Any]) -> None:
    """The gradient of a tensor in the middle of a program is no result of its backward."""
    if any(isinstance(value, FakeTensor) and value.retains_grad for value in values):
        raise CannotTrace("a tensor retains its gradient")


def _refuse_lost_history(values: Sequence[Any]) -> None:
    """A piece of `chunk` or `unbind` whose memory was written since has no autograd node that can be asked for."""
    for value in values:
        try:
            value.grad_fn if isinstance(value, FakeTensor) else None  # noqa: B018
        except RuntimeError as error:
            raise CannotTrace(f"an output has no history: {error}") from error


def _outcome(trace: Trace, inputs: Inputs, value: Any, shared: dict[int, set[int]], results: _Results) -> Outcome:
    if isinstance(value, _SYMBOLIC):
        found = results.size(value)
        return found if isinstance(found, GraphResult) else ConstantResult(found)
    if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor):
        raise CannotTrace("a constant tensor is an output")
    if not isinstance(value, FakeTensor):
        return ConstantResult(value)
    if (index := inputs.index_of(value)) is not None:
        return Given(index)
    if _is_made_leaf(value):
        return MadeLeaf(results.add(trace.read(value), None))
    alias = trace.aliases.alias(value)
    storage = alias.storage
    is_shared = storage.input is not None or len(shared[id(storage)]) > 1
    if is_shared and value.requires_grad and value.memory in trace.aliases.given:
        raise CannotTrace("an output shares memory that was given by `.data = ...`, and is differentiated")
    if storage.input is not None:
        _refuse_parts(inputs.examples[storage.input : storage.input + 1], alias)
        return Rebuilt(Given(storage.input), _steps(alias, results))
    if len(shared[id(storage)]) == 1:
        return GraphResult(results.add(trace.read(value), value))
    if value.requires_grad and not storage.tensor.requires_grad:
        raise CannotTrace("outputs share memory whose owner requires no gradient")
    base = GraphResult(results.add(trace.aliases.content(storage.entry), storage.tensor))
    return Rebuilt(base, _steps(alias, results)) if alias is not storage.entry else base


def _refuse_parts(example: Sequence[torch.Tensor], alias: Alias) -> None:
    """torch shows no real numbers in the memory of a tensor that is conjugated when it is read; its parts are negated then."""
    if any(e.is_conj() for e in example) and torch.ops.aten.view_as_real.default in [
        v.operator for v in views_of(alias)
    ]:
        raise CannotTrace("an output is a part of a conjugated input")


def _is_made_leaf(value: FakeTensor) -> bool:
    return value.requires_grad and value.is_leaf and not torch_private.is_view(value)


def _refuse_leaves_in_use(inputs: Inputs, outputs: Sequence[Any], wanted: Sequence[FakeTensor]) -> None:
    """A leaf that the program made and gives back gets gradients of what it computed inside alone."""
    made = {id(v) for v in outputs if isinstance(v, FakeTensor) and _is_made_leaf(v) and inputs.index_of(v) is None}
    if made and any(id(leaf) in made for result in wanted for leaf in leaves_behind(result)):
        raise CannotTrace("an output is a leaf that the program made, and another needs its gradient")


def _steps(alias: Alias, results: _Results) -> tuple[Step, ...]:
    """The views from the tensor that a storage was met by to one of its names."""
    steps: list[Step] = []
    views = views_of(alias)
    if any(view.operator in PHYSICAL for view in views[:-1]):
        raise CannotTrace("an output is a view of a conjugated or negated one")
    for view in views:
        args = tuple(_with_sizes(a, results) for a in view.args)
        kwargs = {k: _with_sizes(v, results) for k, v in view.kwargs.items()}
        steps.append(Step(view.operator, args, kwargs, view.index, view.grad))
    return tuple(steps)


def _with_sizes(value: Any, results: _Results) -> Any:
    if isinstance(value, _SYMBOLIC):
        return results.size(value)
    if isinstance(value, (list, tuple)):
        return tuple(_with_sizes(v, results) for v in value)
    return value


def _refuse_views_of(outcomes: Sequence[Outcome], indices: set[int], how: str) -> None:
    if any(isinstance(o, Rebuilt) and isinstance(o.source, Given) and o.source.index in indices for o in outcomes):
        raise CannotTrace(f"an output is a view of an input that is {how}")


def _changed(inputs: Inputs, *, leaves: bool) -> tuple[int, ...]:
    """The leaves among the inputs that require a gradient from here on, or require none any longer; or the inputs that
    were none, which `detach_` took out of autograd."""
    pairs = enumerate(zip(inputs.values, inputs.entries))
    return tuple(i for i, (v, entry) in pairs if _requires_other(v, entry) and entry.is_leaf is leaves)


def _requires_other(value: Any, entry: Entry) -> bool:
    return isinstance(value, FakeTensor) and value.requires_grad != entry.requires_grad and value.is_leaf


def _refuse_new_leaves(inputs: Inputs, wanted: Sequence[FakeTensor]) -> None:
    """The backward has gradients for what required one at the start."""
    values = zip(inputs.values, inputs.leaves)
    new = {id(v) for v, leaf in values if isinstance(v, FakeTensor) and v.requires_grad and v.is_leaf and leaf is None}
    if new and any(id(leaf) in new for result in wanted for leaf in leaves_behind(result)):
        raise CannotTrace("requires_grad of an input is changed, and a result needs its gradient")


def _refuse_converted(inputs: Inputs, wanted: Sequence[FakeTensor]) -> None:
    """A leaf that `.data = ...` gives another type has another end in autograd from then on: eager's gradient arrives there."""
    pairs = [
        (v, e.meta) for v, e in zip(inputs.values, inputs.entries) if isinstance(v, FakeTensor) and e.meta is not None
    ]
    other = {id(v) for v, meta in pairs if v.requires_grad and (v.dtype, v.device) != (meta.dtype, meta.device)}
    if other and any(id(leaf) in other for result in wanted for leaf in leaves_behind(result)):
        raise CannotTrace("an input is given another type by `.data = ...`, and a result needs its gradient")


def _rebound(trace: Trace, inputs: Inputs, outputs: Sequence[Any], results: _Results) -> tuple[tuple[int, int], ...]:
    """The inputs that were given other memory (`x.data = ...`), and the result that it holds."""
    found = []
    for index, (value, memory) in enumerate(zip(inputs.values, inputs.memories)):
        if isinstance(value, FakeTensor) and value.memory is not memory:
            others = (v for v in (*inputs.values, *outputs) if isinstance(v, FakeTensor) and v is not value)
            if any(v.memory is value.memory for v in others) or value.memory in inputs.memories:
                raise CannotTrace("an input is given the memory of another tensor")
            found.append((index, results.add(trace.read(value), None)))
    return tuple(found)


def _moves(trace: Trace, inputs: Inputs) -> tuple[Move, ...]:
    moves = []
    for index, fake in enumerate(inputs.values):
        if not isinstance(fake, FakeTensor) or fake.memory is not inputs.memories[index]:
            continue
        place = trace.aliases.alias(fake)
        if place is not place.storage.entry and fake.memory in trace.aliases.given:
            raise CannotTrace("an input is given another part of its own memory by `.data = ...`")
        for view in views_of(place):
            moves.append(Move(index, _in_place(view.operator), view.args, view.kwargs, view.grad))
    return tuple(moves)


def _in_place(view: Any) -> Any:
    packet = getattr(torch.ops.aten, torch_private.schema_of(view).name.removeprefix("aten::") + "_")
    overload = torch_private.overload_name(view)
    return packet.default if overload in ("default", "int") else getattr(packet, overload)


def _backward(
    trace: Trace, inputs: Inputs, results: _Results, wanted: list[tuple[int, FakeTensor]], strides: Strides
) -> tuple[tuple[Node | None, ...], tuple[Node | None, ...]]:
    sources = [(i, leaf) for i, leaf in enumerate(inputs.leaves) if leaf is not None]
    tangents: list[Node | None] = [None] * len(results.nodes)
    gradients: list[Node | None] = [None] * len(inputs.values)
    if not wanted or not sources:
        return tuple(tangents), tuple(gradients)
    trace.phase = "backward"
    fakes = []
    for position, tensor in wanted:
        fakes.append(_tangent(trace, tensor, strides.get(position)))
        tangents[position] = trace.input(f"tangent_{position}", fakes[-1])
    before = trace.aliases.versions()
    alone = torch.autograd.set_multithreading_enabled(False)
    with alone, torch.no_grad(), autocast_off(), _strides_guessed(trace), trace:
        found = _run_backward(tuple(t for _, t in wanted), tuple(fakes), tuple(leaf for _, leaf in sources))
        for (index, _), gradient in zip(sources, found):
            gradients[index] = None if gradient is None else trace.read(gradient)
    if _written_since(trace, before):
        raise CannotTrace("its backward writes to what the program was given, made or kept")
    return tuple(tangents), tuple(gradients)


def _strides_guessed(trace: Trace) -> contextlib.AbstractContextManager[Any]:
    """Formulas of gradients ask how an operand lies, to lay its gradient out alike: of a matrix with at most one row, either way is."""
    env = trace.mode.shape_env
    return contextlib.nullcontext() if env is None else env.guessing(asks_for_unit_stride)


def _written_since(trace: Trace, before: Mapping[FakeStorage, int]) -> bool:
    """Was memory written that others see: what was there, or a tensor from outside?"""
    seen = {*before, *(trace.mode.as_fake(constant).memory for constant in trace.constants.values())}
    return any(v != before.get(memory, 0) for memory, v in trace.aliases.versions().items() if memory in seen)


def _run_backward(results: Any, tangents: Any, leaves: Any) -> tuple[torch.Tensor | None, ...]:
    """The engine on fakes. A program whose backward eager refuses, or whose own functions raise there, may still run forward: it is left
    as captured. So is one that divides sizes by zero, as the variance of one element does: in C++ that is no error."""
    try:
        return torch_private.run_backward(results, tangents, leaves, keep_graph=True)
    except (DataDependent, NoMetaRule):
        raise
    except Exception as error:
        if not isinstance(error, (RuntimeError, ZeroDivisionError)) and not raised_by_program(error):
            raise
        raise CannotTrace(f"its backward raises {type(error).__name__}: {error}") from error


def autocast_off() -> contextlib.ExitStack:
    """The backward runs in the types that the forward chose, whatever autocast says where it is traced."""
    stack = contextlib.ExitStack()
    for device in ("cpu", "cuda"):
        if torch.is_autocast_enabled(device):
            stack.enter_context(torch.autocast(device, enabled=False))
    return stack


def _tangent(trace: Trace, tensor: FakeTensor, strides: Sequence[int] | None) -> FakeTensor:
    """A gradient for a result: laid out as it is, unless its elements share memory."""
    m = tensor.meta
    if strides is None and not any(type(t) is int and t == 0 for t in m.strides):
        strides = m.strides
    return make_fake(meta_of(m.dtype, m.sizes, strides, m.device), FakeStorage(trace.mode))
