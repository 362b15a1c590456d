"""One capture with symbolic sizes serves every batch and every length."""

from __future__ import annotations

import copy

import pytest
import torch

import stoker
from bench.zoo import ZOO
from stoker.backends import look_up

LENGTHS = (16, 7, 33, 12, 20, 25, 9, 40, 5, 31)


def counted(name):
    graphs = []
    backend = look_up(name)[1]

    def compile_graph(graph_module, example_inputs):
        graphs.append(graph_module)
        return backend(graph_module, example_inputs)

    return compile_graph, graphs


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["bert", "llama"])
def test_one_capture_serves_all_sizes(name, backend):
    torch.manual_seed(0)
    model, _ = ZOO[name]()
    model.eval()
    compiled = copy.deepcopy(model)
    compile_graph, graphs = counted(backend)
    compiled = stoker.compile(compiled, backend=compile_graph, dynamic=True)
    with torch.no_grad():
        for batch in range(2, 9):
            for length in LENGTHS:
                tokens = torch.randint(5, 190, (batch, length))
                expected, found = model(input_ids=tokens), compiled(input_ids=tokens)
                assert torch.equal(expected[0], found[0]), (batch, length)
    assert len(graphs) == 1


def test_a_size_that_changes_generalizes_at_once():
    model, _ = ZOO["bert"]()
    model.eval()
    compile_graph, graphs = counted("eager")
    compiled = stoker.compile(copy.deepcopy(model), backend=compile_graph)
    with torch.no_grad():
        for length in (16, 7, 33, 12):
            tokens = torch.randint(5, 190, (2, length))
            assert torch.equal(compiled(input_ids=tokens)[0], model(input_ids=tokens)[0])
    assert len(graphs) == 2


def test_dynamic_false_never_generalizes():
    compile_graph, graphs = counted("eager")
    compiled = stoker.compile(lambda x: x * 2, backend=compile_graph, dynamic=False)
    for length in (3, 4, 5):
        compiled(torch.ones(length))
    assert len(graphs) == 3


def test_marks():
    compile_graph, graphs = counted("eager")
    compiled = stoker.compile(lambda x: x.reshape(-1) * x.shape[0], backend=compile_graph)
    x = torch.ones(4, 3)
    stoker.mark_dynamic(x, 0)
    for rows in (4, 5, 6):
        given = x if rows == 4 else torch.ones(rows, 3)
        assert torch.equal(compiled(given), given.reshape(-1) * rows)
    assert len(graphs) == 1
    static = torch.ones(9, 3)
    stoker.mark_static(static)
    stoker.reset()
    compiled(static)
    assert all(
        isinstance(n.meta["example_value"].shape[0], int) for n in graphs[-1].graph.nodes if n.op == "placeholder"
    )


def test_size_arithmetic_and_int_arguments():
    compile_graph, graphs = counted("eager")

    @stoker.compile(backend=compile_graph, dynamic=True)
    def f(x, k):
        half = x.shape[0] // 2
        y = x[:half] + k
        if x.shape[0] > 4:
            y = y * half
        return y, half, x.shape[0] % 3, max(half, 2)

    def g(x, k):
        half = x.shape[0] // 2
        y = x[:half] + k
        if x.shape[0] > 4:
            y = y * half
        return y, half, x.shape[0] % 3, max(half, 2)

    for rows, k in ((8, 2), (9, 3), (12, 4), (7, 5), (31, 6)):
        x = torch.randn(rows, 2)
        expected, found = g(x, k), f(x, k)
        assert torch.equal(expected[0], found[0])
        assert expected[1:] == found[1:]
    assert len(graphs) <= 2
    small = torch.randn(4, 2)
    assert torch.equal(f(small, 3)[0], g(small, 3)[0])


def test_generation_with_a_cache():
    """Prefill, one decoding step, then one graph for every later step."""
    model, inputs = ZOO["llama"]()
    model.eval()
    settings = model.generation_config
    settings.max_new_tokens, settings.do_sample, settings.eos_token_id, settings.pad_token_id = 10, False, None, 0
    compile_graph, graphs = counted("eager")
    compiled = stoker.compile(copy.deepcopy(model), backend=compile_graph)
    with torch.no_grad():
        assert torch.equal(model.generate(**inputs), compiled.generate(**inputs))
    assert len(graphs) == 3
