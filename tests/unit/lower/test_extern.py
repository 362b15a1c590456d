"""Every operator that stays a library call says why."""

from __future__ import annotations

from fnmatch import fnmatch

import pytest
import torch

from stoker.lower import extern
from stoker.lower.driver import LOWERINGS

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("operator", "words"),
    [
        (aten.bmm.default, "matrix product"),
        (aten.bernoulli.Tensor, "random numbers"),
        (aten.nonzero.default, "depends on data"),
        (aten.sort.stable, "a sort"),
        (aten.linalg_qr.default, "linear algebra"),
        (aten.special_bessel_j0.default, "special function"),
    ],
)
def test_reasons(operator: object, words: str) -> None:
    assert words in extern.reason(operator)
    assert operator not in LOWERINGS


def test_a_pattern_means_something() -> None:
    """Each pattern is of operators that exist; a pattern without any is a slip.

    One may be missing: its operators are registered by the first import of the Python module that defines them.
    """
    names = [n.split("::")[-1].split(".")[0] for n in torch._C._dispatch_get_all_op_names()]
    patterns = [p for several in extern._REASONS.values() for p in several.split()]
    unused = [p for p in patterns if not any(fnmatch(n, p) for n in names)]
    assert set(unused) <= {"_linear_cross_entropy_batch_chunked*"}
