"""Kernels as Triton source, for GPUs.

A kernel's outer loops are one axis of a tile, X, its inner loops another, R; a program of the grid computes one tile. Reading
order: `target` (thresholds), `tiling` (how large tiles are), `kernel` (the source), `operation`, `expression`, `reduction`, `product`, `batch`,
`width` (its parts), `library` (what sources call), `stream` (does eager draw random numbers as foretold), `backend` (from a plan's kernels to what the
executor launches).
"""
