"""Graph breaks: run one instruction in CPython, go on captured, wherever it happens.

PYTEST_DONT_REWRITE: the asserts of programs are what is tested.
"""

from __future__ import annotations

import io
import logging
import random
import time
import warnings

import torch
from harness import BREAK, ONE, program

import stoker

HISTORY: list = []


def helper(x):
    y = x + 1
    n = len(str(y.sum() > 1e9)) // 10
    return y * n


def outer_helper(x):
    return helper(x * 2) + 1


@stoker.disable
def opaque(x):
    return x + 1


@torch.compiler.disable
def torch_disabled(x):
    return x * 3


def chatty(x):
    print("chatty")
    return x


def show(tag):
    HISTORY.append(tag)
    return tag


class Stateful:
    def __init__(self):
        self.n = 0

    def step(self, x):
        self.n += 1
        if x.sum() > 1e9:
            self.n += 100
        return x * self.n


class Scope:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")

    def __exit__(self, kind, *_):
        self.log.append(("out", kind and kind.__name__))
        return kind is ValueError


@program("data-dependent if", BREAK)
def test_if(x):
    y = x * 2
    if y.sum() > 0:
        return y + 1
    return y - 1


@program("data-dependent if and else that join", BREAK)
def test_if_join(x):
    if x.mean() > 0:
        y = x + 1
    else:
        y = x - 1
    return y * 2


@program("data-dependent and, or, not, conditional expression", BREAK)
def test_boolean_operators(x):
    a = x.sum() > 1e9 or x.ndim
    b = x.sum() < 1e9 and "yes"
    c = "t" if not x.sum() > 1e9 else "f"
    return x + 1, a, b, c


@program("data-dependent while", BREAK)
def test_while(x):
    n = 0
    while x.abs().sum() > 1 and n < 5:
        x = x / 2
        n += 1
    return x, n


@program("data-dependent assert")
def test_data_assert(x):
    y = x + 1
    assert (y == y).all(), "nan"
    return y * 2


@program(".item()")
def test_item(x):
    s = x.sum().item()
    return x * 2, s


@program("int(), float(), bool() of a tensor")
def test_scalar_conversion(x):
    y = x + 1
    return y, int(y.numel() + 0 * y.sum()), float(y[0, 0]), bool(y[0, 0] > 1e9)


@program(".tolist()")
def test_tolist(x):
    xs = x[0].tolist()
    return x + len(xs), xs


@program("print of a tensor", BREAK)
def test_print_tensor(x):
    y = x + 1
    print("value", y)
    return y * 2


@program("print of plain data is deferred in order")
def test_print_plain(x):
    print("a", 1, x.shape[0], sep="-")
    y = x + 1
    print("b", [1, 2], {"k": None}, end="!\n")
    return y


@program("f-string with a tensor", BREAK)
def test_format_tensor(x):
    y = x + 1
    s = f"{y.sum():.3f}"
    return y * 2, s


@program("str of a tensor", BREAK)
def test_str_tensor(x):
    y = x + 1
    return y * 2, len(str(y)) > 3


@program("break inside a for loop", BREAK)
def test_break_in_loop(x):
    for i in range(3):
        x = x + i
        if x.sum() > 1e9:
            break
        x = x * 2
    else:
        x = x - 1
    return x


@program("break inside nested loops with live iterators", BREAK)
def test_break_nested_loops(x):
    out = []
    for i, (a, b) in enumerate(zip([1, 2], (3, 4))):
        for k, v in {"p": 1, "q": 2}.items():
            x = x + v * a
            out.append((i, k, b, opaque(x) is not None))
    return x, out


@program("break inside a while loop", BREAK)
def test_break_in_while(x):
    n = 0
    while n < 3:
        x = x + 1
        print(n, x.shape, str(x.sum() > 1e9))
        n += 1
    return x


@program("break inside with", BREAK)
def test_break_in_with(x):
    log = []
    with Scope(log):
        y = x + 1
        log.append(opaque(y) is not None)
        y = y * 2
    return y, log


@program("data-dependent exception inside with")
def test_break_with_exception(x):
    log = []
    with Scope(log):
        y = x + 1
        if y.sum() > -1e9:
            raise ValueError("v")
        y = y * 2
    return y, log


@program("break inside try, exception afterwards", BREAK)
def test_break_in_try(x):
    try:
        y = x + 1
        if opaque(y) is not None:
            raise KeyError("k")
    except KeyError as error:
        return y * 2, str(error)
    finally:
        print("finally")


@program("break inside except and finally", BREAK)
def test_break_in_except(x):
    y = x
    try:
        raise ValueError("v")
    except ValueError as error:
        y = x + 1
        print(opaque(y) is not None, error)
        y = y * 2
    finally:
        y = y + 1
        print(str(y.sum() > 1e9))
        y = y * 3
    return y


@program("the breaking instruction raises, caught", BREAK)
def test_break_raises(x):
    y = x + 1
    try:
        int(y)
    except (ValueError, RuntimeError) as error:
        return y * 2, type(error).__name__
    return y


@program("the breaking instruction raises, escapes", BREAK)
def test_break_escapes(x):
    y = x + 1
    return y.item()


@program("bare raise after a break in the handler", BREAK)
def test_reraise_after_break(x):
    y = x + 1
    try:
        raise ValueError("again")
    except ValueError:
        print(opaque(y) is not None)
        raise


@program("break inside an inlined call", BREAK)
def test_break_inlined(x):
    y = x - 1
    return helper(y) * 3


@program("break two calls deep", BREAK)
def test_break_deep(x):
    a = outer_helper(x)
    return a - outer_helper(a)


@program("break inside a method that changes its object", BREAK, inputs=lambda: (Stateful(), torch.ones(2)))
def test_break_method(s, x):
    return s.step(x) + s.step(x), s.n


@program("break inside a comprehension", BREAK)
def test_break_comprehension(x):
    return [opaque(t) is not None for t in x], x + 1


@program("break inside a nested function and closure", BREAK)
def test_break_closure(x):
    total = 0

    def add(t):
        nonlocal total
        total += 1
        if t.sum() > 1e9:
            total += 100
        return t * total

    return add(x) + add(x), total


@program("break with cells of the frame", BREAK)
def test_break_cells(x):
    k = 2
    f = lambda: k + 1  # noqa: E731
    y = x * f()
    print(str(y.sum() > 1e9))
    k = 5
    return y * f(), f


@program("break inside lambda, map and sorted", BREAK)
def test_break_in_key(x):
    rows = sorted([x[0], x[1]], key=lambda t: t.sum().item())
    return [r + 1 for r in rows], list(map(lambda t: str(t.sum() > 1e9), [x]))


@program("break with a live generator", BREAK)
def test_break_generator(x):
    def gen():
        for i in range(3):
            yield x * i

    out = []
    for t in gen():
        out.append(t + 1)
        print(str(t.sum() > 1e9))
    return out


@program("break inside a generator", BREAK)
def test_break_in_generator(x):
    def gen():
        for i in range(2):
            y = x + i
            if y.sum() > 1e9:
                return
            yield y

    return [t * 2 for t in gen()]


@program("break with map, filter and zip iterators alive", BREAK)
def test_break_live_iterators(x):
    m, z = map(lambda v: v + 1, [1, 2, 3]), zip("abc", range(3))
    next(m), next(z)
    print(str(x.sum() > 1e9))
    return x * next(m), next(z), list(m), list(z)


@program("break with an ExitStack and contextmanager open", BREAK)
def test_break_contextmanager(x):
    import contextlib

    @contextlib.contextmanager
    def scope():
        print("in")
        yield 3
        print("out")

    with scope() as n:
        y = x * n
        print(str(y.sum() > 1e9))
    return y + 1


@program("break between mutations of an argument", BREAK, inputs=lambda: ([1], {"a": 1}, torch.ones(2)))
def test_break_mutations(xs, d, x):
    xs.append(x + 1)
    d["a"] += 1
    print(str(x.sum() > 1e9))
    xs.append(len(xs))
    d["b"] = xs
    return xs is d["b"]


@program("break with aliases alive", BREAK)
def test_break_aliases(x):
    a = [x]
    b = a
    c = {"a": a}
    print(str(x.sum() > 1e9))
    b.append(1)
    return a, b is a, c["a"] is a


@program("break and a global", BREAK, globals=("HISTORY",))
def test_break_global(x):
    HISTORY.append(1)
    print(str(x.sum() > 1e9), len(HISTORY))
    HISTORY.append(x + 1)
    return len(HISTORY)


@program("break with keyword arguments on the stack", BREAK)
def test_break_keywords(x):
    return dict(a=x + 1, b=opaque(x) is not None, c=show("c")), HISTORY.clear()


@program("break in an argument of a call", BREAK)
def test_break_argument(x):
    return torch.cat([x + 1, opaque(x), x * x.sum().item() * 0], dim=0)


@program("stoker.disable", BREAK)
def test_disable(x):
    return opaque(x * 2) + 1


@program("torch.compiler.disable", BREAK)
def test_torch_disable(x):
    return torch_disabled(x * 2) + 1


@program("several breaks in a row", BREAK)
def test_many_breaks(x):
    a = opaque(x)
    b = opaque(a)
    c = opaque(b) + opaque(a)
    return a, b, c


@program("break in a recursive function", BREAK)
def test_break_recursive(x):
    def rec(t, n):
        if n == 0 or t.sum() > 1e9:
            return t
        return rec(t + 1, n - 1) * 2

    return rec(x, 3)


@program("data-dependent shape: nonzero")
def test_nonzero(x):
    i = (x > 0).nonzero()
    return i.shape[1], x + 1


@program("boolean mask indexing")
def test_mask(x):
    y = x[x > 0]
    return y * 2


@program("item as an index")
def test_item_index(x):
    i = int(x.argmax().item() * 0)
    xs = [x, x + 1]
    return xs[i] * 2, x[i]


@program("logging")
def test_logging(x):
    logging.getLogger("quiet").debug("message %s", 3)
    return x + 1


@program("logging that is heard", BREAK, steady=False)
def test_logging_heard(x):
    y = x + 1
    logging.getLogger("stoker_test").warning("value %s", y.shape)
    return y * 2


@program("warnings.warn", BREAK)
def test_warnings(x):
    y = x + 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.warn("careful", stacklevel=1)
    return y


@program("time", BREAK, steady=False)
def test_time(x):
    start = time.time()
    y = x + 1
    return y * 2, time.perf_counter() > 0, time.time() >= start


@program("random")
def test_random(x):
    y = x * random.random()
    return y + random.randint(1, 5)


@program("torch random functions")
def test_torch_random(x):
    return x + torch.rand(3, 4), torch.randn_like(x), torch.nn.functional.dropout(x, 0.5), torch.randperm(4)


@program("torch.manual_seed")
def test_manual_seed(x):
    torch.manual_seed(5)
    return x + torch.rand(3, 4)


@program("open, files and os", BREAK)
def test_files(x):
    y = x + 1
    with open(__file__) as file:
        first = file.readline()
    return y * 2, first


@program("json, re and other libraries")
def test_libraries(x):
    import json
    import re

    y = x + 1
    return y * 2, json.loads("[1, 2]"), re.sub("a", "b", "banana")


@program("sys.stdout.write, and print to a stream")
def test_stdout(x):
    import sys

    y = x + 1
    count = sys.stdout.write("written\n")
    print("printed", count, file=sys.stdout, flush=True)
    sys.stdout.flush()
    return y, count


@program("a stream that is read after it was written", BREAK, inputs=lambda: (torch.ones(2), io.StringIO()))
def test_stream(x, stream):
    stream.write("one ")
    print("two", file=stream, end="")
    return x * 2, stream.getvalue()


@program("del of a local across a break", BREAK)
def test_del_local(x):
    y = x + 1
    z = y
    del y
    print(str(z.sum() > 1e9))
    try:
        y  # noqa: B018, F821
    except UnboundLocalError as error:
        return z * 2, str(error)


@program("star unpacking across a break", BREAK)
def test_star_break(x):
    a, *b = opaque(x)
    return a + 1, len(b), [*opaque(x)][0]


@program("chained comparison across a break", BREAK)
def test_chain_break(x):
    return 0 < x.numel() < (1e9 if bool(x.sum() > -1e9) else 0), x + 1


@program("an unsupported operator inside an expression", BREAK)
def test_expression_break(x):
    return (x + 1) * (x.sum().item() * 0 + 2) + (x - 1) * opaque(x)


UNUSED = ONE
