"""Autograd's engine inside a compiled function: backward, grad, `.grad`, whole training steps; in one graph, equal to eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn, optim

import stoker
import stoker.errors

Program = Callable[..., Any]
PROGRAMS: dict[str, tuple[Program, Callable[[], tuple[Any, ...]]]] = {}
BACKENDS = ["eager", "aot_eager", "stoker"]


def leaf(*sizes: int) -> torch.Tensor:
    return torch.randn(*(sizes or (3, 4)), requires_grad=True)


def program(*makers: Callable[[], Any]) -> Callable[[Program], Program]:
    """A program on fresh inputs: leaves of shape (3, 4) if nothing else is said."""

    def register(function: Program) -> Program:
        count = function.__code__.co_argcount
        PROGRAMS[function.__name__] = (function, lambda: tuple(make() for make in makers or (leaf,) * count))
        return function

    return register


def described(value: Any, seen: dict[int, int]) -> Any:
    """Values, flags of autograd and sharing."""
    if isinstance(value, torch.Tensor):
        again = seen.setdefault(id(value), len(seen))
        kept = value.grad if value.is_leaf else None
        flags = (value.requires_grad, value.is_leaf, tuple(value.shape), value.stride(), value.dtype)
        return [again, flags, value.detach().clone(), None if kept is None else described(kept, seen)]
    if isinstance(value, nn.Module):
        return [described(p, seen) for p in (*value.parameters(), *value.buffers())]
    if isinstance(value, dict):
        return {k: described(v, seen) for k, v in value.items()}
    return [described(v, seen) for v in value] if isinstance(value, (list, tuple)) else value


def later(result: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """Gradients that are asked for behind the compiled function."""
    outputs = [
        t for t in torch.utils._pytree.tree_leaves(result) if isinstance(t, torch.Tensor) and t.grad_fn is not None
    ]
    parameters = [p for i in inputs for p in (i.parameters() if isinstance(i, nn.Module) else [i])]
    leaves = [p for p in parameters if p.requires_grad]
    return list(torch.autograd.grad(sum(t.sum() for t in outputs), leaves, allow_unused=True)) if outputs else []


def observed(function: Program, make: Callable[[], tuple[Any, ...]]) -> list[Any]:
    """Three calls on the same inputs: gradients accumulate from the second on."""
    torch.manual_seed(0)
    inputs, found = make(), []
    for _ in range(3):
        result = function(*inputs)
        gradients = later(result, inputs)
        found.append([described([result, inputs], {}), gradients])
    return found


def same(mine: Any, theirs: Any) -> None:
    """Equal, tensors up to rounding."""
    if isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    elif isinstance(theirs, (list, tuple)):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            same(a, b)
    elif isinstance(theirs, dict):
        assert mine.keys() == theirs.keys()
        same(list(mine.values()), list(theirs.values()))
    else:
        assert mine == theirs


@program()
def loss_backward(x):
    (x * x).sum().backward()
    return x.grad * 2


@program()
def accumulates(x, y):
    (x * y).sum().backward()
    (x.sin() + y).sum().backward()
    return x.grad


@program()
def gradient_given(x):
    y = x * 3
    y.backward(torch.ones_like(y) * 2)


@program()
def several_tensors(x, y):
    torch.autograd.backward([(x * y).sum(), x.exp().sum()], [torch.tensor(2.0), None])


@program()
def only_some_inputs(x, y):
    (x * y).sum().backward(inputs=[x])
    return y.grad is None


@program()
def kept_and_again(x):
    y = x.pow(3).sum()
    y.backward(retain_graph=True)
    first = x.grad.clone()
    y.backward()
    return first, x.grad - first


@program()
def grad_of(x, y):
    a, b = torch.autograd.grad((x * y.sin()).sum(), [x, y])
    return a + b


@program()
def grad_unused(x, y):
    a, b = torch.autograd.grad((x * x).sum(), (x, y), allow_unused=True)
    return a, b


@program()
def grad_materialized(x, y):
    return torch.autograd.grad((x * x).sum(), (x, y), materialize_grads=True)


@program()
def grad_of_an_intermediate(x):
    y = x * 2
    return torch.autograd.grad((y * y).sum(), y)[0]


@program()
def gradient_penalty(x, w):
    out = (x @ w.t()).tanh()
    (g,) = torch.autograd.grad(out.sum(), x, create_graph=True)
    loss = out.mean() + (g.norm(2, dim=1) - 1).square().mean()
    loss.backward()
    return loss.detach()


@program()
def hessian_vector(x):
    y = (x**3).sum()
    (g,) = torch.autograd.grad(y, x, create_graph=True)
    return torch.autograd.grad((g * x.detach()).sum(), x)[0]


@program()
def higher_order_outside(x):
    (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
    return g.sum()


@program(lambda: nn.Linear(4, 4), leaf)
def grad_of_a_generator(model, x):
    return torch.autograd.grad(model(x).square().sum(), model.parameters())


@program()
def a_jacobian(x):
    return torch.autograd.functional.jacobian(lambda a: a.sin().sum(0), x.detach())


@program()
def a_hessian(x):
    return torch.autograd.functional.hessian(lambda a: a.pow(3).sum(), x.detach()[0])


@program()
def a_vector_times_a_jacobian(x):
    return torch.autograd.functional.vjp(lambda a: a.exp() * 2, x.detach(), torch.ones(3, 4))


@program()
def leaf_made_inside(x):
    y = x.detach().clone().requires_grad_()
    (y * x.detach()).sum().backward()
    return y.grad


@program()
def leaf_by_factory():
    w = torch.ones(3, requires_grad=True)
    (w * torch.arange(3.0)).sum().backward()
    return w.grad


@program()
def gradient_ascent(x):
    y = x.detach()
    for _ in range(3):
        y.requires_grad_()
        (g,) = torch.autograd.grad((y.sin() * y).sum(), y)
        y = (y + 0.1 * g.sign()).detach()
    return y


@program()
def retained(x):
    y = x * 2
    y.retain_grad()
    (y * y).sum().backward()
    return y.grad * 1.0


@program()
def gradient_set(x):
    x.grad = torch.ones_like(x)
    (x * x).sum().backward()
    return x.grad.sum()


@program()
def gradient_none(x):
    (x * x).sum().backward()
    g = x.grad
    x.grad = None
    return g


@program()
def gradient_deleted(x):
    (x * x).sum().backward()
    del x.grad
    return x.grad is None


@program()
def gradient_scaled_in_place(x):
    (x * x).sum().backward()
    x.grad.mul_(0.5)
    x.grad += 1
    return x.grad.norm()


@program()
def gradient_zeroed(x):
    if x.grad is not None:
        x.grad.zero_()
    (x * 5).sum().backward()


@program()
def gradient_kept_elsewhere(x):
    (x * x).sum().backward()
    before = x.grad
    (x * 3).sum().backward()
    return before is x.grad, before


@program(leaf, leaf)
def clipped_by_norm(x, y):
    (x * y * 10).sum().backward()
    return torch.nn.utils.clip_grad_norm_([x, y], 1.0)


@program(leaf, leaf)
def clipped_by_norm_plain(x, y):
    (x * y * 10).sum().backward()
    return torch.nn.utils.clip_grad_norm_([x, y], 1.0, norm_type=1.0, foreach=False)


@program(leaf, leaf)
def clipped_by_value(x, y):
    (x * y * 10).sum().backward()
    torch.nn.utils.clip_grad_value_([x, y], 0.25)


@program()
def written_by_hand(x):
    (x * x).sum().backward()
    with torch.no_grad():
        x -= 0.1 * x.grad
        x.grad = None


@program()
def written_through_data(x):
    (x * x).sum().backward()
    x.data.add_(x.grad, alpha=-0.1)
    x.grad.data.zero_()


@program()
def without_grad_around(x):
    with torch.no_grad():
        with torch.enable_grad():
            y = (x * x).sum()
        (g,) = torch.autograd.grad(y, x)
    return g


@program(leaf, lambda: torch.randn(3, 4).t().contiguous().t().requires_grad_())
def layouts(x, y):
    (x.t() @ y).sum().backward()


@program(lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)), leaf)
def a_module(model, x):
    model.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    return loss.detach()


@program(lambda: nn.Linear(4, 4), leaf)
def a_module_that_accumulates(model, x):
    for part in x.split(1):
        (model(part).square().mean() / 3).backward()


@program(lambda: nn.Embedding(10, 4), lambda: torch.tensor([1, 2, 2]))
def an_embedding(model, x):
    model(x).square().sum().backward()


@program(lambda: nn.Linear(4, 4), leaf)
def frozen_parts(model, x):
    (model(x.detach()).square().mean()).backward()
    return model.bias.grad.clone()


@program(lambda: nn.Dropout(0.5), leaf)
def random_numbers(model, x):
    (model(x) * x).sum().backward()


@program(leaf)
def spent_loss_is_detached(x):
    loss = (x * x).sum()
    loss.backward()
    return loss.detach(), loss.requires_grad


@program()
def a_leaf_is_given_back(x):
    y = torch.ones(3, 4, requires_grad=True)
    (x.detach() * y).sum().backward()
    return y


@program()
def a_leaf_is_given_back_without_a_gradient(x):
    return x.detach().clone().requires_grad_(), x * 2


@program()
def other_memory(x):
    x.data = x.data * 0.5
    return (x * 2).detach()


@program()
def other_memory_of_an_intermediate(x):
    y = torch.zeros(2)
    y.data = x.detach() + 1
    return y * 2, x.sum()


@program(lambda: nn.Linear(4, 4), leaf)
def frozen_for_a_while(model, x):
    for p in model.parameters():
        p.requires_grad_(False)
    loss = model(x).square().sum()
    for p in model.parameters():
        p.requires_grad_(True)
    loss.backward()
    return [p.grad is None for p in model.parameters()]


@program(lambda: nn.Linear(4, 4), leaf)
def frozen_from_here_on(model, x):
    model.requires_grad_(False)
    return model(x)


@program(lambda: nn.Linear(4, 4).requires_grad_(False), leaf)
def thawed_from_here_on(model, x):
    y = model(x)
    model.weight.requires_grad_()
    return y


@program()
def a_leaf_detached(x):
    y = x * 2
    x.detach_()
    return y.detach(), x + 1


@program()
def a_hook_in_the_middle(x):
    y = x * 2
    y.register_hook(lambda g: g * 3)
    (y * y).sum().backward()


@program()
def a_hook_in_the_middle_for_later(x):
    y = x.sin()
    y.register_hook(lambda g: g.clamp(-0.1, 0.1) + x.detach())
    return (y * x).sum()


@program()
def hooks_in_order(x):
    y = x * 2
    y.register_hook(lambda g: g + 1)
    y.register_hook(lambda g: g * 2)
    return y.exp()


@program()
def a_hook_taken_away(x):
    y = x * 2
    handle = y.register_hook(lambda g: g * 3)
    y.register_hook(lambda g: g + 1)
    handle.remove()
    return (y * y).sum()


@program()
def a_hook_that_only_looks(x):
    y = x * 2
    y.register_hook(lambda g: None)
    return (y * y).sum()


@program()
def hooks_that_remember(x):
    seen = {}
    y = x * 2
    z = y.sin()
    y.register_hook(lambda g: seen.__setitem__("y", g))
    z.register_hook(lambda g: seen.__setitem__("z", g))
    (z * z).sum().backward()
    return list(seen), list(seen.values())


@program()
def a_hook_on_a_leaf_inside(x):
    seen = []
    y = x.detach().clone().requires_grad_()
    y.register_hook(lambda g: g * 2)
    y.register_hook(lambda g: seen.append(g))
    (y * y).sum().backward()
    return y.grad, seen[0]


def hooked_linear() -> nn.Module:
    model = nn.Linear(4, 4)
    model.weight.register_hook(lambda g: g * 2)
    model.weight.register_hook(lambda g: g + 1)
    model.bias.register_post_accumulate_grad_hook(halved)
    return model


def halved(p):
    p.grad.mul_(0.5)


@program(hooked_linear, leaf)
def hooks_of_parameters(model, x):
    model(x).square().sum().backward()


@program(hooked_linear, leaf)
def hooks_of_parameters_asked_for(model, x):
    return torch.autograd.grad(model(x).square().sum(), [model.weight, model.bias])


def stepping(p):
    with torch.no_grad():
        p.add_(p.grad, alpha=-0.1)
    p.grad = None


def steps_by_itself() -> nn.Module:
    model = nn.Linear(4, 4)
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(stepping)
    return model


@program(steps_by_itself, leaf)
def an_optimizer_in_hooks(model, x):
    model(x).square().sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, backend: str) -> None:
    function, make = PROGRAMS[name]
    mine = observed(stoker.compile(function, backend=backend, fullgraph=True), make)
    same(mine, observed(function, make))


OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD": lambda p, **how: optim.SGD(p, 0.1, **how),
    "momentum": lambda p, **how: optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01, **how),
    "Adam": lambda p, **how: optim.Adam(p, 1e-2, **how),
    "AdamW": lambda p, **how: optim.AdamW(p, 1e-2, amsgrad=True, **how),
    "Adagrad": lambda p, **how: optim.Adagrad(p, 1e-2, **how),
    "RMSprop": lambda p, **how: optim.RMSprop(p, 1e-2, momentum=0.1, centered=True, **how),
    "Adamax": lambda p, **how: optim.Adamax(p, 1e-2, **how),
    "NAdam": lambda p, **how: optim.NAdam(p, 1e-2, **how),
    "Adadelta": lambda p, **how: optim.Adadelta(p, **how),
}


def trained(make: Callable[[Any], optim.Optimizer], compile: Callable[[Any], Any], steps: int, clip: bool) -> Any:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 2)).double()
    optimizer = make(model.parameters())
    schedule = optim.lr_scheduler.StepLR(optimizer, 5, 0.5)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        if clip:
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        return loss

    run, losses = compile(step), []
    for _ in range(steps):
        losses.append(run(torch.randn(3, 4, dtype=torch.double)).detach())
        schedule.step()
    gradients = [p.grad.clone() for p in model.parameters()]
    return losses, [p.detach() for p in model.parameters()], gradients, copy.deepcopy(optimizer.state_dict())


def whole_step(backend: str) -> Callable[[Any], Any]:
    return lambda step: stoker.compile(step, backend=backend, fullgraph=True)


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_training_step_is_one_graph(name: str, foreach: bool) -> None:
    make = lambda p: OPTIMIZERS[name](p, foreach=foreach)  # noqa: E731
    mine = trained(make, whole_step("stoker"), 20, clip=name == "Adam")
    same(mine, trained(make, lambda step: step, 20, clip=name == "Adam"))


def test_a_training_step_compiles_few_times() -> None:
    """Once while there is no state, once with it, once more when the learning rate changes."""
    stoker.log.clear()
    trained(OPTIMIZERS["AdamW"], whole_step("stoker"), 20, clip=False)
    assert len(stoker.events("captured")) <= 4, [e.reason for e in stoker.events("recompile")]


def test_a_learning_rate_in_a_tensor() -> None:
    make = lambda p: optim.Adam(p, lr=torch.tensor(1e-2), foreach=False)  # noqa: E731
    mine = trained(make, whole_step("stoker"), 8, clip=False)
    same(mine, trained(make, lambda step: step, 8, clip=False))


def two_networks() -> Any:
    """A generator and a discriminator, each with an optimizer of its own."""
    made, judge = nn.Linear(3, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
    first, second = optim.Adam(made.parameters(), 1e-2), optim.Adam(judge.parameters(), 1e-2)

    def step(x: torch.Tensor) -> Any:
        z = torch.randn(3, 3)
        second.zero_grad()
        loss = judge(x).sigmoid().mean() - judge(made(z).detach()).sigmoid().mean()
        loss.backward()
        second.step()
        first.zero_grad()
        other = judge(made(z)).sigmoid().mean()
        other.backward()
        first.step()
        return loss.detach(), other.detach()

    return step, [made, judge]


def an_inner_loop() -> Any:
    """Gradients through an update (MAML)."""
    model = nn.Linear(4, 1)
    optimizer = optim.SGD(model.parameters(), 0.1)

    def step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        weight, bias = model.weight, model.bias
        inner = (x @ weight.t() + bias).square().mean()
        dw, db = torch.autograd.grad(inner, (weight, bias), create_graph=True)
        outer = ((x + 1) @ (weight - 0.1 * dw).t() + bias - 0.1 * db).square().mean()
        outer.backward()
        optimizer.step()
        return outer.detach()

    return step, [model]


def parts_and_an_average() -> Any:
    """Gradients of parts of a batch, clipped, and a running average of the weights."""
    model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 1))
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = optim.AdamW(model.parameters(), 1e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

    def step(x: torch.Tensor) -> Any:
        optimizer.zero_grad(set_to_none=False)
        for part in x.chunk(2):
            (model(part).square().mean() / 2).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        schedule.step()
        with torch.no_grad():
            for a, p in zip(average.parameters(), model.parameters()):
                a.mul_(0.9).add_(p, alpha=0.1)
        return norm

    return step, [model, average]


def a_closure() -> Any:
    """An optimizer that is given the function to minimise."""
    model = nn.Linear(4, 1)
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)

    def step(x: torch.Tensor) -> Any:
        def loss() -> torch.Tensor:
            optimizer.zero_grad()
            found = model(x).square().mean()
            found.backward()
            return found

        return optimizer.step(loss).detach()

    return step, [model]


@pytest.mark.parametrize("make", [two_networks, an_inner_loop, parts_and_an_average, a_closure])
def test_a_step_as_programs_write_it(make: Callable[[], Any]) -> None:
    found = []
    for compile in (lambda step: step, whole_step("stoker")):
        torch.manual_seed(0)
        step, models = make()
        run = compile(step)
        results = [run(torch.randn(4, 4)) for _ in range(6)]
        found.append([results, [list(model.state_dict().values()) for model in models], torch.get_rng_state()])
    same(*found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_history_that_was_used_up_cannot_be_used_again(backend: str) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = (x * x).sum()
        loss.backward()
        return loss

    for function in (step, stoker.compile(step, backend=backend, fullgraph=True)):
        loss = function(leaf())
        assert loss.requires_grad and not loss.is_leaf
        with pytest.raises(RuntimeError, match="backward through the graph a second time"):
            loss.backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_history_that_was_kept_can_be_used_again(backend: str) -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        loss = (x * x).sum()
        loss.backward(retain_graph=True)
        return loss

    found = []
    for function in (step, stoker.compile(step, backend=backend, fullgraph=True)):
        torch.manual_seed(0)
        x = leaf()
        function(x).backward()
        found.append(x.grad)
    same(*found)


def test_a_backward_that_goes_on_outside_breaks() -> None:
    def step(x: torch.Tensor) -> None:
        (x * x).sum().backward()

    found = []
    for function in (step, stoker.compile(step, backend="eager")):
        torch.manual_seed(0)
        x = leaf()
        function(x * 2)
        found.append(x.grad)
    same(*found)
    with pytest.raises(stoker.errors.GraphBreakError, match="beyond the compiled function"):
        stoker.compile(step, backend="eager", fullgraph=True)(leaf() * 2)


def test_parameters_that_become_one_are_noticed() -> None:
    def step(x: torch.Tensor, y: torch.Tensor) -> None:
        (x * y).sum().backward()

    compiled = stoker.compile(step, fullgraph=True)
    for function in (step, compiled):
        x, y = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        function(x, y)
        z = torch.ones(3, requires_grad=True)
        function(z, z)
        assert z.grad.tolist() == [2.0, 2.0, 2.0]


def written_before_its_backward(x):
    y = x.exp()
    loss = (y * y).sum()
    y.mul_(2)
    loss.backward()


def used_up(x):
    loss = (x * x).sum()
    loss.backward()
    loss.backward()


def no_scalar(x):
    (x * x).backward()


def nothing_to_differentiate(x):
    (x.detach() * 2).sum().backward()


def an_unused_input(x):
    return torch.autograd.grad((x * x).sum(), [x, torch.ones(3, requires_grad=True)])


def a_gradient_of_another_shape(x):
    x.grad = torch.ones(7)


@pytest.mark.parametrize(
    "function",
    [written_before_its_backward, used_up, no_scalar, nothing_to_differentiate, an_unused_input, a_gradient_of_another_shape],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_errors_are_those_of_eager(function: Any) -> None:
    found = []
    for run in (function, stoker.compile(function)):
        torch.manual_seed(0)
        x = leaf()
        with pytest.raises(RuntimeError) as raised:
            run(x)
        found.append([str(raised.value).split(". Did you")[0], x.grad])
    same(*found)


def test_a_hook_that_remembers_for_later() -> None:
    def program(x: torch.Tensor, seen: list[Any]) -> torch.Tensor:
        y = x * 2
        y.register_hook(lambda g: seen.append(g))
        return (y * y).sum()

    found = []
    for run in (program, stoker.compile(program, fullgraph=True)):
        torch.manual_seed(0)
        x, seen = leaf(), []
        run(x, seen).backward()
        found.append([x.grad, seen])
    same(*found)


def gradients_in_one_buffer() -> Any:
    model, buffer = nn.Linear(4, 4), torch.zeros(20)
    model.weight.grad, model.bias.grad = buffer[:16].view(4, 4), buffer[16:]

    def step(x: torch.Tensor) -> Any:
        buffer.zero_()
        model(x).square().sum().backward()
        return buffer.norm()

    return step, lambda: [buffer, model.weight.grad, model.bias.grad]


def one_weight_twice() -> Any:
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    second.weight = first.weight
    optimizer = optim.Adam([first.weight], 1e-2)

    def step(x: torch.Tensor) -> Any:
        optimizer.zero_grad()
        loss = second(first(x).relu()).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step, lambda: [first.weight.detach(), first.weight.grad]


def one_gradient_for_two() -> Any:
    a, b = torch.randn(4, requires_grad=True), torch.randn(4, requires_grad=True)

    def step(x: torch.Tensor) -> Any:
        a.grad = b.grad = torch.ones(4)
        (a + b * x).sum().backward()
        return a.grad is b.grad

    return step, lambda: [a.grad, b.grad]


def weights_that_are_replaced() -> Any:
    state = {"w": torch.randn(4, requires_grad=True)}

    def step(x: torch.Tensor) -> Any:
        loss = (state["w"] * x).square().sum()
        (g,) = torch.autograd.grad(loss, state["w"])
        state["w"] = (state["w"] - 0.01 * g).detach().requires_grad_()
        return loss.detach()

    return step, lambda: [state["w"].detach()]


@pytest.mark.parametrize(
    "make", [gradients_in_one_buffer, one_weight_twice, one_gradient_for_two, weights_that_are_replaced]
)
def test_what_gradients_share(make: Callable[[], Any]) -> None:
    found = []
    for compile in (lambda step: step, whole_step("stoker")):
        torch.manual_seed(0)
        step, state = make()
        run = compile(step)
        found.append([[run(torch.randn(4, 4)) for _ in range(4)], state()])
    same(*found)
