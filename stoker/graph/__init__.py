"""Small tools over torch.fx, for everything that reads or changes a functional ATen graph.

`facts` (what is known of a node), `walk` (what depends on what), `dedupe` (which nodes are the same), `prune` (which are needed),
`insert` (new calls, and moving nodes). They know nothing of autograd, passes or loops, which stand on them.
"""
