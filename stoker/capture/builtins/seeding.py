"""Seeds and states of torch's generators."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch

from stoker.capture.builtins.drawing import made_anew
from stoker.capture.handlers import handles, on_object
from stoker.capture.values.constant import Constant
from stoker.capture.values.value import Era, Value
from stoker.errors import Break

if TYPE_CHECKING:
    from stoker.capture.machine import Machine


@handles(torch.manual_seed)
def manual_seed(m: Machine, seed: Value) -> Value:
    """It seeds the generators before the graph runs, as long as nothing in the graph has drawn by then."""
    if m.record.fake_mode.drawn or Era.now:
        raise Break("torch.manual_seed", "the graph has drawn from the generator that it seeds", "seed it first")
    m.effects.first.append((torch.manual_seed, [Constant(m.concrete.constant(seed, "a seed"))]))
    return m.wrap.object(torch.default_generator)


@handles(torch.Generator)
def generator(m: Machine, device: Value = Constant("cpu")) -> Value:  # noqa: B008
    where = torch.device(m.concrete.constant(device, "the device of a generator"))
    if where.type != "cpu" or Era.now:
        raise Break("torch.Generator()", f"a generator of {where} is made when the program runs")
    return made_anew(m, functools.partial(torch.Generator, where))


@on_object(torch.Generator.manual_seed)
def manual_seed_of(m: Machine, generator: Value, seed: Value) -> Value:
    """As `torch.manual_seed`, of one generator."""
    if m.record.fake_mode.drawn or Era.now:
        raise Break("Generator.manual_seed", "the graph has drawn random numbers before", "seed it first")
    number = m.concrete.constant(seed, "a seed")
    m.concrete.run(torch.Generator().manual_seed, number)
    m.effects.first.append((torch.Generator.manual_seed, [generator, Constant(number)]))
    return generator
