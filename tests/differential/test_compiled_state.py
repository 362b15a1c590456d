"""What captured code is told about itself, and constructs that only make sense compiled: not compared with eager."""

from __future__ import annotations

import torch

import stoker


def test_is_compiling_is_true_in_captured_code():
    def ask(x):
        return x + 1, torch.compiler.is_compiling(), stoker.is_compiling(), torch.compiler.is_dynamo_compiling()

    assert ask(torch.ones(1))[1:] == (False, False, False)
    assert stoker.compile(ask, fullgraph=True)(torch.ones(1))[1:] == (True, True, True)
