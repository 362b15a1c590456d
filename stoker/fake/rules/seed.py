"""Seeds and states of torch's generators as operators: `stoker::state_of`, `stoker::set_state` and `stoker::seed`.

They count as operators that draw: they run once, and in order with those that do.
"""

from __future__ import annotations

from typing import Any

import torch

from stoker.fake.meta import Meta, meta_of
from stoker.fake.rule import RULES

_library = torch.library.Library("stoker", "FRAGMENT")
_OPERATORS = {
    "state_of(Generator generator) -> Tensor": lambda generator: generator.get_state(),
    "set_state(Generator generator, Tensor state) -> ()": lambda generator, state: _done(generator.set_state(state)),
    "seed(Generator generator, SymInt seed) -> ()": lambda generator, seed: _done(generator.manual_seed(seed)),
    "seed_all(Generator generator, SymInt seed) -> ()": lambda generator, seed: _done(torch.manual_seed(seed)),
}
"""The last seeds every device, and takes the processor's generator to be known by."""


def _done(_: Any) -> None:
    """Operators without a result give none."""


for _schema, _kernel in _OPERATORS.items():
    _library.define(_schema, tags=(torch.Tag.nondeterministic_seeded,))
    _library.impl(_schema.partition("(")[0], _kernel, "CompositeExplicitAutograd")


def _state(generator: torch.Generator) -> Meta:
    return meta_of(torch.uint8, (generator.get_state().numel(),), (1,), torch.device("cpu"), 0)


def _nothing(*given: Any) -> None:
    """What changes is outside of the graph."""


RULES[torch.ops.stoker.state_of.default] = _state
for _name in ("set_state", "seed", "seed_all"):
    RULES[getattr(torch.ops.stoker, _name).default] = _nothing
