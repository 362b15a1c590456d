"""Passes over functional ATen graphs. Each says what to change and leaves the graph as it is: the lowering follows their advice.

`prune` (what is needed), `dedupe` (what is the same).
"""
