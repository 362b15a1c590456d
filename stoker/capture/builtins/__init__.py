"""The meaning of built-in functions and of library functions written in C, by family. Importing fills the tables."""

from stoker.capture.builtins import (
    array,
    autograd,
    construct,
    context,
    copying,
    definition,
    environment,
    functional,
    iterate,
    itertool,
    kinship,
    optimizer,
    output,
    override,
    python,
    torchlib,
)

__all__ = [
    "array",
    "autograd",
    "construct",
    "context",
    "copying",
    "definition",
    "environment",
    "functional",
    "iterate",
    "itertool",
    "kinship",
    "optimizer",
    "output",
    "override",
    "python",
    "torchlib",
]
