"""Write csrc/plan_records.h from stoker/codegen/plan_records.py: each record as a C++ struct with its reader.

    PYTHONPATH=. python tools/plan_records.py

A new record is a class there and its name in RECORDS; a new type of field is a line of CPP_TYPES here and its reader in
csrc/plan_build.cpp. A record may hold plans (`tuple[PlanRecord, ...]`): the plan is declared before all others.
"""

from __future__ import annotations

import textwrap
import types
import typing
from dataclasses import fields
from enum import IntEnum
from itertools import groupby
from pathlib import Path

from stoker.codegen import plan_records as declared

TARGET = Path(__file__).parent.parent / "csrc" / "plan_records.h"
WIDTH = 128

CPP_TYPES: dict[object, str] = {
    bool: "bool",
    int: "int64_t",
    str: "std::string",
    declared.BufferSlot: "uint32_t",
    declared.Number: "uint32_t",
    declared.Dtype: "at::ScalarType",
    declared.Device: "c10::Device",
    declared.Operator: "std::optional<c10::OperatorHandle>",
    declared.NativeKernel: "Kernel",
    declared.DeviceKernel: "DeviceFunction",
    declared.IndexFlags: "int32_t*",
    declared.HeldTensor: "at::Tensor",
    declared.HeldObject: "Ref",
    declared.Literal: "c10::IValue",
}
INITIAL = {"c10::Device": "c10::kCPU"}
"""What a member begins as, where its type does not say."""
UNIONS = {
    declared.CallArgument: "CallArgument",
    declared.PythonArgument: "PythonArgument",
    declared.PlanOutput: "PlanOutput",
    declared.PlanStep: "PlanStep",
}

HEAD = """\
// Written by tools/plan_records.py from stoker/codegen/plan_records.py, which says what each record and field means.
#pragma once

#include "cuda_driver.h"
#include "ref.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace stoker {

using Kernel = int (*)(void* const*, const int64_t*);  // not 0: which families of indices were out of range

struct PlanRecord;
"""


def cpp_type(hint: object) -> str:
    """The C++ type of a field."""
    if hint in CPP_TYPES:
        return CPP_TYPES[hint]
    if hint in UNIONS:
        return UNIONS[hint]
    if typing.get_origin(hint) is tuple:
        return f"std::vector<{cpp_type(typing.get_args(hint)[0])}>"
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (present,) = (part for part in typing.get_args(hint) if part is not type(None))
        return f"std::optional<{cpp_type(present)}>"
    assert isinstance(hint, type) and (hint in declared.RECORDS or issubclass(hint, IntEnum)), hint
    return hint.__name__


def enum_text(enum: type[IntEnum]) -> str:
    return f"enum class {enum.__name__} : uint8_t {{ {', '.join(member.name for member in enum)} }};\n"


def record_text(record: type) -> str:
    hints = typing.get_type_hints(record, vars(declared))
    members = [(cpp_type(hints[field.name]), field.name) for field in fields(record)]
    lines = [f"struct {record.__name__} {{", f'  static constexpr const char* NAME = "{record.__name__}";']
    for kind, group in groupby(members, key=lambda member: member[0]):
        begins = f"{{{INITIAL.get(kind, '')}}}"
        lines.append(f"  {kind} {', '.join(name + begins for _, name in group)};")
    return "\n".join([*lines, *each_text([name for _, name in members]), "};", ""])


def each_text(names: list[str]) -> list[str]:
    """The member that shows each field, with its name, to a function."""
    opening, calls = "  template <class Field> void each(const Field& field) {", [f'field("{n}", {n});' for n in names]
    line = " ".join([opening, *calls, "}"])
    if len(line) <= WIDTH:
        return [line]
    lines = textwrap.wrap(" ".join(call.replace(" ", "~") for call in calls), WIDTH - 4)
    return [opening, *(f"    {line.replace('~', ' ')}" for line in lines), "  }"]


def union_text(union: object) -> str:
    return f"using {UNIONS[union]} = std::variant<{', '.join(part.__name__ for part in typing.get_args(union))}>;\n"


def header() -> str:
    """The whole file. A union stands as soon as its records do."""
    parts = [HEAD, *(enum_text(enum) for enum in (declared.Arithmetic, declared.LiteralKind))]
    open_unions, known = list(UNIONS), set()
    for record in declared.RECORDS:
        if record not in CPP_TYPES:
            parts.append(record_text(record))
        known.add(record)
        for union in [u for u in open_unions if known.issuperset(typing.get_args(u))]:
            parts.append(union_text(union))
            open_unions.remove(union)
    return "\n".join([*parts, "}  // namespace stoker", ""])


if __name__ == "__main__":
    TARGET.write_text(header())
