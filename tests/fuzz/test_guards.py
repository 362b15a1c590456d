"""Change anything reachable between two calls: compiled must equal eager. A wrong reuse is the worst bug there is."""

from __future__ import annotations

import enum
import random
import types

import pytest
import torch

import stoker

FACTOR = 2
TABLE = {"a": 1.0, "b": 2.0}


class Mode(enum.Enum):
    ADD = 1
    MULTIPLY = 2


class Part:
    scale = 1.5

    def __init__(self, value):
        self.value = value

    @property
    def doubled(self):
        return self.value * 2

    def apply(self, x):
        return x * self.value + self.scale


class SlottedPart:
    __slots__ = ("amount",)

    def __init__(self, amount):
        self.amount = amount


def activation(x):
    return torch.relu(x)


def default_argument(x, bias=0.5, *, shift=1):
    return x + bias + shift


class World:
    """Everything the program reads."""

    def __init__(self):
        self.mode = Mode.ADD
        self.flag = True
        self.text = "ab"
        self.none = None
        self.number = 3
        self.ratio = 0.25
        self.items = [1, 2, 3]
        self.pair = (1, torch.ones(4))
        self.table = {"x": 1, "y": torch.full((4,), 2.0)}
        self.names = {"p", "q"}
        self.part = Part(2)
        self.parts = [Part(1), Part(2)]
        self.slotted = SlottedPart(3)
        self.tensor = torch.arange(4.0)
        self.module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Dropout(0.5))
        self.module.eval()
        self.function = activation
        self.cell = make_closure(2)


def make_closure(amount):
    def closed(x):
        return x + amount

    return closed


def program(world, x):
    y = x * FACTOR + TABLE["a"]
    y = y + world.number if world.mode is Mode.ADD else y * world.number
    if world.flag:
        y = y + len(world.text)
    if world.none is None:
        y = y - 1
    for item in world.items:
        y = y + item
    y = y * world.pair[0] + world.pair[1]
    for key, value in world.table.items():
        y = y + value * len(key)
    if "p" in world.names:
        y = y * 1.25
    y = world.part.apply(y) + world.part.doubled
    for part in world.parts:
        y = part.apply(y)
    y = y + world.slotted.amount * world.ratio
    y = y + world.tensor.to(y.dtype)
    y = world.module(y.float())
    y = world.cell(world.function(y))
    extra = getattr(world, "extra", None)
    if extra is not None:
        y = y + extra
    return default_argument(y), y.shape, y.requires_grad, torch.is_grad_enabled()


def _set(name, *choices):
    return lambda world, rng: setattr(world, name, rng.choice(choices))


def _global(name, *choices):
    def mutate(world, rng):
        globals()[name] = rng.choice(choices)

    return mutate


def _delete_extra(world, rng):
    vars(world).pop("extra", None)


def _grow_list(world, rng):
    if not isinstance(world.items, list) or len(world.items) > 5:
        world.items = []
    world.items.append(rng.randint(0, 3))


def _change_table(world, rng):
    world.table[rng.choice(["x", "z"])] = rng.choice([1, 2, torch.ones(4)])


def _reorder_table(world, rng):
    first = next(iter(world.table))
    world.table[first] = world.table.pop(first)


def _change_names(world, rng):
    world.names.symmetric_difference_update({rng.choice("pqr")})


def _retype_part(world, rng):
    world.part = rng.choice([Part(rng.randint(1, 3)), Part(1.5), OtherPart(2)])


class OtherPart(Part):
    def apply(self, x):
        return x - self.value


def _patch_class(world, rng):
    Part.scale = rng.choice([1.5, 2.5])
    Part.apply = rng.choice([FIRST_APPLY, lambda self, x: x * self.value - self.scale])


FIRST_APPLY = Part.apply


def _shadow_method(world, rng):
    if "apply" in vars(world.part):
        del world.part.apply
    else:
        world.part.apply = types.MethodType(lambda self, x: x * 3, world.part)


def _retype_tensor(world, rng):
    world.tensor = rng.choice(
        [torch.arange(4.0), torch.arange(4.0, dtype=torch.float64), torch.arange(4), torch.ones(1), torch.ones(8)[::2]]
    )


def _touch_weights(world, rng):
    with torch.no_grad():
        world.module[0].weight.mul_(1.01)


def _freeze(world, rng):
    world.module[0].weight.requires_grad_(rng.choice([True, False]))
    if world.module[0].bias is not None:
        world.module[0].bias.requires_grad_(rng.choice([True, False]))


def _swap_module(world, rng):
    world.module[1] = rng.choice([torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.Identity()])


def _hook(world, rng):
    for handle in getattr(_hook, "handles", []):
        handle.remove()
    target = rng.choice(list(world.module))
    _hook.handles = [] if rng.random() < 0.5 else [target.register_forward_hook(lambda m, a, out: out + 1)]


def _replace_parameter(world, rng):
    world.module[0].bias = rng.choice([None, torch.nn.Parameter(torch.zeros(4))])


def _change_defaults(world, rng):
    default_argument.__defaults__ = (rng.choice([0.5, 0.75]),)
    default_argument.__kwdefaults__ = {"shift": rng.choice([1, 2])}


def _change_code(world, rng):
    activation.__code__ = rng.choice([(lambda x: torch.relu(x)).__code__, (lambda x: torch.sigmoid(x)).__code__])


def _change_cell(world, rng):
    world.cell.__closure__[0].cell_contents = rng.choice([2, 3, 0.5])


MUTATIONS = [
    _set("mode", *Mode),
    _set("flag", True, False, 0, []),
    _set("text", "ab", "abc", ""),
    _set("none", None, 1, "x"),
    _set("number", 3, 4, 5, 3.0, True),
    _set("ratio", 0.25, 0.5, 1),
    _set("items", [1], [1, 2, 3], (1, 2)),
    _set("function", activation, torch.tanh, lambda x: x * 2),
    _set("extra", 1, 2.0, torch.ones(4), None),
    _delete_extra,
    _global("FACTOR", 2, 3, 2.5),
    _global("TABLE", {"a": 1.0}, {"a": 3.0, "b": 0}),
    lambda world, rng: TABLE.update(a=rng.choice([1.0, 1.5])),
    _grow_list,
    _change_table,
    _reorder_table,
    _change_names,
    _retype_part,
    _patch_class,
    _shadow_method,
    lambda world, rng: setattr(world.part, "value", rng.choice([2, 3, 2.0])),
    lambda world, rng: setattr(world.slotted, "amount", rng.choice([3, 4])),
    lambda world, rng: world.parts.reverse(),
    lambda world, rng: world.parts.__setitem__(0, world.part),
    _retype_tensor,
    _touch_weights,
    _freeze,
    _swap_module,
    _hook,
    _replace_parameter,
    _change_defaults,
    _change_code,
    _change_cell,
    lambda world, rng: world.module.train(False),
]


@pytest.fixture
def clean_globals():
    saved = FACTOR, dict(TABLE), Part.scale, Part.apply, activation.__code__
    yield
    globals().update(FACTOR=saved[0], TABLE=saved[1])
    Part.scale, Part.apply, activation.__code__ = saved[2:]
    default_argument.__defaults__, default_argument.__kwdefaults__ = (0.5,), {"shift": 1}


def outcome(function, world, x, grad):
    """The value, or the exception: programs may well become wrong."""
    with torch.set_grad_enabled(grad):
        try:
            return function(world, x)
        except Exception as error:
            return type(error), str(error)


def assert_equal(expected, found, history):
    if not isinstance(expected[0], torch.Tensor):
        assert found == expected, history
        return
    assert isinstance(found[0], torch.Tensor), (found, history)
    assert torch.equal(expected[0], found[0]), history
    assert expected[0].dtype is found[0].dtype, history
    assert expected[1:] == found[1:], history


@pytest.mark.parametrize("seed", range(12))
def test_any_change_is_seen(seed, clean_globals):
    rng = random.Random(seed)
    torch.manual_seed(seed)
    world = World()
    compiled = stoker.compile(program, backend="eager", options={"version_limit": 64})
    inputs = [torch.randn(4), torch.randn(2, 4), torch.randn(3, 4), torch.randn(4, dtype=torch.float64)]
    history = []
    for _ in range(40):
        for _step in range(rng.choice([1, 1, 2])):
            number = rng.randrange(len(MUTATIONS))
            MUTATIONS[number](world, rng)
            history.append(number)
        x, grad = rng.choice(inputs), rng.random() < 0.8
        assert_equal(outcome(program, world, x, grad), outcome(compiled, world, x, grad), history)
