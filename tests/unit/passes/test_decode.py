"""Attention of a few queries for each head becomes loops that give the same."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import GraphModule, Interpreter

from stoker.passes.decode import spread_queries
from tests.unit.passes.devices import CPU, Written

aten = torch.ops.aten
CUDNN = aten._scaled_dot_product_cudnn_attention.default
PROCESSORS = 132
Shape = tuple[int, ...]


def written(
    query: Shape, keys: Shape, bias: Shape | None = None, *rest: Any, width: int | None = None, **kw: Any
) -> GraphModule:
    """A graph of one attention; its memory is said to be the device's, and is the processor's when it runs."""
    w = Written()
    q, k, v = (w.input(*s, dtype=torch.float16) for s in (query, keys, (*keys[:3], width or keys[3])))
    mask = None if bias is None else w.input(*bias, dtype=torch.float16)
    made = w.call(CUDNN, q, k, v, mask, False, *rest, **kw)
    return w.output(w.call(operator.getitem, made, 0))


CASES: dict[str, tuple[Any, ...]] = {
    "one head": ((1, 1, 1, 16), (1, 1, 40, 16)),
    "heads": ((2, 4, 1, 16), (2, 4, 40, 16)),
    "shared keys": ((2, 8, 1, 16), (2, 2, 40, 16)),
    "a bias for all heads": ((2, 8, 1, 16), (2, 2, 40, 16), (2, 1, 1, 40)),
    "a bias for each head": ((2, 4, 1, 16), (2, 4, 40, 16), (2, 4, 1, 40)),
    "queries that share a head": ((1, 2, 4, 16), (1, 2, 40, 16), (1, 1, 1, 40)),
    "a bias for each query": ((1, 2, 4, 16), (1, 2, 40, 16), (1, 1, 4, 40)),
    "one bias": ((2, 4, 1, 16), (2, 4, 40, 16), (1, 1, 1, 40)),
}


@pytest.mark.parametrize("scale", [None, 0.7])
@pytest.mark.parametrize("name", CASES)
def test_results(name: str, scale: float | None) -> None:
    torch.manual_seed(0)
    shapes = CASES[name]
    module = written(*shapes, scale=scale)
    (old,) = [n.args[0][0].meta["val"].meta for n in module.graph.nodes if n.op == "output"]
    assert spread_queries(module.graph, PROCESSORS) == 1
    (new,) = [n.args[0][0].meta["val"].meta for n in module.graph.nodes if n.op == "output"]
    assert (new.sizes, new.strides, new.dtype) == (old.sizes, old.strides, old.dtype)
    given = [torch.randn(s).half() for s in (shapes[0], shapes[1], shapes[1], *shapes[2:])]
    q, k, v, *bias = (t.double() for t in given)
    wanted = F.scaled_dot_product_attention(q, k, v, *bias, scale=scale, enable_gqa=True)
    (found,) = Interpreter(module).run(*given)
    torch.testing.assert_close(found.double(), wanted, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("hidden", [-torch.inf, torch.finfo(torch.bfloat16).min])
def test_a_query_that_sees_nothing(hidden: float) -> None:
    """Zeros, as cuDNN's kernel gives; the lowest bfloat16 is as good as infinite to it."""
    module = written((1, 2, 2, 16), (1, 2, 40, 16), (1, 1, 2, 40))
    spread_queries(module.graph, PROCESSORS)
    q, k, v = (torch.randn(1, 2, n, 16).bfloat16() for n in (2, 40, 40))
    bias = torch.zeros(1, 1, 2, 40).bfloat16()
    bias[:, :, 0], bias[:, :, 1, 3:] = hidden, hidden
    (found,) = Interpreter(module).run(q, k, v, bias)
    assert not found[:, :, 0].any()
    wanted = F.scaled_dot_product_attention(q[:, :, 1:].double(), k[:, :, :3].double(), v[:, :, :3].double())
    torch.testing.assert_close(found[:, :, 1:].double(), wanted, rtol=1e-1, atol=2e-2)


def test_a_score_that_is_no_number() -> None:
    module = written((1, 2, 1, 16), (1, 2, 40, 16), (1, 1, 1, 40))
    spread_queries(module.graph, PROCESSORS)
    bias = torch.zeros(1, 1, 1, 40).half()
    bias[..., 7] = torch.nan
    assert Interpreter(module).run(*(torch.ones(1, 2, n, 16).half() for n in (1, 40, 40)), bias)[0].isnan().all()


def test_values_of_another_width() -> None:
    module = written((2, 4, 1, 16), (2, 4, 40, 16), width=24)
    assert spread_queries(module.graph, PROCESSORS) == 1
    assert Interpreter(module).run(*(torch.ones(s).half() for s in ((2, 4, 1, 16), (2, 4, 40, 16), (2, 4, 40, 24))))


@pytest.mark.parametrize(
    ("query", "keys", "rest"),
    [
        ((2, 4, 17, 16), (2, 4, 40, 16), ()),  # many queries
        ((2, 8, 5, 16), (2, 2, 40, 16), ()),  # of heads that share keys
        ((40, 4, 1, 16), (40, 4, 40, 16), ()),  # enough heads for the device
        ((2, 4, 1, 16), (2, 4, 40, 16), (None, 0.1)),  # something is dropped
        ((2, 4, 1, 16), (2, 4, 40, 16), (None, 0.0, True)),  # later keys are hidden
        ((2, 8, 1, 16), (2, 2, 40, 16), ((2, 8, 1, 40),)),  # heads that share keys have biases of their own
    ],
)
def test_what_stays(query: Shape, keys: Shape, rest: tuple[Any, ...]) -> None:
    module = written(query, keys, *rest)
    assert spread_queries(module.graph, PROCESSORS) == 0


def test_the_processor_s_attention_stays() -> None:
    w = Written()
    q, k = w.input(1, 2, 1, 16, device=CPU), w.input(1, 2, 9, 16, device=CPU)
    w.output(w.call(operator.getitem, w.call(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, k), 0))
    assert spread_queries(w.graph, PROCESSORS) == 0
