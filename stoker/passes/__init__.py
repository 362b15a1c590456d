"""From a graph to a better graph.

`attention` works on captured graphs; the others on functional ATen graphs, in this order: `fold`, `pack`, `freeze` (inference),
then `dedupe` and `prune`, which only answer questions. Each says at its top what it takes and gives.
"""
