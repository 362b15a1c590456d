"""Metadata rules by family. Importing this package fills `stoker.fake.rule.RULES`."""

from stoker.fake.rules import (  # noqa: F401  (they fill the table)
    attention,
    channels,
    check,
    convolution,
    data,
    factory,
    fft,
    index,
    like,
    linalg,
    loss,
    matmul,
    noise,
    norm,
    pointwise,
    pool,
    quantize,
    reduce,
    rewrite,
    view,
)
