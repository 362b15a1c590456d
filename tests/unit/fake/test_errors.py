"""What eager refuses by sizes, types and numbers, fake tensors refuse: over OpInfo's erroneous inputs."""

from __future__ import annotations

import importlib
from typing import Any

import pytest
import torch

from stoker.fake import FakeMode
from stoker.nest import map_leaves

pytest.importorskip("expecttest")  # which OpInfo's module imports
op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db

OPERATORS = {
    op.formatted_name: op for op in op_db if op.error_inputs_func is not None and not op.name.startswith("jiterator")
}
BY_DATA = ("out of bounds", "probability", "multinomial distribution", "without overflow")
"""In the words of errors that only data tells."""
UNSEEN = ("up to 64 dims", "negative dimension", "setStorage", "Duplicate dim", "2^24")
"""Limits that no rule knows: graphs with them raise when they run, and CPython takes over."""
OUT = ("Expected out tensor", "for argument 'out'", "Long tensor out")
"""Types of results that are given and do not fit; few operators do not cast, and raise when they run."""


REFUSALS = (RuntimeError, TypeError, ValueError, IndexError, AttributeError)


def _copied(value: Any) -> Any:
    return map_leaves(lambda v: v.detach().clone() if isinstance(v, torch.Tensor) and v.is_contiguous() else v, value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_error_inputs(name: str) -> None:
    op = OPERATORS[name]
    for case in op.error_inputs("cpu"):
        sample = case.sample_input
        for function in filter(None, (op.op, op.inplace_variant)):
            given = [sample.input, list(sample.args), dict(sample.kwargs)]
            try:
                input, args, kwargs = _copied(given)
                function(input, *args, **kwargs)
                continue
            except Exception as error:
                words = str(error)
            if any(part in words for part in (*BY_DATA, *UNSEEN, *OUT)):
                continue
            mode = FakeMode()
            fakes = map_leaves(lambda v, m=mode: m.from_real(v) if isinstance(v, torch.Tensor) else v, given)
            with pytest.raises(REFUSALS), mode:
                function(fakes[0], *fakes[1], **fakes[2])
