"""Reductions as C++: how each kind starts, combines and ends. Code generation picks the loop; this is what stands in it."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from stoker.codegen.cpp.operation import TYPES


@dataclass(frozen=True, slots=True)
class Accumulator:
    """The variables of one reduction. {0} is the accumulator, {v} the value, {k} the position in the inner loops."""

    variables: tuple[tuple[str, str, str], ...]
    """(suffix, type, start)"""
    combine: tuple[str, ...]
    result: str
    clause: tuple[tuple[str, str], ...] = ()
    """(OpenMP operator, suffix): how lanes and threads are joined; empty if the loop must run in order."""


def accumulator(kind: str, dtype: torch.dtype, value: torch.dtype) -> Accumulator:
    """How to reduce values of a type."""
    t = TYPES[value]
    floating = value.is_floating_point
    lowest = f"-std::numeric_limits<{t}>::infinity()" if floating else f"std::numeric_limits<{t}>::lowest()"
    highest = f"std::numeric_limits<{t}>::infinity()" if floating else f"std::numeric_limits<{t}>::max()"
    match kind:
        case "sum":
            return Accumulator((("", t, "0"),), ("{0} += {v};",), "{0}", (("+", ""),))
        case "prod":
            return Accumulator((("", t, "1"),), ("{0} *= {v};",), "{0}", (("*", ""),))
        case "xor_sum":
            kept = "int32_t" if value is torch.bool else t
            return Accumulator((("", kept, "0"),), (f"{{0}} ^= {kept}({{v}});",), f"{t}({{0}})", (("^", ""),))
        case "any":
            return Accumulator((("", "int32_t", "0"),), ("{0} |= int32_t({v});",), "bool({0})", (("|", ""),))
        case "all":
            return Accumulator((("", "int32_t", "1"),), ("{0} &= int32_t({v});",), "bool({0})", (("&", ""),))
        case "max" | "min":
            return _extreme(kind, t, floating, lowest if kind == "max" else highest, value)
        case "argmax" | "argmin":
            sign = ">" if kind == "argmax" else "<"
            first = f"{{v}} {sign} {{0}}_best || {{0}} < 0" + (
                " || ({v} != {v} && {0}_best == {0}_best)" if floating else ""
            )
            return Accumulator(
                (("", "int64_t", "-1"), ("_best", t, lowest if kind == "argmax" else highest)),
                (f"if ({first}) {{{{ {{0}}_best = {{v}}; {{0}} = {{k}}; }}}}",),
                "{0}",
            )
    raise AssertionError(kind)


def _extreme(kind: str, t: str, floating: bool, start: str, value: torch.dtype) -> Accumulator:
    if value is torch.bool:
        return accumulator("any" if kind == "max" else "all", value, value)
    sign = "<" if kind == "max" else ">"
    combine = f"{{0}} = {{0}} {sign} {{v}} ? {{v}} : {{0}};"
    if not floating:
        return Accumulator((("", t, start),), (combine,), "{0}", ((kind, ""),))
    variables = (("", t, start), ("_nan", "int32_t", "0"))
    result = f"({{0}}_nan ? std::numeric_limits<{t}>::quiet_NaN() : {{0}})"
    return Accumulator(variables, (combine, "{0}_nan |= {v} != {v};"), result, ((kind, ""), ("|", "_nan")))
