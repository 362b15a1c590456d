"""Tensors: attributes, methods, constructors, indexing, in-place writes, views, autograd, subclasses, custom operators."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from harness import BREAK, program
from torch.utils.checkpoint import checkpoint

import stoker


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, k):
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return 2 * x * grad * ctx.k, None


class Fake(torch.autograd.Function):
    """A gradient that autograd would not find."""

    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, grad):
        return grad * 7


class InPlace(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Needs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, g, h):
        x, y = ctx.saved_tensors
        return (g * y + h) if ctx.needs_input_grad[0] else None, (g * x + h) if ctx.needs_input_grad[1] else None


class SetupContext(torch.autograd.Function):
    @staticmethod
    def forward(x, k):
        return x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k * 10, None


class Tagged(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        return result


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.add:
            return torch.mul(*args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


LIBRARY = f"stoker_{__name__.replace('.', '_')}"
"""Each import has operators of its own: the tool that writes the coverage page imports this module by another name."""


@torch.library.custom_op(f"{LIBRARY}::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op(f"{LIBRARY}::fill", mutates_args={"x"})
def fill(x: torch.Tensor, v: float) -> None:
    x.fill_(v)


@stoker.allow_in_graph
def allowed(x):
    return x * 5


@torch.compiler.allow_in_graph
def torch_allowed(x):
    return x * 6


def grad_inputs(*shapes):
    return lambda: tuple(torch.randn(*shape, requires_grad=True) for shape in shapes)


@program("arithmetic, broadcasting, reflected operators")
def test_arithmetic(x, y):
    return x + y, 2 - x, x / y, 1 / x, x // 2, x % 2, -x, x @ y.T, x**2, ~(x > 0), (x > 0) & (y > 0), 2 * x, x.T @ y


@program("comparison operators")
def test_comparison(x, y):
    return x > y, x <= 0, x == y, 0 < x, x != y, x is y, x.equal(x) if False else 1


@program("tensor attributes")
def test_attributes(x):
    return (
        x.shape, x.dtype, x.device, x.ndim, x.requires_grad, x.is_cuda, x.layout, x.T, x.mT, x.size(), x.size(0), x.size(-1),
        x.dim(), x.numel(), x.stride(), x.stride(0), x.is_contiguous(), x.is_floating_point(), x.element_size(), x.itemsize,
        x.nbytes, x.is_leaf, x.grad, x.is_complex(), len(x), hasattr(x, "nope"),
    )  # fmt: skip


@program("tensor methods")
def test_methods(x):
    return (
        x.sum(), x.mean(0), x.max(), x.abs().sqrt(), x.view(-1), x.reshape(4, 3), x.permute(1, 0), x.transpose(0, 1).contiguous(),
        x.unsqueeze(0).squeeze(), x.flatten(), x.clone(), x.detach(), x.to(torch.float64), x.double().float(), x.clamp(min=0),
        x.type_as(x.double()), x.expand(2, 3, 4), x.repeat(1, 2), x.softmax(-1), x.argmax(1), x.std(), x.cumsum(0),
    )  # fmt: skip


@program("named results")
def test_named_results(x):
    m = x.max(dim=0)
    values, indices = x.sort(dim=1)
    return m.values, m.indices, values, indices, x.topk(2)[0], torch.min(x, 0).values, m[0] is m.values


@program("linalg results")
def test_linalg(x):
    q, r = torch.linalg.qr(x)
    return torch.linalg.norm(x), (q @ r - x).abs().max() < 1e-4, torch.linalg.svd(x).S


@program("shape arithmetic")
def test_shape_arithmetic(x):
    b, n = x.shape
    h = n // 2
    return x.view(b, 2, h), x.new_zeros(b * n), x.shape[:-1] + (2, 2), x.shape[-1] ** 0.5, torch.Size([1]) + x.shape


@program("torch.Size methods")
def test_size(x):
    s = x.shape
    return (
        s.numel(),
        s[0],
        s[1:],
        list(s),
        len(s),
        s == (3, 4),
        tuple(s),
        s + (1,),
        (1, *s),
        3 in s,
        isinstance(s, tuple),
    )


@program("constructors")
def test_constructors(x):
    return (
        torch.zeros(2), torch.ones(2, 2, dtype=torch.int64), torch.full((2,), 3.0), torch.arange(5), torch.arange(0, 1, 0.25),
        torch.empty(0), torch.eye(2), torch.linspace(0, 1, 3), torch.zeros_like(x), x.new_ones(2), x.new_tensor([1.0]),
        torch.full_like(x, 2), torch.tensor([[1, 2], [3, 4]]), torch.tensor(3.5), torch.tensor([]), torch.as_tensor([1, 2]),
    )  # fmt: skip


@program("torch.tensor of sizes and tensors")
def test_tensor_of_tensors(x):
    return torch.tensor([x.shape[0], 1]), torch.tensor(x.shape), torch.stack([x, x]), torch.as_tensor(x) is x


@program("dtypes and devices")
def test_dtypes(x):
    d = x.dtype
    return (
        x.to(d), d.is_floating_point, torch.finfo(d).eps, torch.finfo(d).max, torch.iinfo(torch.int32).max, d == torch.float32,
        torch.device("cpu"), x.device.type, x.to("cpu"), str(d), torch.promote_types(torch.int32, torch.float16), torch.get_default_dtype(),
        x.device == torch.device("cpu"), torch.result_type(x, 1),
    )  # fmt: skip


@program("indexing")
def test_indexing(x):
    i = torch.tensor([0, 2])
    return (
        x[0],
        x[:, 1],
        x[..., -1],
        x[None],
        x[1:, ::2],
        x[i],
        x[[0, 1]],
        x[i, i],
        x[:, None, 0],
        x[-1][-1],
        x[0, 0],
        x[()],
    )


@program("index assignment", inputs=lambda: (torch.zeros(3, 4), torch.ones(4)))
def test_index_assignment(x, y):
    x[0] = y
    x[:, 1] = 5
    x[1:, 2:] += 1
    x[torch.tensor([2])] = -1.0
    return x


@program("mask assignment", inputs=lambda: (torch.randn(3, 4),))
def test_mask_assignment(x):
    x[x > 0] = 0
    return x


@program("in-place operations on an argument")
def test_inplace(x, y):
    x.add_(1).mul_(y)
    x += 2
    x.copy_(x * 2)
    x.zero_().fill_(3)
    return x


@program("in-place operations on a local and a view")
def test_inplace_view(x):
    y = x.clone()
    v = y[0]
    v.add_(5)
    w = y.view(-1)
    w[3] = 0
    return y, v, w, x


@program("views of an argument are returned")
def test_view_results(x):
    return x.view(-1), x[0], x.T, x.detach(), x


@program("the same tensor twice", inputs=lambda: (lambda t: (t, t))(torch.ones(2)))
def test_same_tensor(x, y):
    x.add_(1)
    return x + y, x is y


@program("a view and its base as arguments", inputs=lambda: (lambda t: (t, t[0]))(torch.ones(2, 2)))
def test_view_argument(x, v):
    v.add_(1)
    return x * 2, v


@program("out= arguments", inputs=lambda: (torch.ones(3), torch.zeros(3)))
def test_out(x, out):
    torch.add(x, 1, out=out)
    return out


@program("set data and requires_grad of a local", BREAK)
def test_requires_grad(x):
    y = x.clone().requires_grad_()
    z = x.detach().clone()
    z.requires_grad = True
    return y.requires_grad, z.requires_grad, y * 2


@program("attributes set on tensors", inputs=lambda: (torch.ones(2),))
def test_tensor_attributes(x):
    x.tag = "seen"
    y = x + 1
    y.note = [1]
    return y, x.tag, hasattr(y, "note"), hasattr(y, "nope")


@program("einsum, functional")
def test_functional(x, y):
    return (
        torch.einsum("ij,kj->ik", x, y),
        F.relu(x),
        F.softmax(x, dim=-1),
        F.layer_norm(x, (4,)),
        F.pad(x, (1, 1)),
        F.one_hot(torch.tensor([1]), 3),
    )


@program("where, cat, stack, split, chunk, unbind, gather, scatter")
def test_shape_functions(x, y):
    i = torch.tensor([[0], [1], [2]])
    a, b = x.chunk(2, dim=1)
    return (
        torch.where(x > 0, x, y), torch.cat([x, y], dim=1), torch.stack((x, y)), x.split(2, 1), a + b, x.unbind()[0],
        x.gather(1, i), torch.zeros(3, 4).scatter_(1, i, 1.0), torch.meshgrid(x[0], y[0], indexing="ij"), torch.broadcast_tensors(x, y[0]),
    )  # fmt: skip


@program("gradients flow", inputs=grad_inputs((3, 4), (4, 2)))
def test_gradients(x, w):
    return (x @ w).relu().sum(), (x * 2).detach(), w.t()


@program("register_hook of an intermediate", inputs=grad_inputs((3,)))
def test_register_hook(x):
    y = x * 2
    y.register_hook(lambda g: g * 10)
    return y.sum()


@program("autograd.Function: saved tensors", inputs=grad_inputs((3,)))
def test_function(x):
    return Square.apply(x, 3) + 1


@program("autograd.Function: its own gradient", inputs=grad_inputs((3,)))
def test_function_gradient(x):
    return Fake.apply(x * 2)


@program("autograd.Function: without grad")
def test_function_plain(x):
    return Square.apply(x, 2), Fake.apply(x)


@program(
    "autograd.Function: several outputs, needs_input_grad",
    inputs=lambda: (torch.randn(3, requires_grad=True), torch.randn(3)),
)
def test_function_needs(x, y):
    a, b = Needs.apply(x, y)
    return a * 2, b


@program("autograd.Function: setup_context", inputs=grad_inputs((3,)))
def test_function_setup(x):
    return SetupContext.apply(x, 2.0)


@program("autograd.Function: mark_dirty", inputs=grad_inputs((3,)))
def test_function_dirty(x):
    y = x * 1
    return InPlace.apply(y)


@program("checkpoint without reentrance", inputs=grad_inputs((3, 4), (4, 4)))
def test_checkpoint(x, w):
    def block(t, s):
        return torch.relu(t @ w) * s

    return checkpoint(block, x, 2.0, use_reentrant=False)


@program("reentrant checkpoint", inputs=grad_inputs((3, 4)))
def test_checkpoint_reentrant(x):
    y = x * 2
    return checkpoint(torch.sin, y, use_reentrant=True).detach()


@program("tensor subclass with __torch_function__", inputs=lambda: (torch.ones(2).as_subclass(Tagged), torch.ones(2)))
def test_subclass(t, x):
    y = x + 1
    return (t * 2 + y).as_subclass(torch.Tensor)


@program("torch function modes")
def test_mode(x):
    y = x * 2
    with Mode():
        z = torch.add(y, y)
    return z


@program("custom operators with fake kernels")
def test_custom_op(x):
    return triple(x) + getattr(torch.ops, LIBRARY).triple(x)


@program("custom operators that mutate", inputs=lambda: (torch.zeros(2),))
def test_custom_op_mutates(x):
    fill(x, 2.0)
    return x + 1


@program("torch._check")
def test_check(x):
    torch._check(x.shape[0] == 3)
    torch._check(x.ndim == 2, lambda: "no")
    return x + 1


@program("torch._check that fails")
def test_check_fails(x):
    y = x + 1
    torch._check(x.shape[0] == 5, lambda: "five")
    return y


@program("allow_in_graph")
def test_allow_in_graph(x):
    return allowed(x) + torch_allowed(x)


@program("torch.is_tensor and type tests")
def test_type_tests(x):
    return (
        torch.is_tensor(x),
        torch.is_tensor(1),
        torch.is_floating_point(x),
        isinstance(x, torch.FloatTensor),
        torch.numel(x),
        x.type(),
    )


@program("torch.nn.init and in-place initialisation")
def test_init(x):
    w = torch.empty(4, 4)
    torch.nn.init.constant_(w, 0.5)
    return x @ w


@program("scalars and 0-d tensors")
def test_scalars(x):
    s = torch.tensor(2.0)
    return x * s, s + 1, x.sum() * 2, s.dtype, (x * True), x + 1j


@program("torch.vmap and func.grad", BREAK)
def test_func(x):
    y = x + 1
    return torch.func.vmap(torch.sum)(y), torch.func.grad(lambda t: (t**2).sum())(x)


@program("sparse tensors", BREAK)
def test_sparse(x):
    s = x.to_sparse()
    return s.to_dense() + 1


@program("torch.save-like storage access", BREAK, steady=False)
def test_storage(x):
    y = x + 1
    return y, y.data_ptr() == y.data_ptr(), y.untyped_storage().nbytes()


@program("data attribute")
def test_data(x):
    y = x.data * 2
    return y, x.data.requires_grad


@program("bool of a shape and tensor membership")
def test_membership(x):
    y = x + 1
    return y, 1.0 in torch.ones(2), 3 in torch.ones(2), torch.tensor(2.0) not in y, x[0, 0] in x, bool(y.shape)


@program("iterating, len, reversed of a tensor")
def test_iterate(x):
    return [r.sum() for r in x], len(x), list(reversed([*x]))[0], max(range(3)), x.unbind()[1]


@program("functional random with a generator")
def test_generator(x):
    g = torch.Generator().manual_seed(3)
    return x + torch.rand(3, 4, generator=g)


@program("compile-time questions: torch.compiler.is_compiling", BREAK)
def test_questions(x):
    y = x + 1
    return opaque_question(y)


@stoker.disable
def opaque_question(y):
    return y, torch.compiler.is_compiling()


@program("tensors made inside that need a gradient", BREAK)
def test_leaf_inside(x):
    y = x + 1
    w = torch.ones(4, requires_grad=True)
    return y * w, w


@program("requires_grad_() of a tensor that has it", inputs=grad_inputs((3,)))
def test_requires_grad_again(x):
    return x.requires_grad_() is x, x * 2


@program("an intermediate that is made a leaf and not seen again", inputs=grad_inputs((3,)))
def test_inner_leaf(w):
    hidden = torch.ones(3)
    hidden.requires_grad = True
    return hidden * 2 * w


@program("a leaf made inside, which only the result depends on", BREAK)
def test_inner_leaf_seen(x):
    hidden = x + 1
    hidden.requires_grad_()
    return hidden * 2


@program("backward inside", inputs=lambda: (torch.ones(3, requires_grad=True),))
def test_backward(x):
    y = (x * x).sum()
    y.backward()
    return x.grad + 1


@program("torch.autograd.grad inside", inputs=lambda: (torch.ones(3, requires_grad=True),))
def test_autograd_grad(x):
    y = (x * x).sum()
    (g,) = torch.autograd.grad(y, x)
    return g * 2


@program("optimizer step inside", inputs=lambda: (torch.nn.Linear(2, 2), torch.ones(1, 2)), steady=False)
def test_optimizer(model, x):
    loss = model(x).sum()
    loss.backward()
    torch.optim.SGD(model.parameters(), lr=0.1).step()
    return loss.detach() * 2


@program("retain_grad of an intermediate", inputs=lambda: (torch.ones(3, requires_grad=True),))
def test_retain_grad(x):
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad + 1, x.grad


@program("a leaf made inside, and its gradient", inputs=lambda: (torch.ones(3),))
def test_leaf_inside(x):
    y = x.clone().requires_grad_()
    (y * y).sum().backward()
    return y, y.grad * 2


@program("gradients of gradients inside", inputs=lambda: (torch.ones(3, requires_grad=True),))
def test_gradients_of_gradients_inside(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return torch.autograd.grad(g.sum(), x)[0]


@program("gradient clipping", inputs=lambda: (torch.nn.Linear(2, 2), torch.ones(1, 2)))
def test_clipping(model, x):
    model.zero_grad()
    model(x).sum().backward()
    return torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)


@program("torch.autograd.functional.jacobian", inputs=lambda: (torch.ones(3),))
def test_jacobian(x):
    return torch.autograd.functional.jacobian(torch.sin, x)


@program("tensor classes called as constructors")
def test_legacy_constructors(x):
    made = [
        torch.IntTensor([x.shape[0], 2]),
        torch.LongTensor([[1, 2], [3, 4]]),
        torch.BoolTensor([1, 0]),
        torch.Tensor([1, 2.5]),
    ]
    sized = [
        torch.FloatTensor(2, 3).shape,
        torch.Tensor(3).shape,
        torch.DoubleTensor(x.shape).dtype,
        torch.HalfTensor([]).dtype,
    ]
    same = torch.Tensor(x)
    return (
        x * torch.FloatTensor([1, 2, 3, 4]),
        made,
        sized,
        torch.Tensor((2, 3)),
        torch.ByteTensor([300 % 256, 1.7]),
        same.shape,
    )
