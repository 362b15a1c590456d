"""What a program changes: order, aliasing, identity, lifetime."""

from __future__ import annotations

import collections
import contextlib
import functools
import os
import typing

import torch
from harness import BREAK, SKIP, program

import stoker

LOG: list = []
STATE = {"n": 1, "items": [1, 2]}
LIMIT = 3


class Thing:
    def __init__(self, v=0):
        self.v = v
        self.parts = []


class Finalized:
    def __init__(self, log):
        self.log = log

    def __del__(self):
        self.log.append("del")


class HalfBuilt:
    last = None

    def __init__(self, log, fail):
        log.append(self)
        self.a = 1
        if fail:
            raise ValueError("half")
        self.b = 2


def watched(log):
    try:
        yield 1
        yield 2
    finally:
        log.append("closed")


def bump():
    global LIMIT
    LIMIT += 1
    STATE["items"].append(LIMIT)


@stoker.compile
def compiled_inner(x):
    return x * 2


class Logged:
    """A decorator with state that works on functions and methods."""

    def __init__(self, function):
        self.function, self.calls = function, 0
        functools.update_wrapper(self, function)

    def __call__(self, *args):
        self.calls += 1
        return self.function(*args)

    def __get__(self, instance, owner=None):
        return functools.partial(self.__call__, instance) if instance is not None else self


class User:
    k = 3

    @Logged
    def run(self, x):
        return x * self.k


@program("an abandoned generator is closed at once")
def test_abandoned_generator(x):
    log = []
    for v in watched(log):
        log.append(v)
        break
    log.append("after")
    return x, log


@program("a generator in a local is closed when the function returns")
def test_generator_local(x):
    log = []

    def f():
        g = watched(log)
        next(g)
        log.append("end of f")
        return 1

    f()
    log.append("after")
    return x, log


@program("a generator in the frame itself is closed on return", inputs=lambda: ([], torch.ones(2)))
def test_generator_root(log, x):
    g = watched(log)
    next(g)
    log.append("returning")
    return x + 1


@program("next(generator) of a temporary", inputs=lambda: ([], torch.ones(2)))
def test_generator_temporary(log, x):
    first = next(watched(log))
    log.append(first)
    return x * first


@program("reassigned generator", inputs=lambda: ([], torch.ones(2)))
def test_generator_reassigned(log, x):
    g = watched(log)
    next(g)
    g = None
    log.append("after")
    return x


@program("objects with __del__", SKIP)
def test_finalizer(x):
    y = x + 1
    log = []
    f = Finalized(log)
    del f
    log.append("after")
    return y, log


@program("a constructor that raises leaves what it did")
def test_half_built(x):
    log = []
    try:
        HalfBuilt(log, True)
    except ValueError as error:
        log.append(str(error))
    return x, log[0].a, hasattr(log[0], "b"), log[1]


@program("swap attributes and items", inputs=lambda: (Thing(torch.ones(2)), Thing(torch.zeros(2)), [1, 2]))
def test_swap(a, b, xs):
    a.v, b.v = b.v, a.v
    xs[0], xs[1] = xs[1], xs[0]
    a.parts, b.parts = b.parts, a.parts
    return a.v + b.v


@program("mutation through an alias", inputs=lambda: (lambda p: ({"a": p, "b": p}, torch.ones(2)))([1]))
def test_alias_mutation(d, x):
    d["a"].append(x)
    return len(d["b"]), d["a"] is d["b"]


@program("an argument stored in itself and in another", inputs=lambda: ([], {}, torch.ones(2)))
def test_store_argument(xs, d, x):
    xs.append(xs)
    d["xs"] = xs
    d["d"] = d
    xs.append(d)
    return x


@program("new object stored in two arguments", inputs=lambda: ([], {}, torch.ones(2)))
def test_store_new(xs, d, x):
    new = Thing(x * 2)
    new.parts.append(new)
    xs.append(new)
    d["new"] = new
    return new


@program("returned argument keeps its identity", inputs=lambda: ([1], Thing(), torch.ones(2)))
def test_return_argument(xs, t, x):
    t.parts = xs
    return xs, t, x, (xs, [x])


@program("tuple shared in the result")
def test_shared_tuple(x):
    t = (x, [1])
    return [t, t, {"t": t}]


@program("changes, then an exception that is caught", inputs=lambda: ([], torch.ones(2)))
def test_changes_before_exception(xs, x):
    try:
        xs.append(1)
        raise ValueError
    except ValueError:
        xs.append(x + 1)
    finally:
        xs.append(3)
    return xs[1]


@program("changes, then an exception that escapes", inputs=lambda: ([], Thing(), torch.ones(2)))
def test_changes_before_escape(xs, t, x):
    xs.append(x + 1)
    t.v = 5
    t.new = xs
    raise KeyError("after the changes")


@program("global changed by an inlined function", globals=("LIMIT", "STATE"))
def test_inlined_global(x):
    bump()
    bump()
    return x * LIMIT, len(STATE["items"])


@program("global rebound and its old object changed", globals=("STATE", "LOG"))
def test_global_rebound(x):
    global LOG
    old = LOG
    LOG = [x + 1]
    old.append(1)
    return old is LOG, len(LOG)


@program("global dict replaced while alias is alive", globals=("STATE",))
def test_global_alias(x):
    global STATE
    alias = STATE
    STATE = dict(STATE, n=5)
    alias["n"] = 7
    return x * STATE["n"], alias["n"]


@program("prints interleaved with operations and changes", inputs=lambda: ([], torch.ones(2)))
def test_print_order(xs, x):
    print("start", xs)
    xs.append(1)
    y = x * 2
    print("middle", xs, y.shape)
    xs.append(2)
    print(f"end {xs} {xs is xs}", flush=True)
    return y


@program("dict of lists filled in a loop", inputs=lambda: (collections.defaultdict(list), torch.randn(3, 2)))
def test_defaultdict_argument(d, x):
    for i, row in enumerate(x):
        d[i % 2].append(row)
    return len(d), sorted(d)


@program("Counter argument", inputs=lambda: (collections.Counter("ab"), torch.ones(2)))
def test_counter_argument(c, x):
    c["a"] += 3
    c.update("zz")
    return x * c["a"], c["missing"]


@program("OrderedDict argument", inputs=lambda: (collections.OrderedDict(a=1, b=2), torch.ones(2)))
def test_ordered_dict_argument(d, x):
    d.move_to_end("a")
    d["c"] = x
    del d["b"]
    return list(d)


@program("deleting while iterating over a copy", inputs=lambda: ({"a": 1, "b": 2, "c": 3}, torch.ones(2)))
def test_delete_copy(d, x):
    for k in list(d):
        if d[k] % 2:
            del d[k]
    return x * len(d)


@program("replacing values while iterating", inputs=lambda: ({"a": 1, "b": 2}, torch.ones(2)))
def test_replace_values(d, x):
    for k in d:
        d[k] = x * d[k]
    return d["a"]


@program("set argument with tensors", BREAK, inputs=lambda: (lambda t: ({t}, t))(torch.ones(2)))
def test_tensor_set(s, x):
    y = x + 1
    return y, x in s


@program("function argument's attributes and defaults", inputs=lambda: (Thing(), torch.ones(2)))
def test_function_in_object(t, x):
    t.f = lambda v, k=t: v + len(k.parts)
    t.g = t.f
    return t.f(x), t.f is t.g


@program("compiled function called from compiled code")
def test_compiled_inner(x):
    return compiled_inner(x) + 1


@program("decorator object with state", globals=("LOG",))
def test_decorator_object(x):
    u = User()
    before = User.run.calls
    y = u.run(x)
    after = User.run.calls
    User.run.calls = 0
    return y, after - before, User.run.__name__


@program("environment variables")
def test_environment(x):
    return x, os.environ.get("STOKER_NO_SUCH_VARIABLE", "unset"), "PATH" in os.environ, os.getenv("STOKER_NO_SUCH", "d")


@program("typing helpers at run time")
def test_typing(x):
    y = typing.cast("torch.Tensor", x)
    return y, typing.get_origin(list[int]) is list, typing.Optional[int] is not None  # noqa: UP045


@program("os.path and string paths", BREAK)
def test_paths(x):
    y = x + 1
    return y, os.path.join("a", "b.txt"), os.path.exists("/no/such"), os.path.basename("/x/y")


@program("deep recursion", inputs=lambda: (torch.ones(2),))
def test_deep_recursion(x):
    def depth(n):
        return 0 if n == 0 else 1 + depth(n - 1)

    return x * depth(150)


@program("endless recursion is caught", BREAK)
def test_endless_recursion(x):
    y = x + 1

    def forever(n):
        return forever(n + 1)

    try:
        forever(0)
    except RecursionError:
        return y * 2


@program("tensor written through several views")
def test_views(x):
    y = x.clone()
    rows = list(y)
    rows[0].mul_(2)
    flat = y.view(-1)
    flat[-1] = 9
    t = y.t()
    t[0, 1] = 5
    return y, rows, flat, t


@program("argument tensor written, result aliases it")
def test_written_alias(x):
    x[0] = 1
    v = x[1:]
    v += 3
    return v, x.view(-1)


@program("data assignment")
def test_data_assignment(x):
    y = x + 1
    x.data = y
    return x * 2


@program("parameter written under no_grad", inputs=lambda: (torch.nn.Parameter(torch.ones(3)), torch.ones(3)))
def test_parameter_write(p, x):
    with torch.no_grad():
        p.add_(x)
        p.copy_(p * 2)
    return (p * x).sum()


@program("return types of torch functions are kept")
def test_return_types(x):
    return x.max(0), torch.sort(x), x.shape, torch.linalg.slogdet(x @ x.T + torch.eye(3)), x.split(1), x.unbind()


@program("ExitStack.pop_all and callbacks with arguments")
def test_exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.callback(lambda a, k=0: log.append((a, k)), 1, k=2)
        stack.push(lambda *error: log.append("pushed"))
        kept = stack.pop_all()
    log.append("after")
    kept.close()
    return x, log


@program("tensor equality by identity in a list")
def test_tensor_in_list(x, y):
    return x in [x], [x, y].index(x), [y, x].count(x) if False else 0, [x] == [x]


@program("tensor in a list of others", BREAK)
def test_tensor_in_others(x, y):
    z = x + 1
    try:
        return x in [y]
    except RuntimeError as error:
        return z, str(error)[:20]
