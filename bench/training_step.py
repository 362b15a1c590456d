"""What a training step costs beside the compiled graphs themselves, for a function of two operators.

    python bench/training_step.py

The step is a forward, and `torch.autograd.grad`. The back end's own work is measured by calling the two compiled graphs
directly, on the same tensors. What is left is torch's engine, which one eager addition pays as well, and our node: the
step whose graphs do nothing shows it, beside the same step with a node of eager's own (an addition) and with one written
as a torch.autograd.Function. They take turns; microseconds of the thread's own time, so that other processes do not
count; quartiles over rounds.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

import stoker
from stoker.autograd import aot
from stoker.autograd.compile import run_boxed, run_eagerly

ROUNDS, NUMBER = 41, 400


def two(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * w


def nothing(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return torch.empty(8), x, w


def no_gradients(x: torch.Tensor, w: torch.Tensor, seed: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return seed, seed


class Idle(torch.autograd.Function):
    """A node that does nothing, as a user would write it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, w)
        return torch.empty(8)

    @staticmethod
    def backward(ctx: Any, seed: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return seed, seed


def main() -> None:
    x, w = torch.randn(8, requires_grad=True), torch.randn(8, requires_grad=True)
    halves: list[Any] = []

    def keep(module: Any, inputs: list[Any], compiler: Any = run_eagerly) -> Any:
        made = compiler(module, inputs)
        halves.append(made)
        return made

    def backend(graph: Any, inputs: list[Any]) -> Any:
        boxed = lambda m, i: keep(m, i, run_boxed)  # noqa: E731
        return aot(graph, inputs, forward_compiler=keep, backward_compiler=boxed)

    captured = torch.fx.symbolic_trace(lambda x, w: (two(x, w),))
    call = backend(captured, [x, w])
    forward, backward = halves[:2]
    through_capture = stoker.compile(two, backend=backend)
    through_capture(x, w)
    seed = torch.ones(8)
    idle = aot(captured, [x, w], forward_compiler=lambda m, i: nothing, backward_compiler=lambda m, i: no_gradients)
    grad = torch.autograd.grad

    def own() -> None:
        with torch.no_grad():
            kept = forward(x, w)[1:]
            backward([*kept, seed])

    functions = {
        "the compiled graphs alone": own,
        "aot": lambda: grad(call(x, w), [x, w], [seed]),
        "capture and aot": lambda: grad(through_capture(x, w), [x, w], [seed]),
        "aot, graphs do nothing": lambda: grad(idle(x, w), [x, w], [seed]),
        "torch.autograd.Function": lambda: grad(Idle.apply(x, w), [x, w], [seed]),  # type: ignore[no-untyped-call]
        "eager x + w": lambda: grad(x + w, [x, w], [seed]),
        "eager": lambda: grad(two(x, w), [x, w], [seed]),
    }
    found: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(ROUNDS):
        for name, function in functions.items():
            started = time.thread_time()
            for _ in range(NUMBER):
                function()
            found[name].append((time.thread_time() - started) / NUMBER * 1e6)
    for name, values in found.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name:28} {min(values):6.1f} us at least, {low:.1f} {middle:.1f} {high:.1f} by quartiles")


if __name__ == "__main__":
    main()
