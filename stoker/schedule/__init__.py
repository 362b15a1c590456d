"""Scheduling: which loops share a kernel, in which order kernels run, and where buffers live.

    program -> groups (`score`, by the verdicts of `fuse` on `draft`s) -> `order` -> kernels (`kernel`, `merge`)
            -> steps (`vet`, `epilogue`) -> memory (`overwrite`, `memory`) -> plan (`plan`)

A draft is loops under discussion; a kernel is what a code generator reads; a plan is data that an executor runs.
"""
