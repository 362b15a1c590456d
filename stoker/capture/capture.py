"""From a frame to replacement code: evaluate, break where needed, compile the graph, write the bytecode.

In:  a request (code, function, bound arguments) and a back end.
Out: a `Captured`: graph, guards and effects as three things one can print, and the replacement code.
"""

from __future__ import annotations

import contextlib
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import GraphModule, Node

from stoker import _C, torch_private
from stoker.bytecode import Code, Positions, assemble, build
from stoker.capture import builtins as _fills_the_tables  # noqa: F401
from stoker.capture.autograd_leaves import refuse_reachable_leaves, refuse_watched
from stoker.capture.calls import MAXIMUM_DEPTH
from stoker.capture.emit import Emitter
from stoker.capture.epilogue import leave_by_break, leave_by_raise, leave_by_return
from stoker.capture.evaluator import Evaluator, Request, Steps, Stop
from stoker.capture.leaf import refuse_shared_leaves
from stoker.capture.modes import calling_with_grad, keeping_modes, labelled, leave_modes, needs_grad, under_grad
from stoker.capture.place import MODULE_CALLS
from stoker.capture.policy import Policy
from stoker.capture.sizes import History
from stoker.capture.tidy import tidy
from stoker.capture.values.cached import refuse_shared
from stoker.capture.values.context import WholeScope
from stoker.capture.values.reference import refuse_called_back
from stoker.errors import BeginAnew, Break, BreakReason, CaptureBug, GraphBreakError, SkipFrame, StepBreak
from stoker.graph.modes import leave_scope
from stoker.guard.guard import Guard, NotSameAs, TypeAttributes
from stoker.guard.program import SizeRelations, compile_guards, slots_needed
from stoker.guard.source import Fixed, Source
from stoker.took import timed

GraphCompiler = Callable[[GraphModule, list[Any]], Callable[..., Any]]
MAXIMUM_RESTARTS = 3


@dataclass
class Captured:
    """One compiled version of a frame."""

    code: types.CodeType
    program: Any
    guards: list[Guard]
    graph: GraphModule | None
    effects: list[str]
    reason: BreakReason | None
    inlined: set[types.CodeType] = field(default_factory=set)
    breaks: bool = False  # does it run an instruction of the program in CPython?
    behind: dict[types.CodeType, History] = field(default_factory=dict)  # what varies in its resume functions


def capture(
    request: Request,
    compile_graph: GraphCompiler,
    *,
    policy: Policy,
    history: History,
    dynamic: bool | None = None,
    fullgraph: bool = False,
) -> Captured:
    """Capture one frame. Raises SkipFrame when CPython should run it as it is."""
    steps, restarts = Steps(), 0
    while restarts < MAXIMUM_RESTARTS:
        restarts += 1
        state, stop = _C.torch_state(), None
        machine = Evaluator(request, policy, history, dynamic, fullgraph)
        with contextlib.closing(machine), room_for_recursion(), _no_saved_tensors_hooks():
            try:
                with (
                    timed("capture"),
                    keeping_modes(machine.modes),
                    closing_scopes(machine),
                    torch_private.DisableTorchFunctionSubclass(),
                ):
                    stop = machine.evaluate(steps)
                return _finish(machine, stop, compile_graph, state)
            except BeginAnew:
                restarts -= 1
            except StepBreak as found:
                if fullgraph and not found.reason.is_end:
                    raise GraphBreakError(_reason(found.reason)) from found
                if steps.limit is not None and found.step < steps.limit:
                    restarts -= 1  # breaks that come earlier each time come to an end
                steps = Steps(found.step, found.reason)
            except Break as found:
                if fullgraph:
                    raise GraphBreakError(_reason(found)) from found
                if stop is not None and stop.step is not None:  # what it raises cannot be rebuilt: CPython raises it
                    steps = Steps(stop.step, found)
                    continue
                raise SkipFrame(f"what the break would leave cannot be rebuilt: {found}") from found
    raise CaptureBug(f"capture of {request.code.co_qualname} did not settle: {steps.reason}")


def _finish(m: Evaluator, stop: Stop, compile_graph: GraphCompiler, state: Any) -> Captured:
    try:
        return finish(m, stop, compile_graph, state)
    except RecursionError as error:
        raise SkipFrame("what is to be rebuilt is nested too deep") from error


def _same(tensor: torch.Tensor) -> torch.Tensor:
    """Fake tensors that autograd saves while capturing are no business of hooks that the user set."""
    return tensor


def _no_saved_tensors_hooks() -> contextlib.AbstractContextManager[Any]:
    active = torch_private.top_saved_tensors_hooks(False) is not None
    return saved_tensors_hooks(_same, _same) if active else contextlib.nullcontext()


@contextlib.contextmanager
def closing_scopes(m: Evaluator) -> Iterator[None]:
    """Leave the real scopes that evaluation entered and did not leave."""
    try:
        yield
    finally:
        for scope in reversed(m.modes.open_scopes):
            leave_scope(scope.scope)


@contextlib.contextmanager
def room_for_recursion() -> Iterator[None]:
    """A call of the program takes a dozen calls of the evaluator."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 20 * MAXIMUM_DEPTH)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)


def _reason(found: Break) -> BreakReason:
    return BreakReason(found.construct, found.reason, found.fix, found.location, found.line, found.inside)


def finish(m: Evaluator, stop: Stop, compile_graph: GraphCompiler, state: Any) -> Captured:
    """Graph to compiled function, values to bytecode, guards to a program."""
    refuse_called_back(m)
    e = Emitter(m)
    if m.modes.changes:
        leave_modes(m, m.modes, e)
    if stop.raised is not None:
        leave_by_raise(e, stop.raised)
    elif stop.instruction is None:
        assert stop.returned is not None
        leave_by_return(e, stop.returned)
    else:
        assert stop.reason is not None
        if (
            not stop.reason.is_end
            and not any(node.op != "placeholder" for node in m.record.graph.nodes)
            and not m.effects.mutated
            and not m.effects.deferred
            and not m.effects.first
        ):
            _refuse_empty(m, stop)
        for scope in m.modes.open_scopes:
            if isinstance(scope, WholeScope):
                assert stop.reason is not None
                scope.refuse(m, stop.reason)
        for scope in reversed(m.modes.open_scopes):
            scope.leave_graph(m)
        leave_by_break(e, m, stop.instruction)
    tail, e.code = e.code, []
    for function, args in m.effects.first:
        e.call_function(function, args)
        e.pop()
    if m.record.leaves:
        refuse_reachable_leaves(m, [node for _, node in e.outputs.values()])
    if m.record.watched:
        refuse_watched(m, [node for _, node in e.outputs.values()])
    if m.record.filled:
        refuse_shared_leaves(m, [node for _, node in e.outputs.values()])
    if m.record.kept:
        refuse_shared(m, [node for _, node in e.outputs.values()])
    graph_module = _call_graph(m, e, compile_graph, stop.instruction is not None)
    with timed("guards and bytecode"):
        guards = _all_guards(m)
        for source in slots_needed(guards):
            e.slot(source)
        relations = _size_relations(m, e, guards)
        code = _assemble(m, e, tidy(e.code + tail))
        try:
            program = compile_guards(guards, list(e.slots), relations, (state, 0))
        except OverflowError as error:
            raise SkipFrame("a condition between its numbers has one that 64 bits do not hold") from error
    effects = [value.describe() for value in m.effects.mutated.values()]
    reason = _reason(stop.reason) if stop.reason is not None and not stop.reason.is_end else None
    breaks = stop.instruction is not None
    return Captured(code, program, guards, graph_module, effects, reason, m.inlined, breaks, m.sizes.behind)


def _refuse_empty(m: Evaluator, stop: Stop) -> None:
    """A break before anything was captured: leave short frames, and calls of modules by torch's Python code, to CPython."""
    origin = m.root.program.origin
    if len(origin.instructions) <= 8 or m.request.code.co_filename == MODULE_CALLS:
        raise SkipFrame(f"nothing to capture before: {stop.reason}")


def _call_graph(m: Evaluator, e: Emitter, compile_graph: GraphCompiler, hook_stays_on: bool) -> GraphModule | None:
    """Close the graph, hand it to the back end, and write the call that fills the output names."""
    outputs = [node for _, node in e.outputs.values()]
    names = [name for name, _ in e.outputs.values()]
    if not any(node.op not in ("placeholder",) for node in m.record.graph.nodes):
        _pass_inputs_through(m, e, names, outputs)
        return None
    grad = needs_grad(m, m.modes)
    if grad:
        under_grad(m)
    m.record.graph.output(tuple(outputs))
    inputs = _used_inputs(m)
    graph_module = torch_private.graph_module(torch.nn.Module(), m.record.graph)
    graph_module.meta |= {"location": m.request.place.text, "began": m.request.began}
    examples = [_converted(m, node, real) for node, _, real in inputs]
    with torch.enable_grad() if grad else contextlib.nullcontext():
        compiled = compile_graph(graph_module, examples)
    if grad:
        compiled = calling_with_grad(compiled)
    if m.record.labels:
        compiled = labelled(compiled, tuple(m.record.labels))
    if hook_stays_on:
        compiled = _C.Disabled(compiled)
    e.code += build.call(build.load_const(compiled), *(_load_input(m, e, node, source) for node, source, _ in inputs))
    e.code += build.unpack_sequence(len(names)) if names else build.pop_top()
    for name in names:
        e.code += build.store_fast(name)
    return graph_module


def _pass_inputs_through(m: Evaluator, e: Emitter, names: list[str], outputs: list[Node]) -> None:
    """No operation was captured: an output can only be an input."""
    places = {id(node): source for node, source, _ in m.record.inputs}
    for name, node in zip(names, outputs):
        e.code += _load_input(m, e, node, places[id(node)]) + build.store_fast(name)


def _converted(m: Evaluator, node: Node, real: Any) -> Any:
    """What the graph receives for an object: itself, or the plain tensor that stands for it."""
    convert = m.record.conversions.get(node)
    return convert(real) if convert is not None else real


def _load_input(m: Evaluator, e: Emitter, node: Node, source: Source) -> Code:
    loaded, convert = _load(e, source), m.record.conversions.get(node)
    return build.call(build.load_const(convert), loaded) if convert is not None else loaded


def _load(e: Emitter, source: Source) -> Code:
    outer, e.code = e.code, []
    e.load_source(source)
    inner, e.code = e.code, outer
    return inner


def _used_inputs(m: Evaluator) -> list[tuple[Node, Source, Any]]:
    """Drop inputs that only their metadata was used of; arguments come first, in the order of the signature."""
    used = []
    for node, source, real in m.record.inputs:
        if node.users:
            used.append((node, source, real))
        else:
            m.record.graph.erase_node(node)
    used.sort(key=lambda entry: getattr(entry[1], "index", 1 << 30) if entry[1].base is None else 1 << 30)
    first = next(iter(m.record.graph.nodes))
    for node, _, _ in used:
        if node is first:
            first = first.next
        else:
            first.prepend(node)
    return used


_IMMUTABLE = 1 << 8
"""CPython's flag of classes whose attributes nobody can set: those made by C for good."""


def _all_guards(m: Evaluator) -> list[Guard]:
    guards = [Guard(None, None, description="torch's modes (grad, autocast, default dtype, ...) are as they were")]
    guards += m.guards.all.values()
    guards += m.sizes.float_guards()
    for cls, attributes in m.attributes.class_attributes.items():
        if cls in m.made_classes or cls.__flags__ & _IMMUTABLE:
            continue
        check = TypeAttributes(cls, (("__mro__", cls.__mro__), *attributes.items()))
        guards.append(Guard(Fixed(cls, cls.__qualname__), check))
    guards += _distinct(m)
    return guards


def _distinct(m: Evaluator) -> list[Guard]:
    """What was written through one source must not be what was read through another."""
    found: list[Guard] = []
    before: set[int] = set()
    for value in m.effects.mutated.values():
        before.add(id(value))
        if value.source is None or isinstance(value.source, Fixed):
            continue
        others = tuple(
            other.source
            for other, real in m.wrap.known.values()
            if id(other) not in before
            and other.source is not None
            and not isinstance(other.source, Fixed)
            and other.python_type() is value.python_type()
            and getattr(other, "owner", None) is getattr(value, "owner", None)
        )
        if others:
            found.append(Guard(value.source, NotSameAs(others)))
    return found


def _size_relations(m: Evaluator, e: Emitter, guards: list[Guard]) -> SizeRelations | None:
    if not m.env.symbols:
        return None
    order = {source: number for number, source in enumerate(e.slots)}

    def slot_of(source: Source) -> int:
        e.slot(source)
        return order.setdefault(source, len(order))

    return m.sizes.relations(slot_of, guards)


def _assemble(m: Evaluator, e: Emitter, body: Code) -> types.CodeType:
    original = m.request.code
    bound = original.co_varnames[: len(m.request.bound)]
    line = original.co_firstlineno
    for instruction in body:
        if instruction.positions is None:
            instruction.positions = Positions(line, line)
    code = assemble(
        body,
        name=original.co_name,
        argnames=(*bound, *e.slots.values()),
        freevars=original.co_freevars,
        filename=original.co_filename,
        firstlineno=line,
    )
    return code.replace(co_qualname=original.co_qualname)
