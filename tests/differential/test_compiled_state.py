"""What captured code is told about itself, and constructs that only make sense compiled: not compared with eager."""

from __future__ import annotations

import pytest
import torch

import stoker


def test_is_compiling_is_true_in_captured_code():
    def ask(x):
        return x + 1, torch.compiler.is_compiling(), stoker.is_compiling(), torch.compiler.is_dynamo_compiling()

    assert ask(torch.ones(1))[1:] == (False, False, False)
    assert stoker.compile(ask, fullgraph=True)(torch.ones(1))[1:] == (True, True, True)


class _Fails(torch.nn.Module):
    def forward(self, x):
        raise ValueError(f"of {tuple(x.shape)}")


def test_torch_hears_what_it_hears_in_eager():
    """Hooks that are always called are called where a module fails, though torch would leave them out for a compiler."""

    def run(compile):
        seen, module = [], _Fails()
        module.register_forward_hook(lambda m, args, result: seen.append((type(m).__name__, result)), always_call=True)

        def program(x):
            return module(x * 2)

        with pytest.raises(ValueError, match=r"of \(2,\)"):
            compile(program)(torch.ones(2))
        return seen

    assert run(stoker.compile) == run(lambda f: f) == [("_Fails", None)]


@pytest.mark.parametrize("budget", [0.5, 2.0, "half"])
def test_what_only_torchs_compiler_has_is_refused_as_in_eager(budget):
    region = getattr(torch.autograd.graph, "region_activation_memory_budget", None)

    def program(x):
        with region(budget):
            return x * 2

    def outcome(function):
        with pytest.raises((RuntimeError, TypeError, ValueError)) as raised:
            function(torch.ones(2))
        return type(raised.value), str(raised.value)

    assert outcome(stoker.compile(program)) == outcome(program)
