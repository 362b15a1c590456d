"""Functions, closures, calls, generators, comprehensions, functools, operator."""

from __future__ import annotations

import copy
import functools
import operator

import torch
from harness import BREAK, program

import stoker

COUNTER = 0
TABLE = {"calls": 0}
NAMES = []


def double(x):
    return x * 2


def with_defaults(x, a=1, *args, b=2, **kwargs):
    return x * a + b + sum(args) + sum(kwargs.values())


def positional_only(a, b, /, c, *, d):
    return a + b + c + d


def factorial(n):
    return 1 if n <= 1 else n * factorial(n - 1)


def even(n):
    return True if n == 0 else odd(n - 1)


def odd(n):
    return False if n == 0 else even(n - 1)


def noisy(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        TABLE["calls"] += 1
        return function(*args, **kwargs)

    return wrapper


def scaled(by):
    def decorate(function):
        return lambda *a: function(*a) * by

    return decorate


@noisy
@scaled(3)
def decorated(x):
    """Doc."""
    return x + 1


def make_counter():
    count = 0

    def step(by=1):
        nonlocal count
        count += by
        return count

    return step


def numbers(n):
    for i in range(n):
        yield i
    return "done"


def echo():
    got = []
    while True:
        sent = yield len(got)
        if sent is None:
            return got
        got.append(sent)


def guarded(log):
    try:
        yield 1
        yield 2
    except ValueError:
        log.append("caught")
        yield 99
    finally:
        log.append("closed")


def delegating(log):
    result = yield from guarded(log)
    log.append(result)
    yield from [10, 11]
    return 5


def walk(tree):
    if isinstance(tree, list):
        for branch in tree:
            yield from walk(branch)
    else:
        yield tree


@functools.lru_cache(maxsize=None)
def cached_square(n):
    return n * n


@functools.cache
def cached_name(n):
    return f"n{n}"


@functools.singledispatch
def kind_of(value):
    return "other"


@kind_of.register
def _(value: int):
    return "int"


@kind_of.register(list)
def _(value):
    return "list"


class Callable_:
    def __init__(self, w):
        self.w = w

    def __call__(self, x):
        return x * self.w

    def method(self, x, k=1):
        return x + self.w * k

    @classmethod
    def make(cls, w):
        return cls(w)

    @staticmethod
    def helper(x):
        return x - 1

    bound_later = functools.partialmethod(method, k=5)


@program("inlined calls")
def test_inlined_calls(x):
    return double(double(x)) + 1


@program("defaults, *args, keyword-only, **kwargs")
def test_argument_kinds(x):
    a = with_defaults(x)
    b = with_defaults(x, 2, 3, 4, b=5, z=6)
    args, kwargs = (3, 4), {"b": 1, "q": 2}
    return (
        a,
        b,
        with_defaults(x, *args, **kwargs),
        with_defaults(*[x, 1], *args, **{"b": 7}),
        positional_only(x, 1, c=2, d=3),
    )


@program("wrong arguments raise TypeError")
def test_wrong_arguments(x):
    y = x + 1
    return positional_only(y, 1, 2)


@program("unexpected keyword raises TypeError")
def test_unexpected_keyword(x):
    y = x + 1
    try:
        return double(y, z=1)
    except TypeError as error:
        return str(error), y


@program("recursion")
def test_recursion(x):
    return x * factorial(5), even(6), odd(3)


@program("decorators and functools.wraps", globals=("TABLE",))
def test_decorators(x):
    return decorated(x), decorated.__name__, decorated.__doc__ is None


@program("lambdas")
def test_lambdas(x):
    f = lambda a, b=2: a * b  # noqa: E731
    return f(x), (lambda: 3)(), sorted([3, 1], key=lambda v: -v)


@program("closures: a cell of the frame itself")
def test_own_cell(x):
    k = 2

    def inner(y):
        return y * k

    k = 3
    return inner(x)


def _outer_cell():
    weight = torch.full((3, 4), 2.0)
    bias = 1

    def run(x):
        def inner():
            return x * weight + bias

        return inner()

    return run


test_outer_cell = program("closures: a cell from outside", inputs=lambda: (torch.randn(3, 4),), factory=True)(
    _outer_cell
)


@program("closures: cells of an inlined function")
def test_inlined_cell(x):
    step = make_counter()
    step()
    step(4)
    return x * step(), step


def _nonlocal_write():
    total = 0

    def run(x):
        nonlocal total
        total += 1
        return x * total, lambda: total

    return run


test_nonlocal_write = program(
    "nonlocal writes to a cell from outside", inputs=lambda: (torch.randn(3, 4),), factory=True, steady=False
)(_nonlocal_write)


@program("cells shared by two closures")
def test_shared_cells(x):
    value = [0]
    total = 0

    def add(n):
        nonlocal total
        total += n
        value[0] += n

    def get():
        return total

    add(3)
    add(4)
    return x * get(), get, add


@program("closures over loop variables")
def test_loop_closures(x):
    fs = [lambda: i for i in range(3)]
    gs = [lambda i=i: i for i in range(3)]
    return x * sum(f() for f in fs), [g() for g in gs], fs


@program("returning a closure over a tensor")
def test_return_closure(x):
    y = x + 1

    def later(z):
        return y * z

    return later


@program("returning a partial and a bound method")
def test_return_bound(x):
    c = Callable_(x)
    return functools.partial(double, x), c.method, [].append, "a".upper


@program("deleted cell variable")
def test_deleted_cell(x):
    y = x + 1

    def get():
        return y

    del y
    return get()


@program("unbound local raises")
def test_unbound(x):
    y = x + 1
    if y.shape[0] > 100:
        z = 1
    return y + z


@program("global writes", globals=("COUNTER", "TABLE", "NAMES"))
def test_global_writes(x):
    global COUNTER
    COUNTER = 41 + 1
    TABLE["calls"] += 2
    NAMES.append("n")
    return x * COUNTER


@program("global holding a tensor", globals=("NAMES",))
def test_global_tensor(x):
    NAMES.append(x + 1)
    return len(NAMES)


@program("del of a global", globals=("COUNTER",))
def test_del_global(x):
    global COUNTER
    del COUNTER
    return x + 1


@program("globals() and locals()")
def test_globals_function(x):
    y = 3
    return x * globals()["double"](1), sorted(locals()), y


@program("undefined name raises")
def test_undefined(x):
    y = x + 1
    return y + undefined_name  # noqa: F821


@program("bound, class and static methods")
def test_methods(x):
    c = Callable_.make(3)
    f = c.method
    return (
        c(x),
        f(x),
        c.helper(x),
        Callable_.helper(x),
        Callable_.method(c, x),
        f.__self__ is c,
        f.__func__ is Callable_.method,
    )


@program("functools.partial and partialmethod")
def test_partial(x):
    p = functools.partial(with_defaults, x, b=10)
    q = functools.partial(p, 3)
    return p(), q(7), Callable_(2).bound_later(x), p.func is with_defaults, p.args, p.keywords


@program("partial argument", inputs=lambda: (functools.partial(with_defaults, b=3), torch.ones(2)))
def test_partial_argument(f, x):
    return f(x)


@program("function attributes and metadata")
def test_function_attributes(x):
    def inner(a, b=2):
        return a

    inner.tag = "t"
    return x, inner.__name__, inner.tag, inner.__defaults__, double.__name__, hasattr(double, "nope"), callable(inner)


@program("functions in containers, passed as arguments", inputs=lambda: (double, torch.ones(2)))
def test_function_argument(f, x):
    table = {"f": f, "g": torch.sin}
    return table["f"](x) + table["g"](x), f is double


@program("callable objects", inputs=lambda: (Callable_(2.0), torch.ones(2)))
def test_callable_object(c, x):
    return c(x), list(map(c, [x, x + 1]))


@program("annotations on locals and functions")
def test_annotations(x):
    n: int = 3

    def f(a: int, b: "str" = "") -> int:
        return a

    return x * f(n)


@program("generators in for loops")
def test_generator_loop(x):
    for i in numbers(3):
        x = x + i
    return x, list(numbers(2)), sum(n * n for n in numbers(4))


@program("generator send and return value")
def test_generator_send(x):
    g = echo()
    sizes = [next(g), g.send("a"), g.send("b")]
    try:
        next(g)
    except StopIteration as stop:
        return x * len(sizes), sizes, stop.value


@program("generator throw, close and finally")
def test_generator_throw(x):
    log = []
    g = guarded(log)
    next(g)
    caught = g.throw(ValueError("v"))
    g.close()
    h = guarded(log)
    next(h)
    h.close()
    return x * caught, log


@program("yield from")
def test_yield_from(x):
    log = []
    return x, list(delegating(log)), log, list(walk([1, [2, [3]], 4]))


@program("throw through yield from")
def test_throw_through(x):
    log = []
    g = delegating(log)
    first = next(g)
    second = g.throw(ValueError)
    rest = list(g)
    return x * first, second, rest, log


@program("generator that raises")
def test_generator_raises(x):
    y = x * 2

    def bad():
        yield y
        raise KeyError("k")

    return list(bad())


@program("StopIteration inside a generator becomes RuntimeError")
def test_pep_479(x):
    def bad():
        yield 1
        raise StopIteration

    try:
        list(bad())
    except RuntimeError as error:
        return x, str(error)


@program("returning a fresh generator")
def test_return_generator(x):
    return (v * x for v in (1, 2)), numbers(3)


@program("returning a started generator")
def test_return_started(x):
    g = numbers(4)
    next(g)
    return x + 1, g


@program("generator expression with conditions and nesting")
def test_generator_expressions(x):
    return x * sum(a * b for a in range(3) if a for b in range(a)), tuple(i for i in "ab"), dict((k, 1) for k in "xy")


@program("comprehensions: nested, conditions, walrus")
def test_comprehensions(x):
    grid = [[i * j for j in range(3)] for i in range(3) if i != 1]
    flat = [v for row in grid for v in row if (w := v + 1) > 1]
    return [x[i] * 2 for i in range(x.shape[0])], grid, flat, w, {i: [i] for i in range(2)}, {i % 2 for i in range(5)}


@program("comprehension closing over arguments")
def test_comprehension_closure(x):
    k = 2
    return [t * k + x for t in [x, x + 1]], [(lambda: k + i)() for i in range(2)]


@program("functools.reduce")
def test_reduce(x):
    return functools.reduce(operator.add, [x, x, x]), functools.reduce(lambda a, b: a * b, [1, 2, 3], 10)


@program("functools.lru_cache and cache")
def test_lru_cache(x):
    return x * cached_square(3), cached_square(3), cached_name(1)


@program("functools.singledispatch")
def test_singledispatch(x):
    return x, kind_of(1), kind_of([]), kind_of("s")


@program("functools.cmp_to_key")
def test_cmp_to_key(x):
    return x, sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a))


@program("operator: itemgetter, attrgetter, methodcaller")
def test_operator_getters(x):
    first = operator.itemgetter(0)
    two = operator.itemgetter("a", "b")
    shape = operator.attrgetter("shape")
    nested = operator.attrgetter("w.real")
    return first([x]), two({"a": 1, "b": 2}), shape(x), nested(Callable_(3)), operator.methodcaller("sum", 0)(x)


@program("operator functions")
def test_operator_functions(x):
    xs = [1]
    operator.iadd(xs, [2])
    operator.setitem(xs, 0, 5)
    return (
        operator.mul(x, 2),
        operator.neg(x),
        operator.getitem(xs, 0),
        operator.contains(xs, 2),
        operator.truth([]),
        xs,
    )


@program("operator: concat, indexOf, countOf, length_hint, delitem")
def test_operator_rest(x):
    xs = [1, 2, 2]
    operator.delitem(xs, 0)
    return x, operator.concat([1], [2]), operator.indexOf(xs, 2), operator.countOf(xs, 2), operator.length_hint(xs), xs


@program("calls through *args of tensors")
def test_star_call(x, y):
    def add(*ts):
        total = ts[0]
        for t in ts[1:]:
            total = total + t
        return total

    return add(x, y), add(*[x, y, x]), torch.cat([x, *[y, y]])


@program("default argument that is mutable")
def test_mutable_default(x):
    def gather(v, into=[]):  # noqa: B006
        into.append(v)
        return into

    gather(1)
    return gather(x), gather.__defaults__


@program("keyword defaults from outside")
def test_keyword_default(x):
    def f(a, *, scale=double(2)):
        return a * scale

    return f(x), f(x, scale=5), f.__kwdefaults__


@program("function defined conditionally and redefined")
def test_redefined(x):
    f = double
    if x.ndim == 2:

        def f(v):  # noqa: F811
            return v + 100

    return f(x)


@program("inner function recursion through its cell")
def test_inner_recursion(x):
    def power(v, n):
        return v if n == 1 else v * power(v, n - 1)

    return power(x, 3)


@program("async function called", BREAK)
def test_async(x):
    async def f():
        return 1

    c = f()
    c.close()
    return x + 1


LOG = []
SETTING = {"scale": 2}


@program(
    "functools.cache: what a function did and saw the first time is kept", globals=("LOG", "SETTING"), factory=True
)
def test_cache_is_kept():
    @functools.cache
    def scale(n):
        LOG.append(n)
        return SETTING["scale"] * n

    def run(x):
        return x * scale(3) + scale(3), len(LOG)

    return run


@program("functools.lru_cache of tensors")
def test_cache_of_tensors(x):
    y = x + 1
    return y * cached_square(3) + cached_shape(y)


@functools.lru_cache(maxsize=4)
def cached_shape(t):
    return t.shape[0]


@functools.cache
def cached_double(t, factor=2):
    LOG.append(factor)
    return t * factor


@program("a cache that is asked for new tensors", globals=("LOG",))
def test_cache_of_new_tensors(x):
    y, z = x + 1, x + 2
    made = cached_double(y), cached_double(z), cached_double(y), cached_double(y, factor=3)
    return made, made[0] is made[2], made[0] is made[1], len(LOG)


@program("a cache that is asked for a tensor from outside")
def test_cache_of_arguments(x):
    y = x + 1
    return y * cached_shape(x)


class Rows:
    def __init__(self):
        self.n = 3

    @functools.lru_cache  # noqa: B019
    def row(self, k):
        return torch.arange(self.n) + k


ROWS = Rows()


@program("functools.lru_cache on a method, of a tensor that stays")
def test_cached_method(x):
    return x[:, :3] + ROWS.row(2), ROWS.row(2) is ROWS.row(2)


@program("copy.copy of a tensor")
def test_copy_tensor(x):
    y = copy.copy(x)
    z = copy.copy(x + 1)
    y += 1
    return x, y, z, y is x, copy.copy([x, y])[0] is x


@program(
    "copy.copy and deepcopy of tensors that need a gradient", BREAK, inputs=lambda: (torch.ones(3, requires_grad=True),)
)
def test_copy_leaf(x):
    y, z = copy.copy(x), copy.deepcopy(x)
    return (x * y * z).sum(), y.requires_grad, z.is_leaf


def test_cache_clear() -> None:
    """A cached value stays after what it came from has changed, and goes with cache_clear."""
    state = {"scale": 2}

    @functools.cache
    def scale(n):
        return state["scale"] * n

    run = stoker.compile(lambda x: x * scale(3), backend="eager", fullgraph=True)
    x = torch.ones(2)
    assert run(x)[0] == 6
    state["scale"] = 5
    assert run(x)[0] == 6
    scale.cache_clear()
    assert run(x)[0] == 15


@functools.lru_cache
def settings():
    return {"scale": 3}["scale"]


@program("functools.lru_cache after a change that waits to be replayed")
def test_lru_cache_after_change(x):
    changed = [1]
    changed.append(2)
    first = settings() * len(changed)
    changed.append(first)
    return x * settings(), changed
