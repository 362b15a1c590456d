"""Random zeros and ones with a probability that may be symbolic: `stoker::bernoulli`, which draws as `Tensor.bernoulli_` does."""

from __future__ import annotations

from typing import Any

import torch

from stoker.fake.meta import Meta
from stoker.fake.rule import RULES
from stoker.fake.tensor import FakeTensor

_library = torch.library.Library("stoker", "FRAGMENT")
_library.define("bernoulli(Tensor like, Scalar p) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))


def _draw(like: torch.Tensor, p: Any) -> torch.Tensor:
    return torch.empty_like(like).bernoulli_(float(p))


_library.impl("bernoulli", _draw, "CompositeExplicitAutograd")


def _meta(like: FakeTensor, p: Any) -> Any:
    made = RULES[torch.ops.aten.empty_like.default](like)
    assert isinstance(made, Meta)
    return made


RULES[torch.ops.stoker.bernoulli.default] = _meta
