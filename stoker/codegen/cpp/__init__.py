"""C++ kernels: one translation unit for a plan, with a header of our own.

Reading order: `operation` (loop operations as C++), `expression`, `reduction`, `kernel` (loops around them), `crosswise`,
`scan` and `scatter` (other loops), `unit`.
"""
