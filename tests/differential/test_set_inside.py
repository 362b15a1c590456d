"""What captured code sets besides variables: fields of functions, of classes and of instances, parameters, modes of torch."""

from __future__ import annotations

import torch
from harness import BREAK, program
from torch import nn

import stoker
from stoker import log


def one():
    return (torch.randn(3, 4),)


class Bag:
    pass


class Slotted:
    __slots__ = ("a",)


def said(call):
    try:
        return call()
    except (AttributeError, TypeError) as error:
        return type(error).__name__, str(error)


@program("defaults of a function, set, read and deleted", default=True)
def test_defaults(x):
    def scaled(a, b=1, *, c=2):
        return a * b + c

    before = scaled(x)
    scaled.__defaults__ = (x.sum(),)
    scaled.__kwdefaults__ = table = {"c": 7}
    table["c"] = 8
    after = scaled(x)
    same = scaled.__kwdefaults__ is table
    scaled.__defaults__ = None
    return before, after, same, scaled.__defaults__, said(lambda: scaled(x))


@program("defaults of a function from outside, set", inputs=one, factory=True, steady=False)
def test_defaults_outside():
    def scaled(a, b=1, *, c=2):
        return a * b + c

    def run(x):
        before = scaled(x)
        scaled.__defaults__ = (3,)
        scaled.__kwdefaults__ = {"c": x}
        return before, scaled(x), scaled

    return run


@program("defaults that are no tuple, no dictionary")
def test_wrong_defaults(x):
    def scaled(a, b=1, *, c=2):
        return a * b + c

    def set_defaults():
        scaled.__defaults__ = [3]

    def set_keyword_defaults():
        scaled.__kwdefaults__ = (3,)

    return scaled(x), said(set_defaults), said(set_keyword_defaults), scaled.__defaults__


@program("defaults, set before a break", BREAK)
def test_defaults_break(x):
    def scaled(a, b=1):
        return a * b

    scaled.__defaults__ = (5,)
    if x.sum() > 0:
        return scaled(x)
    return scaled(x) + 1


@program("attributes of tensors that nobody may set")
def test_tensor_attributes(x):
    words = []
    for name in ("shape", "dtype", "ndim", "device", "is_leaf", "T", "layout"):
        try:
            setattr(x, name, 1)
        except AttributeError as error:
            words.append(str(error))
    return x * 2, words


@program("instances that share a dictionary", default=True)
def test_shared_dictionary(x):
    shared = {"a": x}
    first, second = Bag(), Bag()
    first.__dict__ = shared
    second.__dict__ = shared
    first.b = 2
    return second.a * second.b, first, second, shared


@program("the dictionary of an instance from outside, set", inputs=lambda: (Bag(), torch.randn(3, 4)))
def test_dictionary_outside(bag, x):
    bag.before = 1
    old = bag.__dict__
    bag.__dict__ = {"a": x * 2}
    bag.b = 3
    return bag.a * bag.b, old, said(lambda: bag.before)


@program("what an instance dictionary is not", inputs=lambda: (Bag(), Slotted(), torch.randn(3, 4)))
def test_no_dictionary(bag, slotted, x):
    def set_list():
        bag.__dict__ = [1]

    def set_slotted():
        slotted.__dict__ = {}

    return x * 2, said(set_list), said(set_slotted)


@program("a dictionary of an instance, set before a break", BREAK)
def test_dictionary_break(x):
    bag = Bag()
    bag.__dict__ = {"a": x}
    if x.sum() > 0:
        return bag.a * 2, bag
    return bag.a - 1, vars(bag)


@program("attributes of a class: set, inherited, deleted", inputs=one, factory=True, steady=False, default=True)
def test_class_attributes():
    class Base:
        scale, name = 2, "base"

    class Derived(Base):
        def shown(self):
            return super().scale, self.name

    def run(x):
        Base.scale = 5
        Base.late = x * 2
        inherited = Derived().shown(), Derived.late + 1
        Derived.late = 3
        own = Derived.late, Base().late
        del Base.late
        Derived.name = "derived"
        return inherited, own, hasattr(Base, "late"), Derived.late, Derived().shown()

    return run


@program("a function that is put on a class", inputs=one, factory=True, steady=False)
def test_class_method():
    class Held:
        def go(self, x):
            return x

    def run(x):
        held = Held()
        before = held.go(x)
        Held.go = lambda self, y: y * 3
        return before, held.go(x), Held.go(held, x)

    return run


@program("an attribute of a class that no class has is deleted", inputs=one, factory=True, steady=False)
def test_class_deletion():
    class Held:
        a = 1

    def delete(name):
        delattr(Held, name)

    def run(x):
        del Held.a
        return x * 2, said(lambda: delete("a")), said(lambda: delete("b")), hasattr(Held, "a")

    return run


@program("an attribute of a class, set before a break", BREAK, inputs=one, factory=True, steady=False)
def test_class_break():
    class Held:
        scale = 1

    def run(x):
        Held.scale += 1
        if x.sum() > 100:
            return x
        Held.scale += 1
        return x * Held.scale, Held.scale

    return run


def test_instances_are_counted() -> None:
    """A counter of a class is another number at each call, and no other graph; tensors are kept there."""

    class Counted:
        count, last = 0, None

        def __init__(self) -> None:
            Counted.count += 1

    def run(x):
        Counted()
        Counted()
        Counted.last = x * Counted.count
        return Counted.last + 1

    def all_of(call):
        Counted.count = 0
        return [(call(torch.full((2,), float(i))).tolist(), Counted.count, Counted.last.tolist()) for i in range(6)]

    wanted = all_of(run)
    log.clear()
    assert all_of(stoker.compile(run, fullgraph=True)) == wanted
    assert len(log.events("captured")) <= 2


def test_class_set_outside() -> None:
    """What is set on a class between two calls is seen."""

    class Held:
        scale = 2

    def run(x):
        Held.seen = Held.scale
        return x * Held.scale

    compiled = stoker.compile(run, fullgraph=True)
    for scale in (2, 3, 4.5, 2):
        Held.scale = scale
        assert compiled(torch.ones(1)).item() == scale and Held.seen == scale


def layer():
    torch.manual_seed(1)
    return nn.Linear(4, 4), torch.randn(3, 4)


@program("module.to another type, in training", inputs=layer, default=True)
def test_to(linear, x):
    return linear.to(torch.float64)(x.double())


@program("module.to and back", inputs=layer, default=True)
def test_to_and_back(linear, x):
    low = linear.to(torch.bfloat16)(x.to(torch.bfloat16)).float()
    return low + linear.float()(x)


@program("module.to where nothing is to do", inputs=layer, default=True)
def test_to_same(linear, x):
    return linear.to("cpu").float()(x), linear.to("cpu", torch.float32) is linear


@program("load_state_dict", inputs=layer, default=True)
def test_load(linear, x):
    found = linear.load_state_dict({name: value * 2 for name, value in linear.state_dict().items()})
    return linear(x), found.missing_keys, str(found)


@program("load_state_dict of what does not fit", inputs=layer)
def test_load_wrong(linear, x):
    try:
        linear.load_state_dict({"weight": x, "more": x})
    except RuntimeError as error:
        found = linear.load_state_dict({"bias": x[0]}, strict=False)
        return linear(x), str(error), found.missing_keys, found.unexpected_keys


@program("load_state_dict of another module", inputs=lambda: (*layer(), nn.Linear(4, 4)))
def test_load_other(linear, x, other):
    other.load_state_dict(linear.state_dict())
    return other(x) - linear(x), other(x)


@program("the default type, changed for a while", default=True)
def test_default_dtype(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        made = torch.ones(3, 4), torch.tensor(1.5), torch.get_default_dtype()
    finally:
        torch.set_default_dtype(before)
    return x + made[0], made, torch.ones(2)


@program("a break while the default type is changed", BREAK)
def test_default_dtype_break(x):
    torch.set_default_dtype(torch.float64)
    try:
        made = torch.ones(3, 4)
        if x.sum() > 0:
            made = made + torch.ones(4)
        return x + made * torch.full((4,), 2.0)
    finally:
        torch.set_default_dtype(torch.float32)


def test_default_dtype_stays() -> None:
    def run(x):
        torch.set_default_dtype(torch.float64)
        return x + torch.ones(2)

    compiled = stoker.compile(run, fullgraph=True)
    for _ in range(2):
        try:
            assert compiled(torch.ones(2)).dtype is torch.float64
            assert torch.get_default_dtype() is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


class Seen:
    def __init__(self):
        self.shapes, self.last = [], None

    def __call__(self, module, given, made):
        self.shapes.append(tuple(made.shape))
        self.last = made


@program("a forward hook that is registered inside, and removed", inputs=lambda: (*layer(), Seen()), default=True)
def test_forward_hook(linear, x, seen):
    handle = linear.register_forward_hook(seen)
    y = linear(x)
    handle.remove()
    return y, linear(x) * 2, len(linear._forward_hooks)


@program("a forward hook that is registered inside, and stays", inputs=lambda: (*layer(), Seen()), steady=False)
def test_forward_hook_stays(linear, x, seen):
    linear.register_forward_hook(lambda module, given, made: made * 2)
    linear.register_forward_pre_hook(lambda module, given: (given[0] + 1,))
    return linear(x), len(linear._forward_hooks)


@program("hooks on a module, around a break", BREAK, inputs=lambda: (*layer(), Seen()))
def test_forward_hook_break(linear, x, seen):
    handle = linear.register_forward_hook(seen)
    y = linear(x)
    if y.sum() > 100:
        return y
    handle.remove()
    return linear(y), seen.shapes


def differentiable():
    return (torch.randn(3, 4, requires_grad=True),)


@program("hooks of saved tensors, turned off", inputs=differentiable, default=True)
def test_saved_off(x):
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        y = x * x
        with torch.autograd.graph.disable_saved_tensors_hooks("nor here"):
            y = y * x
    return y * 2


@torch.autograd.graph.disable_saved_tensors_hooks("not here")
def cubed(x):
    return x * x * x


@program("hooks of saved tensors, turned off by a decorator", inputs=differentiable)
def test_saved_decorator(x):
    return cubed(x) + 1


@program("hooks of saved tensors, turned off and set", inputs=differentiable)
def test_saved_set(x):
    words = []
    with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
        y = x * x
        try:
            with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
                y = y * x
        except RuntimeError as error:
            words.append(str(error))
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t):
        return y * 2, words
