"""A check of numbers that only data tells, with the words eager has for them: `stoker::check`.

In:  a condition, and what to raise where it does not hold: the name of an exception, and a template for the numbers.
Out: nothing. What runs behind it may rely on the condition.
"""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch

from stoker.fake.meta import Meta, dense
from stoker.fake.rule import IMPURE, rule
from stoker.fake.tensor import FakeTensor

_library = torch.library.Library("stoker", "FRAGMENT")
_library.define("check(Scalar condition, str error, str template, SymInt[] numbers) -> ()")


def _check(condition: Any, error: str, template: str, numbers: Sequence[int]) -> None:
    if not condition:
        raise getattr(builtins, error)(template.format(*numbers))


_library.impl("check", _check, "CompositeExplicitAutograd")

CHECKS = (torch.ops.aten._assert_scalar.default, torch.ops.stoker.check.default)
"""Operators that check a condition, and nothing else."""


def _learn(mode: Any, func: Any, condition: Any, *words: Any) -> None:
    """What the program promises of a number: the graph checks it, so all that follows may rely on it."""
    if isinstance(condition, torch.SymBool) and condition.node.is_unknown():
        mode.shape_env.require(condition.node.expr, str(words[0]))
    elif not condition and len(words) == 1:
        raise RuntimeError(words[0])
    elif not condition:
        _check(False, *words)


IMPURE.update(dict.fromkeys(CHECKS, _learn))


@rule("_assert_async")
def assert_async(condition: FakeTensor, *words: Any) -> None:
    """A check of what a tensor holds."""


@rule("_is_all_true", "_is_any_true")
def is_true(x: FakeTensor) -> Meta:
    """One truth value."""
    return dense(x.meta, (), torch.bool)
