"""`torch.gru`, `torch.lstm` and their kin as one operator each, for any length of the sequence.

In:  a call of one of them, on fake tensors.
Out: `whole(function, args, kwargs)`: a function to call in its place, which is one operator and its gradient another; None where the
     call must go its own way. Functions that are written otherwise where sizes vary (`cells`, `borders`) are asked for here as well.

Eager's functions are composite: seen from below they are hundreds of small operators, more with each time step, and their C++ asks
for plain numbers. `stoker::recurrent` runs eager's function; `stoker::recurrent_backward` runs it again under autograd, and back.
Layers with dropout between them are one operator each, for the dropout draws random numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.borders import sliced
from stoker.fake.cells import formula
from stoker.fake.meta import Meta, contiguous_strides, dense, meta_of
from stoker.fake.packed import PACKED
from stoker.fake.rule import RULES
from stoker.fake.tensor import FakeTensor
from stoker.shape.env import DataDependent

KINDS: dict[Any, str] = {getattr(torch, name): name for name in ("gru", "lstm", "rnn_tanh", "rnn_relu")}
_SETTINGS = "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, bool batch_first"
_TENSORS = "str kind, bool grad, Tensor input, Tensor? batch_sizes, Tensor[] states, Tensor[] weights"

_library = torch.library.Library("stoker", "FRAGMENT")
_library.define(f"recurrent({_TENSORS}, {_SETTINGS}) -> Tensor[]")
_library.define(f"recurrent_backward({_TENSORS}, {_SETTINGS}, Tensor[] gradients, int[] of, bool[] wanted) -> Tensor[]")


@dataclass(frozen=True, slots=True)
class _Call:
    """What is not a tensor of a call: its kind, the grad mode, by which libraries round, how many tensors are states, and the
    settings."""

    kind: str
    grad: bool
    states: int
    settings: tuple[Any, ...]

    def run(self, operator: Any, tensors: Sequence[torch.Tensor | None], *more: Any) -> Any:
        given, counts, *rest = tensors
        states, weights = rest[: self.states], rest[self.states :]
        return operator(self.kind, self.grad, given, counts, states, weights, *self.settings, *more)


def whole(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Callable[..., Any] | None:
    """What to call in place of `function(*args, **kwargs)`, with the same arguments and results."""
    if isinstance(function, _BUILTIN) and (packing := torch_private.PACKINGS.get(function)) is not None:
        return PACKED[packing]
    for rewritten in (formula, sliced):
        if (found := rewritten(function, args, kwargs)) is not None:
            return found
    kind = KINDS.get(function) if isinstance(function, _BUILTIN) else None
    if kind is None or kwargs or len(args) != 9:
        return None
    packed = _is_packed(args)
    if packed and not _is_plain(kind, (args[0], *args[2:]), 2):
        raise DataDependent(f"torch.{kind} of a packed sequence", "its lengths are the data of a tensor")
    if not packed and not _is_plain(kind, args, 3):
        if kind == "lstm" and _varies(args):
            raise DataDependent(f"torch.{kind}", "sizes vary, and eager's library for these types takes plain numbers")
        return None

    def call(given: Any, counts: Any, states: Any, weights: Any, *settings: Any) -> Any:
        flat = list(states) if kind == "lstm" else [states]
        how = _Call(kind, torch.is_grad_enabled(), len(flat), settings)
        return tuple(_Recurrent.apply(how, given, counts, *flat, *weights))

    *_, layers, dropout, train, _ = args if packed else args[:-1]
    found = _layer_by_layer(call) if train and dropout and layers > 1 else call
    if packed:
        return lambda given, counts, states, weights, *settings: found(given, counts, states, weights, *settings, False)
    return lambda given, states, weights, *settings: found(given, None, states, weights, *settings)


def _layer_by_layer(call: Callable[..., Any]) -> Callable[..., Any]:
    """Layers with dropout between them: eager drops from what one hands to the next, time step after time step."""

    def stacked(given: Any, counts: Any, states: Any, weights: Any, *settings: Any) -> Any:
        biases, layers, dropout, train, bidirectional, batch_first = settings
        one = isinstance(states, torch.Tensor)
        parts = zip(*(t.chunk(layers) for t in ([states] if one else states)), strict=True)
        each = len(weights) // layers
        output, last = given.transpose(0, 1) if batch_first else given, []
        for layer, part in enumerate(parts):
            own = weights[layer * each : (layer + 1) * each]
            if layer:
                output = torch.dropout(output, dropout, True)
            state = part[0] if one else part
            output, *ends = call(output, counts, state, own, biases, 1, 0.0, train, bidirectional, False)
            last.append(ends)
        return output.transpose(0, 1) if batch_first else output, *map(torch.cat, zip(*last))

    return stacked


_BUILTIN = type(torch.gru)


def _is_packed(args: Sequence[Any]) -> bool:
    """Is the second argument how many sequences there are at each step? Eager's C++ reads it, which fakes have not."""
    sizes = args[1] if len(args) > 1 else None
    return isinstance(sizes, FakeTensor) and not sizes.meta.dtype.is_floating_point


def _varies(args: Sequence[Any]) -> bool:
    """Has a tensor sizes that vary? With those, eager's C++ does without the library that it computes with otherwise, and says so."""
    given, states, *_ = args
    return any(isinstance(t, FakeTensor) and t.meta.symbolic for t in (given, *states))


def _is_plain(kind: str, args: Sequence[Any], dims: int) -> bool:
    """Floating-point tensors on the CPU, as a sequence of so many dimensions."""
    given, states, weights, *_ = args
    flat = list(states) if isinstance(states, (list, tuple)) else [states]
    if (kind == "lstm") != isinstance(states, (list, tuple)) or not isinstance(weights, (list, tuple)):
        return False
    tensors = [given, *flat, *weights]
    if not all(isinstance(t, FakeTensor) and t.meta.device.type == "cpu" for t in tensors):
        return False
    if len(given.meta.sizes) != dims or torch.is_autocast_enabled("cpu"):
        return False
    return given.meta.dtype in (torch.float32, torch.float64) and len({t.meta.dtype for t in tensors}) == 1


class _Recurrent(torch.autograd.Function):
    """The operator, with its gradient."""

    @staticmethod
    def forward(ctx: Any, call: _Call, *tensors: torch.Tensor | None) -> tuple[torch.Tensor, ...]:
        ctx.call = call
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        return tuple(call.run(torch.ops.stoker.recurrent.default, tensors))

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        wanted = list(ctx.needs_input_grad[1:])
        came = [i for i, g in enumerate(gradients) if g is not None]
        given = [gradients[i] for i in came]
        operator = torch.ops.stoker.recurrent_backward.default
        found = iter(ctx.call.run(operator, ctx.saved_tensors, given, came, wanted))
        return None, *(next(found) if want else None for want in wanted)


def _results(kind: str, given: Any, counts: Any, states: Any, weights: Any, *settings: Any) -> list[torch.Tensor]:
    """Eager's function; each result in memory of its own, as `_recurrent_metas` says."""
    function, state = getattr(torch, kind), tuple(states) if kind == "lstm" else states[0]
    if counts is not None:
        return [t.contiguous() for t in function(given, counts, state, weights, *settings[:-1])]
    found = function(given, state, weights, *settings)
    output, *last = found
    if settings[-1]:
        return [output.transpose(0, 1).contiguous().transpose(0, 1), *(t.contiguous() for t in last)]
    return [t.contiguous() for t in found]


def _recurrent(kind: str, grad: bool, *given: Any) -> list[torch.Tensor]:
    with torch.set_grad_enabled(grad):
        return [t.detach() for t in _results(kind, *given)]


def _recurrent_backward(
    kind: str, grad: bool, given: Any, counts: Any, states: Any, weights: Any, *rest: Any
) -> list[torch.Tensor]:
    *settings, gradients, came, wanted = rest
    with torch.inference_mode(False), torch.enable_grad(), torch_private.above_autograd():
        flat = [
            t.detach().requires_grad_(want) for t, want in zip([given, *states, *weights], [wanted[0], *wanted[2:]])
        ]
        count = 1 + len(states)
        results = _results(kind, flat[0], counts, flat[1:count], flat[count:], *settings)
        leaves = [t for t in flat if t.requires_grad]
        found = torch.autograd.grad([results[i] for i in came], leaves, gradients, allow_unused=True)
    return [(torch.zeros_like(leaf) if g is None else g).contiguous() for leaf, g in zip(leaves, found)]


_library.impl("recurrent", _recurrent, "CPU")
_library.impl("recurrent_backward", _recurrent_backward, "CPU")


def _recurrent_metas(
    kind: str, grad: bool, given: Any, counts: Any, states: Any, weights: Any, *settings: Any
) -> list[Meta]:
    bidirectional, batch_first = settings[-2:]
    m = given.meta
    if counts is not None:
        features = states[0].meta.sizes[-1] * (2 if bidirectional else 1)
        return [dense(m, (m.sizes[0], features)), *(dense(m, s.meta.sizes) for s in states)]
    batch, length = (m.sizes[0], m.sizes[1]) if batch_first else (m.sizes[1], m.sizes[0])
    features = states[0].meta.sizes[-1] * (2 if bidirectional else 1)
    strides = contiguous_strides((length, batch, features))
    if batch_first:
        output = meta_of(m.dtype, (batch, length, features), (strides[1], strides[0], 1), m.device)
    else:
        output = meta_of(m.dtype, (length, batch, features), strides, m.device)
    return [output, *(dense(m, s.meta.sizes) for s in states)]


def _backward_metas(
    kind: str, grad: bool, given: Any, counts: Any, states: Any, weights: Any, *rest: Any
) -> list[Meta]:
    tensors = (t for t, want in zip([given, counts, *states, *weights], rest[-1]) if want)
    return [dense(t.meta) for t in tensors]


RULES[torch.ops.stoker.recurrent.default] = _recurrent_metas
RULES[torch.ops.stoker.recurrent_backward.default] = _backward_metas
