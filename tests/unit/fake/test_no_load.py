"""Common operators on fake tensors, forward and backward, load no Dynamo, Inductor or SymPy. In a fresh process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# ruff: noqa: E501  (the program is a table, one operator a line)

PROGRAM = """
import sys
import torch
import torch.nn.functional as F
from stoker import torch_private
from stoker.fake import FakeMode
from stoker.shape import ShapeEnv
from stoker.shape.symnode import symint

BANNED = ("torch._dynamo", "torch._inductor", "sympy")

def check(name):
    loaded = [m for m in BANNED if m in sys.modules]
    if loaded:
        print("loaded", loaded, "by", name)
        sys.exit(1)

def tensor(*sizes, grad=True, dtype=torch.float32):
    return mode.from_real(torch.zeros(sizes, dtype=dtype, requires_grad=grad and dtype.is_floating_point))

def ids(*sizes):
    return tensor(*sizes, dtype=torch.int64)

def run(name, function, *inputs):
    with mode:
        result = function(*inputs)
        check(name + " forward")
        outputs = [r for r in (result if isinstance(result, (list, tuple)) else [result]) if isinstance(r, torch.Tensor)]
        outputs = [r for r in outputs if r.requires_grad and r.grad_fn is not None]
        leaves = tuple(i for i in inputs if isinstance(i, torch.Tensor) and i.requires_grad)
        if outputs and leaves:
            gradients = tuple(torch.ones_like(r) for r in outputs)
            torch_private.run_backward(tuple(outputs), gradients, leaves)
            check(name + " backward")

CASES = {
    "linear": lambda: (F.linear, tensor(2, 3, 4), tensor(5, 4), tensor(5)),
    "layer_norm": lambda: (lambda x, w, b: F.layer_norm(x, (4,), w, b), tensor(2, 3, 4), tensor(4), tensor(4)),
    "rms_norm": lambda: (lambda x, w: F.rms_norm(x, (4,), w), tensor(2, 3, 4), tensor(4)),
    "batch_norm": lambda: (
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b, training=True),
        tensor(2, 3, 4, 4), tensor(3, grad=False), tensor(3, grad=False), tensor(3), tensor(3)),
    "batch_norm eval": lambda: (
        lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b),
        tensor(2, 3, 4, 4), tensor(3, grad=False), tensor(3, grad=False), tensor(3), tensor(3)),
    "group_norm": lambda: (lambda x, w, b: F.group_norm(x, 2, w, b), tensor(2, 4, 3, 3), tensor(4), tensor(4)),
    "conv1d": lambda: (F.conv1d, tensor(2, 3, 9), tensor(4, 3, 3), tensor(4)),
    "conv2d": lambda: (F.conv2d, tensor(2, 3, 9, 9), tensor(4, 3, 3, 3), tensor(4)),
    "conv_transpose2d": lambda: (F.conv_transpose2d, tensor(2, 3, 9, 9), tensor(3, 4, 3, 3), tensor(4)),
    "max_pool2d": lambda: (lambda x: F.max_pool2d(x, 2), tensor(2, 3, 8, 8)),
    "max_pool1d": lambda: (lambda x: F.max_pool1d(x, 2), tensor(2, 3, 8)),
    "avg_pool2d": lambda: (lambda x: F.avg_pool2d(x, 2), tensor(2, 3, 8, 8)),
    "adaptive_avg_pool2d": lambda: (lambda x: F.adaptive_avg_pool2d(x, 2), tensor(2, 3, 8, 8)),
    "adaptive_avg_pool2d 1": lambda: (lambda x: F.adaptive_avg_pool2d(x, 1), tensor(2, 3, 8, 8)),
    "adaptive_max_pool2d": lambda: (lambda x: F.adaptive_max_pool2d(x, 2), tensor(2, 3, 8, 8)),
    "embedding": lambda: (lambda i, w: F.embedding(i, w), ids(2, 3), tensor(7, 4)),
    "cross_entropy": lambda: (F.cross_entropy, tensor(6, 7), ids(6)),
    "cross_entropy 2d": lambda: (F.cross_entropy, tensor(2, 7, 3, 3), ids(2, 3, 3)),
    "label smoothing": lambda: (lambda x, t: F.cross_entropy(x, t, label_smoothing=0.1), tensor(6, 7), ids(6)),
    "mse_loss": lambda: (F.mse_loss, tensor(6, 7), tensor(6, 7)),
    "bce_with_logits": lambda: (F.binary_cross_entropy_with_logits, tensor(6, 7), tensor(6, 7)),
    "nll": lambda: (lambda x, t: F.nll_loss(F.log_softmax(x, -1), t), tensor(6, 7), ids(6)),
    "smooth_l1": lambda: (F.smooth_l1_loss, tensor(6, 7), tensor(6, 7)),
    "kl_div": lambda: (F.kl_div, tensor(6, 7), tensor(6, 7)),
    "attention": lambda: (F.scaled_dot_product_attention, tensor(2, 2, 5, 8), tensor(2, 2, 5, 8), tensor(2, 2, 5, 8)),
    "attention causal": lambda: (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
        tensor(2, 2, 5, 8), tensor(2, 2, 5, 8), tensor(2, 2, 5, 8)),
    "attention mask": lambda: (
        F.scaled_dot_product_attention,
        tensor(2, 2, 5, 8), tensor(2, 2, 5, 8), tensor(2, 2, 5, 8), tensor(2, 1, 5, 5, grad=False)),
    "attention dropout": lambda: (
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.1),
        tensor(2, 2, 5, 8), tensor(2, 2, 5, 8), tensor(2, 2, 5, 8)),
    "matmul": lambda: (torch.matmul, tensor(2, 3, 4), tensor(2, 4, 5)),
    "matmul 4d": lambda: (torch.matmul, tensor(2, 2, 3, 4), tensor(2, 2, 4, 5)),
    "bmm": lambda: (torch.bmm, tensor(2, 3, 4), tensor(2, 4, 5)),
    "einsum": lambda: (lambda a, b: torch.einsum("bij,bjk->bik", a, b), tensor(2, 3, 4), tensor(2, 4, 5)),
    "baddbmm": lambda: (torch.baddbmm, tensor(2, 3, 5), tensor(2, 3, 4), tensor(2, 4, 5)),
    "addmm": lambda: (torch.addmm, tensor(5), tensor(3, 4), tensor(4, 5)),
    "mv": lambda: (torch.mv, tensor(3, 4), tensor(4)),
    "outer": lambda: (torch.outer, tensor(3), tensor(4)),
    "add": lambda: (lambda a, b: a + b + 1, tensor(3, 4), tensor(4)),
    "sub": lambda: (lambda a, b: 1 - (a - b), tensor(3, 4), tensor(4)),
    "mul": lambda: (lambda a, b: a * b * 2.0, tensor(3, 4), tensor(4)),
    "div": lambda: (lambda a, b: a / b / 3, tensor(3, 4), tensor(4)),
    "pow": lambda: (lambda a: a**2 + a**0.5 + 2**a, tensor(3, 4)),
    "floor_divide": lambda: (lambda a: (a // 2, a % 3), ids(3, 4)),
    "unary": lambda: (
        lambda a: a.exp() + a.log() + a.sqrt() + a.rsqrt() + a.sin() + a.cos() + a.abs() + a.neg() + a.tanh() + a.sigmoid()
        + a.erf() + a.log1p() + a.expm1() + a.reciprocal() + a.square() + a.sign() + a.floor() + a.ceil() + a.round(),
        tensor(3, 4)),
    "compare": lambda: (lambda a, b: [a == b, a != b, a < b, a <= b, a > 0, a >= 1, a.isnan(), ~(a > b)], tensor(3), tensor(3)),
    "logic": lambda: (lambda a, b: ((a > 0) & (b > 0) | (a < b)).logical_not(), tensor(3), tensor(3)),
    "where": lambda: (lambda a, b: torch.where(a > 0, a, b), tensor(3, 4), tensor(3, 4)),
    "clamp": lambda: (lambda a: a.clamp(0, 1) + a.clamp_min(0) + torch.maximum(a, a * 2), tensor(3, 4)),
    "cat": lambda: (lambda a, b: torch.cat([a, b], 1), tensor(3, 4), tensor(3, 2)),
    "stack": lambda: (lambda a, b: torch.stack([a, b], 1), tensor(3, 4), tensor(3, 4)),
    "split": lambda: (lambda a: a.split(2, 1), tensor(3, 4)),
    "split sizes": lambda: (lambda a: a.split([1, 3], 1), tensor(3, 4)),
    "chunk": lambda: (lambda a: a.chunk(2, 1), tensor(3, 4)),
    "unbind": lambda: (lambda a: a.unbind(0), tensor(3, 4)),
    "views": lambda: (
        lambda a: a.view(4, 3).reshape(2, 6).permute(1, 0).transpose(0, 1).unsqueeze(0).expand(5, 2, 6)[:, 0, 1:].flatten(),
        tensor(3, 4)),
    "contiguous": lambda: (lambda a: a.t().contiguous() + a.t().clone(), tensor(3, 4)),
    "squeeze": lambda: (lambda a: a.squeeze(1) + a.squeeze(), tensor(3, 1)),
    "index": lambda: (lambda a, i: a[i] + a[:, None, 0][i], tensor(3, 4), ids(4)),
    "index_select": lambda: (lambda a, i: a.index_select(0, i), tensor(3, 4), ids(2)),
    "gather": lambda: (lambda a, i: a.gather(1, i), tensor(3, 4), ids(3, 2)),
    "scatter": lambda: (lambda a, i, s: a.scatter(1, i, s) + a.scatter_add(1, i, s), tensor(3, 4), ids(3, 2), tensor(3, 2)),
    "masked_fill": lambda: (lambda a: a.masked_fill(a > 0, -1.0), tensor(3, 4)),
    "sum": lambda: (lambda a: a.sum() + a.sum(0).sum() + a.sum((0, 1)), tensor(3, 4)),
    "mean": lambda: (lambda a: a.mean() + a.mean(-1, keepdim=True), tensor(3, 4)),
    "var": lambda: (lambda a: a.var(-1) + a.std(-1), tensor(3, 4)),
    "prod": lambda: (lambda a: a.prod(-1), tensor(3, 4)),
    "norm": lambda: (lambda a: a.norm() + torch.linalg.vector_norm(a, dim=-1), tensor(3, 4)),
    "max": lambda: (lambda a: a.max() + a.max(0).values + a.amax(0) + a.min(0)[0], tensor(3, 4)),
    "argmax": lambda: (lambda a: a.argmax(-1), tensor(3, 4)),
    "any": lambda: (lambda a: (a > 0).any() | (a > 0).all(-1), tensor(3, 4)),
    "logsumexp": lambda: (lambda a: a.logsumexp(-1), tensor(3, 4)),
    "topk": lambda: (lambda a: a.topk(2), tensor(3, 4)),
    "cumsum": lambda: (lambda a: a.cumsum(-1), tensor(3, 4)),
    "sort": lambda: (lambda a: a.sort(-1), tensor(3, 4)),
    "argsort": lambda: (lambda a: a.argsort(-1), tensor(3, 4)),
    "softmax": lambda: (lambda a: a.softmax(-1) + a.log_softmax(-1), tensor(3, 4)),
    "gelu": lambda: (lambda a: F.gelu(a) + F.gelu(a, approximate="tanh"), tensor(3, 4)),
    "relu": lambda: (lambda a: F.relu(a) + F.leaky_relu(a) + F.elu(a) + F.relu6(a) + F.softplus(a), tensor(3, 4)),
    "silu": lambda: (lambda a: F.silu(a) + F.mish(a) + F.hardswish(a) + F.hardsigmoid(a), tensor(3, 4)),
    "glu": lambda: (lambda a: F.glu(a, -1), tensor(3, 4)),
    "dropout": lambda: (lambda a: F.dropout(a, 0.1), tensor(3, 4)),
    "tril": lambda: (lambda a: a.tril() + a.triu(1), tensor(4, 4)),
    "casts": lambda: (lambda a: a.half().float() + a.to(torch.bfloat16).double() + a.long(), tensor(3, 4)),
    "type_as": lambda: (lambda a, b: a.type_as(b), tensor(3, 4), tensor(3, dtype=torch.float64)),
    "pad": lambda: (lambda a: F.pad(a, (1, 1)), tensor(3, 4)),
    "pad reflect": lambda: (lambda a: F.pad(a, (1, 1), mode="reflect"), tensor(2, 3, 4)),
    "interpolate": lambda: (lambda a: F.interpolate(a, scale_factor=2), tensor(2, 3, 4, 4)),
    "interpolate bilinear": lambda: (lambda a: F.interpolate(a, size=(7, 7), mode="bilinear"), tensor(2, 3, 4, 4)),
    "factories": lambda: (
        lambda a: a + torch.arange(4) + torch.zeros(4) + torch.ones(4) + torch.full((4,), 2.0) + torch.rand(4) + torch.randn(4)
        + torch.empty(4) + torch.linspace(0, 1, 4) + torch.eye(4) + torch.tensor(1.0) + torch.zeros_like(a) + torch.ones_like(a)
        + a.new_zeros(4) + torch.randint(0, 5, (4,)) + torch.full_like(a, 1) + torch.rand_like(a),
        tensor(4, 4)),
    "repeat": lambda: (lambda a: a.repeat(2, 1) + a.repeat_interleave(2, 0), tensor(3, 4)),
    "roll": lambda: (lambda a: a.roll(1, 0) + a.flip(0), tensor(3, 4)),
    "in place": lambda: (lambda a: (a * 1).add_(1).mul_(2).neg_().sub_(a).copy_(a), tensor(3, 4)),
    "in place view": lambda: (lambda a: _write(a * 1), tensor(3, 4)),
    "complex": lambda: (
        lambda a: torch.view_as_real(torch.view_as_complex(a) * torch.polar(torch.ones(3, 2), torch.ones(3, 2))), tensor(3, 2, 2)),
    "cosine_similarity": lambda: (F.cosine_similarity, tensor(3, 4), tensor(3, 4)),
    "normalize": lambda: (F.normalize, tensor(3, 4)),
    "one_hot": lambda: (lambda i: torch.zeros(3, 5).scatter_(1, i[:, None], 1.0), ids(3)),
    "unfold": lambda: (lambda a: a.unfold(1, 2, 1), tensor(3, 4)),
    "pixel_shuffle": lambda: (lambda a: F.pixel_shuffle(a, 2), tensor(1, 4, 3, 3)),
    "addcmul": lambda: (lambda a, b: torch.addcmul(a, a, b) + torch.lerp(a, b, 0.5), tensor(3), tensor(3)),
    "isin mask": lambda: (lambda a: torch.finfo(a.dtype).min * (1.0 - a), tensor(3, 4)),
    "diagonal": lambda: (lambda a: a.diagonal() + a.trace(), tensor(3, 3)),
}

def _write(x):
    x[0] = 1.0
    x[:, 1] += 2.0
    x[1:, 2:].zero_()
    return x

failed = []
mode = FakeMode(ShapeEnv())
for name, make in CASES.items():
    function, *inputs = make()
    try:
        run(name, function, *inputs)
    except Exception as error:
        failed.append(f"{name}: {type(error).__name__} {error}")
env = ShapeEnv()
mode = FakeMode(env)
batch = symint(env, env.new_symbol(4))
x = mode.from_real(torch.zeros(4, 8, requires_grad=True), sizes=[batch, 8])
run("symbolic mlp", lambda x, w: F.layer_norm(F.gelu(F.linear(x, w)), (5,)).softmax(-1).mean(), x, tensor(5, 8))
check("symbolic")
print("\\n".join(failed))
sys.exit(bool(failed))
"""


def test_common_operators_load_no_compiler() -> None:
    root = Path(__file__).parents[3]
    result = subprocess.run([sys.executable, "-c", PROGRAM], cwd=root, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
