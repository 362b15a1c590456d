"""Random numbers: `stoker::bernoulli`, which draws as `Tensor.bernoulli_` does, with a probability that may be symbolic."""

from __future__ import annotations

from typing import Any

import torch

from stoker.fake.meta import alike
from stoker.fake.rule import RULES

_library = torch.library.Library("stoker", "FRAGMENT")
_library.define("bernoulli(Tensor like, Scalar p) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))


def _draw(like: torch.Tensor, p: Any) -> torch.Tensor:
    return torch.empty_like(like).bernoulli_(float(p))


_library.impl("bernoulli", _draw, "CompositeExplicitAutograd")


RULES[torch.ops.stoker.bernoulli.default] = lambda like, p: alike(like.meta)
