"""Seeds and states of torch's generators.

Numbers are drawn by operators of the graph, so seeds and states that captured code reads and writes are operators, too, in order with these.
A seed that is given before anything is drawn is given before the graph runs.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from stoker.capture.builtins.drawing import made_anew, number
from stoker.capture.handlers import handles, on_object
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Era, Value
from stoker.errors import Break
from stoker.guard.guard import NotSameAs
from stoker.guard.source import Asked, Fixed

ops: Any = torch.ops.stoker


def operator(m: Machine, target: Any, generator: Value, *args: Value) -> Value:
    if Era.now:
        raise Break(
            f"`{target.__name__}`", "a branch or a loop would change the state of a generator each time it runs"
        )
    return m.record.call(target, [generator, *args], {}, keep=True)


def give_seed(m: Machine, target: Any, first: Any, generator: Value, seed: Value) -> None:
    """`target` is the operator, `first` the function that does the same before the graph."""
    known = isinstance(seed, Constant) and isinstance(seed.value, int)
    m.effects.seeds[generator] = Constant(seed.value % 2**64) if known else seed  # type: ignore[attr-defined]  # a constant
    if not isinstance(seed, Constant) or not isinstance(seed.value, int):
        operator(m, target, generator, seed)
        return
    m.concrete.run(torch.Generator().manual_seed, seed.value)  # what it raises, the program raises
    if m.record.fake_mode.drawn or Era.now:
        operator(m, target, generator, Constant((seed.value + 2**63) % 2**64 - 2**63))
    else:
        m.effects.first.append((first, [generator, seed]))


def seed_all(generator: torch.Generator, seed: int) -> None:
    torch.manual_seed(seed)


@handles(torch.manual_seed)
def manual_seed(m: Machine, seed: Value) -> Value:
    generator = m.wrap.object(torch.default_generator)
    give_seed(m, ops.seed_all.default, seed_all, generator, m.wrap.object(int).call(m, [seed], {}))
    return generator


@handles(torch.Generator)
def generator(m: Machine, device: Value = Constant("cpu")) -> Value:  # noqa: B008
    where = torch.device(m.concrete.constant(device, "the device of a generator"))
    if where.type != "cpu" or Era.now:
        raise Break("torch.Generator()", f"a generator of {where} is made when the program runs")
    return made_anew(m, functools.partial(torch.Generator, where))


@on_object(torch.Generator.manual_seed)
def manual_seed_of(m: Machine, generator: Value, seed: Value) -> Value:
    """As `torch.manual_seed`, of one generator."""
    give_seed(m, ops.seed.default, torch.Generator.manual_seed, generator, m.wrap.force(seed))
    return generator


def _any_seed(_: object) -> int:
    return torch.Generator().seed() >> 1  # a size is below 2**63


def _chosen(m: Machine) -> Value:
    """A seed that is another one each time: it is chosen before the captured code."""
    return number(m, _any_seed(None), Asked(Fixed(torch, "torch"), _any_seed), "a seed")


@handles(torch.seed)
def seed(m: Machine) -> Value:
    chosen = _chosen(m)
    give_seed(m, ops.seed_all.default, seed_all, m.wrap.object(torch.default_generator), chosen)
    return chosen


@on_object(torch.Generator.seed)
def seed_of(m: Machine, generator: Value) -> Value:
    chosen = _chosen(m)
    give_seed(m, ops.seed.default, torch.Generator.manual_seed, generator, chosen)
    return chosen


@on_object(torch.Generator.initial_seed)
def initial_seed(m: Machine, generator: Value) -> Value:
    """The seed that captured code gave it, or that it had before; a state brings the seed of the generator it was read from."""
    found = m.effects.seeds.get(generator, generator)
    if found is None:
        raise Break("Generator.initial_seed", f"{generator.describe()} is in a state whose seed only the run knows")
    if found.python_type() is not torch.Generator:
        return found
    others = tuple(other.source for other in m.effects.seeds if other is not found and other.source is not None)
    assert found.source is not None
    if others:
        m.guards.add(found.source, NotSameAs(others))
    return m.wrap.at(found.real.initial_seed(), Asked(found.source, torch.Generator.initial_seed))  # type: ignore[attr-defined]  # from outside


@on_object(torch.Generator.get_state)
def get_state(m: Machine, generator: Value) -> Value:
    state = operator(m, ops.state_of.default, generator)
    m.effects.seeds_of_states[_content(state)] = m.effects.seeds.get(generator, generator)
    return state


@on_object(torch.Generator.set_state)
def set_state(m: Machine, generator: Value, state: Value) -> Value:
    state = m.wrap.force(state)
    if not isinstance(state, TensorValue):
        m.exceptions.raise_(TypeError, f"expected a torch.ByteTensor, but got {state.python_type().__name__}")
    operator(m, ops.set_state.default, generator, state)
    m.effects.seeds[generator] = m.effects.seeds_of_states.get(_content(state))
    return generator


def _content(state: Value) -> int:
    """The number of what a tensor holds, which is another one once it is written to."""
    assert isinstance(state, TensorValue)
    return state.fake.memory.content  # type: ignore[attr-defined, no-any-return]  # a FakeTensor
