"""What a call through Stoker costs before any kernel runs.

1. `a + b` on ten elements: plain, and as Compiled with an entry of the same code and two tensor guards.
2. The guards of a BERT-like module of twelve layers: every module's dictionary and every parameter, when nothing has
   changed since the last call (the trail passes), and when a module in the middle counts its calls.

Run: PYTHONPATH=. python bench/dispatch.py
"""

import time

import torch
from torch import nn

from stoker import _C

A, C = _C.ACCESSORS, _C.CHECKS


def microseconds(function, rounds=300, seconds=0.003):
    """The best mean time of a call over many short rounds: other processes disturb some of them, not all."""
    count = 1
    while _elapsed(function, count) < seconds:
        count *= 2
    return min(_elapsed(function, count) for _ in range(rounds)) / count * 1e6


def _elapsed(function, count):
    start = time.perf_counter()
    for _ in range(count):
        function()
    return time.perf_counter() - start


def add(a, b):
    return a + b


def nothing(a, b):
    return None


def measure_call(function):
    a, b = torch.zeros(10), torch.zeros(10)
    guards = _C.GuardProgram(
        [(A["LOCAL"], i, [(C["TENSOR"], _C.tensor_spec(t), i)], [], -1) for i, t in enumerate((a, b))],
        0,
        None,
        (_C.torch_state(), 2),
    )
    compiler = _C.Compiler(lambda code, *_: _C.Entry(code, guards, False, None))
    compiled = _C.Compiled(function, compiler)
    compiled(a, b)
    plain, with_guards = microseconds(lambda: function(a, b)), microseconds(lambda: compiled(a, b))
    print(
        f"{function.__name__:8} plain {plain:.3f} us, compiled {with_guards:.3f} us, added {with_guards - plain:.3f} us"
    )


class Layer(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention = nn.ModuleDict({name: nn.Linear(width, width) for name in ("query", "key", "value", "output")})
        self.attention_norm, self.output_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.feed_forward = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        self.dropouts = nn.ModuleList([nn.Dropout() for _ in range(3)])


class Bert(nn.Module):
    def __init__(self, layers=12, width=32):
        super().__init__()
        self.words, self.positions = nn.Embedding(100, width), nn.Embedding(50, width)
        self.norm, self.dropout = nn.LayerNorm(width), nn.Dropout()
        self.encoder = nn.Sequential(*[Layer(width) for _ in range(layers)])


HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class Guards:
    """The guards of a module tree, as capture would ask for them."""

    def __init__(self):
        self.count = self.slots = 0

    def check(self, kind, argument):
        self.count += 1
        return (C[kind], argument, self.count - 1)

    def item(self, name, checks, children=(), slot=-1):
        return (A["DICT_ITEM"], name, checks, list(children), slot)

    def parameter(self, name, tensor):
        self.slots += 1
        return self.item(name, [self.check("TENSOR", _C.tensor_spec(tensor))], (), self.slots - 1)

    def module(self, module, accessor, argument):
        """`Module.__call__` asks for hooks, `__getattr__` looks for names in three tables, forward reads constants."""
        own = [self.check("TYPE_IS", type(module))]
        space = module.__dict__
        parameters = {name: tensor for name, tensor in space["_parameters"].items() if tensor is not None}
        dictionary = [self.check("LACKS_KEY", name) for name in ("forward", *parameters, *space["_modules"])]
        groups = []
        if parameters or space["_modules"]:
            lacks = [self.check("LACKS_KEY", name) for name in space["_modules"]]
            children = [self.parameter(name, tensor) for name, tensor in parameters.items()]
            groups.append(self.item("_parameters", [self.check("TYPE_IS", dict), *lacks], children))
        if space["_modules"]:
            lacks = [self.check("LACKS_KEY", name) for name in space["_modules"]]
            groups.append(self.item("_buffers", [self.check("TYPE_IS", dict), *lacks]))
            children = [self.module(child, A["DICT_ITEM"], name) for name, child in space["_modules"].items()]
            keys = self.check("DICT_KEYS", tuple(space["_modules"]))
            groups.append(self.item("_modules", [self.check("TYPE_IS", dict), keys], children))
        groups += [
            self.item(name, [self.check("TYPE_IS", type(space[name])), self.check("LENGTH", 0)]) for name in HOOK_TABLES
        ]
        groups += [
            self.item(name, [self.check("EQUALS", value)])
            for name, value in space.items()
            if name == "training" or (not name.startswith("_") and isinstance(value, (int, float, str)))
        ]
        return (accessor, argument, own, [(A["DICT"], None, dictionary, groups, -1)], -1)


def plain():
    return None


def measure_module():
    module = Bert()
    guards = Guards()
    root = guards.module(module, A["LOCAL"], 0)
    program = _C.GuardProgram([root], guards.slots, None, (_C.torch_state(), guards.count))
    bound = (module,)

    def check():
        assert isinstance(program.check(bound, plain), tuple)

    def count_and_check():
        space["counter"] += 1
        check()

    space = module.encoder[0].__dict__
    space["counter"] = 0
    unchanged, counted = microseconds(check), microseconds(count_and_check)
    modules, parameters = sum(1 for _ in module.modules()), sum(1 for _ in module.parameters())
    print(
        f"BERT     {modules} modules, {parameters} parameters, {program.size} guards: {unchanged:.2f} us, "
        f"with a counter {counted:.2f} us"
    )


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure_call(add)
    measure_call(nothing)
    measure_module()
