"""`autograd.Function` with its protocols, `torch.utils.checkpoint`, custom operators: in one graph, equal to eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

import stoker

BACKENDS = ["eager", "aot_eager", "stoker"]
PROGRAMS: dict[str, tuple[Callable[..., Any], int]] = {}


def program(function: Any) -> Any:
    """Of leaves of shape (3, 4)."""
    PROGRAMS[function.__name__] = (function, function.__code__.co_argcount)
    return function


class Scaled(Function):
    """Non-tensors saved on ctx."""

    @staticmethod
    def forward(ctx, x, factor, name):
        ctx.factor, ctx.name = factor, name
        ctx.save_for_backward(x)
        return x * factor

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * ctx.factor + x * len(ctx.name), None, None


class Beside(Function):
    """What is no tensor, beside those that are: no gradient comes for it."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor, x.shape[0], "name", x.sum(), None, (1, 2)

    @staticmethod
    def backward(ctx, g, size, name, total, nothing, pair):
        assert size is name is nothing is pair is None
        return g * ctx.factor + total, None


@program
def beside(x):
    y, size, name, total, nothing, pair = Beside.apply(x, 3.0)
    return y * size * len(name) + total * pair[1], nothing is None


class WithoutGrad(Function):
    """Autograd calls both halves without grad: what needs a gradient, and `out=`, are as there."""

    @staticmethod
    def forward(ctx, x):
        made = torch.exp(x, out=torch.empty_like(x))
        ctx.factor = 3 if made.requires_grad or torch.is_grad_enabled() else 5
        ctx.save_for_backward(made)
        return made

    @staticmethod
    def backward(ctx, g):
        (made,) = ctx.saved_tensors
        return torch.mul(g * ctx.factor, made.detach(), out=torch.empty_like(g))


@program
def written_to_outputs(x):
    return WithoutGrad.apply(x) * x


class Separate(Function):
    """setup_context."""

    @staticmethod
    def forward(x, power):
        return x**power, x.sign()

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.power = inputs
        ctx.mark_non_differentiable(output[1])
        ctx.save_for_backward(x, output[0])

    @staticmethod
    def backward(ctx, g, _):
        x, y = ctx.saved_tensors
        return g * ctx.power * x ** (ctx.power - 1) + 0 * y, None


class InPlace(Function):
    """mark_dirty."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Once(Function):
    """once_differentiable, and a gradient that is written in place."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.exp()

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        found = g.clone()
        found.mul_(x)
        found[0] = 0
        return found


class Several(Function):
    """Several inputs and outputs, needs_input_grad, None for what needs no gradient."""

    @staticmethod
    def forward(ctx, x, y, z=None):
        ctx.save_for_backward(x, y)
        return x * y, x + y

    @staticmethod
    def backward(ctx, a, b):
        x, y = ctx.saved_tensors
        dx = a * y + b if ctx.needs_input_grad[0] else None
        dy = a * x + b if ctx.needs_input_grad[1] else None
        return dx, dy, None


class Absent(Function):
    """set_materialize_grads: gradients that did not come are None."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, a, b):
        if a is None:
            return b * 30
        if b is None:
            return a * 20
        return a * 2 + b * 3


class Straight(Function):
    """A straight-through estimator."""

    @staticmethod
    def forward(ctx, x):
        return (x > 0).float()

    @staticmethod
    def backward(ctx, g):
        return g.clamp(-1, 1)


class Reversed(Function):
    """A gradient reversal: the output is a view of the input."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.weight = weight
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.weight * g, None


class Outer(Function):
    """One that calls another."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Straight.apply(x) + x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            y = x.detach().requires_grad_()
            (found,) = torch.autograd.grad(Scaled.apply(y, 2.0, "ab").sum(), y)
        return g * found


class Twice(Function):
    """One that can be differentiated again."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x**2 * g


class Subclassed(Scaled):
    """One that inherits its backward."""

    @staticmethod
    def forward(ctx, x, factor, name):
        return Scaled.forward(ctx, x + 1, factor, name)


class Attributes(Function):
    """Tensors on ctx itself, and containers."""

    @staticmethod
    def forward(ctx, x, sizes):
        ctx.held = x.detach() * 2
        ctx.sizes = {"shape": x.shape, "more": list(sizes)}
        return x.sum(dim=sizes[0])

    @staticmethod
    def backward(ctx, g):
        assert ctx.sizes["more"] == [0]
        return g.expand(ctx.sizes["shape"]) * ctx.held, None


@program
def saved_non_tensors(x):
    return Scaled.apply(x, 2.5, "abc")


@program
def a_separate_context(x):
    y, sign = Separate.apply(x.abs() + 1, 3)
    return y * sign, sign.requires_grad


@program
def an_input_in_place(x):
    y = x * 1
    InPlace.apply(y)
    return y + 1


@program
def once_only(x):
    return Once.apply(x)


@program
def several_outputs(x, y):
    a, b = Several.apply(x, y)
    return a * b


@program
def several_outputs_of_one_gradient(x, y):
    a, b = Several.apply(x, y.detach())
    return a + b


@program
def absent_gradients(x):
    return Absent.apply(x)[0], Absent.apply(x)[1], sum(Absent.apply(x))


@program
def a_straight_through_estimator(x):
    return Straight.apply(x) * x


@program
def a_gradient_reversal(x):
    return Reversed.apply(x * 2, 0.5) * x


@program
def a_function_in_a_function(x):
    return Outer.apply(x)


@program
def an_inherited_backward(x):
    return Subclassed.apply(x, 2.0, "ab")


@program
def attributes_of_the_context(x):
    return Attributes.apply(x, (0,))


@program
def a_gradient_of_a_gradient(x):
    y = Twice.apply(x)
    (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    return g * x


@program
def with_a_backward_inside(x):
    y = x.detach().requires_grad_()
    Scaled.apply(y, 2.0, "abc").sum().backward()
    return y.grad + x


@program
def in_a_branch(x):
    return torch.where(x > 0, Scaled.apply(x, 2.0, "a"), Straight.apply(x))


MODEL = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
for _parameter in MODEL.parameters():
    _parameter.requires_grad_(False)


def block(x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
    return MODEL(x).sin() * scale


@program
def checkpointed(x):
    return checkpoint(block, x, use_reentrant=False) + x


@program
def checkpointed_reentrant(x):
    return checkpoint(block, x, use_reentrant=True) + x


@program
def checkpointed_with_keywords(x):
    return checkpoint(block, x, scale=2.0, use_reentrant=False, preserve_rng_state=False)


@program
def checkpointed_twice(x):
    return checkpoint(lambda a: checkpoint(block, a, use_reentrant=False).tanh(), x, use_reentrant=False)


@program
def checkpointed_dropout(x):
    return checkpoint(lambda a: torch.nn.functional.dropout(a * 2, 0.5), x, use_reentrant=False) * x


@program
def checkpointed_dropout_reentrant(x):
    return checkpoint(lambda a: torch.nn.functional.dropout(a * 2, 0.5), x, use_reentrant=True) * x


@program
def checkpointed_in_sequence(x):
    return checkpoint_sequential(MODEL, 2, x, use_reentrant=False)


@program
def checkpointed_results(x, y):
    a, (b, c) = checkpoint(lambda p, q: (p * q, (p + q, 3)), x, y, use_reentrant=False)
    return a * b, c


@program
def checkpointed_with_a_backward_inside(x):
    y = x.detach().requires_grad_()
    checkpoint(block, y, use_reentrant=False).sum().backward()
    return y.grad


LIBRARY = f"stoker_{__name__.replace('.', '_')}"
"""Each import has operators of its own: the tool that writes the coverage page imports this module by another name."""


@torch.library.custom_op(f"{LIBRARY}::scaled_sine", mutates_args=())
def scaled_sine(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.sin(x) * factor


@scaled_sine.register_fake
def _(x, factor):
    return torch.empty_like(x)


def _keep(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.factor = inputs[1]


scaled_sine.register_autograd(lambda ctx, g: (g * ctx.saved_tensors[0].cos() * ctx.factor, None), setup_context=_keep)


@torch.library.custom_op(f"{LIBRARY}::double_in_place", mutates_args={"x"})
def double_in_place(x: torch.Tensor) -> None:
    x.mul_(2)


@torch.library.custom_op(f"{LIBRARY}::halves", mutates_args=())
def halves(x: torch.Tensor) -> list[torch.Tensor]:
    return [part.clone() for part in x.chunk(2, -1)]


@halves.register_fake
def _(x):
    return [torch.empty_like(part) for part in x.chunk(2, -1)]


@program
def a_custom_operator(x):
    return scaled_sine(x, 2.0) + x


@program
def a_custom_operator_by_name(x):
    return getattr(torch.ops, LIBRARY).scaled_sine(x, 3.0)


@program
def a_custom_operator_that_writes(x):
    y = x.detach() + 1
    double_in_place(y)
    return x * y


@program
def a_custom_operator_with_a_list(x):
    first, second = halves(x.detach())
    return first * 2 + second, x.sum()


def outcome(function: Any, count: int) -> list[Any]:
    """Results and gradients of three calls, for a loss that weighs each element by its place."""
    torch.manual_seed(0)
    seen = []
    for _ in range(3):
        inputs = [torch.randn(3, 4, requires_grad=True) for _ in range(count)]
        found = torch.utils._pytree.tree_leaves(function(*inputs))
        outputs = [t for t in found if isinstance(t, torch.Tensor) and t.requires_grad]
        losses = [(t * torch.arange(t.numel()).reshape(t.shape)).sum() for t in outputs]
        if losses:
            sum(losses).backward()
        results = [t.detach() if isinstance(t, torch.Tensor) else t for t in found]
        seen.append([results, [x.grad for x in inputs]])
    return [seen, torch.get_rng_state()]


def same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            same(a, b)
    elif isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    else:
        assert mine == theirs


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, backend: str) -> None:
    function, count = PROGRAMS[name]
    compiled = stoker.compile(function, backend=backend, fullgraph=True)
    same(outcome(compiled, count), outcome(function, count))


class Folded(Function):
    """Sizes that are computed inside."""

    @staticmethod
    def forward(ctx, x):
        ctx.rows = x.shape[0] * 2
        return x.reshape(ctx.rows, -1) * ctx.rows

    @staticmethod
    def backward(ctx, g):
        return (g * ctx.rows).reshape(ctx.rows // 2, -1)


def test_sizes_that_change() -> None:
    def folded(x: torch.Tensor) -> torch.Tensor:
        return Folded.apply(x) + torch.arange(x.shape[0] * 2).unsqueeze(1)

    compiled = stoker.compile(folded, fullgraph=True, dynamic=True)
    for rows in (3, 5, 8):
        found = []
        for function in (folded, compiled):
            x = torch.ones(rows, 4, requires_grad=True)
            y = function(x)
            found.append([y.detach(), torch.autograd.grad(y.sum(), x)[0]])
        same(*found)


def test_a_checkpointed_model_trains_alike() -> None:
    def step(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        for layer in model:
            x = checkpoint(layer, x, use_reentrant=False)
        return x.square().mean()

    found = []
    for compile in (lambda f: f, lambda f: stoker.compile(f, fullgraph=True)):
        torch.manual_seed(0)
        model = nn.Sequential(*(nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.GELU()) for _ in range(3)))
        optimizer, run = torch.optim.SGD(model.parameters(), 0.1), compile(step)
        for _ in range(4):
            optimizer.zero_grad()
            run(model, torch.randn(5, 4)).backward()
            optimizer.step()
        found.append([p.detach() for p in model.parameters()])
    same(*found)
