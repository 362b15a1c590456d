"""Operators that write, as operators that compute: `x.add_(y)` is `add(x, y)` and x holding the result from there on.

In:  a writing operator, its arguments, and the trace it is part of.
Out: nodes that compute what would be written; the alias table told who holds it; the written tensors as eager returns
     them.

The functional form is ATen's own where it has one. An operator without one (a custom operator, a rare ATen one)
becomes a single node that runs it on copies: `run_on_copies`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from stoker import torch_private
from stoker.autograd.alias import equal_sizes
from stoker.autograd.inverse import View
from stoker.autograd.meeting import apart, meet, meets_itself, repeats
from stoker.autograd.refusal import CannotTrace
from stoker.decompose.registry import find
from stoker.fake import FakeTensor
from stoker.fake.foreign import tensors_in
from stoker.fake.meta import Meta, formatted_strides, is_dense, memory_order, suggests_channels_last
from stoker.fake.write import functional_form
from stoker.graph.facts import LITERAL
from stoker.nest import map_leaves

if TYPE_CHECKING:
    from stoker.autograd.trace import Trace

aten = torch.ops.aten

Rewrite = Callable[..., Any]
REWRITES: dict[Any, Rewrite] = {}
"""Operators whose functional form is not found by name: those that write without saying so, and those that change
metadata."""


def _rewrites(names: str) -> Callable[[Rewrite], Rewrite]:
    """Register for one or more "name.overload"s; what this version of torch lacks is skipped."""

    def register(function: Rewrite) -> Rewrite:
        for name in names.split():
            if (found := find(name)) is not None:
                REWRITES[found] = function
        return function

    return register


def call(trace: Trace, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A writing operator, by its functional form."""
    args, kwargs = trace.to_fakes(args), trace.to_fakes(kwargs)
    targets = _written(func, args, kwargs)
    _refuse_reading_written(func, args, kwargs, targets)
    refuse_overlap(func, args, kwargs)
    functional = functional_form(func)
    if functional is None:
        return _by_copies(trace, func, args, kwargs, targets)
    contents = _computed(trace, func, functional, args, kwargs)
    before = [t.meta for t in targets]
    result = trace.mode.propagate(func, args, kwargs)
    for target, content, meta in zip(targets, contents, before):
        if target.meta is not meta:
            _resized(trace, target, content)
        else:
            write(trace, target, content)
    return result


def write(trace: Trace, target: FakeTensor, content: Node) -> None:
    """`target` holds `content`, cast and broadcast to what the target is."""
    trace.aliases.write(target, trace.aliases.fit(content, trace.aliases.alias(target)))


def _written(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[FakeTensor]:
    """The tensors that the operator writes, in the order of its arguments."""
    found: list[FakeTensor] = []
    for position, argument in enumerate(torch_private.schema_of(func).arguments):
        if _is_written(argument):
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            found += value if isinstance(value, (list, tuple)) else [] if value is None else [value]
    return found


def _is_written(argument: torch.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _refuse_reading_written(func: Any, args: Any, kwargs: dict[str, Any], targets: list[FakeTensor]) -> None:
    """An operator that writes several tensors one after the other may read one that it has just written."""
    if len(targets) < 2:
        return
    memories = [t.memory for t in tensors_in([args, kwargs])]
    if any(memories.count(t.memory) > 1 for t in targets):
        raise CannotTrace(f"{func} reads what it writes")


def _computed(trace: Trace, func: Any, functional: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Node]:
    """The nodes of what the operator would write. Decompositions of the functional form apply."""
    results = trace.call(functional, *_as_arguments_of(functional, func, args, kwargs))
    return [trace.read(r) for r in tensors_in(results)]


def _as_arguments_of(functional: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """The arguments of a writing operator, in the order of its functional form, with its defaults."""
    arguments = torch_private.schema_of(func).arguments
    given = {a.name: a.default_value for a in arguments if a.has_default_value()}
    given |= dict(zip((a.name for a in arguments), args)) | kwargs
    order = torch_private.schema_of(functional).arguments
    named = {a.name: given[a.name] for a in order if a.kwarg_only}
    return tuple(given[a.name] for a in order if not a.kwarg_only), named


def _resized(trace: Trace, target: FakeTensor, content: Node) -> None:
    """out= was given a tensor of the wrong size, usually empty: it has new memory in all but name."""
    alias = trace.aliases.alias(target)
    if alias.parent is not None or alias.storage.input is not None or trace.aliases.has_views(target):
        raise CannotTrace("out= resizes a tensor that has other names")
    if content.meta["val"].dtype is not target.dtype:
        content = trace.read(trace.call(aten._to_copy.default, (content.meta["val"],), {"dtype": target.dtype}))
    trace.aliases.add_root(target, content)
    trace.aliases.write(target, trace.aliases.fit(content, trace.aliases.alias(target)))


def run_on_copies(func: Any, written: tuple[int, ...], *args: Any, **kwargs: Any) -> tuple[Any, ...]:
    """Run a writing operator on copies of the arguments at `written`; the copies, then the results that are not
    they."""
    copies = list(args)
    for position in written:
        copies[position] = _copy(args[position])
    result = func(*copies, **kwargs)
    results = [] if result is None else list(result) if isinstance(result, (list, tuple)) else [result]
    changed = [copies[i] for i in written]
    return (*changed, *[r for r in results if not any(r is c for c in changed)])


def _copy(value: Any) -> Any:
    """A copy that lies in memory as the original does, gaps included."""

    def copied(t: torch.Tensor) -> torch.Tensor:
        how = {"dtype": t.dtype, "layout": t.layout, "device": t.device}
        return aten.empty_strided.default(t.size(), t.stride(), **how).copy_(t)

    return map_leaves(copied, value)


def _by_copies(
    trace: Trace, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], targets: list[FakeTensor]
) -> Any:
    arguments = torch_private.schema_of(func).arguments
    positional = list(args)
    names = [a.name for a in arguments]
    for name in list(kwargs):
        if names.index(name) == len(positional) and not arguments[len(positional)].kwarg_only:
            positional.append(kwargs[name])
    kwargs = {k: v for k, v in kwargs.items() if names.index(k) >= len(positional)}
    places = tuple(
        i for i, a in enumerate(arguments[: len(positional)]) if _is_written(a) and positional[i] is not None
    )
    several = any(isinstance(positional[i], (list, tuple)) for i in places)
    if several or any(_is_written(a) and a.name in kwargs for a in arguments):
        raise CannotTrace(f"{func} writes several tensors and has no functional form")
    nodes = (func, places, *trace.to_nodes(tuple(positional)))
    named = trace.to_nodes(kwargs)
    result = trace.mode.propagate(func, tuple(positional), kwargs)
    results = [] if result is None else list(result) if isinstance(result, (list, tuple)) else [result]
    fresh = [r for r in results if not any(r is t for t in targets)]
    node = trace.note(trace.graph.call_function(run_on_copies, nodes, named), (*targets, *fresh))
    pieces = [trace.emit(operator.getitem, node, i) for i in range(len(targets) + len(fresh))]
    for target, piece in zip(targets, pieces):
        write(trace, target, piece)
    for extra, piece in zip(fresh, pieces[len(targets) :]):
        if isinstance(extra, FakeTensor):
            trace.aliases.add_root(extra, piece)
    return result


_IDEMPOTENT = {"aten::fill_", "aten::zero_"}
_ELEMENTWISE = frozenset({aten.copy_.default})


def refuse_overlap(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Where elements that are written are one in memory, or are read as others, eager refuses or goes by the order in memory:
    it shall do so itself."""
    for target in _written(func, args, kwargs):
        repeated = torch_private.schema_of(func).name in _IDEMPOTENT and repeats(target.meta)
        if meets_itself(target.meta) and not repeated:
            raise CannotTrace(f"{func} writes to a tensor of which several elements are one in memory")
        others = tensors_in([args, kwargs])
        del others[next(i for i, other in enumerate(others) if other is target)]
        for read in others:
            if read.memory is target.memory and _met(func, target.meta, read.meta):
                raise CannotTrace(f"{func} reads other elements of the memory that it writes")


def _met(func: Any, target: Meta, read: Meta) -> bool:
    """An elementwise operator may read the very elements that it writes."""
    elementwise = torch.Tag.pointwise in func.tags or func in _ELEMENTWISE
    return meet(target, read) if elementwise else not apart(target, read)


@_rewrites("copy_.default")
def _copy_(trace: Trace, func: Any, target: Any, source: Any, non_blocking: bool = False) -> Any:
    target, source = trace.to_fakes((target, source))
    refuse_overlap(func, (target, source), {})
    result = trace.mode.propagate(func, (target, source, non_blocking), {})
    if _alike(source, target):
        trace.aliases.write(target, trace.read(source))
    else:
        trace.aliases.write(target, trace.emit(aten.copy.default, trace.read(target), trace.read(source)))
    return result


def _alike(a: FakeTensor, b: FakeTensor) -> bool:
    """Is the content of one, as it is, what the other could hold?"""
    if a.meta.dtype is not b.meta.dtype or a.meta.device != b.meta.device:
        return False
    return equal_sizes(a.meta.sizes, b.meta.sizes) and equal_sizes(a.meta.strides, b.meta.strides)


@_rewrites(
    "bernoulli_.float uniform_.default exponential_.default geometric_.default cauchy_.default "
    "log_normal_.default random_.default random_.to random_.from"
)
def _drawn(trace: Trace, func: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """Numbers are drawn in the order in which the target lies in memory, functional forms may draw in that of dimensions."""
    target = trace.to_fakes(target)
    order = memory_order(target.meta.sizes, target.meta.strides)
    if order == tuple(range(len(order))):
        return call(trace, func, (target, *args), kwargs)
    refuse_overlap(func, (target,), {})
    fresh = trace.call(aten.new_empty.default, (target, [target.meta.sizes[d] for d in order]), {})
    functional = functional_form(func)
    drawn = trace.call(functional, *_as_arguments_of(functional, func, (fresh, *args), kwargs))
    back = trace.call(aten.permute.default, (drawn, [order.index(d) for d in range(len(order))]), {})
    write(trace, target, trace.read(back))
    return trace.mode.propagate(func, (target, *args), kwargs)


@_rewrites("normal_.default")
def _drawn_normal(trace: Trace, func: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """On the CPU, other numbers are drawn for tensors with gaps: it must run on such a tensor."""
    target = trace.to_fakes(target)
    if is_dense(target.meta.sizes, target.meta.strides):
        return call(trace, func, (target, *args), kwargs)
    refuse_overlap(func, (target,), {})
    return _by_copies(trace, func, (target, *args), kwargs, [target])


@_rewrites(
    "empty.memory_format empty_like.default empty_strided.default empty_permuted.default new_empty.default "
    "new_empty_strided.default"
)
def _empty(trace: Trace, func: Any, *args: Any, **kwargs: Any) -> Any:
    """Under deterministic algorithms, eager fills memory that nobody has written with NaN or the largest number."""
    result = trace.record(func, args, kwargs)
    if torch.are_deterministic_algorithms_enabled() and torch.utils.deterministic.fill_uninitialized_memory:  # type: ignore[attr-defined]  # not in the stubs
        dtype = result.dtype
        whole = not dtype.is_floating_point and not dtype.is_complex
        value = True if dtype is torch.bool else torch.iinfo(dtype).max if whole else float("nan")
        trace.call(aten.fill_.Scalar, (result, value), {})
    return result


@_rewrites("native_batch_norm.default")
def _batch_norm(
    trace: Trace, func: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *rest: Any
) -> Any:
    """Writes the running statistics in training, though its schema does not say so."""
    if not training or mean is None:
        return trace.record(func, (x, weight, bias, mean, variance, training, *rest), {})
    functional = aten._native_batch_norm_legit_functional.default
    *results, new_mean, new_variance = trace.call(functional, (x, weight, bias, mean, variance, training, *rest), {})
    write(trace, trace.to_fakes(mean), trace.read(new_mean))
    write(trace, trace.to_fakes(variance), trace.read(new_variance))
    return tuple(results)


@_rewrites("cudnn_batch_norm.default")
def _cudnn_batch_norm(
    trace: Trace, func: Any, x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, *rest: Any
) -> Any:
    """cuDNN's form by loops: it writes the running statistics without saying so, and fuses with nothing."""
    meta = trace.to_fakes(x).meta
    wanted = formatted_strides(meta.sizes, suggests_channels_last(meta.sizes, meta.strides))
    if meta.strides != wanted:  # its result lies in a memory format, whatever the input does
        x = trace.call(aten.clone.default, (x,), {"memory_format": torch.contiguous_format})
    form = aten.native_batch_norm.default
    result, *saved = trace.call(form, (x, weight, bias, mean, variance, training, *rest), {})
    if not training:
        saved = [trace.call(aten.new_empty.default, (s, [0]), {}) for s in saved]
    return result, *saved, trace.call(aten.new_empty.default, (x, [0]), {"dtype": torch.uint8})


@_rewrites("cudnn_batch_norm_backward.default")
def _cudnn_batch_norm_backward(
    trace: Trace, func: Any, x: Any, gradient: Any, weight: Any, mean: Any, variance: Any, *rest: Any
) -> Any:
    saved_mean, saved_scale, eps, _ = rest
    form, wanted = aten.native_batch_norm_backward.default, [True, True, True]
    return trace.call(form, (gradient, x, weight, None, None, saved_mean, saved_scale, True, eps, wanted), {})


@_rewrites("native_batch_norm_backward.default")
def _batch_norm_backward(trace: Trace, func: Any, *args: Any) -> Any:
    """In training it takes the running statistics without reading them; the graph need not keep them for it."""
    if args[7]:
        args = (*args[:3], None, None, *args[5:])
    return trace.record(func, args, {})


@_rewrites(
    "t_.default transpose_.default squeeze_.default squeeze_.dim squeeze_.dims unsqueeze_.default as_strided_.default"
)
def _move(trace: Trace, func: Any, target: Any, *args: Any, **kwargs: Any) -> Any:
    """A view of itself takes the tensor's place.

    The engine remembers how a view was made, for writes through it. On fakes that is all it has: it would make the view
    as it was before the move. And what it makes of a gradient for a tensor that it was not told is moved, eager knows.
    """
    target = trace.to_fakes(target)
    if trace.differentiates and torch.is_grad_enabled() and torch_private.is_view(target):
        raise CannotTrace(f"{func} moves a view, and gradients may flow through it")
    if trace.differentiates and not torch.is_grad_enabled() and target.requires_grad:
        raise CannotTrace(f"{func} moves a tensor that has a gradient, and autograd does not see it")
    alias, node = trace.aliases.alias(target), trace.read(target)
    name = torch_private.schema_of(func).name.removeprefix("aten::").removesuffix("_")
    packet = getattr(aten, name)
    form = packet.int if name == "transpose" else getattr(packet, torch_private.overload_name(func))
    trace.mode.propagate(func, (target, *args), kwargs)
    view = View(form, args, kwargs, None, torch.is_grad_enabled())
    trace.aliases.add_view(target, alias, view, trace.emit(form, node, *args, **kwargs))
    return target


@_rewrites("detach_.default")
def _detach_(trace: Trace, func: Any, target: Any) -> Any:
    """Of autograd's concern, which acts above."""
    return target


@_rewrites(
    "resize_.default resize_as_.default set_.source_Tensor set_.default set_.source_Storage "
    "set_.source_Storage_storage_offset"
)
def _refuse(trace: Trace, func: Any, *args: Any, **kwargs: Any) -> Any:
    raise CannotTrace(f"{func} changes what memory a tensor covers")


@_rewrites("lift_fresh.default")
def _lift_fresh(trace: Trace, func: Any, value: Any) -> Any:
    """What torch.tensor(...) made: a constant, copied at each call because the program may write to it."""
    if isinstance(value, FakeTensor):
        return trace.record(aten.alias.default, (value,), {})
    result = trace.mode.propagate(func, (value,), {})
    constant = trace.read(value)
    constant.meta[LITERAL] = trace.from_numbers
    trace.aliases.add_root(result, trace.emit(aten.clone.default, constant))
    return result


def _recurrent_layer(*args: Any) -> Any:
    with torch.enable_grad():
        results = aten.mkldnn_rnn_layer.default(*args)
    return tuple(r.detach() for r in results)


SHARED_EVENLY = frozenset({"MaxBackward1", "MinBackward1", "MedianBackward0", "NanmedianBackward0"})
"""Nodes of autograd that give a gradient to all elements that are the result."""


@_rewrites("mul.Tensor")
def _masked(trace: Trace, func: Any, x: Any, y: Any) -> Any:
    """For tensors without data torch multiplies such a gradient by a mask. On a processor eager chooses by the mask, which keeps an infinite
    gradient, or one that is no number, from the other elements."""
    if isinstance(x, torch.Tensor) and x.dtype is torch.bool and x.device.type == "cpu":
        node = torch_private.current_autograd_node()
        if node is not None and node.name() in SHARED_EVENLY:
            return trace.call(aten.where.ScalarOther, (x, y, 0), {})
    return trace.record(func, (x, y), {})


_library = torch.library.Library("stoker", "DEF")
_library.define(
    "recurrent_layer"
    + str(torch_private.schema_of(aten.mkldnn_rnn_layer.default)).removeprefix("aten::mkldnn_rnn_layer")
)
_library.impl("recurrent_layer", _recurrent_layer, "CPU")


@_rewrites("mkldnn_rnn_layer.default")
def _keeps_by_grad_mode(trace: Trace, func: Any, *args: Any) -> Any:
    """It gives what its backward needs only where grad mode is on, which it is not when a compiled graph runs."""
    args = trace.to_fakes(args)
    nodes = trace.to_nodes(args)
    results = trace.mode.propagate(func, args, {})
    node = trace.note(trace.graph.call_function(torch.ops.stoker.recurrent_layer.default, nodes), results)
    for index, result in enumerate(results):
        trace.aliases.add_root(result, trace.emit(operator.getitem, node, index))
    return results
