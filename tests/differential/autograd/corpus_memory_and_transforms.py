"""Inputs in one memory or with gaps, `.data`, hooks on nodes, threads, transforms, forward mode, more optimizers."""

from __future__ import annotations

import copy
import threading

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.utils.checkpoint import checkpoint

from .corpus import leaf, program


@program
def gap_input(compiled):
    x = (leaf(4, 6) * 1)[:, 1:5:2]
    y = compiled(lambda x: (x.mul_(2), x.sin().sum())[1])(x)
    return [x, y, x.stride()]


@program
def gap_input_nograd(compiled):
    b = torch.arange(24.0).view(4, 6)
    x = b[:, 1:5:2]
    y = compiled(lambda x: (x.mul_(2), x.sin().sum())[1])(x)
    return [b, y]


@program
def expanded_fill(compiled):
    b = torch.randn(1, 3)
    x = b.expand(4, 3)
    compiled(lambda x: x.fill_(2.0))(x)
    return [b]


@program
def write_expanded_error(compiled):
    b = torch.randn(1, 3)
    compiled(lambda x: x.add_(1))(b.expand(4, 3))
    return [b]


@program
def alias_many(compiled):
    b = torch.zeros(10)

    def f(a, c, d):
        a.add_(1)
        c.mul_(2)
        d.copy_(a[:4])
        return a.sum() + c.sum() + d.sum()

    r = compiled(f)(b[:6], b[3:9], b[5:9])
    return [b, r]


@program
def alias_diff_offsets_repeat(compiled):
    b = torch.zeros(12)
    f = compiled(lambda a, c: (a.add_(1), c.mul_(3))[1].sum())
    r = []
    for i in range(5):
        r.append(f(b[i : i + 3], b[i + 1 : i + 4]))
    return [b, *r]


@program
def alias_list(compiled):
    b = torch.randn(6)

    def f(xs):
        for x in xs:
            x.mul_(2)
        return xs[0] + xs[1][:2]

    r = compiled(f)([b[:2], b[:4], b])
    return [b, r]


@program
def module_shared_buffer_views(compiled):
    class M(nn.Module):
        def __init__(s):
            super().__init__()
            s.register_buffer("all", torch.zeros(4))
            s.register_buffer("part", s.all[:2])

        def forward(s, x):
            s.all.add_(x)
            return s.part * 2

    m = M()
    f = compiled(lambda x: m(x))
    return [f(torch.ones(4)), f(torch.ones(4)), m.all, m.part]


@program
def grad_accum_into_flat(compiled):
    flat = torch.zeros(6)
    a, b = flat[:3], flat[3:]

    def f(x):
        a.add_(x)
        b.sub_(x)
        flat.mul_(2)
        return flat.sum()

    r = compiled(f)(torch.ones(3))
    return [flat, r]


@program
def dup_inputs_grad(compiled):
    x = leaf(3) * 1
    y = compiled(lambda a, b: (a.mul_(2), a * b)[1])(x, x)
    y.sum()
    return [x, y]


@program
def dup_read(compiled):
    x = leaf(3)
    y = compiled(lambda a, b: a * b.sin())(x, x)
    y.sum().backward()
    return [y, x.grad]


@program
def out_then_input_write(compiled):
    def f(x):
        y = x.view(-1)
        x.add_(1)
        return y * 1, y

    x = leaf(2, 3) * 1
    a, b = compiled(f)(x)
    (a.sum() + b.sum())
    return [a, b, x, b._base is x]


@program
def detach_input_shared(compiled):
    def f(x):
        d = x.detach()
        d.add_(1)
        return x * 2

    x = leaf(3) * 1
    y = compiled(f)(x)
    return [x, y]


@program
def data_write(compiled):
    def f(x):
        x.data.mul_(2)
        return x * 3

    x = leaf(3)
    y = compiled(f)(x)
    y.sum().backward()
    return [x, y, x.grad, x._version]


@program
def set_data(compiled):
    w = nn.Linear(2, 2)

    def f(x):
        w.weight.data.clamp_(-0.1, 0.1)
        return w(x)

    x = leaf(1, 2)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, w.weight, w.weight.grad]


@program
def copy_to_param(compiled):
    a, b = nn.Linear(2, 2), nn.Linear(2, 2)

    def f():
        with torch.no_grad():
            a.weight.copy_(b.weight)
            a.bias.zero_()

    compiled(f)()
    return [a.weight, a.bias, a.weight.requires_grad]


@program
def lr_rnn_state(compiled):
    cell = nn.GRUCell(3, 4)
    f = compiled(lambda x, h: cell(x, h))
    h = torch.zeros(2, 4)
    l = 0
    for t in range(4):
        h = f(torch.ones(2, 3) * t, h)
        l = l + h.sum()
    l.backward()
    return [h, *[p.grad for p in cell.parameters()]]


@program
def gradient_wrt_input_only(compiled):
    m = nn.Linear(3, 3).requires_grad_(False)
    x = leaf(2, 3)
    y = compiled(lambda x: m(x).relu())(x)
    y.sum().backward()
    return [y, x.grad, m.weight.grad]


@program
def frozen_then_unfrozen(compiled):
    m = nn.Linear(3, 3)
    f = compiled(lambda x: m(x).relu().sum())
    x = torch.ones(2, 3)
    m.requires_grad_(False)
    r = [f(x)]
    m.requires_grad_(True)
    l = f(x)
    l.backward()
    return [*r, l, m.weight.grad]


@program
def partial_backward_inputs(compiled):
    x, w = leaf(3), leaf(3)
    y = compiled(lambda x, w: (x * w).sin())(x, w).sum()
    y.backward(inputs=[w])
    return [x.grad, w.grad]


@program
def anomaly(compiled):
    x = leaf(3)
    with torch.autograd.set_detect_anomaly(True):
        y = compiled(lambda x: x.sin() * 2)(x)
        y.sum().backward()
    return [x.grad]


@program
def nan_anomaly(compiled):
    x = torch.zeros(3).requires_grad_()
    with torch.autograd.set_detect_anomaly(True):
        y = compiled(lambda x: x.sqrt() * 0)(x)
        y.sum().backward()
    return [x.grad]


@program
def deepcopy_model(compiled):
    m = nn.Sequential(nn.Linear(2, 2), nn.Tanh())
    n = copy.deepcopy(m)
    f = compiled(lambda m, x: m(x).sum())
    f(m, torch.ones(1, 2)).backward()
    f(n, torch.ones(1, 2)).backward()
    return [m[0].weight.grad, n[0].weight.grad]


@program
def thread_backward(compiled):
    x = leaf(3)
    y = compiled(lambda x: x.sin() * 2)(x).sum()
    t = threading.Thread(target=y.backward)
    t.start()
    t.join()
    return [x.grad]


@program
def inplace_out_list(compiled):
    def f(x):
        ys = list((x * 2).unbind(0))
        ys[0] = ys[0] + 1
        return torch.stack(ys)

    x = leaf(3, 2)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def slice_assign_rows(compiled):
    def f(x):
        out = torch.zeros(4, 3)
        for i in range(4):
            out[i] = x * i
        out[:, 0] += 1
        return out

    x = leaf(3)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def masked_fill_inplace(compiled):
    def f(x):
        y = x * 2
        y.masked_fill_(x > 0, -1)
        y.clamp_(max=0.5)
        return y

    x = leaf(6)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def cat_then_write(compiled):
    def f(x):
        y = torch.cat([x, x])
        y[1:3] = 0
        y[-1] += x[0]
        return y

    x = leaf(4)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def unfold_write(compiled):
    def f(x):
        y = x.clone()
        y.unfold(0, 2, 2).mul_(3)
        return y

    x = leaf(6)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad]


@program
def real_imag(compiled):
    def f(x):
        y = x * 1
        y.real.mul_(2)
        y.imag.add_(1)
        return y.abs().sum()

    x = leaf(3, dtype=torch.complex64)
    y = compiled(f)(x)
    y.backward()
    return [y, x.grad]


@program
def conj_out(compiled):
    x = leaf(3, dtype=torch.complex64)
    y = compiled(lambda x: x.conj())(x)
    return [y.is_conj(), y.resolve_conj()]


@program
def no_grad_in_grad_out_alias(compiled):
    def f(x):
        with torch.no_grad():
            v = x.view(-1)
        return v, x * 2

    x = leaf(2, 2) * 1
    v, y = compiled(f)(x)
    return [v, y, v.requires_grad, v._base is x]


@program
def hook_removed(compiled):
    x = leaf(3)
    h = x.register_hook(lambda g: g * 10)
    f = compiled(lambda x: x * 2)
    f(x).sum().backward()
    h.remove()
    f(x).sum().backward()
    return [x.grad]


@program
def prehook_node(compiled):
    x = leaf(3)
    y = compiled(lambda x: x * 2)(x)
    s = []
    y.grad_fn.register_prehook(lambda g: s.append(g[0].clone()))
    y.sum().backward()
    return [x.grad, *s]


@program
def multigrad_hook(compiled):
    x = leaf(3)
    a, b = compiled(lambda x: (x * 2, x.sin()))(x)
    s = []
    torch.autograd.graph.register_multi_grad_hook((a, b), lambda gs: s.append(len([g for g in gs if g is not None])))
    (a.sum() + b.sum()).backward()
    return [x.grad, *s]


@program
def two_graphs_shared(compiled):
    f = compiled(lambda x: x.sin())
    g = compiled(lambda x: x.cos() * 2)
    x = leaf(3)
    (f(x) * g(x) + f(g(x))).sum().backward()
    return [x.grad]


@program
def fn_transform_hessian(compiled):
    x = torch.randn(3)
    return [torch.func.hessian(compiled(lambda z: (z**3).sum()))(x)]


@program
def jvp(compiled):
    x, t = torch.randn(3), torch.randn(3)
    return list(torch.func.jvp(compiled(lambda z: z.sin() * z), (x,), (t,)))


@program
def forward_mode(compiled):
    f = compiled(lambda z: z.sin() * z)
    with forward_ad.dual_level():
        d = forward_ad.make_dual(torch.ones(3), torch.ones(3))
        p, t = forward_ad.unpack_dual(f(d))
    return [p, t]


@program
def per_sample(compiled):
    m = nn.Linear(3, 1)
    ps = dict(m.named_parameters())

    def loss(ps, x):
        return torch.func.functional_call(m, ps, (x,)).sum()

    return list(
        compiled(lambda x: torch.func.vmap(torch.func.grad(loss), (None, 0))(ps, x))(torch.randn(4, 3)).values()
    )


@program
def checkpoint_reentrant(compiled):
    w = leaf(4, 4)

    def f(x):
        return checkpoint(lambda x: (x @ w).relu(), x, use_reentrant=True).sin()

    x = leaf(2, 4)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad, w.grad]


@program
def ckpt_kept_rng(compiled):
    w = leaf(4, 4)

    def f(x):
        x = checkpoint(lambda x: F.dropout(x @ w, 0.5), x, use_reentrant=False)
        return checkpoint(lambda x: F.dropout(x @ w, 0.5), x, use_reentrant=False)

    x = leaf(2, 4)
    torch.manual_seed(5)
    y = compiled(f)(x)
    y.sum().backward()
    return [y, x.grad, w.grad, torch.rand(2)]


@program
def scaler(compiled):
    m = nn.Linear(3, 3)
    f = compiled(lambda x: m(x).sum())
    s = torch.amp.GradScaler("cpu", init_scale=8.0)
    s.scale(f(torch.ones(2, 3))).backward()
    return [m.weight.grad]


@program
def set_to_none_false(compiled):
    m = nn.Linear(3, 3)
    o = torch.optim.SGD(m.parameters(), 0.1)
    f = compiled(lambda x: m(x).square().sum())
    for _ in range(3):
        o.zero_grad(set_to_none=False)
        f(torch.ones(2, 3)).backward()
        o.step()
    return [*m.parameters()]


@program
def rmsprop_adagrad(compiled):
    r = []
    for O in (torch.optim.RMSprop, torch.optim.Adagrad, torch.optim.NAdam, torch.optim.Adamax):
        torch.manual_seed(0)
        m = nn.Linear(2, 2)
        o = O(m.parameters(), lr=0.1)
        st = compiled(lambda: o.step())
        for _ in range(2):
            o.zero_grad()
            m(torch.ones(1, 2)).square().sum().backward()
            st()
        r += [p.detach() for p in m.parameters()]
    return r


@program
def forward_mode_training(compiled):
    w = leaf(3)
    f = compiled(lambda z: (z * w).sin())
    with forward_ad.dual_level():
        p, t = forward_ad.unpack_dual(f(forward_ad.make_dual(torch.ones(3), torch.ones(3))))
    return [p, t]
