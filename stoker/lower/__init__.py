"""Lowering: from ATen operators to loops and library calls.

Each operator has a function in a table that says how an element of its result is computed; what has none, or declines, is a
library call. Nothing is stored until something needs it in memory, so chains of elementwise operators fuse by themselves.

Reading order: `registry` (the table), `builder` (what lowerings call), `operand` (promotion and broadcasting), then the families
`pointwise`, `formula` and `compound`, `activation`, `nonlinear`, `view`, `reduce`, `moments`, `channels`, `loss`, `scan`, `index`, `scatter`, `move`, `rearrange`, `pad`, `axis` and
`window`, `unfold`, `resize`, `search`,
`conv`, `extern`; `whole` (what nobody may leave out); `driver` walks a graph.
"""
