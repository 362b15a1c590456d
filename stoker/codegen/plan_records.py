"""The plan as the executor reads it: the one declaration of its records.

In:  what stoker/codegen/executor.py fills in.
Out: `plain`, the same as tuples, numbers and text alone, which `_C.Plan` reads and a file can hold; and csrc/plan_records.h, the same
     records in C++ with their reader, written by tools/plan_records.py.

A record in plain form is a tuple: its class's name, then its fields in the order declared here. What is not plain (addresses of
kernels, tensors, functions) stands beside a plan, in a tuple of objects; a field of such a type is a place in it.

Requirements, held by tests/tables/test_plan_records.py:
  1. csrc/plan_records.h is what tools/plan_records.py writes.
  2. The plain form of a plan survives `marshal`.
  3. What cannot be read is told by the names of record and field.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum
from operator import attrgetter
from typing import NewType, TypeAlias

Plain: TypeAlias = None | bool | int | float | str | tuple["Plain", ...]

BufferSlot = NewType("BufferSlot", int)
"""A place for a buffer, among those of a call."""
Number = NewType("Number", int)
"""A place among the numbers of a call: a constant, a symbol read from an input, or computed from others."""
Dtype = NewType("Dtype", str)
"""As torch names it: `float32`."""
Device = NewType("Device", str)
Operator = NewType("Operator", str)
"""With its overload: `aten::add.Tensor`."""

NativeKernel = NewType("NativeKernel", int)
"""Among the objects: the address of a function of C."""
DeviceKernel = NewType("DeviceKernel", int)
"""Among the objects: the driver's handle of a kernel."""
IndexFlags = NewType("IndexFlags", int)
"""Among the objects: the address of the flags that kernels on a device set."""
HeldTensor = NewType("HeldTensor", int)
"""Among the objects: a tensor."""
HeldObject = NewType("HeldObject", int)
"""Among the objects: any object of Python."""


Arithmetic = IntEnum("Arithmetic", "ADD MUL FLOORDIV MOD MIN MAX", start=0)
"""Operations on numbers."""
LiteralKind = IntEnum("LiteralKind", "NONE UNDEFINED BOOL INT FLOAT TEXT DTYPE DEVICE BOOLS FLOATS SCALARS", start=0)
"""What the dispatcher is to make of a literal."""


@dataclass(frozen=True, slots=True)
class Literal:
    """An argument known when the plan was made."""

    kind: LiteralKind
    value: Plain


@dataclass(frozen=True, slots=True)
class BufferLayout:
    """Memory to be had, or what a result's strides must be: another layout is copied."""

    dtype: Dtype
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    device: Device


@dataclass(frozen=True, slots=True)
class TensorView:
    """A buffer, seen with sizes, strides and an offset in elements; a whole one is its tensor itself."""

    slot: BufferSlot
    dtype: Dtype
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    offset: Number
    whole: bool


@dataclass(frozen=True, slots=True)
class NumberArgument:
    number: Number


@dataclass(frozen=True, slots=True)
class NumbersArgument:
    numbers: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class ViewsArgument:
    views: tuple[TensorView, ...]


@dataclass(frozen=True, slots=True)
class OptionalViewsArgument:
    views: tuple[TensorView | None, ...]


@dataclass(frozen=True, slots=True)
class LiteralArgument:
    literal: Literal


@dataclass(frozen=True, slots=True)
class ObjectOutput:
    """What is given back as it is."""

    value: HeldObject


CallArgument = TensorView | NumberArgument | NumbersArgument | ViewsArgument | OptionalViewsArgument | LiteralArgument
PythonArgument = TensorView | NumberArgument
PlanOutput = TensorView | NumberArgument | ObjectOutput


@dataclass(frozen=True, slots=True)
class AllocateStep:
    slot: BufferSlot
    layout: BufferLayout


@dataclass(frozen=True, slots=True)
class FreeStep:
    slot: BufferSlot


@dataclass(frozen=True, slots=True)
class RunStep:
    """Call a kernel of the processor."""

    kernel: NativeKernel
    slots: tuple[BufferSlot, ...]
    sizes: tuple[Number, ...]


@dataclass(frozen=True, slots=True)
class LaunchStep:
    """Launch a kernel of a device."""

    kernel: DeviceKernel
    threads: int
    shared_bytes: int
    overlaps: bool
    """May it be placed before the kernel ahead of it has ended? It waits for that one by itself."""
    programs: Number
    """The size of the grid."""
    slots: tuple[BufferSlot, ...]
    written: tuple[bool, ...]
    """For each slot: is it written?"""
    value_bytes: tuple[int, ...]
    """For each slot: the bytes of the number in it, which the kernel takes; 0 where it takes the address."""
    sizes: tuple[Number, ...]
    watches: bool
    """Does it take the flags for indices out of range?"""
    origins: str
    """The operators it stands for, for errors."""
    hands_on: bool
    """Is it the next launch that uses these buffers? Copies of them are then written back after that one."""


@dataclass(frozen=True, slots=True)
class CallStep:
    """Call an operator through the dispatcher. A result without a slot is dropped."""

    callee: Operator
    arguments: tuple[CallArgument, ...]
    results: tuple[BufferSlot | None, ...]
    layouts: tuple[BufferLayout | None, ...]


@dataclass(frozen=True, slots=True)
class PythonStep:
    """Call a function of Python, where only Python can pass the arguments."""

    callee: HeldObject
    arguments: tuple[PythonArgument, ...]
    results: tuple[BufferSlot | None, ...]
    layouts: tuple[BufferLayout | None, ...]
    several: bool
    """Does it give a tuple?"""


PlanStep = AllocateStep | FreeStep | RunStep | LaunchStep | CallStep | PythonStep


@dataclass(frozen=True, slots=True)
class PlanConstant:
    slot: BufferSlot
    value: HeldTensor


@dataclass(frozen=True, slots=True)
class SymbolRead:
    """A number read from an argument: the size of a dimension or its stride; without a dimension the argument itself."""

    number: Number
    argument: int
    dimension: int | None
    stride: bool


@dataclass(frozen=True, slots=True)
class NumberStep:
    how: Arithmetic
    target: Number
    a: Number
    b: Number


@dataclass(frozen=True, slots=True)
class ArenaPlace:
    slot: BufferSlot
    offset_bytes: Number


@dataclass(frozen=True, slots=True)
class ArenaRecord:
    """Temporaries of one device: a block of memory, and where each lies in it."""

    device: Device
    size_bytes: Number
    places: tuple[ArenaPlace, ...]


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """Everything a call does."""

    slot_count: int
    inputs: tuple[BufferSlot | None, ...]
    """None for one that is a number."""
    constants: tuple[PlanConstant, ...]
    numbers: tuple[int, ...]
    symbols: tuple[SymbolRead, ...]
    arithmetic: tuple[NumberStep, ...]
    arenas: tuple[ArenaRecord, ...]
    steps: tuple[PlanStep, ...]
    outputs: tuple[PlanOutput, ...]
    takes_list: bool
    """Are the inputs given in one list, which is emptied?"""
    device: int | None
    """The CUDA device that kernels are launched on."""
    flags: IndexFlags | None
    aligned: tuple[int, ...]
    """Inputs that the plan is for only where they begin at a multiple of 16 bytes."""
    narrow: tuple[Number, ...]
    """Numbers that the plan is for only where they fit into 32 bits, in which kernels compute with them."""
    first_write: int
    """The first step that writes to an input: an error from there on bears the mark `WRITTEN` of csrc/dispatch.h."""


RECORDS: tuple[type, ...] = (
    Literal, BufferLayout, TensorView, NumberArgument, NumbersArgument, ViewsArgument, OptionalViewsArgument, LiteralArgument,
    ObjectOutput, AllocateStep, FreeStep, RunStep, LaunchStep, CallStep, PythonStep, PlanConstant, SymbolRead, NumberStep,
    ArenaPlace, ArenaRecord, PlanRecord,
)  # fmt: skip
"""Each record, those it holds before it."""


_FIELDS = {record: attrgetter("__class__.__name__", *(f.name for f in fields(record))) for record in RECORDS}
"""For each record, what its plain form is made of."""
_PLAIN = frozenset({type(None), bool, int, float, str})


def plain(value: object) -> Plain:
    """A record, or what a field of one holds, as plain data.

    >>> plain(FreeStep(BufferSlot(3)))
    ('FreeStep', 3)
    """
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[return-value]  # of one of those types
    if kind is not tuple:
        if kind not in _FIELDS:
            return _number(value)
        value = _FIELDS[kind](value)
    return tuple([plain(part) for part in value])  # type: ignore[attr-defined]  # a tuple, given or made of a record


def _number(value: object) -> int:
    if isinstance(value, IntEnum):
        return int(value)
    raise TypeError(f"a plan cannot hold {value!r}: it is not plain data")
