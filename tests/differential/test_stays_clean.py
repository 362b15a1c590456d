"""PyTorch's own compiler is never loaded, and nowhere named, by ours."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
import torch
import torch.nn.functional as F
import stoker

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(50, 16)
        self.conv = torch.nn.Conv1d(16, 16, 3, padding=1)
        self.norm = torch.nn.LayerNorm(16)
        self.batch = torch.nn.BatchNorm1d(16)
        self.qkv = torch.nn.Linear(16, 48)
        self.out = torch.nn.Linear(16, 50)
        self.drop = torch.nn.Dropout(0.1)

    def forward(self, tokens):
        x = self.embed(tokens)
        x = x + self.batch(self.conv(x.transpose(1, 2))).transpose(1, 2)
        q, k, v = self.qkv(self.norm(x)).view(2, 8, 3, 2, 8).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(2, 8, 16)
        x = F.gelu(x) + F.silu(x) * torch.sigmoid(x) + F.relu(x).softmax(-1)
        return self.out(self.drop(x))

net = stoker.compile(Net(), backend=BACKEND)
tokens = torch.randint(0, 50, (2, 8))

@stoker.compile(backend=BACKEND)
def loss_of(logits, tokens):
    return F.cross_entropy(logits.view(-1, 50), tokens.view(-1))

loss = loss_of(net(tokens), tokens)
loss.backward()
assert all(p.grad is not None for p in net.parameters())
loaded = [name for name in ("torch._dynamo", "torch._inductor", "sympy") if name in sys.modules]
assert not loaded, loaded
print("clean")
"""


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_common_operators_load_nothing_of_torchs_compiler(backend):
    program = PROGRAM.replace("BACKEND", repr(backend))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, env=_environment())
    assert done.stdout.strip() == "clean", done.stderr[-2000:]


def _environment() -> dict[str, str]:
    import os

    return {**os.environ, "PYTHONPATH": str(ROOT), "STOKER_STRICT": "1"}


BANNED = re.compile(
    r"torch\.(_dynamo|_inductor|_C\._dynamo|export|jit|compile\()|_functorch\.(aot_autograd|partitioners)"
)


def test_our_code_names_none_of_it():
    """Outside torch_private.py, which keeps the names that must be answered or honoured, and words in comments."""
    found = []
    for path in [*(ROOT / "stoker").rglob("*.py"), *(ROOT / "csrc").iterdir()]:
        if path.name == "torch_private.py" or path.suffix not in (".py", ".cpp", ".h"):
            continue
        in_docstring = False
        for number, line in enumerate(path.read_text().splitlines(), start=1):
            in_docstring ^= line.count('"""') % 2 == 1
            code = line.split("#")[0].split("//")[0]
            if BANNED.search(code) and not in_docstring and '"' not in code:
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()}")
    assert found == []
