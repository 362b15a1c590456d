"""Control flow on data in one graph: each program against the same program in plain Python, values and gradients."""

from __future__ import annotations

import gc
import sys
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stoker
import stoker.errors
from stoker.graph import nested

hops = sys.modules["torch._higher_order_ops"]
BACKENDS = ["eager", "aot_eager", "stoker"]
PROGRAMS: dict[str, tuple[Callable[..., Any], Callable[..., Any], Callable[[], tuple[Any, ...]]]] = {}
Pair = namedtuple("Pair", "first second")  # noqa: PYI024


def cond(pred: Any, true_fn: Any, false_fn: Any, operands: Any = ()) -> Any:
    """What `torch.cond` means."""
    return true_fn(*operands) if pred else false_fn(*operands)


def while_loop(cond_fn: Any, body_fn: Any, carried: Any) -> Any:
    while cond_fn(*carried):
        carried = body_fn(*carried)
    return carried


def scan(combine: Any, init: Any, xs: Any, *, dim: int = 0, reverse: bool = False) -> Any:
    leaves, spec = torch.utils._pytree.tree_flatten(xs)
    rows = list(zip(*(leaf.unbind(dim) for leaf in leaves)))
    found = []
    for row in reversed(rows) if reverse else rows:
        init, made = combine(init, torch.utils._pytree.tree_unflatten(list(row), spec))
        found.append(made)
    found = found[::-1] if reverse else found
    flat = [torch.utils._pytree.tree_flatten(f) for f in found]
    stacked = [torch.stack(parts, min(dim, parts[0].ndim)) for parts in zip(*(f for f, _ in flat))]
    return init, torch.utils._pytree.tree_unflatten(stacked, flat[0][1])


def map_(f: Any, xs: Any, *args: Any) -> Any:
    return scan(lambda _, x: ((), f(x, *args)), (), xs)[1]


def associative_scan(combine: Any, xs: Any, dim: int, reverse: bool = False, combine_mode: str = "pointwise") -> Any:
    leaves, spec = torch.utils._pytree.tree_flatten(xs)
    rows = [torch.utils._pytree.tree_unflatten(list(row), spec) for row in zip(*(t.unbind(dim) for t in leaves))]
    rows = rows[::-1] if reverse else rows
    found = rows[:1]
    for row in rows[1:]:
        found.append(combine(found[-1], row))
    found = found[::-1] if reverse else found
    flat = [torch.utils._pytree.tree_leaves(f) for f in found]
    return torch.utils._pytree.tree_unflatten([torch.stack(parts, dim) for parts in zip(*flat)], spec)


class Plain:
    """The functions in plain Python."""

    cond, while_loop, scan, map, associative_scan = map(staticmethod, (cond, while_loop, scan, map_, associative_scan))


class Torch:
    """torch's own, which only capture understands here."""

    cond, while_loop, scan, map, associative_scan = map(
        staticmethod, (torch.cond, hops.while_loop, hops.scan, hops.map, hops.associative_scan)
    )


def both_signs() -> list[tuple[Any, ...]]:
    return [(torch.rand(3, 4),), (-torch.rand(3, 4),), (torch.rand(3, 4),)]


def program(inputs: Callable[[], list[tuple[Any, ...]]] = both_signs, grad: bool = True) -> Callable[[Any], Any]:
    """A function of `f`, the module of control flow, and of inputs; differentiated too if `grad`."""

    def register(function: Any) -> Any:
        PROGRAMS[function.__name__] = (function, inputs, grad)
        return function

    return register


SCALE = nn.Linear(4, 4)


@program()
def branches(f, x):
    return f.cond(x.sum() > 0, lambda a: a.sin() + 1, lambda a: a.cos() * 2, (x,))


@program()
def closures(f, x):
    y = x * 3
    return f.cond(x.mean() > 0, lambda: y + x, lambda: y - 1) + y


@program()
def a_branch_is_the_operand(f, x):
    return f.cond(x.mean() > 0, lambda a: a, lambda a: a * 2, (x,)) + 1


@program()
def views_are_returned(f, x):
    return f.cond(x.mean() > 0, lambda a: (a.t(), a[0]), lambda a: ((a * 2).t(), a[1]), (x,))


@program()
def the_same_twice(f, x):
    def once(a):
        b = a + 1
        return b, b

    return f.cond(x.mean() > 0, once, lambda a: (a * 2, a * 3), (x,))


@program()
def structures(f, x):
    def yes(a):
        return {"one": a, "two": [a + 1, (a * 2, None)]}

    def no(a):
        return {"one": -a, "two": [a - 1, (a * 3, None)]}

    found = f.cond(x.mean() > 0, yes, no, (x,))
    return found["one"] + found["two"][0] * found["two"][1][0], found["two"][1][1]


@program()
def named_tuples(f, x):
    found = f.cond(
        x.mean() > 0, lambda p: Pair(p.first + 1, p.second), lambda p: Pair(p.second, p.first), (Pair(x, x * 2),)
    )
    return found.first - found.second


@program()
def one_in_the_other(f, x):
    def inner(a):
        return f.cond(a.max() > 0.5, lambda b: b * 2, lambda b: b * 3, (a,))

    return f.cond(x.mean() > 0, inner, lambda a: a.exp(), (x,))


@program()
def several(f, x):
    a = f.cond(x.mean() > 0, lambda a: a + 1, lambda a: a - 1, (x,))
    b = f.cond(a.mean() > 0.2, lambda a: a.tanh(), lambda a: a.sigmoid(), (a,))
    return a * b


@program()
def a_module(f, x):
    return f.cond(x.mean() > 0, lambda a: SCALE(a).relu(), lambda a: a @ SCALE.weight, (x,))


@program()
def a_python_predicate(f, x):
    return f.cond(x.dim() == 2, lambda a: a + 1, lambda a: a - 1, (x,))


@program()
def writes_to_its_own(f, x):
    def own(a):
        b = a.clone()
        b.add_(1)
        b[0] = 0
        return b

    return f.cond(x.mean() > 0, own, lambda a: a * 2, (x,))


@program()
def plain_state_inside(f, x):
    def total(a):
        parts = []
        for index in range(3):
            parts.append(a * index)
        return sum(parts)

    return f.cond(x.mean() > 0, total, lambda a: a, (x,))


@program()
def whole_numbers(f, x):
    return f.cond(x.mean() > 0, lambda a: (a.argmax(1), a * 2), lambda a: (a.argmin(1), a), (x,))


@program()
def without_grad(f, x):
    with torch.no_grad():
        y = f.cond(x.mean() > 0, lambda a: a * 2, lambda a: a * 3, (x,))
    return x * y


@program()
def under_autocast(f, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = f.cond(x.mean() > 0, lambda a: a @ a.t(), lambda a: (a @ a.t()) * 2, (x,))
    return y.float(), y.dtype is torch.bfloat16


@program()
def a_scan_under_autocast(f, x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        last, rows = f.scan(lambda c, e: ((SCALE(e) + c).float(), c), torch.zeros(4), x)
    return last, rows


@program()
def autocast_inside(f, x):
    def low(a):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (a @ a.t()).float()

    return f.cond(x.mean() > 0, low, lambda a: a @ a.t(), (x,))


@program()
def counting(f, x):
    return f.while_loop(lambda i, a: i < 5, lambda i, a: (i + 1, a * 1.5 + i), (torch.tensor(0), x))


@program()
def until_small(f, x):
    def body(a, steps):
        return a / 2, steps + 1

    a, steps = f.while_loop(lambda a, steps: a.abs().max() > 0.1, body, (x, torch.zeros((), dtype=torch.int64)))
    return a, steps


@program()
def never(f, x):
    return f.while_loop(lambda a: a.abs().sum() < 0, lambda a: (a + 1,), (x,))


@program()
def a_loop_with_a_branch(f, x):
    def body(i, a):
        return i + 1, f.cond(i % 2 == 0, lambda b: b + 1, lambda b: b * 2, (a,))

    return f.while_loop(lambda i, a: i < 4, body, (torch.tensor(0), x))


@program()
def a_loop_that_reads_outside(f, x):
    weight = x.t() @ x
    return f.while_loop(lambda a: a.norm() > 1e-2, lambda a: ((a @ weight / 10).tanh() / 2,), (x,))[0]


@program()
def running_sum(f, x):
    return f.scan(lambda c, e: (c + e, c * 2), torch.zeros(4), x)


@program()
def a_recurrence(f, x):
    def step(h, e):
        h = torch.tanh(SCALE(e) + h)
        return h, h * 2

    last, rows = f.scan(step, torch.zeros(4), x)
    return last, rows.sum(1)


@program()
def a_scan_from_the_end(f, x):
    return f.scan(lambda c, e: (c * 0.5 + e, c - e), torch.ones(4), x, reverse=True)


@program()
def a_scan_of_another_dimension(f, x):
    return f.scan(lambda c, e: (c * e, (c + e).sin()), torch.ones(3), x, dim=1)


@program()
def a_scan_of_structures(f, x):
    def step(c, e):
        a, b = c["a"] + e[0], c["b"] * e[1]
        return {"a": a, "b": b}, [a - b, b]

    last, (first, second) = f.scan(step, {"a": torch.zeros(4), "b": torch.ones(4)}, (x, x * 2))
    return last["a"], last["b"], first, second


@program()
def a_scan_that_reads_outside(f, x):
    scale = x.mean()
    return f.scan(lambda c, e: (c * scale + e, c), x.sum(0), x)


@program()
def a_branch_in_a_scan(f, x):
    def step(c, e):
        c = f.cond(e.sum() > 1.5, lambda a, b: a + b, lambda a, b: a * b, (c, e))
        return c, c + 1

    return f.scan(step, torch.ones(4), x)


@program()
def each_element(f, x):
    return f.map(lambda e, w: (e * w).cumsum(0), x, x[0])


@program()
def each_element_of_structures(f, x):
    found = f.map(lambda e: {"sum": e[0].sum(), "twice": e[1] * 2}, (x, x + 1))
    return found["sum"], found["twice"]


@program()
def sums(f, x):
    return f.associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")


@program()
def products_from_the_end(f, x):
    return f.associative_scan(torch.mul, x, 1, reverse=True, combine_mode="generic")


@program()
def maxima(f, x):
    return f.associative_scan(torch.maximum, x, 1, combine_mode="generic")


@program(lambda: [(torch.rand(7, 4), torch.rand(7, 4)), (torch.rand(7, 4), -torch.rand(7, 4))])
def a_state_space(f, a, b):
    def combine(left, right):
        return left[0] * right[0], left[1] * right[0] + right[1]

    return f.associative_scan(combine, (a, b), 0, combine_mode="generic")


@program(lambda: [(torch.rand(5, 3, 3) / 3,), (torch.rand(5, 3, 3) / 3,)])
def matrix_products(f, x):
    return f.associative_scan(lambda a, b: a @ b, x, 0, combine_mode="generic")


def copies(values: tuple[Any, ...], grad: bool) -> list[Any]:
    return [v.detach().clone().requires_grad_(grad and v.is_floating_point()) for v in values]


def outcome(function: Any, values: tuple[Any, ...], grad: bool) -> list[Any]:
    """Results, and gradients for a loss that weighs each element by its place."""
    inputs = copies(values, grad)
    found = torch.utils._pytree.tree_leaves(function(*inputs))
    tensors = [t for t in found if isinstance(t, torch.Tensor)]
    losses = [(t * torch.arange(t.numel()).reshape(t.shape)).sum() for t in tensors if t.requires_grad]
    gradients = torch.autograd.grad(sum(losses), inputs, allow_unused=True) if losses else []
    return [[t.detach() if isinstance(t, torch.Tensor) else t for t in found], list(gradients)]


def test_autocast_around() -> None:
    def program(f: Any, x: torch.Tensor) -> torch.Tensor:
        return f.cond(x.mean() > 0, lambda a: a @ a.t(), lambda a: (a @ a.t()) * 2, (x,))

    compiled = stoker.compile(lambda x: program(Torch, x), fullgraph=True)
    for sign in (1, -1):
        values = (sign * torch.ones(3, 4),)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            same(outcome(compiled, values, True), outcome(lambda x: program(Plain, x), values, True))


def same(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, list):
        assert len(mine) == len(theirs)
        for a, b in zip(mine, theirs):
            same(a, b)
    elif isinstance(theirs, torch.Tensor):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-5)
    else:
        assert mine == theirs


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program(name: str, backend: str) -> None:
    function, inputs, differentiated = PROGRAMS[name]
    torch.manual_seed(0)
    SCALE.requires_grad_(False)
    for grad in (False, True) if differentiated else (False,):
        compiled = stoker.compile(lambda *args: function(Torch, *args), backend=backend, fullgraph=True)
        for values in inputs():
            theirs = outcome(lambda *args: function(Plain, *args), values, grad)
            same(outcome(compiled, values, grad), theirs)


@pytest.mark.parametrize(
    "name", ["branches", "closures", "running_sum", "a_state_space", "counting", "each_element", "one_in_the_other"]
)
def test_sizes_that_change(name: str) -> None:
    function, _, differentiated = PROGRAMS[name]
    compiled = stoker.compile(lambda *args: function(Torch, *args), fullgraph=True, dynamic=True)
    stoker.log.clear()
    for rows in (3, 5, 8):
        torch.manual_seed(rows)
        values = tuple(torch.rand(rows, 4) for _ in range(function.__code__.co_argcount - 1))
        theirs = outcome(lambda *args: function(Plain, *args), values, differentiated)
        same(outcome(compiled, values, differentiated), theirs)
    assert len(stoker.events("captured")) == 1


def test_gradients_of_parameters() -> None:
    model = nn.Linear(4, 4)

    def step(c: torch.Tensor, e: torch.Tensor) -> Any:
        c = torch.tanh(model(e) + c)
        return c, c

    found = []
    for f in (Plain, Torch):
        model.zero_grad()
        run: Any = lambda x, f=f: f.scan(step, torch.zeros(4), x)[1].square().sum()  # noqa: E731
        torch.manual_seed(0)
        (run if f is Plain else stoker.compile(run, fullgraph=True))(torch.randn(6, 4)).backward()
        found.append([p.grad.clone() for p in model.parameters()])
    same(*found)


def test_gradients_of_gradients() -> None:
    def penalty(f: Any, x: torch.Tensor) -> torch.Tensor:
        y = f.cond(x.sum() > 0, lambda a: a.pow(3), lambda a: a.exp(), (x,)).sum()
        (g,) = torch.autograd.grad(y, x, create_graph=True)
        g.square().sum().backward()
        return y.detach()

    for sign in (1, -1):
        found = []
        for f in (Plain, Torch):
            x = (sign * torch.arange(1.0, 4.0)).requires_grad_()
            run: Any = lambda x, f=f: penalty(f, x)  # noqa: E731
            result = (run if f is Plain else stoker.compile(run, fullgraph=True))(x)
            found.append([result, x.grad])
        same(*found)


def test_random_numbers_are_drawn_in_the_branch_that_runs() -> None:
    def program(f: Any, x: torch.Tensor) -> torch.Tensor:
        return f.cond(x.sum() > 0, lambda a: a + torch.rand_like(a), lambda a: a, (x,)) + torch.rand_like(x)

    for sign in (1, -1):
        found = []
        for f in (Plain, Torch):
            run: Any = lambda x, f=f: program(f, x)  # noqa: E731
            torch.manual_seed(0)
            found.append((run if f is Plain else stoker.compile(run, fullgraph=True))(sign * torch.ones(4)))
        same(*found)


LIST: list[Any] = []


class Holder:
    value = 0


def appends(x):
    def branch(a):
        LIST.append(1)
        return a

    return torch.cond(x.sum() > 0, branch, lambda a: a, (x,))


def appends_to_a_new_list(x):
    made = []

    def branch(a):
        made.append(a)
        return a

    return torch.cond(x.sum() > 0, branch, lambda a: a, (x,)), made


def rebinds(x):
    count = 0

    def branch(a):
        nonlocal count
        count += 1
        return a

    return torch.cond(x.sum() > 0, branch, lambda a: a, (x,)), count


def prints(x):
    def branch(a):
        print("here")
        return a

    return torch.cond(x.sum() > 0, branch, lambda a: a, (x,))


def writes_to_an_operand(x):
    return torch.cond(x.sum() > 0, lambda a: a.add_(1), lambda a: a, (x,))


def writes_to_a_closure(x):
    y = x + 1
    return torch.cond(x.sum() > 0, lambda: y.mul_(2), lambda: x), y


def sets_an_attribute(x):
    def branch(a):
        Holder.value = 1
        return a

    return torch.cond(x.sum() > 0, branch, lambda a: a, (x,))


def other_shapes(x):
    return torch.cond(x.sum() > 0, lambda a: a, lambda a: a[0], (x,))


def other_structures(x):
    return torch.cond(x.sum() > 0, lambda a: (a,), lambda a: a, (x,))


def other_constants(x):
    return torch.cond(x.sum() > 0, lambda a: (a, 1), lambda a: (a, 2), (x,))


def other_dtypes(x):
    return torch.cond(x.sum() > 0, lambda a: a.double(), lambda a: a, (x,))


def raises(x):
    def branch(a):
        raise ValueError("no")

    return torch.cond(x.sum() > 0, branch, lambda a: a, (x,))


def carries_another_structure(x):
    return hops.scan(lambda c, e: ((c + e, e), e), torch.zeros(()), x)


REFUSED = [
    carries_another_structure,
    appends, appends_to_a_new_list, rebinds, prints, writes_to_an_operand, writes_to_a_closure, sets_an_attribute,
    other_shapes, other_structures, other_constants, other_dtypes, raises,
]  # fmt: skip


@pytest.mark.parametrize("function", REFUSED, ids=lambda f: f.__name__)
def test_what_a_graph_inside_cannot_do_is_a_break(function: Any) -> None:
    with pytest.raises(stoker.errors.GraphBreakError):
        stoker.compile(function, backend="eager", fullgraph=True)(torch.ones(3))
    assert not LIST and not Holder.value


def test_graphs_inside_die_with_the_function() -> None:
    before = set(nested._ALIVE)
    compiled = stoker.compile(lambda x: torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1), fullgraph=True)
    compiled(torch.ones(3))
    gc.collect()
    made = set(nested._ALIVE) - before
    assert made and torch.equal(compiled(-torch.ones(3)), -2 * torch.ones(3))
    stoker.reset()
    del compiled
    gc.collect()
    assert not made & set(nested._ALIVE)


def rolled(x: torch.Tensor) -> torch.Tensor:
    return hops.scan(lambda h, e: ((h + e).tanh(), h * 2), torch.zeros(4), x)[1]


def counted(x: torch.Tensor) -> torch.Tensor:
    return hops.while_loop(lambda i, a: i < 9, lambda i, a: (i + 1, a * 2), (torch.tensor(0), x))[1]


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1)


@pytest.mark.parametrize("function", [rolled, counted, chosen])
def test_no_python_runs_for_what_is_inside(function: Any) -> None:
    compiled = stoker.compile(function, fullgraph=True)
    seen: list[list[str]] = []
    for rows in (3, 9):
        stoker.reset()
        compiled(torch.ones(rows, 4))
        frames: list[str] = []
        sys.setprofile(lambda frame, event, arg: frames.append(frame.f_code.co_name) if event == "call" else None)
        try:
            compiled(torch.ones(rows, 4))
        finally:
            sys.setprofile(None)
        seen.append(frames)
    assert seen[0] == seen[1] and len(seen[0]) <= 6, seen


def test_a_scan_over_a_cell_is_compiled() -> None:
    """The operator of a cell writes to pieces of one memory, which eager is asked about, on the way to a graph."""
    cell, xs, start = nn.GRUCell(3, 4), torch.randn(3, 2, 3), torch.randn(2, 4)

    def program(f: Any) -> Any:
        return f.scan(lambda c, x: (cell(x, c), x.clone()), start, xs)

    stoker.reset()
    last, rows = stoker.compile(program, fullgraph=True)(Torch)
    assert not stoker.events("as captured")
    torch.testing.assert_close((last, rows), program(Plain))
