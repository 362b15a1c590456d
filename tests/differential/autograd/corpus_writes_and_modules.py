"""Errors, writes, aliasing, gradients inside the program, modules with state."""

from __future__ import annotations

import torch
from torch import nn

from .corpus import leaf, program


@program
def leaf_write_error(compiled):
    x = leaf(3)
    compiled(lambda x: x.mul_(2))(x)
    return [x]


@program
def view_of_leaf_error(compiled):
    x = leaf(3, 3)
    compiled(lambda x: x[0].mul_(2))(x)
    return [x]


@program
def view_of_leaf_in(compiled):
    x = leaf(3, 3)
    compiled(lambda v: v.mul_(2))(x[0])
    return [x]


@program
def saved_overwritten(compiled):
    x = leaf(3) * 1
    y = compiled(lambda x: x * x)(x)
    x.add_(1)
    y.sum().backward()
    return [1]


@program
def output_overwritten(compiled):
    x = leaf(3)
    y = compiled(lambda x: x.exp())(x)
    y.add_(1)
    y.sum().backward()
    return [x.grad]


@program
def output_inplace_ok(compiled):
    x = leaf(3)
    y = compiled(lambda x: x * 2)(x)
    y.add_(1)
    y.mul_(3)
    y.sum().backward()
    return [x.grad, y]


@program
def output_view_inplace(compiled):
    x = leaf(3, 4)
    y, v = compiled(lambda x: (lambda y: (y, y[0]))(x * 2))(x)
    v.mul_(5)
    (y.sum()).backward()
    return [x.grad, y, v]


@program
def input_view_output_inplace(compiled):
    x = leaf(3, 4) * 1
    v = compiled(lambda x: x[0])(x)
    v.mul_(5)
    y = x.sum()
    return [x, v, x.grad_fn is not None]


@program
def bn_train(compiled):
    m = nn.BatchNorm1d(4)
    x = leaf(5, 4)
    f = compiled(lambda x: m(x).relu())
    for _ in range(2):
        f(x).square().sum().backward()
    return [x.grad, *[p.grad for p in m.parameters()], *m.buffers()]


@program
def bn_momentum_none(compiled):
    m = nn.BatchNorm1d(4, momentum=None)
    x = leaf(5, 4)
    f = compiled(lambda x: m(x).relu())
    for _ in range(3):
        f(x).square().sum().backward()
    return [x.grad, *m.buffers()]


@program
def set_grad_none_inside(compiled):
    w = leaf(3)

    def f(x):
        w.grad = None
        return (x * w).sum()

    fc = compiled(f)
    fc(torch.ones(3)).backward()
    fc(torch.ones(3)).backward()
    return [w.grad]


@program
def backward_inside(compiled):
    w = leaf(3)

    def f(x):
        l = (x * w).sin().sum()
        l.backward()
        return l.detach(), w.grad * 2

    a, b = compiled(f)(torch.ones(3))
    return [a, b, w.grad]


@program
def grad_inside(compiled):
    def f(x):
        y = (x.sin() * x).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        return (g * g).sum()

    x = leaf(3)
    y = compiled(f)(x)
    y.backward()
    return [y, x.grad]


@program
def detach_mix(compiled):
    def f(x):
        y = x * 2
        z = y.detach()
        z.add_(1)
        return y * z

    x = leaf(3)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def detach_out(compiled):
    def f(x):
        y = x * 2
        return y, y.detach()

    x = leaf(3)
    y, d = compiled(f)(x)
    d.add_(1)
    y.sum().backward()
    return [y, d, x.grad, d.requires_grad, y._version]


@program
def no_grad_block(compiled):
    def f(x):
        y = x.sin()
        with torch.no_grad():
            z = y * 2
            z2 = z.view(-1)
        return y * z, z2

    x = leaf(3)
    y, z = compiled(f)(x)
    y.sum().backward()
    return [y, z, x.grad, z.requires_grad]


@program
def enable_in_nograd(compiled):
    def f(x):
        with torch.enable_grad():
            y = x.sin()
        return y * 2

    x = leaf(3)
    with torch.no_grad():
        y = compiled(f)(x)
    return [y, y.requires_grad]


@program
def complex_grad(compiled):
    x = leaf(3, dtype=torch.complex64)
    y = compiled(lambda x: (x * x.conj()).real.sum() + x.abs().sum())(x)
    y.backward()
    return [y, x.grad]


@program
def embedding(compiled):
    m = nn.Embedding(10, 4, padding_idx=0)
    i = torch.tensor([[0, 1, 2], [2, 3, 9]])
    y = compiled(lambda i: m(i).sin())(i)
    y.sum().backward()
    return [y, m.weight.grad]


@program
def embedding_maxnorm(compiled):
    m = nn.Embedding(10, 4, max_norm=1.0)
    i = torch.tensor([[0, 1, 2], [2, 3, 9]])
    y = compiled(lambda i: m(i).sin())(i)
    y.sum().backward()
    return [y, m.weight.grad, m.weight]


@program
def sparse_embedding(compiled):
    m = nn.Embedding(10, 4, sparse=True)
    i = torch.tensor([[0, 1, 2], [2, 3, 9]])
    y = compiled(lambda i: m(i).sin())(i)
    y.sum().backward()
    return [y, m.weight.grad.to_dense()]


@program
def gru(compiled):
    m = nn.GRU(3, 4)
    x = leaf(5, 2, 3)
    y, h = compiled(lambda x: m(x))(x)
    (y.sum() + h.sum()).backward()
    return [y, h, x.grad, *[p.grad for p in m.parameters()]]


@program
def lstm(compiled):
    m = nn.LSTM(3, 4, 2)
    x = leaf(5, 2, 3)
    y, (h, c) = compiled(lambda x: m(x))(x)
    (y.sum() + h.sum()).backward()
    return [y, h, x.grad, *[p.grad for p in m.parameters()]]


@program
def mha(compiled):
    m = nn.MultiheadAttention(8, 2, batch_first=True)
    x = leaf(2, 5, 8)
    y, _ = compiled(lambda x: m(x, x, x, need_weights=False))(x)
    y.square().sum().backward()
    return [y, x.grad, *[p.grad for p in m.parameters()]]


@program
def tied(compiled):
    e = nn.Embedding(10, 4)
    l = nn.Linear(4, 10, bias=False)
    l.weight = e.weight
    i = torch.tensor([1, 2, 3])
    y = compiled(lambda i: l(e(i).tanh()))(i)
    y.sum().backward()
    return [y, e.weight.grad]


@program
def kvcache(compiled):
    cache = torch.zeros(2, 6, 4)
    w = leaf(4, 4)

    def f(x, c, p):
        k = x @ w
        c[:, p : p + 1] = k.detach()
        return (c[:, : p + 1] * x).sum(-1)

    fc = compiled(f)
    r = []
    for p in range(3):
        r.append(fc(torch.ones(2, 1, 4) * p, cache, p))
    return [*r, cache]


@program
def nested_module_write_buffer(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("n", torch.zeros(3))
            s.w = nn.Parameter(torch.ones(3))

        def forward(s, x):
            s.n.add_(x.detach().abs())
            s.n = s.n * 0.9
            return (x * s.w * s.n).sum()

    m = M()
    f = compiled(lambda x: m(x))
    r = []
    for i in range(3):
        r.append(f(torch.ones(3) * i))
        r[-1].backward()
    return [*r, m.n, m.w.grad]


@program
def param_update_no_grad(compiled):
    w = leaf(3)

    def f(x):
        l = (x * w).square().sum()
        (g,) = torch.autograd.grad(l, w)
        with torch.no_grad():
            w.sub_(g * 0.1)
        return l.detach()

    fc = compiled(f)
    r = [fc(torch.ones(3)) for _ in range(3)]
    return [*r, w]


@program
def ema(compiled):
    a, b = nn.Linear(3, 3), nn.Linear(3, 3)

    def f():
        with torch.no_grad():
            for p, q in zip(a.parameters(), b.parameters()):
                p.mul_(0.9).add_(q, alpha=0.1)

    compiled(f)()
    return [*a.parameters()]


@program
def clip_grad(compiled):
    m = nn.Linear(3, 3)
    m(torch.ones(2, 3)).square().sum().backward()
    n = compiled(lambda: nn.utils.clip_grad_norm_(m.parameters(), 0.5))()
    return [n, *[p.grad for p in m.parameters()]]


@program
def output_is_input_grad(compiled):
    x = leaf(3) * 1
    y, z = compiled(lambda x: (x, x * 2))(x)
    return [y is x, y, z]


@program
def out_alias_two_inputs(compiled):
    x = leaf(3, 4) * 1
    a, b, c = compiled(lambda x: (x.t(), x.view(-1)[2:], x[1].unsqueeze(0)))(x)
    (a.sum() + b.square().sum() + c.exp().sum()).backward()
    return [a, b, c, a._base is x, b._base is x]


@program
def autocast_norms(compiled):
    """bfloat16 through norms whose parameters are float32."""
    norms = nn.ModuleList([nn.LayerNorm(4), nn.GroupNorm(2, 8), nn.BatchNorm1d(8), nn.RMSNorm(4)])
    x = leaf(3, 8, 4)

    def through(x):
        for norm in norms:
            x = norm(x.bfloat16())
        return x

    y = compiled(through)(x)
    y.float().sum().backward()
    return [y, x.grad]
