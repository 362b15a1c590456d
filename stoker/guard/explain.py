"""A failed guard in words: which value, what was assumed, what it is."""

from __future__ import annotations

from typing import Any

import torch

from stoker import _C, torch_private
from stoker.guard.guard import Check, Guard, Is, TensorMatch, TypeIs, shown
from stoker.guard.source import CallPoint, Source, follow

ANY = -1
"""Stands for any size or stride."""


def why_failed(captured: Any, number: int, request: Any) -> str:
    """Words for guard `number` of a captured version, given the call that failed it."""
    guard: Guard = captured.guards[number]
    if guard.source is None or guard.check is None:
        return guard.text + "".join(_is(source, request) for source in guard.reads)
    try:
        now = follow(guard.source, CallPoint(request.bound, request.function))
    except LookupError as missing:
        return f"{guard.text}, but {missing}"
    where = f" (needed at {guard.location})" if guard.location else ""
    if isinstance(guard.check, TensorMatch):
        with torch_private.DisableTorchFunctionSubclass():  # a class of the user's is not to see that we look
            mismatch = tensor_mismatch(guard.check.spec, now)
        return f"{guard.text}, but its {mismatch}{where}" if mismatch else f"{guard.text}{where}"
    return f"{guard.text}, but is {_what(guard.check, now)}{where}"


def _what(check: Check, now: object) -> str:
    if isinstance(check, TypeIs):
        return "None" if now is None else f"a {type(now).__qualname__}"
    if isinstance(check, Is) and shown(now) == shown(check.value):
        return f"another {type(now).__qualname__}"
    return shown(now, 80)


FACTS = (
    "class", "dtype", "device", "layout", "requires_grad", "number of dimensions", "sizes", "strides", "dispatch keys",
)  # fmt: skip
"""What a tensor's specification tells, in the order of `TensorSpec.facts`."""


def tensor_mismatch(spec: _C.TensorSpec, now: object) -> str | None:
    """The first difference between what was assumed of a tensor and what it is; None if there is none."""
    expected = spec.facts()
    if type(now) is not expected[0] or not isinstance(now, torch.Tensor):
        return f"class: was {_fact(expected[0])}, is {_fact(type(now))}"
    if now.is_nested:
        return "layout: was one tensor, is a nested tensor"
    for name, was, found in zip(FACTS, expected, _C.tensor_spec(now).facts()):
        if not _fits(was, found):
            return f"{name}: was {_fact(was)}, is {_fact(found)}"
    return None


def _fits(was: object, found: object) -> bool:
    if isinstance(was, tuple) and isinstance(found, tuple):
        return len(was) == len(found) and all(a in (ANY, b) for a, b in zip(was, found))
    return was == found


def _fact(fact: object) -> str:
    if isinstance(fact, tuple):
        numbers = ", ".join("any" if number == ANY else str(number) for number in fact)
        return f"({numbers},)" if len(fact) == 1 else f"({numbers})"
    return fact.__qualname__ if isinstance(fact, type) else str(fact).removeprefix("torch.")


def _is(source: Source, request: Any) -> str:
    try:
        return f", but {source.text} is {shown(follow(source, CallPoint(request.bound, request.function)))}"
    except LookupError as missing:
        return f", but {missing}"
