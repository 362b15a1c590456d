"""Objects of the library that live across a break or leave the function, and scopes with a break inside."""

from __future__ import annotations

import collections
import functools
import itertools
import operator

import torch
from harness import BREAK, program
from torch.utils.checkpoint import checkpoint

FACTOR = 2.0


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * FACTOR

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * FACTOR * x.sign()


class Impure(torch.autograd.Function):
    calls: list = []

    @staticmethod
    def forward(ctx, x):
        Impure.calls.append(1)
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2


class Branching(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        if x.sum() > 1e9:
            return x
        return x * 3

    @staticmethod
    def backward(ctx, grad):
        return grad * 3


def echo():
    total = 0
    while True:
        got = yield total
        total += got


def show(x):
    print(str(x.sum() > 1e9))


@program("deque, Counter and OrderedDict across a break", BREAK)
def test_containers_across(x):
    d = collections.deque([x, 1], maxlen=3)
    c = collections.Counter("aab")
    o = collections.OrderedDict(a=1)
    o.tag = [d]
    show(x)
    d.append(2)
    d.append(3)
    c["a"] += 1
    return d, c, o, o.tag[0] is d


@program("itertools across a break", BREAK, steady=False)
def test_itertools_across(x):
    """The groups' lengths differ from round to round: what the first call has learnt of them serves the second."""
    chained, cycled = itertools.chain([1, 2], [3]), itertools.cycle("ab")
    grouped, sliced = itertools.groupby([1, 1, 2]), itertools.islice(itertools.count(5), 1, 6, 2)
    left, right = itertools.tee([7, 8])
    next(chained), next(cycled), next(left)
    show(x)
    return (
        x * next(chained),
        next(cycled),
        next(cycled),
        list(chained),
        [(k, len(list(g))) for k, g in grouped],
        list(sliced),
        list(left),
        list(right),
    )


@program("generator that is sent to across a break", BREAK)
def test_send_across(x):
    g = echo()
    next(g)
    g.send(3)
    show(x)
    return x * g.send(4), g.send(5)


@program("getters, partials and cached functions leave the function")
def test_callables_leave(x):
    return (
        operator.itemgetter(0, 1),
        operator.attrgetter("shape"),
        operator.methodcaller("sum", 0),
        functools.partial(max, 1),
    )


@program("id() as a key, across a break", BREAK)
def test_id_across(x):
    xs, ys = [1], [1]
    seen = {id(xs): "xs", id(ys): "ys"}
    show(x)
    return seen[id(xs)], seen[id(ys)], id(xs) in seen, x + 1


@program("break inside inference_mode", BREAK)
def test_inference_break(x):
    with torch.inference_mode():
        y = x * 2
        show(y)
        z = y + 1
    return torch.is_inference_mode_enabled(), z.is_inference(), x + 1


@program("break inside a device context", BREAK)
def test_device_break(x):
    with torch.device("cpu"):
        y = x + torch.ones(4)
        show(y)
        z = y + torch.ones(4)
    return z, torch.ones(1).device


@program("a default device that matters")
def test_meta_device(x):
    with torch.device("meta"):
        y = torch.ones(2, 3)
    return y.device, y.shape, x + torch.ones(4)


@program(
    "autograd.Function that reads a global", inputs=lambda: (torch.randn(3, requires_grad=True),), globals=("FACTOR",)
)
def test_function_global(x):
    return Scaled.apply(x) * 2


@program("autograd.Function with effects", BREAK, inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_function_effects(x):
    y = Impure.apply(x * 1)
    n = len(Impure.calls)
    Impure.calls.clear()
    return y, n


@program("autograd.Function with a data-dependent branch", BREAK, inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_function_branch(x):
    return Branching.apply(x * 1) + 1


@program("checkpoint with dropout", inputs=lambda: (torch.randn(8, requires_grad=True),))
def test_checkpoint_dropout(x):
    return checkpoint(lambda t: torch.nn.functional.dropout(t * 2, 0.5), x, use_reentrant=False)


@program("exceptions written in C keep their fields across a break", BREAK)
def test_error_fields(x):
    kept = []
    for error in (
        OSError(2, "gone", "file"),
        StopIteration(5),
        SystemExit(3),
        KeyError("k"),
        UnicodeDecodeError("u", b"a", 0, 1, "r"),
    ):
        try:
            raise error
        except BaseException as caught:
            kept.append(caught)
    show(x)
    return x + 1, [str(e) for e in kept], kept[0].errno, kept[1].value, kept[2].code


@program("sorting instances with a key made by cmp_to_key, stable")
def test_stable_sort(x):
    rows = [(2, "a"), (1, "b"), (2, "c"), (1, "d")]
    by_first = functools.cmp_to_key(lambda p, q: p[0] - q[0])
    return x, sorted(rows, key=by_first), sorted(rows, key=by_first, reverse=True), min(rows, key=by_first)


@program("dictionary iterators across a break", BREAK)
def test_dict_iterators_across(x):
    d = {"a": 1, "b": 2, "c": 3}
    keys, values, items = iter(d), iter(d.values()), iter(d.items())
    next(keys), next(values), next(items)
    show(x)
    return x * next(keys).count("b"), list(values), list(items), list(keys)


@program("nested generators with try across a break", BREAK)
def test_nested_generators_across(x):
    log = []

    def inner():
        try:
            yield 1
            yield 2
        finally:
            log.append("inner")

    def outer():
        try:
            yield from inner()
            yield 3
        finally:
            log.append("outer")

    out = []
    for v in outer():
        show(x)
        out.append(x * v)
    return out, log
