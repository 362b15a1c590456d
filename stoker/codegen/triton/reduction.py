"""Reductions and scans as Triton: how each kind starts, combines and ends.

A persistent tile is reduced at once. A looped one keeps accumulators, a tile each, that take in piece after piece and are reduced at
the end; both end in the same words.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from stoker.codegen.triton.operation import TYPES


@dataclass(frozen=True, slots=True)
class Form:
    """{v} is the value in a tile, {k} its position in the inner loops, {0} {1} {2} the accumulators."""

    starts: tuple[tuple[str, str], ...]
    """(start, type) of each accumulator; the start is what changes nothing."""
    given: tuple[str, ...]
    """What a value brings to each accumulator."""
    combine: str
    """The function of the library that joins two."""
    result: str
    """From the reduced accumulators to the value."""


def _limit(dtype: torch.dtype, *, lowest: bool) -> str:
    if dtype.is_floating_point:
        return f"float('{'-' if lowest else ''}inf')"
    if dtype is torch.bool:
        return "0" if lowest else "1"
    found = torch.iinfo(dtype)
    return str(found.min if lowest else found.max)


def form_of(kind: str, value: torch.dtype) -> Form:
    """How to reduce values of a type."""
    t = TYPES[value]
    match kind:
        case "sum":
            return Form((("0", t),), ("{v}",), "add_up", "{0}")
        case "prod":
            return Form((("1", t),), ("{v}",), "multiply_up", "{0}")
        case "xor_sum":
            kept = "tl.int32" if value is torch.bool else t
            return Form((("0", kept),), (f"{{v}}.to({kept})",), "differ", f"({{0}}).to({t})")
        case "any" | "all":
            start, name = ("0", "larger") if kind == "any" else ("1", "smaller")
            return Form(((start, "tl.int32"),), ("{v}.to(tl.int32)",), name, "({0}) != 0")
        case "max" | "min":
            if value is torch.bool:
                return form_of("any" if kind == "max" else "all", value)
            name = "larger" if kind == "max" else "smaller"
            return Form(((_limit(value, lowest=kind == "max"), t),), ("{v}",), name, "{0}")
        case "argmax" | "argmin":
            kept = "tl.int32" if value is torch.bool else t
            start = _limit(value, lowest=kind == "argmax")
            name = "place_of_larger" if kind == "argmax" else "place_of_smaller"
            return Form(
                ((start, kept), (str(2**62), "tl.int64")), (f"{{v}}.to({kept})", "{k}.to(tl.int64)"), name, "{1}"
            )
        case "mean" | "moment":
            result = "{0}" if kind == "mean" else "{1}"
            return Form(
                (("0", t),) * 3, ("{v}", f"tl.full([], 0, {t})", f"tl.full([], 1, {t})"), "join_moments", result
            )
    raise AssertionError(kind)


SCANS: dict[str, str] = {
    "sum": "add_up",
    "prod": "multiply_up",
    "max": "larger",
    "min": "smaller",
    "argmax": "latest_larger",
    "argmin": "latest_smaller",
    "logaddexp": "add_exponents",
}
"""The function of the library that joins two neighbours of a running reduction."""
