"""Weak references to what captured code makes, and weak containers: an object is alive as long as CPython would have it so."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log

Tensor = torch.Tensor
Wrap = Callable[[Any], Any]
Program = Callable[[Wrap], list[Any]]
X = torch.ones(2)


class Thing:
    def __init__(self, v: float = 1) -> None:
        self.v = v


def asked(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        thing = Thing(3)
        reference = weakref.ref(thing)
        return x * reference().v, reference() is thing, weakref.ref(thing) is reference, weakref.ref(thing) == reference

    run = wrap(function)
    return [run(X), run(X)]


def given_away_with_its_object(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        thing = Thing(3)
        return thing, weakref.ref(thing)

    thing, reference = wrap(function)(X)
    found = [reference() is thing]
    del thing
    return [*found, reference() is None]


def given_away_alone(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        thing = Thing(3)
        return weakref.ref(thing), x + 1

    return [wrap(function)(X)[0]() is None]


def deleted(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        thing = Thing(3)
        reference = weakref.ref(thing)
        x = x * reference().v
        del thing
        return x if reference() is None else -x

    return [wrap(function)(X)]


def bound_anew(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        thing: Any = Thing(3)
        reference = weakref.ref(thing)
        if reference() is not None:
            x = x * 2
        thing = None
        return x + 1 if reference() is thing else -x

    return [wrap(function)(X)]


def _forgetful() -> Any:
    thing = Thing(3)
    return weakref.ref(thing)


def gone_with_a_function(wrap: Wrap) -> list[Any]:
    return [wrap(lambda x: x if _forgetful()() is None else -x)(X)]


def never_named(wrap: Wrap) -> list[Any]:
    return [wrap(lambda x: x if weakref.ref(Thing(3))() is None else -x)(X)]


def held_in_a_list(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        things = [Thing(3)]
        reference = weakref.ref(things[0])
        first = reference().v
        things.clear()
        return x * first, reference() is None

    return [wrap(function)(X)]


def held_outside(wrap: Wrap) -> list[Any]:
    kept: list[Any] = []

    def function(x: Tensor) -> Any:
        thing = Thing(3)
        reference = weakref.ref(thing)
        kept.append(thing)
        del thing
        return x * reference().v, reference

    _, reference = wrap(function)(X)
    return [reference() is kept[0]]


def of_a_tensor(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        y = x * 2
        reference = weakref.ref(y)
        return reference() + 1, reference() is y

    return [wrap(function)(X)]


class Node:
    def __init__(self, parent: Any = None) -> None:
        self.parent = weakref.ref(parent) if parent is not None else None
        self.children: list[Node] = []
        self.v = 2

    def add(self) -> Node:
        self.children.append(Node(self))
        return self.children[-1]


def parents(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        root = Node()
        child = root.add()
        grandchild = child.add()
        return x * grandchild.parent().parent().v, grandchild.parent() is child, Node(Node()).parent() is None

    return [wrap(function)(X)]


def not_possible(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        try:
            weakref.ref([1])
        except TypeError as error:
            return x * len(str(error))

    return [wrap(function)(X)]


def keys_from_outside(wrap: Wrap) -> list[Any]:
    known: Any = weakref.WeakKeyDictionary()

    def function(x: Tensor, thing: Thing) -> Any:
        known[thing] = x * 2
        return known[thing] + 1, len(known), thing in known

    run, things = wrap(function), [Thing(n) for n in range(4)]
    found = [run(X, thing) for thing in (*things, *things)]
    found.append(len(known))
    del things[0]
    gc.collect()
    return [*found, len(known)]


def keys_made_inside(wrap: Wrap) -> list[Any]:
    known: Any = weakref.WeakKeyDictionary()

    def function(x: Tensor) -> Any:
        thing, other = Thing(), Thing()
        known[thing], known[other] = x * 2, 3
        return known[thing], len(known), thing

    result, size, thing = wrap(function)(X)
    found = [result, size, len(known), list(known)[0] is thing]
    del thing
    return [*found, len(known)]


def keys_taken_away(wrap: Wrap) -> list[Any]:
    known: Any = weakref.WeakKeyDictionary()
    things = [Thing(n) for n in range(3)]

    def function(x: Tensor) -> Any:
        known[things[0]] = 1
        known.setdefault(things[1], 5)
        known[things[2]] = known.pop(things[0])
        del known[things[1]]
        return x * sum(known.values()), [t.v for t in known], [(t.v, n) for t, n in known.items()], things[1] in known

    run = wrap(function)
    return [run(X), run(X), sorted(known.values())]


def dictionary_made_inside(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        known: Any = weakref.WeakKeyDictionary()
        thing = Thing()
        known[thing] = x * 2
        return known[thing], len(known), known, thing

    result, size, known, thing = wrap(function)(X)
    found = [result, size, known[thing]]
    del thing
    return [*found, len(known)]


def values(wrap: Wrap) -> list[Any]:
    known: Any = weakref.WeakValueDictionary()
    thing = Thing()

    def function(x: Tensor) -> Any:
        known[1] = thing
        known[2] = made = Thing(2)
        total = sum(held.v for held in known.values())
        return x * total, len(known), sorted(known), known[1] is thing, known.get(3), known[2] is made, made

    run = wrap(function)
    first, second = run(X), run(X)
    found = [first[:-1], second[:-1], len(known), known[2] is second[-1]]
    del first, second
    return [*found, sorted(known)]


def values_made_inside(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        known: Any = weakref.WeakValueDictionary()
        thing = Thing(2)
        known[1] = known[2] = thing
        return x * known[1].v, len(known), known.pop(1) is thing, 1 in known, [t.v for t in known.values()]

    return [wrap(function)(X)]


def weak_sets(wrap: Wrap) -> list[Any]:
    known: Any = weakref.WeakSet()
    thing = Thing()

    def function(x: Tensor) -> Any:
        before = len(known)
        known.add(thing)
        return x * len(known), before, thing in known, [held.v for held in known]

    run = wrap(function)
    found = [run(X), run(X), run(X), len(known)]
    del thing, function
    return found


def weak_sets_made_inside(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        known: Any = weakref.WeakSet()
        one, other = Thing(1), Thing(2)
        known.add(one)
        known.add(other)
        known.discard(one)
        return x * len(known), one in known, other in known

    return [wrap(function)(X)]


def _ones() -> nn.Linear:
    layer = nn.Linear(2, 2, bias=False)
    nn.init.ones_(layer.weight)
    return layer


def weak_sets_that_change(wrap: Wrap) -> list[Any]:
    known: Any = weakref.WeakSet()
    things = [Thing(n) for n in range(4)]

    def function(x: Tensor, thing: Thing) -> Any:
        known.add(thing)
        return x * len(known), thing in known, sum(held.v for held in known)

    run = wrap(function)
    found = [run(X, thing) for thing in things]
    found += [run(X, thing) for thing in things]
    known.discard(things[0])
    return [*found, run(X, things[1]), len(known)]


def hooks_on_modules_made_inside(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        layer = _ones()
        handle = layer.register_forward_hook(lambda module, args, result: result * 2)
        first = layer(x)
        handle.remove()
        return first + layer(x)

    return [wrap(function)(X)]


def handles_given_away(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        layer = _ones()
        handle = layer.register_forward_pre_hook(lambda module, args: (args[0] * 3,))
        return layer(x), handle, layer

    result, handle, layer = wrap(function)(X)
    found = [result, layer(X)]
    handle.remove()
    return [*found, layer(X)]


def backward_hooks(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Tensor:
        layer = _ones()
        layer.register_full_backward_hook(lambda module, inputs, outputs: (inputs[0] * 2,))
        return layer(x)

    x = torch.ones(1, 2, requires_grad=True)
    wrap(function)(x).sum().backward()
    return [x.grad]


def goes_when_the_function_returns(wrap: Wrap) -> list[Any]:
    called: list[int] = []
    known: Any = weakref.WeakKeyDictionary()

    def function(x: Tensor) -> Any:
        thing = Thing(3)
        known[thing] = 1
        reference = weakref.ref(thing, lambda reference: called.append(1))
        return x * reference().v, len(called), len(known), reference

    result = wrap(function)(X)
    return [result[:-1], called, len(known), result[-1]() is None]


def changed_outside(wrap: Wrap) -> list[Any]:
    """What was put into a container from outside, and taken out of it, is gone."""
    table: dict[Any, int] = {}
    items: list[Any] = []
    owner: Any = Thing()

    def function(x: Tensor) -> Any:
        one, two, owner.held = Thing(), Thing(), Thing()
        references = [weakref.ref(one), weakref.ref(two), weakref.ref(owner.held)]
        table[one] = 1
        items.append(two)
        del table[one], one, two
        before = [reference() is None for reference in references]
        items.pop()
        owner.held = None
        return x, before, [reference() is None for reference in references]

    run = wrap(function)
    return [run(X), run(X), len(table), len(items)]


def of_a_generator(wrap: Wrap) -> list[Any]:
    def generator() -> Any:
        thing = Thing()
        yield weakref.ref(thing)
        yield 1

    def function(x: Tensor) -> Any:
        running = generator()
        reference = next(running)
        before = reference() is None
        running.close()
        return x, before, reference() is None, next(generator())() is None

    return [wrap(function)(X)]


def called_back(wrap: Wrap) -> list[Any]:
    called: list[int] = []

    def function(x: Tensor) -> Any:
        thing = Thing(3)
        reference = weakref.ref(thing, lambda reference: called.append(1))
        y = x * reference().v
        del thing
        return y, len(called)

    return [wrap(function)(X), called]


def key_goes_away(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        known: Any = weakref.WeakKeyDictionary()
        thing = Thing(3)
        known[thing] = 1
        before = len(known)
        del thing
        return x * before, len(known)

    return [wrap(function)(X)]


ONE: list[Program] = [
    asked, given_away_with_its_object, given_away_alone, deleted, bound_anew, gone_with_a_function, never_named, held_in_a_list,
    held_outside, of_a_tensor, parents, not_possible, keys_from_outside, keys_made_inside, keys_taken_away, dictionary_made_inside, values,
    values_made_inside, weak_sets, weak_sets_made_inside, hooks_on_modules_made_inside, handles_given_away, backward_hooks,
    goes_when_the_function_returns, changed_outside, of_a_generator,
]  # fmt: skip
BREAK: dict[Program, str] = {
    weak_sets_that_change: "iteration over a set of unknown order",
    called_back: "its object goes away here, and the callback is called",
    key_goes_away: "its object goes away here, and the callback is called",
}


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("program", ONE, ids=lambda program: program.__name__)
def test_one_graph(program: Program, backend: str) -> None:
    expected = program(lambda function: function)
    log.clear()
    found = program(lambda function: stoker.compile(function, backend=backend))
    torch.testing.assert_close(found, expected)
    assert not log.events("break")


@pytest.mark.parametrize("program", BREAK, ids=lambda program: program.__name__)
def test_breaks(program: Program) -> None:
    expected = program(lambda function: function)
    log.clear()
    found = program(lambda function: stoker.compile(function, backend="eager"))
    torch.testing.assert_close(found, expected)
    assert BREAK[program] in log.events("break")[0].reason


def test_a_traceback_keeps_variables_alive() -> None:
    def raises() -> None:
        thing = Thing()
        raise ValueError(weakref.ref(thing))

    def function(x: Tensor) -> Any:
        try:
            raises()
        except ValueError as error:
            reference = error.args[0]
            before = reference() is None
        return x, before, reference() is None

    torch.testing.assert_close(stoker.compile(function, backend="eager")(X), function(X))


def test_a_ring_lives_until_it_is_collected() -> None:
    def function(x: Tensor) -> Tensor:
        thing: Any = Thing(3)
        thing.itself = thing
        reference = weakref.ref(thing)
        del thing
        return x if reference() is None else -x

    gc.disable()
    try:
        assert torch.equal(stoker.compile(function, backend="eager")(X), function(X))
    finally:
        gc.enable()


@pytest.mark.parametrize("hold", [lambda thing: thing, lambda thing: [thing], lambda thing: {1: (thing,)}])
def test_a_break_lets_go_of_nothing(hold: Callable[[Any], Any]) -> None:
    def references(x: Tensor) -> Any:
        held = hold(thing := Thing(2))  # noqa: F841  # which keeps it alive
        reference = weakref.ref(thing)
        del thing
        gc.get_threshold()
        return x + 1, reference() is None

    torch.testing.assert_close(stoker.compile(references, backend="eager")(X), references(X))


@pytest.mark.parametrize("hold", [lambda thing: thing, lambda thing: [thing]])
def test_a_variable_lets_go_after_a_break(hold: Callable[[Any], Any]) -> None:
    def deleted(x: Tensor) -> Any:
        held = hold(Thing(2))
        reference = weakref.ref(held[0] if isinstance(held, list) else held)
        gc.get_threshold()
        before = reference() is None
        del held
        return x + 1, before, reference() is None

    torch.testing.assert_close(stoker.compile(deleted, backend="eager")(X), deleted(X))


def test_the_function_may_be_the_last_to_hold_an_argument() -> None:
    def function(x: Tensor, thing: Any) -> Tensor:
        reference = weakref.ref(thing)
        x = x + 1
        del thing
        return x if reference() is None else -x

    run, kept = stoker.compile(function, backend="eager"), Thing()
    assert torch.equal(run(X, Thing()), function(X, Thing()))
    assert torch.equal(run(X, kept), function(X, kept))


def test_a_seed_comes_before_the_parameters_of_a_lazy_module() -> None:
    def function(x: Tensor, layer: Any) -> Tensor:
        torch.manual_seed(3)
        return layer(x)

    found = stoker.compile(function, backend="eager")(X, nn.LazyLinear(3))
    torch.testing.assert_close(found, function(X, nn.LazyLinear(3)))


def test_tensors_that_are_computed_go_away_where_eager_lets_them() -> None:
    kept: Any = weakref.WeakKeyDictionary()

    def program(x: torch.Tensor) -> tuple[Any, ...]:
        y, said = x * 2, []
        reference = weakref.ref(y, lambda _: said.append("gone"))
        kept[y] = 2
        before = len(kept)
        del y
        return x + 1, before, len(kept), list(said), reference() is None

    compiled = stoker.compile(program)
    for _ in range(3):
        assert compiled(torch.ones(1))[1:] == program(torch.ones(1))[1:] == (1, 0, ["gone"], True)
