"""Capture: run a function's bytecode over Values, and write down what its tensors do.

    code object + arguments -> evaluate -> graph, guards, effects -> replacement code

Evaluation is an interpreter of Python bytecode in Python. Where the program has an object, the evaluator has a Value: a
constant it knows, a tensor with a node of the graph and metadata, a list of Values, an object nobody looked at. What it
looks at outside is guarded; what it changes outside is an effect; what it cannot do is a break, with a reason.

>>> import torch
>>> import stoker
>>> def double(x, times=2):
...     return (x + 1) * times
>>> told = stoker.explain(stoker.compile(double, backend="eager"), torch.ones(2))
>>> [node.name for node in told.graphs[0].graph.nodes]
['x', 'add', 'mul', 'output']
>>> told.guards[1:]
['x is a Tensor float32[2] on cpu', 'times == 2']

Reading order: `values` (what stands for an object), `frame`, `machine` (what may be asked of the evaluator), `evaluator`,
`opcodes`; its components `wrap` and `kinds`, `guards`, `record`, `operators`, `attributes`, `concrete`, `exceptions`,
`text`, `calls` with `binding`, `handlers` and `single_dispatch`, `effects`, `modes`, `overrides`, `arrays`; `builtins` and
`polyfill` (functions that are not entered); `sizes`, `policy`, `autograd_leaves`, `leaf`, `engine`, `subgraph`, `static`, `python_operators`, `raising`, `while_loops`, `warned`,
`place`; then what writes the replacement code: `emit`, `epilogue`, `resume`, `suspend`, `tidy`. `capture` is the road through them.
"""
