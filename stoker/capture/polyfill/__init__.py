"""Library functions written in C, again in plain Python: captured code enters these in their place.

Each means what its original means; tests/differential compares them through the evaluator. Nothing here runs outside it.
"""

from stoker.capture.polyfill import context, counting, folding, iteration

__all__ = ["context", "counting", "folding", "iteration"]
