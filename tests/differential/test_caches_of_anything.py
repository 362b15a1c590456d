"""Functions under functools.lru_cache, of arguments of any kind: what they give, which object it is, and what their caches say afterwards."""

from __future__ import annotations

import dataclasses
import functools
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


def _scaled(maxsize: int | None = 128, typed: bool = False) -> Any:
    @functools.lru_cache(maxsize=maxsize, typed=typed)
    def scaled(t: Any, k: Any = 1, **more: Any) -> Any:
        return t * k

    return scaled


def _observed(wrap: Wrap, cached: Any, function: Any, *calls: Any) -> list[Any]:
    """What each call gives, and what the cache says after it."""
    run = wrap(function)
    found: list[Any] = []
    for call in calls:
        found += [run(*call) if isinstance(call, tuple) else run(call), tuple(cached.cache_info())]
    return found


def _tensors(count: int) -> list[Tensor]:
    return [torch.full((2,), float(number)) for number in range(count)]


def asked_twice(wrap: Wrap) -> list[Any]:
    cached, (x, y, z) = _scaled(), _tensors(3)
    return _observed(wrap, cached, lambda x: cached(x, 2) + cached(x, 2), x, y, x, y, z)


def the_very_object(wrap: Wrap) -> list[Any]:
    cached, (x, y) = _scaled(None), _tensors(2)
    run = wrap(lambda x: cached(x, 2))
    first, second = run(x), run(x)
    return [first is second, cached(x, 2) is first, run(y) is first, tuple(cached.cache_info())]


def filled_before(wrap: Wrap) -> list[Any]:
    cached, (x,) = _scaled(None), _tensors(1)
    held = cached(x, 2)
    first, second = wrap(lambda x: (cached(x, 2), cached(x, 3)))(x)
    return [first is held, cached(x, 3) is second, tuple(cached.cache_info())]


def cleared_inside(wrap: Wrap) -> list[Any]:
    cached, (x,) = _scaled(None), _tensors(1)

    def function(x: Tensor) -> Any:
        first = cached(x, 2)
        cached.cache_clear()
        second = cached(x, 2)
        return first, second, first is second

    return _observed(wrap, cached, function, x, x)


def cleared_outside(wrap: Wrap) -> list[Any]:
    cached, (x,), found = _scaled(None), _tensors(1), []
    run = wrap(lambda x: cached(x, 2) + 1)
    for _ in range(3):
        found += [run(x), run(x), tuple(cached.cache_info())]
        cached.cache_clear()
    return found


def statistics_inside(wrap: Wrap) -> list[Any]:
    cached, xs = _scaled(3), _tensors(6)

    def function(x: Tensor) -> Any:
        first, before = cached(x, 2), cached.cache_info()
        return first + cached(x, 2), before, cached.cache_info(), before.hits, cached.cache_parameters()

    return _observed(wrap, cached, function, *xs, *xs[3:])


def by_name(wrap: Wrap) -> list[Any]:
    cached, (x,) = _scaled(None), _tensors(1)
    return _observed(
        wrap, cached, lambda x: cached(x, k=2) + cached(t=x, k=2) + cached(x, 2) + cached(x, k=2, z=x), x, x
    )


def by_type(wrap: Wrap) -> list[Any]:
    cached, (x,) = _scaled(None, typed=True), _tensors(1)
    return _observed(wrap, cached, lambda x: cached(x, 2) + cached(x, 2.0) + cached(x, True) + cached(x, 1), x, x)


def not_by_type(wrap: Wrap) -> list[Any]:
    cached, (x,) = _scaled(None), _tensors(1)
    return _observed(wrap, cached, lambda x: cached(x, 2) + cached(x, 2.0) + cached(x, True) + cached(x, 1), x, x)


def nothing_kept(wrap: Wrap) -> list[Any]:
    cached, (x,) = _scaled(0), _tensors(1)
    return _observed(wrap, cached, lambda x: (cached(x) is cached(x), cached(x)), x, x)


class Thing:
    def __init__(self, v: float) -> None:
        self.v = v


def objects_and_tensors(wrap: Wrap) -> list[Any]:
    cached, things = functools.cache(lambda o, t: t * o.v), [Thing(n) for n in range(4)]
    calls = [(thing, torch.ones(2)) for thing in things]
    return _observed(wrap, cached, lambda o, x: cached(o, x) + cached(o, x), *calls, *calls)


def objects_that_change(wrap: Wrap) -> list[Any]:
    cached, things = functools.cache(lambda o: [o.v]), [Thing(n) for n in range(4)]
    calls = [(thing, torch.ones(2)) for thing in things]
    return _observed(wrap, cached, lambda o, x: x * cached(o)[0], *calls, *calls)


def objects_made_inside(wrap: Wrap) -> list[Any]:
    cached, (x,) = functools.cache(lambda o: o.v * 2), _tensors(1)

    def function(x: Tensor) -> Tensor:
        thing = Thing(3)
        return x * cached(thing) + cached(thing)

    return _observed(wrap, cached, function, x, x)


def sizes(wrap: Wrap) -> list[Any]:
    cached = functools.cache(lambda n: torch.arange(n).float())
    calls = [torch.ones(n) for n in (3, 4, 5, 3, 4, 5, 6)]
    return [*_observed(wrap, cached, lambda x: x + cached(x.shape[0]), *calls), cached(4) is cached(4)]


def computed_sizes(wrap: Wrap) -> list[Any]:
    cached = functools.cache(lambda n, shape: torch.arange(n).float() + len(shape))
    calls = [torch.ones(n, 2) for n in (3, 4, 5, 3, 4, 5, 6)]
    return _observed(wrap, cached, lambda x: x.sum(1) + cached(x.shape[0] * 2 - 1, x.shape)[::2], *calls)


def modules(wrap: Wrap) -> list[Any]:
    layers = [nn.Linear(2, 2) for _ in range(3)]
    for layer in layers:
        nn.init.ones_(layer.weight)
    cached = functools.lru_cache(lambda layer: layer.weight.sum())
    calls = [(layer, torch.ones(2)) for layer in (*layers, *layers)]
    return [*_observed(wrap, cached, lambda layer, x: x * cached(layer) + cached(layer), *calls), cached(layers[0])]


def recursion(wrap: Wrap) -> list[Any]:
    @functools.cache
    def fibonacci(x: Tensor, n: int) -> Tensor:
        return x if n < 2 else fibonacci(x, n - 1) + fibonacci(x, n - 2)

    x, y = _tensors(2)
    return _observed(wrap, fibonacci, lambda x: fibonacci(x, 6), x, x, y)


def raises_inside(wrap: Wrap) -> list[Any]:
    @functools.cache
    def cached(x: Tensor, n: int) -> Tensor:
        if n:
            raise ValueError(n)
        return x

    def function(x: Tensor) -> tuple[Any, ...]:
        try:
            cached(x, 2)
        except ValueError as error:
            k = error.args[0]
        return cached(x, 0) * k, tuple(cached.cache_info())  # what raised is a miss, and is not kept

    (x,) = _tensors(1)
    return _observed(wrap, cached, function, x, x)


def raises_out(wrap: Wrap) -> list[Any]:
    @functools.cache
    def cached(x: Tensor, n: int) -> Tensor:
        raise ValueError(n)

    run, found = wrap(lambda x: cached(x, 1)), []
    for x in _tensors(2):
        with pytest.raises(ValueError, match="1"):
            run(x)
        found.append(tuple(cached.cache_info()))
    return found


def unhashable(wrap: Wrap) -> list[Any]:
    cached = _scaled()
    run = wrap(lambda x: cached([x]))
    with pytest.raises(TypeError, match="unhashable type: 'list'"):
        run(torch.ones(2))
    return [tuple(cached.cache_info())]


def one_tensor_twice(wrap: Wrap) -> list[Any]:
    cached, (x, y) = _scaled(None), _tensors(2)
    return _observed(wrap, cached, lambda x, y: (cached(x) is cached(y), cached(x) + cached(y)), (x, x), (y, x), (y, y))


def two_tensors_and_one(wrap: Wrap) -> list[Any]:
    cached, xs = _scaled(None), _tensors(4)
    calls = [(xs[0], xs[1]), (xs[2], xs[2]), (xs[3], xs[3])]
    return _observed(wrap, cached, lambda x, y: (cached(x) is cached(y), cached(x) + cached(y)), *calls)


def results_as_arguments(wrap: Wrap) -> list[Any]:
    one, other, (x, y) = _scaled(None), _scaled(None), _tensors(2)
    found = _observed(wrap, one, lambda x: one(other(one(x, 2), 3), 4), x, x, y, x)
    return [*found, tuple(other.cache_info())]


def made_inside(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        cached = _scaled(2)
        first, second, _, _, last = cached(x, 1), cached(x, 1), cached(x, 2), cached(x, 3), cached(x, 1)
        return first is second, first is last, first, cached.cache_info()

    run = wrap(function)
    return [run(torch.ones(2)), run(torch.ones(2))]


def made_inside_and_given_away(wrap: Wrap) -> list[Any]:
    def function(x: Tensor) -> Any:
        cached = _scaled()
        return cached(x), cached

    (x,) = _tensors(1)
    held, cached = wrap(function)(x)
    return [cached(x) is held, tuple(cached.cache_info()), cached.__name__ == "scaled", cached.cache_parameters()]


def tensors_written_to(wrap: Wrap) -> list[Any]:
    cached, (x,) = functools.cache(lambda x: torch.zeros(2)), _tensors(1)

    def function(x: Tensor) -> Tensor:
        state = cached(x)
        state.add_(1)
        return state * 2

    return [*_observed(wrap, cached, function, x, x, x), cached(x)]


def lists(wrap: Wrap) -> list[Any]:
    cached, (x,) = functools.cache(lambda x: []), _tensors(1)

    def function(x: Tensor) -> Any:
        held = cached(x)
        held.append(x + len(held))
        return len(cached(x)), held[-1]

    return [*_observed(wrap, cached, function, x, x, x), list(cached(x))]


class Masked(nn.Module):
    @functools.lru_cache(maxsize=4)  # noqa: B019
    def mask(self, n: int) -> Tensor:
        return torch.tril(torch.ones(n, n))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.mask(x.shape[-1])


def methods(wrap: Wrap) -> list[Any]:
    Masked.mask.cache_clear()
    one, other = Masked(), Masked()
    found = [wrap(module)(torch.ones(2, 2)) for module in (one, one, other)]
    return [*found, tuple(Masked.mask.cache_info())]


def bound_methods(wrap: Wrap) -> list[Any]:
    thing, (x,) = Thing(2), _tensors(1)
    cached = functools.lru_cache(maxsize=None)(thing.scaled)
    return _observed(wrap, cached, lambda x: cached(x, 2) + cached(x, 3), x, x)


def _scaled_by(self: Thing, t: Tensor, k: int) -> Tensor:
    return t * k * self.v


Thing.scaled = _scaled_by  # type: ignore[attr-defined]


def tuples(wrap: Wrap) -> list[Any]:
    cached, (x, y) = functools.cache(lambda ts: ts[0] + ts[1]), _tensors(2)
    return _observed(wrap, cached, lambda x, y: cached((x, y)) + cached((x, y)), (x, y), (x, y), (y, x))


def effects(wrap: Wrap) -> list[Any]:
    done: list[int] = []

    @functools.cache
    def cached(x: Tensor) -> Tensor:
        done.append(1)
        return x * 2

    x, y = _tensors(2)
    return [*_observed(wrap, cached, lambda x: cached(x) + len(done), x, x, y), done]


def gradients(wrap: Wrap) -> list[Any]:
    cached, found = _scaled(None), []
    run = wrap(lambda x: (cached(x, 2) + cached(x, 2)).sum())
    for _ in range(2):
        x = torch.ones(2, requires_grad=True)
        run(x).backward()
        found += [x.grad, cached(x, 2), cached(x, 2).grad_fn is not None]
    return [*found, tuple(cached.cache_info())]


def keeps_alive(wrap: Wrap) -> list[Any]:
    cached, (x,) = _scaled(None), _tensors(1)
    kept = weakref.ref(x)
    wrap(lambda x: cached(x, 2) + 1)(x)
    del x
    gc.collect()
    found = [kept() is None]
    cached.cache_clear()
    gc.collect()
    return [*found, kept() is None]


def plain_data(wrap: Wrap) -> list[Any]:
    cached = functools.cache(lambda k: k * 2)
    found = _observed(wrap, cached, lambda x: x * cached(3) + cached(3), *_tensors(3))
    cached.cache_clear()
    return found + _observed(wrap, cached, lambda x: x * cached(3) + cached(3), *_tensors(3))


def plain_data_cleared(wrap: Wrap) -> list[Any]:
    cached, (x,), found = functools.cache(lambda k: [k]), _tensors(1), []
    run = wrap(lambda x: x * cached(3)[0])
    for _ in range(4):
        found += [run(x), run(x), tuple(cached.cache_info())]
        cached.cache_clear()
    return found


def plain_data_in_turns(wrap: Wrap) -> list[Any]:
    cached = functools.lru_cache(maxsize=1)(lambda k: [k])
    calls = [(torch.ones(2), k) for k in (1, 2, 1, 2, 1, 1, 2, 2)]
    return _observed(wrap, cached, lambda x, k: x * cached(k)[0], *calls)


def recursion_of_numbers(wrap: Wrap) -> list[Any]:
    @functools.cache
    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)

    return _observed(wrap, fibonacci, lambda x: x * fibonacci(6), *_tensors(2))


def pushed_out(wrap: Wrap) -> list[Any]:
    """Of three tensors, the cache holds two."""
    cached, xs, found = _scaled(2), _tensors(3), []
    run = wrap(lambda x, y, z: cached(x) + cached(y) + cached(x) + cached(z) + cached(y) + cached(x))
    for _ in range(4):
        found += [run(*xs), tuple(cached.cache_info())]
        xs = [*xs[1:], xs[0]]
    return found


@dataclasses.dataclass(frozen=True)
class Settings:
    n: int = 2


def equal_objects(wrap: Wrap) -> list[Any]:
    """An object that is made inside, and equals one that the cache holds."""
    cached, held = functools.cache(lambda settings: torch.ones(settings.n)), Settings()
    found = _observed(wrap, cached, lambda x: x + cached(held), *_tensors(2))
    return found + _observed(wrap, cached, lambda x: x + cached(Settings(2)), *_tensors(2))


def statistics_asked_elsewhere(wrap: Wrap) -> list[Any]:
    cached = functools.cache(lambda k: k * 2)

    def asked() -> tuple[Any, ...]:
        return tuple(cached.cache_info())

    return _observed(wrap, cached, lambda x: (x * cached(3), asked()), *_tensors(4))


ONE: list[Program] = [
    asked_twice, the_very_object, filled_before, cleared_inside, cleared_outside, statistics_inside, by_name, by_type, not_by_type,
    nothing_kept, objects_and_tensors, objects_that_change, objects_made_inside, sizes, computed_sizes, modules, recursion, raises_inside, raises_out,
    unhashable, one_tensor_twice, two_tensors_and_one, results_as_arguments, made_inside, made_inside_and_given_away, tensors_written_to, lists, methods, bound_methods, tuples,
    effects, gradients, keeps_alive, plain_data, plain_data_cleared, plain_data_in_turns, recursion_of_numbers,
]  # fmt: skip
BREAK: dict[Program, str] = {
    pushed_out: "its cache is full",
    equal_objects: "it is made here, and may equal one that the cache holds",
    statistics_asked_elsewhere: "capture has called the function itself",
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


def test_two_versions_are_enough() -> None:
    """One for what the cache holds, and one for what it does not."""
    cached = _scaled(4)
    run = stoker.compile(lambda x: cached(x, 2) + 1, backend="eager", fullgraph=True)
    log.clear()
    for x in (*_tensors(8), *_tensors(8)):
        for _ in range(2):
            assert torch.equal(run(x), x * 2 + 1)
    assert len(log.events("captured")) == 2
