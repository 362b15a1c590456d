"""The meaning of built-in functions and of library functions written in C, by family. Importing fills the tables."""

from stoker.capture.builtins import construct, copying, iterate, python, torchlib

__all__ = ["construct", "copying", "iterate", "python", "torchlib"]
