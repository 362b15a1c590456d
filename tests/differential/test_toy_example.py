"""The worked example: a branch on data makes three graphs, and replacement code of a known shape."""

from __future__ import annotations

import operator

import torch

import stoker
from stoker.bytecode import decode


def toy_example(a, b):
    x = a / (torch.abs(a) + 1)
    if b.sum() < 0:
        b = b * -1
    return x * b


IGNORED = ("PUSH_NULL", "PRECALL", "RESUME", "NOP", "TO_BOOL")


def operators(graph):
    return [(node.op, node.target) for node in graph.graph.nodes if node.op.startswith("call")]


def test_three_graphs_over_a_hundred_calls():
    graphs = []

    def backend(graph_module, example_inputs):
        graphs.append(graph_module)
        return graph_module.forward

    compiled = stoker.compile(toy_example, backend=backend)
    torch.manual_seed(0)
    for _ in range(100):
        a, b = torch.randn(10), torch.randn(10)
        assert torch.equal(compiled(a, b), toy_example(a, b))
    assert sorted(map(operators, graphs), key=len, reverse=True) == [
        [
            ("call_function", torch.abs),
            ("call_function", operator.add),
            ("call_function", operator.truediv),
            ("call_method", "sum"),
            ("call_function", operator.lt),
        ],
        [("call_function", operator.mul), ("call_function", operator.mul)],
        [("call_function", operator.mul)],
    ]
    assert [[n.name for n in g.graph.nodes if n.op == "placeholder"] for g in graphs] == [
        ["a", "b"],
        ["b", "x"],
        ["b", "x"],
    ]


def test_replacement_code():
    explanation = stoker.explain(toy_example, torch.randn(10), torch.ones(10))
    names = [i.name for i in decode(explanation.codes[0]) if i.name not in IGNORED]
    resume = ["LOAD_CONST", "LOAD_FAST", "LOAD_FAST", "CALL", "RETURN_VALUE"]
    assert names == [
        "LOAD_CONST", "LOAD_FAST", "LOAD_FAST", "CALL", "UNPACK_SEQUENCE", "STORE_FAST", "POP_JUMP_IF_FALSE",
        *resume, *resume,
    ]  # fmt: skip
