"""A branch on data whose one side only raises: the graph checks that the other is taken.

In:  a branch of the program, and the tensor or the number it looks at.
Out: the side that does not raise, and a node that raises where the data say otherwise.

What raises in a graph is taken back (`stoker.graph.undo`, csrc/dispatch.h): CPython runs the frame from its start, and does what the
program does on the side that raises. So nothing depends on what that side does; that it raises says that it is seldom taken.
"""

from __future__ import annotations

import torch

from stoker.bytecode import Instruction
from stoker.capture.frame import DecodedCode, Frame
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.fake import FakeTensor
from stoker.graph.undo import UNEXPECTED
from stoker.shape.condition import Comparison, Eq, Not, Relation, holds
from stoker.shape.env import DataDependent, ShapeEnv
from stoker.shape.expr import Expr
from stoker.shape.symnode import BoolNode
from stoker.shape.walk import free_symbols

_LONGEST = 200
"""How many instructions of a side are looked at."""
_FEW = 2
_LARGE = 1 << 20
"""A size that is no case of its own."""
LEAVES = frozenset({"RETURN_VALUE", "RETURN_CONST", "RETURN_GENERATOR", "YIELD_VALUE", "RERAISE", "SEND"})
JUMPS = frozenset({"JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})


def truth_where_not_raised(m: Machine, f: Frame, jump: Instruction, value: Value, jumps_if: bool) -> bool | None:
    """The truth of a value on the side of a jump that does not raise, now checked by the graph; None if both or none do."""
    if isinstance(value, SymbolicValue) and value.python_type() is int and value.untold:
        value = m.operators.compare("!=", value, Constant(0))
    if not _is_one_truth(value) or _writes_history(m):
        return None
    raises_if = {
        jumps_if: leads_to_raise(f.program, f.program.index[id(jump.value)]),
        not jumps_if: leads_to_raise(f.program, f.position),
    }
    if raises_if[True] == raises_if[False]:
        return None
    expected = raises_if[False]
    if isinstance(value, SymbolicValue):
        assume(m, value if expected else m.operators.not_(value))
        return expected
    condition = value if expected else m.record.method(value, "logical_not", [], {})
    m.record.call(torch.ops.aten._assert_async.msg, [condition, Constant(UNEXPECTED)], {}, keep=True)
    return expected


def can_assume(m: Machine) -> bool:
    """Can the frame be run again from its start, in CPython, where a condition does not hold?"""
    return not _writes_history(m)


def assume(m: Machine, condition: Value) -> None:
    """Go on as if a condition held that only data tells; the graph checks it."""
    assert isinstance(condition, SymbolicValue)
    m.sizes.condition_node(m, condition.symbol)
    m.record.call(torch.ops.aten._assert_scalar.default, [condition, Constant(UNEXPECTED)], {}, keep=True)


def assume_it_divides(m: Machine, operator: str, number: Value, divisor: Value) -> None:
    """An integer that only data tells divides a number: go on as if it were not 0."""
    if operator.removesuffix("=") not in DIVISIONS or not isinstance(divisor, SymbolicValue):
        return
    if (
        number.python_type() not in (int, float)
        or divisor.python_type() is not int
        or not divisor.untold
        or _writes_history(m)
    ):
        return
    zero = m.operators.compare("==", divisor, Constant(0))
    if isinstance(zero, SymbolicValue) and zero.symbol.node.is_unknown():
        assume(m, m.operators.compare("!=", divisor, Constant(0)))


DIVISIONS = ("/", "//", "%")


def assumes_sizes_fit(m: Machine, asked: DataDependent) -> bool:
    """An operator asks about sizes of which only data tells: whether two are the same, where eager would refuse others, but for 1; or how
    one stands to a number. Go on as with most sizes; False if it asked something else."""
    condition, env = asked.condition, asked.env
    if not isinstance(condition, Comparison) or env is None or _writes_history(m):
        return False
    if not all(map(m.sizes.tells, free_symbols(condition.expr))):
        return False
    equality = condition.relation is not Relation.LE
    if equality and (asked.needed or _are_two_sizes(condition.expr)):
        expected = Eq(condition.expr, 0)
    elif (usual := _usual(env, condition.expr)) is not None:
        expected = condition if holds(condition, dict.fromkeys(free_symbols(condition.expr), usual)) else Not(condition)
    else:
        return False
    assume(m, SymbolicValue(torch.SymBool(BoolNode(env, expected))))
    return True


def _usual(env: ShapeEnv, difference: Expr) -> int | None:
    """What a size, or a number that an operator takes, is taken for where it is compared with a number; None if it is compared with others.

    Most are no 0 or 1, which are cases of their own, and not negative, and below a limit of a million. Of a size with a bound the largest is
    taken: it holds a window, or as many elements as are asked for. A number that may be anything, as how many are asked for, is few."""
    one_sign = len({coefficient > 0 for _, coefficient in difference.terms}) == 1
    told = [symbol for symbol in free_symbols(difference) if symbol not in env.hints]
    if not one_sign or not told:
        return None
    most = min(env.ranges[symbol].high for symbol in told)
    if abs(difference.offset) <= 1 or abs(difference.offset) > _LARGE:
        return int(min(most, _LARGE)) if most > 1 else None
    return int(most) if most < _LARGE else _FEW


def _are_two_sizes(difference: Expr) -> bool:
    """Is it the difference of two sizes, none of which is 0 or 1, which operators ask for with other intent?"""
    signs = {coefficient > 0 for _, coefficient in difference.terms}
    return len(signs) == 2 or abs(difference.offset) > 1 and signs == {difference.offset < 0}


def _is_one_truth(value: Value) -> bool:
    if isinstance(value, SymbolicValue):
        return value.python_type() is bool and value.symbol.node.is_unknown()
    return isinstance(value, TensorValue) and value.fake.device.type == "cpu" and value.fake.numel() == 1


def _writes_history(m: Machine) -> bool:
    """Was something written that a copy does not bring back: a tensor that autograd follows?"""
    fakes = [node.meta.get("example_value") for node, _, _ in m.record.inputs]
    return any(isinstance(fake, FakeTensor) and fake.memory.written and fake.requires_grad for fake in fakes)


def leads_to_raise(program: DecodedCode, start: int) -> bool:
    """Does every way on from an instruction end at a `raise`?"""
    pending, seen = [start], set()
    while pending:
        position = pending.pop()
        if position in seen:
            continue
        seen.add(position)
        instruction = program.instructions[position]
        if instruction.name in LEAVES or len(seen) > _LONGEST:
            return False
        if instruction.name == "RAISE_VARARGS":
            continue
        if isinstance(instruction.value, Instruction):
            pending.append(program.index[id(instruction.value)])
        if instruction.name not in JUMPS:
            pending.append(position + 1)
    return True
