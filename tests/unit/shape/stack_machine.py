"""What the stack machine of `stoker.shape.condition.program` answers: the meaning of a program, which its C++ form is tested against."""

from __future__ import annotations

from collections.abc import Callable

from stoker.shape.condition import Instruction


def run_program(code: list[Instruction], values: list[int]) -> bool:
    stack: list[int] = []
    for name, argument in code:
        if name == "CONST":
            stack.append(argument)
        elif name == "SYMBOL":
            stack.append(values[argument])
        elif name == "NOT":
            stack.append(not stack.pop())
        else:
            right, left = stack.pop(), stack.pop()
            stack.append(_MEANING[name](left, right))
    return bool(stack.pop())


_MEANING: dict[str, Callable[[int, int], int]] = {
    "ADD": lambda a, b: a + b,
    "SUB": lambda a, b: a - b,
    "MUL": lambda a, b: a * b,
    "FLOORDIV": lambda a, b: a // b,
    "MOD": lambda a, b: a % b,
    "MIN": min,
    "MAX": max,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "AND": lambda a, b: bool(a and b),
    "OR": lambda a, b: bool(a or b),
}
