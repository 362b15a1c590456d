"""The records of a plan are declared once: C++ has the same, they are plain data, and mistakes in them are named."""

from __future__ import annotations

import dataclasses
import marshal

import pytest
import torch

from stoker import _C
from stoker.codegen import plan_records as record
from stoker.codegen.plan_records import BufferSlot, Number, PlanRecord, plain
from tools.plan_records import TARGET, header

EMPTY = PlanRecord(
    slot_count=1, inputs=(BufferSlot(0),), constants=(), numbers=(3, 1, 0), symbols=(), arithmetic=(), arenas=(), steps=(),
    outputs=(), takes_list=False, device=None, flags=None, aligned=(), narrow=(), first_write=0,
)  # fmt: skip
SHAPE = (Number(0),), (Number(1),)
WHOLE = record.TensorView(BufferSlot(0), record.Dtype("float32"), *SHAPE, Number(2), True)
LAYOUT = record.BufferLayout(record.Dtype("float32"), *SHAPE, record.Device("cpu"))


def made(objects: tuple[object, ...] = (), **fields: object) -> _C.Plan:
    return _C.Plan(plain(dataclasses.replace(EMPTY, **fields)), objects)


def test_the_header_is_what_the_tool_writes() -> None:
    assert TARGET.read_text() == header(), "run tools/plan_records.py"


def test_every_record_is_listed_once_after_those_it_holds() -> None:
    declared = [v for v in vars(record).values() if isinstance(v, type) and dataclasses.is_dataclass(v)]
    assert sorted(declared, key=repr) == sorted(record.RECORDS, key=repr)


def test_a_plan_is_plain_data() -> None:
    call = record.CallStep(record.Operator("aten::relu"), (WHOLE,), (BufferSlot(1),), (LAYOUT,))
    described = plain(dataclasses.replace(EMPTY, slot_count=2, steps=(call,), outputs=(WHOLE,)))
    assert marshal.loads(marshal.dumps(described)) == described
    with pytest.raises(TypeError, match="not plain data"):
        plain((torch.ones(1),))


def test_a_plan_runs_from_what_a_file_held() -> None:
    call = record.CallStep(record.Operator("aten::relu"), (WHOLE,), (BufferSlot(1),), (LAYOUT,))
    result = dataclasses.replace(WHOLE, slot=BufferSlot(1))
    described = plain(dataclasses.replace(EMPTY, slot_count=2, steps=(call,), outputs=(result,)))
    (given,) = _C.Plan(marshal.loads(marshal.dumps(described)), ())(torch.tensor([-1.0, 0.0, 2.0]))
    assert given.tolist() == [0.0, 0.0, 2.0]


DTYPES = [value for value in vars(torch).values() if isinstance(value, torch.dtype)]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_dtypes_are_known_by_torch_s_names(dtype: torch.dtype) -> None:
    """A buffer of the type is allocated, and given back."""
    name = record.Dtype(str(dtype).removeprefix("torch."))
    step = record.AllocateStep(BufferSlot(0), dataclasses.replace(LAYOUT, dtype=name))
    (given,) = made(inputs=(), steps=(step,), outputs=(dataclasses.replace(WHOLE, dtype=name),))()
    assert given.dtype is dtype and given.shape == (3,)


OUTPUTS = {
    "number": (record.NumberArgument(Number(0)), 3),
    "object": (record.ObjectOutput(record.HeldObject(0)), "held"),
}


@pytest.mark.parametrize("kind", OUTPUTS)
def test_outputs(kind: str) -> None:
    output, expected = OUTPUTS[kind]
    assert made(("held",), inputs=(None,), outputs=(output,))(0) == (expected,)


FREE, LITERAL = record.FreeStep(BufferSlot(0)), record.Literal(record.LiteralKind.FLOAT, "one")
WRONG = {
    "a field of a step": (
        {"steps": (FREE, record.RunStep(record.NativeKernel(0), 7, ()))},
        r"PlanRecord\.steps\[1\] > RunStep\.slots: expected a tuple, not int",
    ),
    "a field of a view of an argument": (
        {"outputs": (dataclasses.replace(WHOLE, whole=1),)},
        r"PlanRecord\.outputs\[0\] > TensorView\.whole: expected a bool, not int",
    ),
    "a record of another kind": (
        {"steps": (LAYOUT,)},
        r"PlanRecord\.steps\[0\]: expected one of AllocateStep FreeStep .* PythonStep, not tuple",
    ),
    "an object that is not there": (
        {"steps": (record.RunStep(record.NativeKernel(1), (), ()),)},
        r"steps\[0\] > RunStep\.kernel: there is no such object",
    ),
    "an object of another type": (
        {"constants": (record.PlanConstant(BufferSlot(0), record.HeldTensor(0)),)},
        r"constants\[0\] > PlanConstant\.value: expected a tensor, not int",
    ),
    "a literal of another type": (
        {"steps": (record.CallStep(record.Operator("aten::relu"), (record.LiteralArgument(LITERAL),), (), ()),)},
        r"CallStep\.arguments\[0\] > LiteralArgument\.literal: expected a float, not str",
    ),
    "a place below zero": ({"inputs": (BufferSlot(-1),)}, r"PlanRecord\.inputs\[0\]: a place is out of range"),
    "a number that does not fit": ({"numbers": (1 << 63,)}, r"PlanRecord\.numbers\[0\]: .* does not fit into 64 bits"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_mistake_is_told_by_the_names_of_record_and_field(case: str) -> None:
    fields, words = WRONG[case]
    with pytest.raises(ValueError, match=words):
        made((5,), **fields)


def test_fields_too_few_and_too_many() -> None:
    described = plain(EMPTY)
    with pytest.raises(ValueError, match=r"PlanRecord\.first_write: it is missing"):
        _C.Plan(described[:-1], ())
    with pytest.raises(ValueError, match="PlanRecord: it has more fields than are known"):
        _C.Plan((*described, None), ())


def test_a_plan_that_is_not_for_an_input_calls_what_is() -> None:
    """Where an input must begin at a multiple of 16 bytes and does not."""
    encoded = plain(dataclasses.replace(EMPTY, outputs=(WHOLE,), aligned=(0,)))
    plan = _C.Plan(encoded, (), lambda *inputs: "otherwise")
    memory = torch.empty(64)
    first = -memory.data_ptr() % 16 // 4
    aligned, other = memory[first : first + 3], memory[first + 1 : first + 4]
    (found,) = plan(aligned)
    assert found.data_ptr() == aligned.data_ptr() and plan(other) == "otherwise"


def test_a_plan_whose_kernels_compute_in_32_bits_is_not_for_large_numbers() -> None:
    symbols = (record.SymbolRead(Number(0), 1, None, False),)
    fields = {
        "inputs": (BufferSlot(0), None),
        "symbols": symbols,
        "narrow": (Number(0),),
        "outputs": (record.NumberArgument(Number(0)),),
    }
    plan = _C.Plan(plain(dataclasses.replace(EMPTY, **fields)), (), lambda *inputs: "otherwise")
    for number, small in (
        (7, True),
        (-7, True),
        (2**31 - 2**16 - 1, True),
        (2**31 - 2**16, False),
        (-(2**31), False),
        (2**40, False),
    ):
        assert plan(torch.empty(1), number) == ((number,) if small else "otherwise")
