"""Metadata rules by family. Importing this package fills `stoker.fake.rule.RULES`."""

from stoker.fake.rules import (
    attention,
    check,
    convolution,
    data,
    factory,
    fft,
    index,
    linalg,
    loss,
    matmul,
    norm,
    pointwise,
    pool,
    reduce,
    rewrite,
    view,
)

__all__ = [
    "attention",
    "check",
    "convolution",
    "data",
    "factory",
    "fft",
    "index",
    "linalg",
    "loss",
    "matmul",
    "norm",
    "pointwise",
    "pool",
    "reduce",
    "rewrite",
    "view",
]
