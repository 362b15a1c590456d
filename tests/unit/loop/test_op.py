"""The table of operations is complete: each has a C++ form, and its meaning takes as many arguments as it says."""

from __future__ import annotations

import torch

from stoker.codegen.cpp.operation import OPERATIONS
from stoker.loop.op import ELEMENTWISE
from stoker.loop.philox import philox
from tests.stages.loop_oracle import MEANINGS


def test_each_operation_has_cpp() -> None:
    assert set(OPERATIONS) == set(ELEMENTWISE)


def test_arity() -> None:
    for name, operation in ELEMENTWISE.items():
        whole = name.startswith("bitwise") or name.endswith("shift") or name == "philox"
        dtype = torch.int64 if whole else torch.float32
        arguments = [torch.zeros(2, dtype=dtype) for _ in range(operation.arity)]
        if name == "where":
            arguments[0] = arguments[0].bool()
        assert MEANINGS[name](*arguments).shape == (2,), name


def test_philox_is_that_of_its_paper() -> None:
    """The known answers of the authors' own library (Random123, kat_vectors): counter, key, and the four words."""
    known = [
        ((0, 0), 0, (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((-1, -1), -1, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x85A308D3243F6A88, 0x0370734413198A2E),
            0x299F31D0A4093822,
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ]
    for (counter, lane), seed, words in known:
        signed = [n - (1 << 64) if n >= 1 << 63 else n for n in (seed, 0, counter, lane)]
        numbers = [torch.tensor(n) for n in signed]
        assert tuple(int(philox(*numbers, torch.tensor(w))) for w in range(4)) == words
