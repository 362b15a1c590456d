"""Random numbers: `stoker::bernoulli`, which draws as `Tensor.bernoulli_` does, with a probability that may be symbolic; points of a simplex."""

from __future__ import annotations

from typing import Any

import torch

from stoker.fake.meta import Meta, meta_of
from stoker.fake.rule import RULES, rule
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


@rule("_sample_dirichlet", "_dirichlet_grad")
def dirichlet(x: FakeTensor, *rest: Any) -> Meta:
    """As many as there are concentrations, in order."""
    return meta_of(x.meta.dtype, x.meta.sizes, None, x.meta.device)
