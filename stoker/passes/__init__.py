"""From a graph to a better graph.

`attention` works on captured graphs; the others on functional ATen graphs. `simplify` and `precompute` see every graph; then in
inference `fold`, `join`, `pack` and `freeze`; `images` changes both parts of a training graph; `dedupe` and `prune` only answer questions. Each says at its top what it takes and gives.
"""
