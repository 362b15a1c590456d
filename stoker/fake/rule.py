"""The table of metadata rules, and what a rule may answer.

A rule is a function of the operator's own arguments. It returns, for each result, one of
    Meta                 a fresh tensor with this metadata,
    ViewOf(meta, base)    a view: this metadata, in the memory of the argument `base`,
    a FakeTensor         that argument itself (operators that write in place),
    anything else        itself (None, numbers), or a list or tuple of the above.
It raises `Decline` when the arguments are not its case; then torch's own meta kernel answers or complains.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.meta import Meta
from stoker.fake.tensor import FakeTensor

Rule = Callable[..., Any]

RULES: dict[Any, Rule] = {}
"""Operator overload to rule. Filled by the modules of `stoker.fake.rules`."""

IMPURE: dict[Any, Rule] = {}
"""Rules that change their arguments' metadata or read more than metadata: called each time, never memoized."""


class Decline(Exception):
    """These arguments are not the rule's case. Carries no words: the meta kernel's error is the one to show."""


def decline_if(other_case: Any) -> None:
    """Decline arguments of which this holds. A condition on symbols is decided here, and guarded."""
    if other_case:
        raise Decline


class NoMetaRule(RuntimeError):
    """Nothing knows the result of this operator without running it."""

    def __init__(self, operator: Any) -> None:
        super().__init__(
            f"{operator}: no metadata rule, meta kernel or decomposition is known for this operator. "
            "If it is yours, give it one with torch.library.register_fake."
        )
        self.operator = operator


@dataclass(frozen=True, slots=True)
class ViewOf:
    """The result is a view: `meta`, in the memory of `base`."""

    meta: Meta
    base: FakeTensor


def overloads(name: str) -> list[Any]:
    """All overloads of an ATen operator that this version of torch has; empty when it has none."""
    try:
        packet = getattr(torch.ops.aten, name)
    except AttributeError:
        return []
    return [getattr(packet, overload) for overload in packet.overloads()]


def rule(*names: str, table: dict[Any, Rule] = RULES) -> Callable[[Rule], Rule]:
    """Register a rule for operators: "name.overload", or "name" for all overloads that do not write.

    A name this version of torch lacks is skipped: the table is a union over versions.
    """

    def register(function: Rule) -> Rule:
        for name in names:
            for op in _select(name):
                table[op] = function
        return function

    return register


def _select(name: str) -> list[Any]:
    base, dot, overload = name.partition(".")
    if dot:
        return [op for op in overloads(base) if torch_private.overload_name(op) == overload]
    wanted = overloads(base)
    if not base.endswith("_"):
        wanted = [op for op in wanted if not torch_private.schema_of(op).is_mutable]
    return wanted
