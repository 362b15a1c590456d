"""Views written, indices, random numbers, layers, losses, gradients of many operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn

from .corpus import leaf, program


@program
def views_of_views_written(compiled):
    def f(x):
        y = x * 1
        a = y.view(3, 4)
        b = a[1:]
        c = b.t()
        c[2].mul_(3)
        b.add_(1)
        a[0, 0] = 5
        return y, a.sum(), c

    x = leaf(12)
    y, s, c = compiled(f)(x)
    (y.square().sum() + s + c.sum()).backward()
    return [y, s, c, x.grad]


@program
def chunk_written(compiled):
    def f(x):
        y = x * 1
        a, b = y.chunk(2)
        return a.sigmoid() * b.tanh(), y

    x = leaf(4)
    y, z = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def index_put_acc(compiled):
    def f(x, v):
        y = x.clone()
        y.index_put_((torch.tensor([0, 0, 1]),), v, accumulate=True)
        return y * y

    x, v = leaf(3), leaf(3)
    y = compiled(f)(x, v)
    y.sum().backward()
    return [y, x.grad, v.grad]


@program
def mask_write(compiled):
    def f(x):
        y = x * 1
        y[y > 0] = 0
        return y * 2

    x = leaf(5)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def where_nan(compiled):
    def f(x):
        return torch.where(x > 0, x.sqrt(), x * 0)

    x = torch.tensor([-1.0, 4.0]).requires_grad_()
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def zero_size(compiled):
    x = leaf(0, 3)
    y = compiled(lambda x: (x * 2).sum(0))(x)
    y.sum().backward()
    return [y, x.grad]


@program
def scalar_loss(compiled):
    x = leaf(())
    y = compiled(lambda x: x**3)(x)
    y.backward()
    return [y, x.grad]


@program
def int_output(compiled):
    x = leaf(4)
    v, i = compiled(lambda x: x.sin().max(0))(x)
    v.backward()
    return [v, i, x.grad]


@program
def tuple_dict_out(compiled):
    x = leaf(4)
    o = compiled(lambda x: {"a": x * 2, "b": [x.sin(), (x.cos(), None)]})(x)
    (o["a"].sum() + o["b"][1][0].sum()).backward()
    return [x.grad]


@program
def dropout_train(compiled):
    x = leaf(20)
    torch.manual_seed(1)
    y = compiled(lambda x: F.dropout(x, 0.3) * F.dropout(x * 2, 0.5))(x)
    y.sum().backward()
    return [y, x.grad]


@program
def rrelu(compiled):
    x = leaf(20)
    torch.manual_seed(1)
    y = compiled(lambda x: F.rrelu(x, training=True))(x)
    y.sum().backward()
    return [y, x.grad]


@program
def rng_after(compiled):
    torch.manual_seed(1)
    x = leaf(3)
    y = compiled(lambda x: x + torch.rand(3) * torch.randn(3))(x)
    return [y, torch.rand(3)]


@program
def max_pool(compiled):
    x = leaf(1, 2, 6, 6)
    y = compiled(lambda x: F.max_pool2d(x, 2) + F.avg_pool2d(x, 2))(x)
    y.sum().backward()
    return [y, x.grad]


@program
def convs(compiled):
    m = nn.Sequential(
        nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2),
        nn.GroupNorm(2, 4),
        nn.Hardswish(),
        nn.ConvTranspose2d(4, 2, 2),
    )
    x = leaf(1, 2, 6, 6)
    y = compiled(lambda x: m(x))(x)
    y.square().sum().backward()
    return [y, x.grad, *[p.grad for p in m.parameters()]]


@program
def ce_ls(compiled):
    x = leaf(5, 7)
    t = torch.randint(0, 7, (5,))
    y = compiled(lambda x: F.cross_entropy(x, t, label_smoothing=0.1, ignore_index=2))(x)
    y.backward()
    return [y, x.grad]


@program
def losses(compiled):
    x = leaf(5, 7)
    t = torch.rand(5, 7)
    y = compiled(
        lambda x: (
            F.binary_cross_entropy_with_logits(x, t)
            + F.smooth_l1_loss(x, t)
            + F.huber_loss(x, t)
            + F.kl_div(x.log_softmax(-1), t)
            + F.mse_loss(x, t)
            + F.hinge_embedding_loss(x, t.round() * 2 - 1)
            + F.soft_margin_loss(x, t.round() * 2 - 1)
        )
    )(x)
    y.backward()
    return [y, x.grad]


@program
def norm_wd(compiled):
    from torch.nn.utils.parametrizations import weight_norm

    m = weight_norm(nn.Linear(3, 4))
    x = leaf(2, 3)
    y = compiled(lambda x: m(x))(x)
    y.sum().backward()
    return [y, x.grad, *[p.grad for p in m.parameters()]]


@program
def spectral(compiled):
    from torch.nn.utils.parametrizations import spectral_norm

    torch.manual_seed(2)
    m = spectral_norm(nn.Linear(3, 4))
    x = leaf(2, 3)
    y = compiled(lambda x: m(x))(x)
    y.sum().backward()
    return [y, x.grad, *[p.grad for p in m.parameters()], *m.buffers()]


@program
def multi_use_double(compiled):
    f = compiled(lambda x: x.tanh())
    x = leaf(3)
    y = f(f(f(x)))
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    g.sum().backward()
    return [y, g, x.grad]


@program
def grad_penalty(compiled):
    m = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
    f = compiled(lambda x: m(x))
    x = leaf(4, 3)
    y = f(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    l = ((g.norm(dim=1) - 1) ** 2).mean()
    l.backward()
    return [l, *[p.grad for p in m.parameters()]]


@program
def penalty_inside(compiled):
    m = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def f(x):
        y = m(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        return ((g.norm(dim=1) - 1) ** 2).mean()

    x = leaf(4, 3)
    l = compiled(f)(x)
    l.backward()
    return [l, *[p.grad for p in m.parameters()]]


@program
def requires_grad_inside(compiled):
    def f(x):
        y = x.detach().requires_grad_()
        z = (y * y).sum()
        (g,) = torch.autograd.grad(z, y)
        return g + x

    x = leaf(3)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def retain_grad_inside(compiled):
    def f(x):
        y = x * 2
        y.retain_grad()
        return y, y.sin()

    x = leaf(3)
    y, z = compiled(f)(x)
    z.sum().backward()
    return [x.grad]


@program
def mixed_dtypes(compiled):
    x = leaf(3, dtype=torch.float64)
    w = leaf(3, dtype=torch.float32)
    h = leaf(3, dtype=torch.bfloat16)
    y = compiled(lambda x, w, h: (x * w + h).sin())(x, w, h)
    y.sum().backward()
    return [y, x.grad, w.grad, h.grad]


@program
def bool_int_grad(compiled):
    x = leaf(4)
    i = torch.tensor([3, 1, 0])
    y = compiled(lambda x, i: (x[i] * i, x.argsort(), x > 0))(x, i)
    y[0].sum().backward()
    return [*y, x.grad]


@program
def scatter(compiled):
    x = leaf(4)
    i = torch.tensor([0, 0, 1])
    y = compiled(lambda x: torch.zeros(3).scatter_add(0, i, x[:3]) + torch.zeros(3).index_add(0, i, x[1:]))(x)
    y.sum().backward()
    return [y, x.grad]


@program
def cumulative(compiled):
    x = leaf(3, 4)
    y = compiled(lambda x: x.cumsum(0) * x.cumprod(1) + x.logcumsumexp(0) + x.cummax(1).values)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def linalg(compiled):
    x = leaf(3, 3)
    y = compiled(
        lambda x: torch.linalg.inv(x @ x.t() + torch.eye(3)).sum() + torch.linalg.det(x) + torch.linalg.norm(x)
    )(x)
    y.backward()
    return [y, x.grad]


@program
def einsum(compiled):
    a, b = leaf(2, 3, 4), leaf(2, 4, 5)
    y = compiled(lambda a, b: torch.einsum("bij,bjk->bk", a, b).tanh())(a, b)
    y.sum().backward()
    return [y, a.grad, b.grad]


@program
def fft(compiled):
    x = leaf(8)
    y = compiled(lambda x: torch.fft.rfft(x).abs().sum())(x)
    y.backward()
    return [y, x.grad]


@program
def interp(compiled):
    x = leaf(1, 2, 4, 4)
    y = compiled(
        lambda x: F.interpolate(x, scale_factor=2, mode="bilinear") + F.interpolate(x, size=(8, 8), mode="nearest")
    )(x)
    y.square().sum().backward()
    return [y, x.grad]


@program
def grid(compiled):
    x, g = leaf(1, 2, 4, 4), leaf(1, 3, 3, 2)
    y = compiled(lambda x, g: F.grid_sample(x, g.tanh()))(x, g)
    y.square().sum().backward()
    return [y, x.grad, g.grad]


@program
def sort_topk(compiled):
    x = leaf(3, 6)
    y = compiled(lambda x: x.sort(1).values.cumsum(1) + 0 * x + x.topk(2).values.sum() + x.median())(x)
    y.sum().backward()
    return [y, x.grad]


@program
def out_unused_nondiff(compiled):
    x = leaf(3)
    y = compiled(lambda x: (x * 2, x.detach().sum(), torch.arange(3), 5))(x)
    y[0].sum().backward()
    return [y[1], y[2], y[3], x.grad]


@program
def write_input_then_grad(compiled):
    def f(s, x):
        s.copy_(s * 0.5 + x)
        return s.sin()

    s = torch.zeros(3)
    x = leaf(3)
    y = compiled(f)(s, x)
    y.sum().backward()
    return [s, x.grad, s.requires_grad]


@program
def state_chain(compiled):
    def f(s, x):
        s.mul_(0.5).add_(x)
        return (s * s).sum()

    fc = compiled(f)
    s = torch.zeros(3)
    x = leaf(3)
    r = []
    for _ in range(2):
        r.append(fc(s, x))
        r[-1].backward()
        s = s.detach()
    return [*r, s, x.grad]


@program
def alias_inputs_train(compiled):
    def f(a, b):
        a.add_(1)
        return (b * b).sum()

    x = leaf(4)
    y = x * 1
    l = compiled(f)(y, y.view(2, 2))
    l.backward()
    return [l, y, x.grad]


@program
def same_param_views(compiled):
    p = leaf(4, 4)

    def f(q, k):
        with torch.no_grad():
            q.mul_(2)
        return (q @ k.t()).sum()

    l = compiled(f)(p[:2], p[1:3])
    l.backward()
    return [l, p.grad, p]
