"""Loops: the intermediate language between operators and kernels.

A lowered program is a list of nodes: loop nests that say how one element is computed, and calls of library operators. The body
of a nest is written as a Python function over `ops` and recorded as instructions; indices are the same integer expressions as
sizes.

>>> import torch
>>> from stoker.loop import Recorder, ops, using
>>> from stoker.loop.text import instruction_text
>>> from stoker.shape.expr import symbol
>>> i = symbol("i0")
>>> with using(Recorder()) as recorder:
...     x = ops.load("x", 2 * i, torch.float32)
...     ops.store("y", i, ops.mul(x, x))
>>> for number, instruction in enumerate(recorder.instructions):
...     print(instruction_text(number, instruction))
v0 = x[2*i0]
v1 = mul(v0, v0)
y[i0] = v1

Reading order: `handler`, `op`, `instruction`, `body`, `layout`, `index`, `view`, `node`; companions: `text`,
`check`, `memory`.
"""

from stoker.loop.body import LoopValue, Recorder
from stoker.loop.handler import ops, using
from stoker.loop.instruction import LoopInstruction
from stoker.loop.layout import Layout
from stoker.loop.node import Extern, Loops, Program

__all__ = ["Extern", "Layout", "LoopInstruction", "LoopValue", "Loops", "Program", "Recorder", "ops", "using"]
