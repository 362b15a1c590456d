"""The translation unit of a plan."""

from __future__ import annotations

from pathlib import Path

from stoker.codegen.cpp.kernel import emit
from stoker.schedule.plan import Plan

HEADER = (Path(__file__).parent / "header.h").read_text()


def source_of(plan: Plan) -> str:
    """All kernels of a plan, as one C++ source that includes nothing of ours."""
    parts = [HEADER.replace("#pragma once\n", "")]
    parts += [emit(kernel_name(number), kernel) for number, kernel in enumerate(plan.kernels)]
    return "\n".join(parts)


def kernel_name(number: int) -> str:
    return f"kernel_{number}"
