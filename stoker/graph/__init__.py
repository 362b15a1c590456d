"""Small tools over torch.fx, for everything that reads or changes a graph.

`facts` (what is known of a node), `untold` (numbers that only data tells), `walk` (what depends on what), `dedupe` (which nodes are the same), `raising` and `prune` (which
are needed), `insert` (new calls, and moving nodes), `numpy_operator` (numpy's functions as an operator), `program_hook` (hooks of the program that do more than compute), `modes` and `undo` (a captured graph, run so that its error can be taken back).
They know nothing of autograd, passes or loops, which stand on them.
"""
