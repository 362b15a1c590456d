"""Code generation: kernels as source text, and the plan as programs that run it.

`cpp/` writes C++; `host` runs a plan in Python, step by step, and is the reference; `executor` describes a plan to the C++ executor.
"""
