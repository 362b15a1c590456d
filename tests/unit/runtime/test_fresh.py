"""A fresh process that compiles, trains, and packs weights loads neither Dynamo, Inductor nor SymPy, and has one OpenMP runtime."""

from __future__ import annotations

import subprocess
import sys
import textwrap

PROGRAM = """
import sys, torch, torch.nn.functional as F
import stoker
from stoker.autograd import aot
from stoker.pipeline import compile_captured

def f(x, w, b):
    h = F.layer_norm(F.gelu(F.linear(x, w, b)), (16,))
    return (torch.cat([h.softmax(-1), h.exp()], -1).sum(0),)

x, w, b = (torch.randn(*s, requires_grad=True) for s in ((6, 8), (16, 8), (16,)))
compile_captured(torch.fx.symbolic_trace(f), [x, w, b])(x, w, b)[0].sum().backward()

stoker.pipeline.choose_linear = lambda *shape, thorough: "onednn"
model = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.Flatten(), torch.nn.Linear(8, 16), torch.nn.GELU())
with torch.no_grad():
    stoker.compile(model.eval())(torch.randn(2, 1, 4, 4))
print([m for m in ("torch._dynamo", "torch._inductor", "sympy") if m in sys.modules])
print(len({line.split()[-1] for line in open("/proc/self/maps") if "gomp" in line or "iomp" in line}))
"""


def test_fresh_process() -> None:
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(PROGRAM)], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["[]", "1"]
