"""Will autograd say of each output what it says of it in eager?

In:  the outputs of a traced program as they stood at its end, and how a call makes each of them (`stoker.autograd.outcome`).
Out: nothing, or `CannotTrace`.

An output is a result of the graph, with the graph as its history, or is made again as a view. Autograd knows more of a view than that:
it has a history of its own if it was written after `detach`, none of its own if what it views got one later, and none to follow if it
was made without gradients. Eager decides by it what may be written, and where gradients flow. So each view is made once more, on fakes,
and must stand as the program's own did.

Requirement, held by tests/differential/autograd/test_standing.py: outputs stand in autograd as eager's do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from stoker import torch_private
from stoker.autograd.alias import Alias, AliasTable, views_of
from stoker.autograd.inputs import Inputs
from stoker.autograd.inverse import View
from stoker.autograd.outcome import GraphResult, Outcome, Rebuilt
from stoker.autograd.refusal import CannotTrace
from stoker.fake import FakeTensor


@dataclass(frozen=True, slots=True)
class Standing:
    """What autograd says of a tensor. `has_history` is as it is: to ask for `grad_fn`, or `is_leaf`, gives a view one."""

    requires_grad: bool
    has_history: bool


def standing(tensor: torch.Tensor) -> Standing:
    return Standing(tensor.requires_grad, not torch_private.is_leaf_so_far(tensor))


def standings(values: Sequence[Any]) -> dict[int, Standing]:
    """Of each tensor, by its identity; to be asked at the end of a program, before its histories are looked at."""
    return {id(v): standing(v) for v in values if isinstance(v, FakeTensor)}


def refuse_other_standing(
    inputs: Inputs,
    aliases: AliasTable,
    outputs: Sequence[Any],
    outcomes: Sequence[Outcome],
    before: Mapping[int, Standing],
    *,
    grad: bool,
) -> None:
    """Compare the outputs as the call will make them, under this grad mode, with those of the program."""
    for value, outcome in zip(outputs, outcomes):
        match outcome:
            case GraphResult() if isinstance(value, FakeTensor):
                made = Standing(value.requires_grad, value.requires_grad)
            case Rebuilt():
                alias = aliases.alias(value)
                if not (value.requires_grad or alias.storage.tensor.requires_grad):
                    continue
                made = _rehearsed(inputs, alias, grad)
            case _:
                continue
        if made != before[id(value)]:
            raise CannotTrace("an output is a view that stands in autograd otherwise than what it is a view of")


def _rehearsed(inputs: Inputs, alias: Alias, grad: bool) -> Standing:
    """Of the view, made again from the tensor that its memory was met by."""
    storage = alias.storage
    if storage.tensor.meta is not storage.entry.meta:
        raise CannotTrace("views of a tensor that was given other sizes in place are returned, and differentiated")
    made = storage.tensor
    with inputs.mode:
        for view in views_of(alias):
            made = _seen(made, view, grad)
    return standing(made)


def _seen(base: FakeTensor, view: View, grad: bool) -> FakeTensor:
    with torch.set_grad_enabled(grad and view.grad):
        made = view.operator(base, *view.args, **view.kwargs)
    return made if view.index is None else made[view.index]
