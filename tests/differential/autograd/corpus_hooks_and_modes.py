"""Hooks, several backwards, gradients of gradients, modes, checkpointing, custom functions, optimizers."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from .corpus import leaf, program


@program
def hooks_on_tensor(compiled):
    seen = []

    def f(x):
        y = x.sin()
        y.register_hook(lambda g: g * 2)
        return y * 3

    x = leaf(4)
    compiled(f)(x).sum().backward()
    return [x.grad]


@program
def hook_on_output(compiled):
    x = leaf(4)
    y = compiled(lambda x: x.sin() * 2)(x)
    s = []
    y.register_hook(lambda g: (s.append(g.clone()), g * 3)[1])
    y.sum().backward()
    return [x.grad, *s]


@program
def hook_on_input(compiled):
    x = leaf(4)
    s = []
    x.register_hook(lambda g: s.append(g.clone()))
    compiled(lambda x: x.sin() * 2)(x).sum().backward()
    return [x.grad, *s]


@program
def post_accumulate_hook(compiled):
    x = leaf(4)
    s = []
    x.register_post_accumulate_grad_hook(lambda p: s.append(p.grad.clone()))
    compiled(lambda x: x.sin() * 2)(x).sum().backward()
    return [x.grad, *s]


@program
def module_hooks(compiled):
    m = nn.Linear(3, 3)
    s = []
    m.register_forward_hook(lambda mod, i, o: o * 2)
    m.register_full_backward_hook(lambda mod, gi, go: s.append(go[0].clone()))
    x = leaf(2, 3)
    compiled(lambda x: m(x).sin())(x).sum().backward()
    return [x.grad, m.weight.grad, *s]


@program
def retain(compiled):
    x = leaf(4)
    y = compiled(lambda x: (x * x).sin())(x)
    y.sum().backward(retain_graph=True)
    y.sum().backward()
    return [x.grad]


@program
def twice_error(compiled):
    x = leaf(4)
    y = compiled(lambda x: (x * x).sin())(x).sum()
    y.backward()
    y.backward()
    return [x.grad]


@program
def double_backward(compiled):
    x = leaf(4)
    y = compiled(lambda x: (x * x).sin().exp())(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    g.pow(2).sum().backward()
    return [g, x.grad]


@program
def triple(compiled):
    x = leaf(3)
    f = compiled(lambda x: x.pow(4))
    (g,) = torch.autograd.grad(f(x).sum(), x, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), x, create_graph=True)
    (k,) = torch.autograd.grad(h.sum(), x)
    return [g, h, k]


@program
def double_of_partial(compiled):
    x = leaf(3)
    w = leaf(3)
    f = compiled(lambda x, w: (x * w, x.sin()))
    a, b = f(x, w)
    (g,) = torch.autograd.grad(a.sum(), x, create_graph=True)
    g.sum().backward()
    return [g, w.grad]


@program
def accumulate(compiled):
    w = leaf(3, 3)
    f = compiled(lambda x: (x @ w).tanh().sum())
    for i in range(3):
        f(torch.ones(2, 3) * i).backward()
    return [w.grad]


@program
def none_grads(compiled):
    x, y = leaf(3), leaf(3)
    a, b = compiled(lambda x, y: (x * 2, y * 3))(x, y)
    a.sum().backward()
    return [x.grad, y.grad]


@program
def none_grad_shared(compiled):
    x, y = leaf(3), leaf(3)
    a, b = compiled(lambda x, y: (x * 2 + y, y.sin() * 3))(x, y)
    b.sum().backward()
    return [x.grad, y.grad]


@program
def grad_noncontig(compiled):
    x = leaf(3, 4)
    y = compiled(lambda x: x.exp())(x)
    y.backward(torch.randn(4, 3).t())
    return [x.grad]


@program
def grad_expanded(compiled):
    x = leaf(3, 4)
    y = compiled(lambda x: x.exp() @ x.t())(x)
    y.backward(torch.ones(()).expand(3, 3))
    return [x.grad]


@program
def grad_other_dtype(compiled):
    x = leaf(3, 4)
    y = compiled(lambda x: x.exp())(x)
    z = y.double() * torch.randn(3, 4, dtype=torch.double)
    z.sum().backward()
    return [x.grad]


@program
def saved_hooks(compiled):
    x = leaf(3, 4)
    n = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t):
        y = compiled(lambda x: (x.exp() * x).tanh())(x)
    y.sum().backward()
    return [x.grad]


@program
def save_on_cpu(compiled):
    x = leaf(3, 4)
    with torch.autograd.graph.save_on_cpu():
        y = compiled(lambda x: (x.exp() * x).tanh())(x)
    y.sum().backward()
    return [x.grad]


@program
def autocast_inside(compiled):
    def f(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        return y.float().sin()

    x, w = leaf(4, 4), leaf(4, 4)
    y = compiled(f)(x, w)
    y.sum().backward()
    return [y, x.grad, w.grad]


@program
def autocast_outside(compiled):
    m = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 2))
    x = leaf(3, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = compiled(lambda x: m(x))(x)
        l = y.float().sum()
    l.backward()
    return [y, x.grad, *[p.grad for p in m.parameters()]]


@program
def inference(compiled):
    x = torch.randn(3)
    with torch.inference_mode():
        y = compiled(lambda x: x.sin() * 2)(x)
    return [y, y.is_inference()]


@program
def inference_then_train(compiled):
    w = leaf(3)
    f = compiled(lambda x: (x * w).sin())
    with torch.inference_mode():
        a = f(torch.ones(3))
    b = f(torch.ones(3))
    b.sum().backward()
    with torch.no_grad():
        c = f(torch.ones(3))
    return [a, b, c, w.grad, c.requires_grad]


@program
def flips(compiled):
    f = compiled(lambda x, w: (x * w).sin())
    x = torch.randn(3)
    w = torch.randn(3)
    r = []
    for a, b in ((0, 0), (1, 0), (0, 1), (1, 1), (0, 0)):
        x1 = x.clone().requires_grad_(bool(a))
        w1 = w.clone().requires_grad_(bool(b))
        y = f(x1, w1)
        r.append(y)
        if a or b:
            y.sum().backward()
            r += [x1.grad, w1.grad]
    return r


@program
def checkpointed(compiled):
    w = leaf(4, 4)

    def block(x):
        return F.dropout((x @ w).relu(), 0.5)

    def f(x):
        return checkpoint(block, x, use_reentrant=False).sin()

    x = leaf(2, 4)
    torch.manual_seed(3)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad, w.grad]


@program
def checkpoint_outside(compiled):
    w = leaf(4, 4)
    g = compiled(lambda x: F.dropout((x @ w).relu(), 0.5))
    x = leaf(2, 4)
    torch.manual_seed(3)
    y = checkpoint(g, x, use_reentrant=False)
    y.sum().backward()
    return [y, x.grad, w.grad]


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x * 2


@program
def custom_function(compiled):
    x = leaf(4)
    y = compiled(lambda x: Cube.apply(x.sin()) * 2)(x)
    y.sum().backward()
    return [y, x.grad]


class Ste(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, g):
        return g


@program
def straight_through(compiled):
    x = leaf(4)
    y = compiled(lambda x: Ste.apply(x * 3) * x)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def func_grad(compiled):
    x = torch.randn(4)
    return [compiled(lambda x: torch.func.grad(lambda z: (z.sin() * z).sum())(x))(x)]


@program
def func_vmap(compiled):
    x = torch.randn(4, 3)
    return [compiled(lambda x: torch.func.vmap(lambda z: (z.sin() * z).sum())(x))(x)]


@program
def vmap_outside(compiled):
    x = torch.randn(4, 3)
    return [torch.func.vmap(compiled(lambda z: (z.sin() * z).sum()))(x)]


@program
def grad_outside(compiled):
    x = torch.randn(4)
    return [torch.func.grad(compiled(lambda z: (z.sin() * z).sum()))(x)]


@program
def func_jacrev(compiled):
    x = torch.randn(3)
    return [compiled(lambda x: torch.func.jacrev(lambda z: z.sin() * z.sum())(x))(x)]


@program
def sgd_inside(compiled):
    w = leaf(3, 3)
    o = torch.optim.SGD([w], lr=0.1, momentum=0.9)

    def step(x):
        o.zero_grad()
        l = (x @ w).square().sum()
        l.backward()
        o.step()
        return l.detach()

    f = compiled(step)
    r = [f(torch.ones(2, 3)) for _ in range(3)]
    return [*r, w.detach()]


@program
def adamw_step(compiled):
    torch.manual_seed(0)
    m = nn.Linear(3, 3)
    o = torch.optim.AdamW(m.parameters(), lr=0.1)
    st = compiled(lambda: o.step())
    for _ in range(3):
        o.zero_grad()
        m(torch.ones(2, 3)).square().sum().backward()
        st()
    return [p.detach() for p in m.parameters()]


@program
def adam_foreach_step(compiled):
    torch.manual_seed(0)
    m = nn.Linear(3, 3)
    o = torch.optim.Adam(m.parameters(), lr=0.1, foreach=True)
    st = compiled(lambda: o.step())
    for _ in range(3):
        o.zero_grad()
        m(torch.ones(2, 3)).square().sum().backward()
        st()
    return [p.detach() for p in m.parameters()]
