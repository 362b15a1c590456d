"""types.SimpleNamespace, cmath, and caches that are asked for their statistics."""

from __future__ import annotations

import cmath
import functools
import types

import torch
from harness import BREAK, program


class Settings(types.SimpleNamespace):
    def area(self):
        return self.width * self.height


@program("SimpleNamespace made inside", default=True)
def test_made(x):
    made = types.SimpleNamespace(a=x, b=2)
    made.c = 3
    made.a = made.a * made.b
    del made.b
    return made.a + made.c, made, vars(made)["c"], hasattr(made, "b"), types.SimpleNamespace()


@program("SimpleNamespace from outside", inputs=lambda: (torch.ones(2), types.SimpleNamespace(k=3, items=[1])))
def test_outside(x, given):
    given.k += 1
    given.items.append(2)
    given.new = x * 2
    return x * given.k, given


@program("repr and equality of namespaces, and a subclass")
def test_methods(x):
    one, same, other = types.SimpleNamespace(a=1), types.SimpleNamespace(a=1), types.SimpleNamespace(a=2, b="x")
    settings = Settings(width=2, height=3)
    return (
        x * settings.area(),
        one == same,
        one != same,
        one == other,
        one != other,
        one == 3,
        repr(other),
        str(settings),
    )


@program("a namespace lives through a break", BREAK)
def test_break(x):
    made = Settings(width=x.shape[0], height=x * 2)
    print(made.height)
    made.width += 1
    return made.area(), made


@program("cmath")
def test_cmath(x):
    z = complex(3, 4)
    return x * abs(cmath.sqrt(z)), cmath.phase(z), cmath.exp(1j), cmath.polar(z), cmath.isclose(z, z), cmath.rect(1, 2)


@functools.lru_cache
def following(n):
    return n + 1


def cleared():
    following.cache_clear()
    return (torch.ones(3),)


@program("the statistics of a cache", inputs=cleared)
def test_cache_info(x):
    return x * following(1) * following(1), following.cache_info(), following(2), following.cache_info().misses


@program("the statistics of a cache made inside")
def test_cache_made(x):
    @functools.lru_cache
    def twice(n):
        return n * 2

    return x * twice(1) * twice(1), twice.cache_info().hits
