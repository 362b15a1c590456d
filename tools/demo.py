"""Compile a small real model, show that the result equals eager, how many graphs it took, and the time."""

from __future__ import annotations

import copy
import time

import torch

import stoker
from bench.zoo import ZOO


def main() -> None:
    torch.manual_seed(0)
    model, inputs = ZOO["bert"]()
    model.eval()
    compiled = copy.deepcopy(model)
    graphs: list[torch.fx.GraphModule] = []
    backend = stoker.default_backend()

    def recording(graph_module: torch.fx.GraphModule, example_inputs: list[object]):
        graphs.append(graph_module)
        return backend(graph_module, example_inputs)

    compiled = stoker.compile(compiled, backend=recording)
    with torch.no_grad():
        expected = model(**inputs)
        started = time.perf_counter()
        found = compiled(**inputs)
        first = time.perf_counter() - started
        compiled(**inputs)
    difference = (expected.last_hidden_state - found.last_hidden_state).abs().max().item()
    operators = sum(node.op in ("call_function", "call_method") for graph in graphs for node in graph.graph.nodes)
    print("model            BERT, 2 layers, built from its transformers config, random weights")
    print(f"graphs           {len(graphs)}, with {operators} operators; {len(stoker.events('break'))} breaks")
    print(f"first call       {first:.2f} s")
    print(f"same class       {type(found) is type(expected)} ({type(found).__name__})")
    print(f"equal to eager   {difference <= 1e-5} (largest difference {difference:.1e})")


if __name__ == "__main__":
    main()
