"""From a functional ATen graph to a lowered program.

In:  an fx graph whose nodes have fake tensors in meta["val"].
Out: a `Program`: loops and library calls. An operator without a lowering, or whose lowering declines, is a library call.
"""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule
from torch.fx import Node as GraphNode

from stoker import torch_private
from stoker.autograd.functional import run_on_copies
from stoker.decompose.types import is_refused
from stoker.fake import FakeTensor
from stoker.graph.dedupe import dedupe
from stoker.graph.facts import KEPT, LITERAL, device_of, fake_of, homes_of
from stoker.graph.nested import OPERATORS
from stoker.graph.prune import prune
from stoker.graph.raising import raises_by_data
from stoker.loop.handler import ops
from stoker.loop.layout import Layout, Sizes, is_dense
from stoker.loop.node import Program, SymbolSource
from stoker.loop.target import LOOP_DTYPES, Targets
from stoker.loop.view import Computed, NumberNeeded, Scalar, Stored, Tensor
from stoker.lower import (  # noqa: F401  (they fill the table)
    activation,
    channels,
    compound,
    conv,
    draw,
    extern,
    index,
    loss,
    matmul,
    moments,
    move,
    nonlinear,
    pad,
    pointwise,
    rearrange,
    reduce,
    resize,
    scan,
    scatter,
    search,
    unfold,
    view,
    window,
)
from stoker.lower.builder import Builder
from stoker.lower.extern import BIAS, BIASED, EXACT
from stoker.lower.registry import CALLS, LOWERINGS, CannotLower, LeftToLibrary, Result, Usage, find
from stoker.lower.whole import computed_whole
from stoker.passes.place import COPIES, is_number
from stoker.passes.simplify import VIEWS
from stoker.shape.expr import Expr, Symbol, constant
from stoker.shape.symnode import expr_of, size_of
from stoker.shape.walk import free_symbols


def result_of(value: Any, targets: Targets) -> Any:
    """The metadata of a node's value, in expressions."""
    if isinstance(value, FakeTensor):
        meta = value.meta
        if meta.device.type not in targets:
            raise CannotLower(f"a tensor is on {meta.device}, and kernels are made for {', '.join(targets)}")
        return Result(meta.dtype, meta.device, _expressed(meta.sizes), _expressed(meta.strides))
    if isinstance(value, (list, tuple)):
        return [result_of(v, targets) for v in value]
    return None


def _expressed(values: Iterable[Any]) -> Sizes:
    """Sizes or strides as expressions."""
    given = tuple(values)
    return _numbers(given) if all(type(v) is int for v in given) else tuple(map(size_of, given))


@functools.lru_cache(maxsize=1 << 14)
def _numbers(values: tuple[int, ...]) -> Sizes:
    """Remembered: a graph has many tensors of few sizes and strides."""
    return tuple(map(constant, values))


def lower_graph(module: GraphModule, targets: Targets, *, inference: bool = False, wide: bool = False) -> Program:
    """Lower each node that is needed, in order; one that repeats another is that other."""
    needed, same = prune(module.graph), dedupe(module.graph)
    lowering = _Lowering(module, targets, free_layout=inference, wide=wide)
    for node in module.graph.nodes:
        if node in same and same[node] in lowering.values and node.target is not run_on_copies:
            lowering.values[node] = lowering.values[same[node]]
        elif node in needed:
            lowering.visit(node)
    return lowering.builder.program


class _Lowering:
    """The state of one graph: what each of its nodes became."""

    def __init__(self, module: GraphModule, targets: Targets, *, free_layout: bool, wide: bool) -> None:
        self.module, self.targets = module, targets
        self.builder = Builder(targets, free_layout, wide)
        self.memory: dict[str, Any] = {}
        """For inputs, constants and outputs so far: the memory that eager has them in."""
        self.values: dict[GraphNode, Any] = {}
        self.given: set[Any] = set()
        """The memory of inputs and constants."""
        self.whole = computed_whole(module.graph)

    def visit(self, node: GraphNode) -> None:
        match node.op:
            case "placeholder":
                self.values[node] = self.placeholder(node)
            case "get_attr":
                self.values[node] = self.constant(node)
            case "call_function":
                self.values[node] = self.settle(node, self.call(node))
            case "output":
                self.finish(node.args[0])
            case _:
                raise CannotLower(f"a {node.op} node ({node})")

    def placeholder(self, node: GraphNode) -> Any:
        program, value = self.builder.program, node.meta["val"]
        position = len(program.inputs)
        if isinstance(value, FakeTensor):
            name = f"input{position}"
            program.inputs.append(name)
            stored = self.outside(name, value)
            for dimension, size in enumerate(value.meta.sizes):
                self.know(size, SymbolSource(position, dimension))
            for dimension, stride in enumerate(value.meta.strides):
                self.know(stride, SymbolSource(position, dimension, stride=True))
            return stored
        if not isinstance(value, (int, float, bool, torch.SymInt, torch.SymFloat)) and node.users:
            raise CannotLower(f"an input is a {type(value).__name__}, which plans do not take")
        if isinstance(value, torch.SymFloat):
            program.inputs.append(f"input{position}")
            layout = Layout(torch.float64, node.meta.get("device", torch.device("cpu")), (), (), False)
            program.layouts[f"input{position}"] = layout
            return Scalar(f"input{position}", layout.dtype, layout.device, (), ())
        program.inputs.append(None)
        self.know(value, SymbolSource(position, None))
        return size_of(value) if isinstance(value, torch.SymInt) else value

    def know(self, size: Any, source: SymbolSource) -> None:
        if isinstance(size, torch.SymInt):
            # as it was named, and as it is since it was found equal to another
            for expr in (expr_of(size), size_of(size)):
                if isinstance(expr, Symbol):
                    self.builder.program.symbols.setdefault(expr, source)

    def outside(self, name: str, value: FakeTensor) -> Stored:
        """A tensor that comes from outside the program: its pointer is at its first element."""
        result = result_of(value, self.targets)
        self.memory[name] = value.memory
        self.given.add(value.memory)
        self.builder.program.layouts[name] = replace(result, flexible=False)
        return Stored(name, result.dtype, result.device, result.sizes, result.strides)

    def constant(self, node: GraphNode) -> Tensor:
        """A tensor of the graph; one number that is in the program's text is a number in loops as well."""
        tensor: Any = self.module
        for part in str(node.target).split("."):
            tensor = getattr(tensor, part)
        if node.meta.get(LITERAL) and not tensor.dim() and tensor.dtype in LOOP_DTYPES:
            value, result = tensor.item(), result_of(node.meta["val"], self.targets)
            return self.builder.compute(result, lambda index: ops.constant(value, result.dtype), cost=0)
        name = f"constant{len(self.builder.program.constants)}"
        self.builder.program.constants[name] = tensor
        return self.outside(name, node.meta["val"])

    def call(self, node: GraphNode) -> Any:
        value, target = node.meta.get("val"), node.target
        if isinstance(value, torch.SymInt):
            return size_of(value)
        if isinstance(value, (int, float, bool, torch.SymFloat, torch.SymBool)):
            if isinstance(value, (torch.SymFloat, torch.SymBool)):
                raise CannotLower(f"{node} is a number that depends on sizes and is not an integer")
            return value
        arguments: Any = torch.fx.node.map_arg(node.args, self.values.__getitem__)
        if target is operator.getitem:
            return arguments[0][arguments[1]]
        keywords = torch.fx.node.map_arg(node.kwargs, self.values.__getitem__)
        return self.lowered(node, target, _plain(arguments), _plain(keywords), result_of(value, self.targets))

    def lowered(self, node: GraphNode, target: Any, arguments: Any, keywords: Any, out: Any) -> Any:
        """By its lowering if it has one that takes these arguments, else a library call."""
        builder = self.builder
        read = {user.args[1] for user in node.users if user.target is operator.getitem and user.users}
        builder.usage = Usage(
            target,
            torch.fx.node.map_arg(node.args, lambda n: n.meta["val"]),
            all(u.target in LOWERINGS and u.target not in CALLS for u in node.users),
            _is_returned(node),
            frozenset(range(len(out))) - read if isinstance(out, list) else frozenset(),
            frozenset(n for n, given in enumerate(node.args) if self._is_outside(given)),
        )
        origin = builder.usage.origin
        function = LOWERINGS.get(target)
        if function is not None and out is not None:
            try:
                if is_refused(target, arguments):
                    raise LeftToLibrary("there is no kernel for this type: the library raises the right error")
                result = function(builder, out, *arguments, **keywords)
                builder.program.lowered.append(origin)
                return result
            except (LeftToLibrary, NumberNeeded) as declined:
                builder.program.declined.append((origin, declined.reason))
        else:
            builder.program.declined.append((origin, extern.reason(target)))
        if target is run_on_copies:
            return builder.call(target, [self._as_in_eager(a) for a in arguments], keywords, out)
        if not isinstance(target, torch_private.OpOverload):
            raise CannotLower(f"{target} is not an ATen operator")
        if node.target in EXACT or node.target in OPERATORS:
            arguments = [self._laid_out(a, n) for a, n in zip(arguments, node.args)]
        if node.target in BIASED and builder.free_layout and isinstance(arguments[BIAS], Computed):
            arguments[BIAS] = builder.store_once(arguments[BIAS])
        shares = any(r.alias_info is not None for r in torch_private.schema_of(target).returns)
        return builder.call(target, arguments, keywords, out, aliases=shares)

    def _is_outside(self, given: Any) -> bool:
        """Does an argument lie in memory that the program does not make?"""
        value = given.meta.get("val") if isinstance(given, GraphNode) else None
        return isinstance(value, FakeTensor) and value.memory in self.given

    def _laid_out(self, value: Any, given: Any) -> Any:
        """An argument with eager's own strides, for an operator whose kernels refuse others."""
        if isinstance(value, list):
            return [self._laid_out(v, g) for v, g in zip(value, given)]
        fake = given.meta["val"] if isinstance(given, GraphNode) else None
        if not isinstance(value, (Stored, Computed)) or not isinstance(fake, FakeTensor):
            return value
        wanted = result_of(fake, self.targets)
        repeats = any(s.value == 0 and n.value != 1 for n, s in zip(wanted.sizes, wanted.strides))
        if isinstance(value, Computed) and repeats:
            return self.builder.store_once(value)
        same = all(s is t or n.value == 1 for n, s, t in zip(wanted.sizes, value.strides, wanted.strides))
        return value if same else self._with_strides(value, wanted)

    def _as_in_eager(self, value: Any) -> Any:
        """An argument of an operator that we know nothing of: it may depend on how a tensor lies in memory."""
        if not isinstance(value, Computed) or is_dense(value.sizes, value.strides):
            return value
        return self._with_strides(value, Result(value.dtype, value.device, value.sizes, value.strides))

    def settle(self, node: GraphNode, value: Any) -> Any:
        """Store what is too costly to compute at each use, or too large, or may refuse elements that nobody reads; and numbers of the
        processor that kernels of another device take by value, each in memory of its own."""
        if isinstance(value, (Stored, Computed)) and _is_handed_over(node):
            if value.offset.value == 0 if isinstance(value, Stored) else not value.reads:
                return value
            return self.builder.copy(value, result_of(node.meta["val"], self.targets))
        if not isinstance(value, Computed):
            return value
        if node.meta.get(KEPT) or (raises_by_data(node) and node not in self.whole):
            return self.builder.store(value)
        target = self.builder.target(value.device)
        large = value.cost > target.largest_cost or len(value.reads) > target.largest_reads
        costly = value.cost > target.inline_cost or len(value.reads) > target.inline_reads
        again = len(node.users) > 1 or (target.stores_numbers and _is_spread(node, value))
        if large or (again and costly and (value.reads or _has_several(value))):
            return self.builder.store(value)
        return value

    def finish(self, outputs: Any) -> None:
        program = self.builder.program
        for output in outputs:
            value = self.values[output] if isinstance(output, GraphNode) else output
            if isinstance(value, (Stored, Computed)):
                value = self.output(value, output.meta["val"])
            program.outputs.append(value)
        given_back = Counter(o.buffer for o in program.outputs if isinstance(o, Stored))
        once = {buffer for buffer, times in given_back.items() if times == 1} - {*program.inputs, *program.constants}
        for position, given in homes_of(self.module.graph).items():
            result, name = program.outputs[position], program.inputs[given]
            if isinstance(result, Stored) and name is not None and result.buffer in once and self._fits(result, name):
                program.homes[result.buffer] = name
        needed = set().union(*(free_symbols(e) for e in _expressions(program)))
        missing = needed - set(program.symbols)
        if missing:
            raise CannotLower(f"no input tells the sizes {sorted(str(m) for m in missing)}")

    def _fits(self, result: Stored, name: str) -> bool:
        """Is a result the whole of its buffer, which looks as an input does?"""
        layouts = self.builder.program.layouts
        mine, given = layouts[result.buffer], layouts[name]
        if (mine.dtype, mine.device, mine.sizes) != (given.dtype, given.device, given.sizes):
            return False
        same = all(s is t or n.value == 1 for n, s, t in zip(mine.sizes, mine.strides, given.strides))
        return same and result.offset.value == 0 and result.sizes == mine.sizes and is_dense(given.sizes, given.strides)

    def output(self, value: Tensor, fake: FakeTensor) -> Stored:
        """An output in memory: with eager's strides, and sharing memory with another tensor only where eager's does."""
        out = result_of(fake, self.targets)
        stored = self._stored(value, out)
        if self.memory.setdefault(stored.buffer, fake.memory) is fake.memory:
            return stored
        return self._with_strides(stored, out)

    def _stored(self, value: Tensor, out: Result) -> Stored:
        if isinstance(value, Computed) and not is_dense(out.sizes, out.strides):
            return self._with_strides(value, out)
        stored = self.builder.store(value)
        same = all(s is t or n.value == 1 for n, s, t in zip(out.sizes, stored.strides, out.strides))
        return replace(stored, strides=out.strides) if same else self._with_strides(stored, out)

    def _with_strides(self, value: Tensor, out: Result) -> Stored:
        """A copy with given strides; dimensions of stride 0 are one element, shown many times."""
        if out.dtype not in LOOP_DTYPES:
            return self.builder.call(find("clone.default"), (value,), {}, out)
        shown = self.builder.new_buffer(replace(out, flexible=False))
        self.builder.write(value, shown)
        return shown


def _has_several(value: Computed) -> bool:
    """Has it more than one element? A single number that is made of nothing is made where it is needed."""
    return any(size.value != 1 for size in value.sizes)


def _is_returned(node: GraphNode) -> bool:
    """Is it, or a view of it, something that the graph gives back?"""
    return any(user.op == "output" or (user.target in VIEWS and _is_returned(user)) for user in node.users)


def _is_handed_over(node: GraphNode) -> bool:
    """Is it a number of the processor that loops of another device read?"""
    if not is_number(node):
        return False
    readers = (u for u in node.users if u.target in LOWERINGS and u.target not in COPIES)
    return any(device_of(u) not in (None, device_of(node)) for u in readers)


def _is_spread(node: GraphNode, value: Computed) -> bool:
    """Is it one element of which tensors of many are computed?"""
    if any(size.value != 1 for size in value.sizes):
        return False
    readers = (fake for user in node.users if (fake := fake_of(user)) is not None)
    return any(size_of(size).value != 1 for fake in readers for size in fake.meta.sizes)


def _plain(value: Any) -> Any:
    """fx keeps argument lists in types of its own."""
    if isinstance(value, dict):
        return {name: _plain(v) for name, v in value.items()}
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        parts = [_plain(v) for v in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    return value


def _expressions(program: Program) -> list[Expr]:
    """Every size that running the program needs."""
    found = [e for layout in program.layouts.values() for e in (*layout.sizes, *layout.strides)]
    return found + [o for o in program.outputs if isinstance(o, Expr)]
