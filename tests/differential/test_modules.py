"""nn.Modules: containers, hooks, parameters and buffers, parametrizations, state changed in forward."""

from __future__ import annotations

import torch
from harness import BREAK, program
from torch import nn

import stoker


def seeded(make):
    """Inputs: a module with the same weights each time, and a tensor."""

    def inputs():
        generator = torch.get_rng_state()
        torch.manual_seed(7)
        module = make()
        torch.set_rng_state(generator)
        return module, torch.randn(3, 4)

    return inputs


class Block(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.linear = nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("offset", torch.zeros(width))
        self.register_buffer("scratch", torch.ones(width), persistent=False)
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return self.linear(x) * self.scale + self.offset + self.scratch


class Stack(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.acts = nn.ModuleDict({"relu": nn.ReLU(), "gelu": nn.GELU()})
        self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])
        self.biases = nn.ParameterDict({"a": nn.Parameter(torch.zeros(4))})

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) * self.weights[i % 2]
        for name, act in self.acts.items():
            x = act(x) + len(name)
        x = self.layers[-1](x) + self.biases["a"] + len(self.layers)
        for layer in self.layers[:2]:
            x = layer(x)
        return x, "relu" in self.acts, list(self.acts.keys())


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.b = self.a
        self.c = nn.Linear(4, 4, bias=False)
        self.c.weight = self.a.weight

    def forward(self, x):
        return self.a(x) + self.b(x) + self.c(x), self.a is self.b, self.c.weight is self.a.weight


class Running(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("count", torch.tensor(0))
        self.last = None
        self.history = []

    def forward(self, x):
        if self.training:
            self.mean.mul_(0.9).add_(x.mean(0) * 0.1)
            self.count += 1
        self.last = x.sum()
        self.history.append(x.shape)
        return x - self.mean


class Replacing(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("state", torch.zeros(4))

    def forward(self, x):
        self.state = self.state + x.sum(0)
        return x * self.state


class Custom(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = Block()

    def __call__(self, x, k=1):
        return super().__call__(x) * k

    def forward(self, x):
        return self.inner.forward(x) + self.helper(x)

    def helper(self, x):
        return x * 2

    def extra_repr(self):
        return "custom"


class Introspect(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()
        self.seq = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x):
        names = [n for n, _ in self.named_parameters()]
        total = sum(p.sum() for p in self.parameters())
        return (
            x + total, names, [n for n, _ in self.named_children()], [n for n, _ in self.named_modules()],
            [type(m).__name__ for m in self.modules()], [n for n, _ in self.named_buffers()], len(list(self.children())),
        )  # fmt: skip


class StateDict(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = Block()

    def forward(self, x):
        return x, list(self.state_dict())


def scale_output(module, args, output):
    return output * 2


def shift_input(module, args):
    return (args[0] + 1,)


def keyword_hook(module, args, kwargs, output):
    return output + kwargs.get("bias", 0)


def keyword_pre_hook(module, args, kwargs):
    return args, {**kwargs, "bias": 5}


class Biased(nn.Module):
    def forward(self, x, bias=0):
        return x + bias


def hooked():
    block = Block()
    block.linear.register_forward_hook(scale_output)
    block.linear.register_forward_pre_hook(shift_input)
    return block


def keyword_hooked():
    block = Biased()
    block.register_forward_pre_hook(keyword_pre_hook, with_kwargs=True)
    block.register_forward_hook(keyword_hook, with_kwargs=True)
    return block


def always_called():
    block = Block()
    block.register_forward_hook(scale_output, always_call=True)
    return block


def backward_hooked():
    block = Block()
    block.linear.register_full_backward_hook(lambda module, gin, gout: None)
    return block


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


def parametrized():
    linear = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(linear, "weight", Symmetric())
    return linear


@program("nn.Linear", inputs=seeded(lambda: nn.Linear(4, 2)))
def test_linear(m, x):
    return m(x), m.weight.shape, m.in_features, m.bias is None


@program("nn.Sequential", inputs=seeded(lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Sequential(nn.Tanh()))))
def test_sequential(m, x):
    return m(x), len(m), m[0](x), [type(c).__name__ for c in m], m[:2](x)


@program("ModuleList, ModuleDict, ParameterList, ParameterDict", inputs=seeded(Stack))
def test_containers(m, x):
    return m(x)


@program("parameters, buffers and a call counter", inputs=seeded(Block))
def test_block(m, x):
    return m(x), m.calls


@program("shared modules and tied weights", inputs=seeded(Shared))
def test_shared(m, x):
    return m(x)


@program("buffers updated in place", inputs=seeded(Running))
def test_running(m, x):
    return m(x), m(x + 1)


@program("buffers replaced in forward", inputs=seeded(Replacing))
def test_replacing(m, x):
    return m(x), m.state


@program("BatchNorm in training", inputs=seeded(lambda: nn.BatchNorm1d(4)))
def test_batch_norm(m, x):
    return m(x)


@program("BatchNorm in eval", inputs=seeded(lambda: nn.BatchNorm1d(4).eval()))
def test_batch_norm_eval(m, x):
    return m(x), m.training


@program("Dropout", inputs=seeded(lambda: nn.Dropout(0.5)))
def test_dropout(m, x):
    return m(x)


@program("__call__ overridden, forward called directly", inputs=seeded(Custom))
def test_custom_call(m, x):
    return m(x, k=3), m.forward(x), m.inner(x)


@program("named_parameters, children, modules, buffers", inputs=seeded(Introspect))
def test_introspect(m, x):
    return m(x)


@program("state_dict", inputs=seeded(StateDict))
def test_state_dict(m, x):
    return m(x)


@program("forward and pre hooks", inputs=seeded(hooked))
def test_hooks(m, x):
    return m(x)


@program("hooks with kwargs", inputs=seeded(keyword_hooked))
def test_keyword_hooks(m, x):
    return m(x), m(x, bias=3)


@program("hooks with always_call", inputs=seeded(always_called))
def test_always_call(m, x):
    return m(x)


@program("full backward hooks", BREAK, inputs=seeded(backward_hooked))
def test_backward_hooks(m, x):
    y = x * 2
    return m(y) + 1


@program("parametrizations", inputs=seeded(parametrized), steady=False)
def test_parametrized(m, x):
    return m(x), m.weight


@program("weight_norm", inputs=seeded(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4))), steady=False)
def test_weight_norm(m, x):
    return m(x)


@program(
    "spectral_norm",
    inputs=seeded(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)).eval()),
    steady=False,
)
def test_spectral_norm(m, x):
    return m(x)


@program("lazy modules", inputs=seeded(lambda: nn.LazyLinear(4)), steady=False)
def test_lazy(m, x):
    y = x + 1
    return m(y)


@program("train() and eval() inside", inputs=seeded(Running))
def test_train_eval(m, x):
    m.eval()
    y = m(x)
    m.train()
    return y, m(x), m.training


@program("setting a submodule's attribute", inputs=seeded(Block))
def test_set_attribute(m, x):
    m.calls = 10
    m.linear.note = "seen"
    return m(x)


@program("module made inside")
def test_made_inside(x):
    return nn.ReLU()(x), nn.Identity()(x), nn.Flatten()(x)


@program("nn.Parameter made inside")
def test_parameter_inside(x):
    p = nn.Parameter(torch.ones(4))
    return x * p


@program("Embedding, LayerNorm, Conv, pooling", inputs=seeded(lambda: nn.ModuleDict({
    "e": nn.Embedding(5, 4), "n": nn.LayerNorm(4), "c": nn.Conv1d(3, 2, 3, padding=1), "p": nn.AvgPool1d(2)})))  # fmt: skip
def test_layers(m, x):
    ids = torch.tensor([0, 1, 4])
    return m["p"](m["c"](m["n"](x + m["e"](ids)).unsqueeze(0)))


@program("MultiheadAttention", inputs=seeded(lambda: nn.MultiheadAttention(4, 2, batch_first=True)))
def test_attention(m, x):
    q = x.unsqueeze(0)
    return m(q, q, q)


@program(
    "TransformerEncoderLayer", inputs=seeded(lambda: nn.TransformerEncoderLayer(4, 2, 8, batch_first=True, dropout=0.0))
)
def test_encoder_layer(m, x):
    return m(x.unsqueeze(0))


@program("LSTM and GRU", inputs=seeded(lambda: nn.ModuleList([nn.LSTM(4, 3, batch_first=True), nn.GRU(4, 3)])))
def test_rnn(m, x):
    return m[0](x.unsqueeze(0)), m[1](x)


@program("loss modules", inputs=seeded(lambda: nn.ModuleList([nn.CrossEntropyLoss(), nn.MSELoss()])))
def test_losses(m, x):
    return m[0](x, torch.tensor([0, 1, 2])), m[1](x, x * 0)


@program("requires_grad_ of a module", inputs=seeded(Block))
def test_requires_grad(m, x):
    m.linear.requires_grad_(False)
    return m(x)


@program("get_parameter, get_submodule, hasattr", inputs=seeded(Block))
def test_get_submodule(m, x):
    return m.get_submodule("linear")(x), m.get_parameter("linear.weight").shape, hasattr(m, "scale"), hasattr(m, "nope")


@program("module in a container argument", inputs=lambda: ({"m": seeded(Block)()[0]}, torch.randn(3, 4)))
def test_module_in_dict(d, x):
    return d["m"](x)


@program("module attribute error raises", inputs=seeded(Block))
def test_module_attribute_error(m, x):
    y = m(x)
    return y + m.nope


@program("register_buffer and setattr inside", inputs=seeded(Block))
def test_register_inside(m, x):
    m.register_buffer("extra", x * 2)
    return x + m.extra


def test_methods_of_modules_that_another_compiler_put_its_own_before(monkeypatch):
    """torch's compiler, once used in the process, counts modules as they are made; we make them all the same."""
    source = "def wrapped(init):\n    def patched_init(self, *args, **kwargs):\n        init(self, *args, **kwargs)\n"
    source += "        counted.append(self)\n    return patched_init"
    names = {"counted": []}
    exec(compile(source, f"{torch.__path__[0]}/_dynamo/anything.py", "exec"), names)
    layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    monkeypatch.setattr(torch.nn.Module, "__init__", names["wrapped"](torch.nn.Module.__init__))

    def program(x):
        for layer in layers[:2]:
            x = layer(x)
        return x

    x = torch.randn(2, 4)
    assert torch.equal(stoker.compile(program, backend="eager", fullgraph=True)(x), program(x))
    assert sum(isinstance(m, torch.nn.ModuleList) for m in names["counted"]) == 1  # eager's


def test_parts_of_optimizers_that_another_compiler_withholds_from_itself(monkeypatch):
    """torch's compiler, once used in the process, marks them for itself."""
    source = "def disabled(fn):\n    def _fn(*args, **kwargs):\n        return fn(*args, **kwargs)\n"
    source += "    _fn.__wrapped__, _fn._torchdynamo_disable = fn, True\n    return _fn"
    names = {}
    exec(compile(source, f"{torch.__path__[0]}/_dynamo/anything.py", "exec"), names)
    for cls in (torch.optim.SGD, torch.optim.Adam):
        monkeypatch.setattr(cls, "_init_group", names["disabled"](cls._init_group))
    found = []
    for compile_ in (lambda f: f, lambda f: stoker.compile(f, fullgraph=True)):
        torch.manual_seed(0)
        layer = torch.nn.Linear(3, 2)
        optimizers = [torch.optim.SGD([layer.weight], 0.1, momentum=0.9), torch.optim.Adam([layer.bias], 0.1)]

        def step(x, layer=layer, optimizers=optimizers):
            loss = layer(x).square().sum()
            loss.backward()
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
            return loss.detach()

        run = compile_(step)
        found.append([[run(torch.ones(4, 3)) for _ in range(4)], layer.weight.detach(), layer.bias.detach()])
    torch.testing.assert_close(*found)
