"""What one operator on fake tensors costs, from the Python call to the result.

Run: PYTHONPATH=. python bench/fake.py
"""

from __future__ import annotations

import timeit
from collections.abc import Callable

import torch

from stoker.fake import FakeMode, propagate
from stoker.shape import ShapeEnv
from stoker.shape.symnode import symint


def microseconds(function: Callable[[], object], number: int = 5000) -> float:
    """The least of five averages."""
    return min(timeit.repeat(function, number=number, repeat=5)) / number * 1e6


def main() -> None:
    """Print a line for each case."""
    env = ShapeEnv()
    mode = FakeMode(env)
    a, b = mode.from_real(torch.zeros(8, 128)), mode.from_real(torch.zeros(128))
    w = mode.from_real(torch.zeros(128, 64))
    batch = symint(env, env.new_symbol(8))
    s = mode.from_real(torch.zeros(8, 128), sizes=[batch, 128])
    cases = {
        "add": lambda: a + b,
        "relu": lambda: torch.relu(a),
        "mm": lambda: a @ w,
        "view": lambda: a.view(-1, 64),
        "sum": lambda: a.sum(-1),
        "add, symbolic": lambda: s + b,
        "view, symbolic": lambda: s.view(-1, 64),
        "zeros": lambda: torch.zeros(8, 128),
    }

    def forget() -> None:
        propagate.STATIC_MEMO.clear()
        mode.memo.clear()

    with mode:
        for name, case in cases.items():
            case()
            hit = microseconds(case)
            clearing = microseconds(forget)
            miss = microseconds(lambda case=case: (forget(), case())) - clearing
            print(f"{name:20} memoized {hit:6.1f} us   computed {miss:6.1f} us")
        x, y = symint(env, env.new_symbol(16)), batch
        print(f"{'SymInt x * y + 1':20} {microseconds(lambda: x * y + 1):6.1f} us")
    p, q = env.new_symbol(5), env.new_symbol(7)
    print(f"{'Expr p * q + 1':20} {microseconds(lambda: p * q + 1):6.1f} us")


if __name__ == "__main__":
    main()
