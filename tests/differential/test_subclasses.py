"""Tensor subclasses, duck types and modes with __torch_function__."""

from __future__ import annotations

import zlib

import torch
import torch.nn.functional as F
from harness import BREAK, ONE, SKIP, program
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function


class Plain(torch.Tensor):
    """A subclass with nothing of its own."""


class Logged(torch.Tensor):
    """Writes down what it is shown."""

    seen: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.seen.append((getattr(func, "__name__", "?"), len(types), len(args), sorted(kwargs or {})))
        return super().__torch_function__(func, types, args, kwargs)


class Metadata(torch.Tensor):
    """Carries a tag through operations."""

    def __new__(cls, data, tag="none"):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, tag="none"):
        self.tag = tag

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        result = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(result, cls) and not hasattr(result, "tag"):
            result.tag = "+".join(getattr(a, "tag", "?") for a in args)
        return result

    @property
    def shout(self):
        return self.tag.upper()

    def doubled(self):
        return self * 2


HANDLED = {}


def implements(function):
    def decorate(replacement):
        HANDLED[function] = replacement
        return replacement

    return decorate


class Scaled:
    """Not a tensor: a scale and a tensor, multiplied when asked."""

    def __init__(self, scale, inner):
        self.scale, self.inner = scale, inner

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in HANDLED:
            return NotImplemented
        return HANDLED[func](*args, **(kwargs or {}))


@implements(torch.mean)
def scaled_mean(value):
    return value.scale * torch.mean(value.inner)


@implements(torch.add)
def scaled_add(left, right):
    a = left.scale * left.inner if isinstance(left, Scaled) else left
    b = right.scale * right.inner if isinstance(right, Scaled) else right
    return torch.add(a, b)


@implements(torch.Tensor.add)
def scaled_method_add(left, right):
    return scaled_add(left, right)


class Doubling(TorchFunctionMode):
    """Results of torch.add are doubled, sums are counted."""

    def __init__(self):
        super().__init__()
        self.sums = 0

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        if func is torch.add:
            return result * 2
        if func is torch.Tensor.sum:
            self.sums += 1
        return result


class Swapped(torch.Tensor):
    """Sees addition as subtraction, and writes its own operators."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.add, torch.Tensor.add):
            func = torch.sub
        return super().__torch_function__(func, types, args, kwargs or {})

    def __mul__(self, other):
        return self - other

    def __rmul__(self, other):
        return "reflected"


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented


class Child(Logged):
    seen: list = []


class Wrapper(torch.Tensor):
    """Acts below autograd."""

    @staticmethod
    def __new__(cls, inner):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape)

    def __init__(self, inner):
        self.inner = inner

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls(func(*(a.inner if isinstance(a, cls) else a for a in args), **(kwargs or {})))


class TaggedParameter(torch.nn.Parameter):
    def twice(self):
        return self * 2


def plain():
    return torch.randn(3, 4).as_subclass(Plain)


def tagged(tag="a"):
    return Metadata(torch.randn(3, 4), tag)


@program("subclass without __torch_function__: results are of the class", inputs=lambda: (plain(), torch.randn(3, 4)))
def test_plain(t, x):
    y = t + x
    return y, x + t, t * 2, 2 - t, t.sum(), torch.cat([t, x]), type(y), isinstance(y, Plain), F.relu(t), t.T, t.shape


@program("subclass: methods, indexing, iteration, len", inputs=lambda: (plain(),))
def test_methods(t):
    first, *rest = t
    parts = t.split(2, dim=1)
    return t[0], t[:, 1:], first, len(rest), len(t), parts, t.max(dim=0), t.reshape(4, 3).mean(0), t.size(), t.dim(), -t


@program("subclass: as_subclass both ways", inputs=lambda: (plain(), torch.randn(3, 4)))
def test_as_subclass(t, x):
    return t.as_subclass(torch.Tensor) + 1, x.as_subclass(Plain) + 1, t.as_subclass(Swapped) + 1


@program("subclass: results keep identity", inputs=lambda: (plain(),))
def test_identity(t):
    y = t + 1
    return t, y, [y, y], t is t, y is not t


@program("subclass: writes into an argument", inputs=lambda: (plain(), torch.randn(3, 4)))
def test_in_place(t, x):
    t.add_(1)
    t[0] = 5
    t += x
    x += t
    return t, t.mul_(2) is t


@program(
    "subclass: gradients", inputs=lambda: (torch.randn(3, 4).as_subclass(Plain).requires_grad_(), torch.randn(3, 4))
)
def test_gradients(t, x):
    return (t * x).sum(), t.detach() + 1, t.requires_grad, t.is_leaf


@program("subclass: gradients under no_grad", inputs=lambda: (torch.randn(3, 4).as_subclass(Plain).requires_grad_(),))
def test_no_grad(t):
    with torch.no_grad():
        y = t * 2
    return y, y.requires_grad, t * 3


@program("subclass: super().__torch_function__ in a class method that keeps a log", globals=("Logged",),
         inputs=lambda: (torch.randn(3, 4).as_subclass(Logged), torch.randn(3, 4)), steady=False)  # fmt: skip
def test_logged(t, x):
    Logged.seen.clear()
    y = (t + x) * 2 - 1
    z = torch.matmul(y, x.T).sum(dim=-1)
    w = F.dropout(z, 0.0) + t.shape[0]
    u = 2 - t, t // 2, t > 0, x < t, t @ x.T, t**2, abs(t), len(t), t.split(1), t.to(torch.float64), 1 + t, x / t
    return y, z, w, u, list(Logged.seen)


@program("subclass with attributes, properties, methods", inputs=lambda: (tagged("a"), tagged("b")))
def test_metadata(a, b):
    c = a + b
    d = c.doubled()
    return c, d, c.tag, d.tag, a.shout, hasattr(d, "nothing"), d.T.tag


@program("subclass made inside", inputs=lambda: (torch.randn(3, 4),))
def test_made_inside(x):
    t = Metadata(x, "new")
    t.extra = 3
    u = t + 1
    return t, u, u.tag, t.extra


@program("subclass attribute set on an argument", inputs=lambda: (tagged("a"),))
def test_set_attribute(t):
    t.tag = "other"
    t.count = 1
    return t * 2


@program("subclass: another function called instead, operators of its own",
         inputs=lambda: (torch.randn(3, 4).as_subclass(Swapped), torch.randn(3, 4)))  # fmt: skip
def test_swapped(t, x):
    return t + x, x + t, torch.add(t, x), t * x, x * t, 2 * t, t - x


@program("subclass: two classes, the subclass is asked first", globals=("Logged", "Child"), steady=False,
         inputs=lambda: (torch.ones(2).as_subclass(Logged), torch.ones(2).as_subclass(Child)))  # fmt: skip
def test_order(a, b):
    Logged.seen.clear()
    Child.seen.clear()
    return type(a + b), type(b + a), type(a + a), len(Logged.seen), len(Child.seen)


@program("subclass: no implementation", inputs=lambda: (torch.ones(2).as_subclass(Refusing), torch.ones(2)))
def test_refusing(t, x):
    y = x + 1
    return y + t


@program("subclass: no implementation, caught", inputs=lambda: (torch.ones(2).as_subclass(Refusing), torch.ones(2)))
def test_refusing_caught(t, x):
    try:
        torch.add(x, t)
    except TypeError:
        return x + 1
    return x


@program("subclass of Parameter", inputs=lambda: (TaggedParameter(torch.randn(3, 4)), torch.randn(3, 4)))
def test_parameter(p, x):
    return p * x, p.twice(), type(p), type(p + 1)


@program(
    "torch._C.DisableTorchFunctionSubclass", inputs=lambda: (torch.randn(3, 4).as_subclass(Swapped), torch.randn(3, 4))
)
def test_disabled(t, x):
    with torch._C.DisableTorchFunctionSubclass():
        y = t + x
        shape = t.shape
    return y, type(y), shape, t + x


@program("torch._C.DisableTorchFunctionSubclass around a break", BREAK,
         inputs=lambda: (torch.randn(3, 4).as_subclass(Swapped), torch.randn(3, 4)))  # fmt: skip
def test_disabled_break(t, x):
    y = x + 1
    with torch._C.DisableTorchFunctionSubclass():
        z = t + y
        print(zlib.adler32(b""))
        z = z + t
    return z, z + t, type(z + t)


@program("subclass across a break", BREAK, inputs=lambda: (tagged("a"), torch.randn(3, 4)))
def test_break(t, x):
    u = t + x
    if x.sum() > 1e9:
        return u
    return u * 2, u.tag


@program("duck type: functions overridden", inputs=lambda: (Scaled(2.0, torch.randn(3, 4)), torch.randn(3, 4)))
def test_duck(s, x):
    return torch.mean(s), torch.add(s, x), torch.add(x, s), x + s


@program("duck type made inside")
def test_duck_inside(x):
    return torch.mean(Scaled(3.0, x)), has_torch_function((Scaled(1.0, x),)), has_torch_function((x,))


def own_function(x):
    if has_torch_function((x,)):
        return handle_torch_function(own_function, (x,), x)
    return x * 10


HANDLED[own_function] = lambda value: value.inner * value.scale


@program("duck type: a function of the user's that is overridable", inputs=lambda: (Scaled(2.0, torch.randn(3)),))
def test_own_function(s):
    return own_function(s), own_function(s.inner)


@program("torch function mode entered inside")
def test_mode(x):
    with Doubling() as mode:
        y = torch.add(x, 1)
        z = x + y.sum()
        w = F.relu(torch.zeros(2))
    return torch.add(x, 1), y, z, w, mode.sums


@program("torch function modes nested, left by an exception")
def test_modes_nested(x):
    try:
        with Doubling():
            with Doubling():
                y = torch.add(x, 1)
            raise ValueError(y.shape)
    except ValueError as error:
        return y, torch.add(x, 2), error.args


@program("torch function mode around a break", SKIP, steady=False)
def test_mode_break(x):
    y = x * 2
    with Doubling() as mode:
        y = torch.add(y, 1)
        print(zlib.adler32(b""))
        y = torch.add(y, 1)
    return y, mode.sums


@program("subclass under a mode", inputs=lambda: (plain(), torch.randn(3, 4)))
def test_mode_and_subclass(t, x):
    with Doubling():
        return torch.add(t, x)


@program("subclass with __torch_dispatch__", BREAK, inputs=lambda: (Wrapper(torch.randn(3)), torch.randn(3)))
def test_dispatching(t, x):
    y = x + 1
    return y + t.inner


@program("subclass: printing breaks", BREAK, inputs=lambda: (plain(),))
def test_print(t):
    u = t + 1
    print(u.sum() > 1e9)
    return u


@program("subclass: resized in place", BREAK, inputs=lambda: (plain(),))
def test_metadata_write(t):
    u = t + 1
    t.unsqueeze_(0)
    return u, t


@program("subclass in a module", factory=True, inputs=lambda: (plain(),))
def test_module():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.GELU()).eval()

    def run(t):
        return model(t)

    return run


@program("comparing functions in __torch_function__", ONE, inputs=lambda: (torch.ones(2).as_subclass(Asking),))
def test_getters(t):
    return t.shape, t.dtype, t.ndim


class Asking(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func == torch.Tensor.shape.__get__:
            return "a shape"
        if func in {torch.Tensor.ndim.__get__}:
            return "a rank"
        return super().__torch_function__(func, types, args, kwargs or {})
