"""Full backward hooks of modules: those that only compute are a part of the graph, others a break with a reason."""

from __future__ import annotations

import pytest
import torch
from harness import BREAK, program
from torch import nn
from torch.nn.modules import module as global_hooks

import stoker
from stoker import log

FACTOR = torch.tensor(3.0)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, mask, scale=2.0):
        return self.linear(x) * mask * scale


def by_weight(module, of_inputs, of_output):
    return (of_inputs[0] + module.weight.sum(0) * FACTOR,)


def clip(module, of_inputs, of_output):
    return (of_inputs[0].clamp(-0.1, 0.1),)


def mix(module, of_inputs, of_output):
    return (of_inputs[0] * 2 + of_output[0].sum(),)


def threefold(module, of_output):
    return (of_output[0] * 3,)


def look(module, of_inputs, of_output):
    assert len(of_output) == 1
    of_output[0].norm()


HOOKS = {
    "look": lambda net: net[2].register_full_backward_hook(look),
    "mix": lambda net: net[2].register_full_backward_hook(mix),
    "by weight": lambda net: net[2].register_full_backward_hook(by_weight),
    "prepended": lambda net: net[2].register_full_backward_hook(clip, prepend=True),
    "before": lambda net: net[2].register_full_backward_pre_hook(threefold),
    "of the whole": lambda net: net.register_full_backward_hook(clip),
    "before the whole": lambda net: net.register_full_backward_pre_hook(threefold),
    "of a function": lambda net: net[1].register_full_backward_hook(mix),
}


def network(names):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    for name in names:
        HOOKS[name](net)
    return net


def leaf(rows=3):
    torch.manual_seed(1)
    return torch.randn(rows, 4, requires_grad=True)


def trained(net, step, x):
    for _ in range(2):
        result = step(x)
        result.sum().backward()
    return [result.detach(), x.grad, *(p.grad for p in net.parameters())]


CHOSEN = [
    *([name] for name in HOOKS),
    ["mix", "prepended", "before"],
    ["of the whole", "before", "of a function"],
    [*HOOKS],
]


@pytest.mark.parametrize("names", CHOSEN, ids=", ".join)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
def test_equal(names, backend):
    log.clear()
    found = []
    for compiles in (lambda f: f, lambda f: stoker.compile(f, backend=backend, fullgraph=True)):
        net = network(names)
        found.append(trained(net, compiles(lambda x, net=net: net(x).sin()), leaf()))
    torch.testing.assert_close(found[1], found[0])
    assert not log.events("as captured")


def test_sizes_change():
    """A batch of another size compiles once more, and no third time."""
    log.clear()
    eager, ours = network(["mix", "before"]), network(["mix", "before"])
    compiled = stoker.compile(ours, fullgraph=True)
    for rows in (3, 5, 7, 9):
        inputs = leaf(rows), leaf(rows)
        for call, x in zip((eager, compiled), inputs):
            call(x).sum().backward()
        torch.testing.assert_close(inputs[1].grad, inputs[0].grad)
    assert len(log.events("captured")) == 2


def test_double_backward():
    found = []
    for compiles in (lambda f: f, lambda f: stoker.compile(f, backend="aot_eager", fullgraph=True)):
        net, x = network(["mix"]), leaf()
        (first,) = torch.autograd.grad(compiles(net)(x).pow(2).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(first.pow(2).sum(), x))
    torch.testing.assert_close(found[1], found[0])


def hooked(kind=None):
    def make():
        torch.manual_seed(0)
        block = Pair()
        (
            kind
            or (lambda b: b.register_full_backward_hook(lambda m, i, o: tuple(g if g is None else g * 2 for g in i)))
        )(block)
        return block, torch.randn(3, 4, requires_grad=True), torch.ones(3, 4)

    return make


@program("full backward hooks of a module with several inputs", inputs=hooked())
def test_several_inputs(block, x, mask):
    return block(x, mask) + block(x * 2, mask, scale=3.0)


@program("full backward hooks without grad", inputs=hooked())
def test_without_grad(block, x, mask):
    with torch.no_grad():
        return block(x, mask)


def counted(block):
    block.calls = []
    block.register_full_backward_hook(lambda m, i, o: m.calls.append(o[0].sum().item()))


@program("a full backward hook that keeps what it sees", inputs=hooked(counted))
def test_effects(block, x, mask):
    y = x * 2
    return block(y, mask) + 1, block.calls


KEEPING = {
    "the backward": lambda net, kept: net[2].register_full_backward_hook(
        lambda m, i, o: kept.append(o[0].sum().item())
    ),
    "before it": lambda net, kept: net[2].register_full_backward_pre_hook(lambda m, o: kept.append(o[0].sum().item())),
    "forward": lambda net, kept: net[2].register_forward_hook(lambda m, i, o: kept.append(o.sum().item())),
    "tensors": lambda net, kept: net[2].register_full_backward_hook(lambda m, i, o: kept.extend(i)),
    "a print": lambda net, kept: net[2].register_full_backward_hook(lambda m, i, o: print("backward")),
}


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "names", [[n] for n in KEEPING] + [["forward", "the backward"], ["forward", "before it", "tensors", "a print"]]
)
def test_hooks_that_keep_what_they_see(names, inside, capsys):
    """In one list, in eager's order; the only break is at a backward inside that would call hooks that keep something, and says why."""
    found, said = [], []
    log.clear()
    for compiles in (lambda f: f, stoker.compile):
        net, kept = network([]), []
        for name in names:
            KEEPING[name](net, kept)
        step = compiles(lambda x, net=net: net(x).sin().sum().backward() if inside else net(x).sin())
        for _ in range(2):
            result = step(x := leaf())
            if not inside:
                result.sum().backward()
        found.append([kept, x.grad, [p.grad for p in net.parameters()]])
        said.append(capsys.readouterr().out)
    torch.testing.assert_close(found[1], found[0])
    assert said[1] == said[0]
    assert all("is called by code behind the graph" in e.reason for e in log.events("break"))
    assert bool(log.events("break")) == (inside and names != ["forward"])


@program("a full backward hook where no input needs a gradient", BREAK, inputs=hooked())
def test_no_input_needs(block, x, mask):
    y = x.detach() * 2
    return block(y, mask) + 1


def test_too_few():
    """Eager says so in the backward."""
    for compiles in (lambda f: f, stoker.compile):
        block, x, mask = hooked(lambda b: b.register_full_backward_hook(lambda m, i, o: (i[0],)))()
        result = compiles(lambda x, mask, block=block: block(x * 2, mask) + 1)(x, mask)
        with pytest.raises(RuntimeError, match="invalid number of grad_input, got 1, but expected 2"):
            result.sum().backward()


@program("hooks on a module's backward, and the backward inside", inputs=hooked())
def test_backward_inside(block, x, mask):
    block(x, mask).sum().backward()
    return x.grad, block.linear.weight.grad


def test_of_all_modules():
    handles = [
        global_hooks.register_module_full_backward_hook(lambda m, i, o: tuple(g * 2 for g in i)),
        global_hooks.register_module_full_backward_pre_hook(lambda m, o: tuple(g * 3 for g in o)),
    ]
    try:
        found = []
        for compiles in (lambda f: f, lambda f: stoker.compile(f, fullgraph=True)):
            net, x = network([]), leaf()
            found.append(trained(net, compiles(net), x))
        torch.testing.assert_close(found[1], found[0])
    finally:
        for handle in handles:
            handle.remove()
