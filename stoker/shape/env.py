"""The shape environment: symbols, what is known of them, and what had to be assumed."""

from __future__ import annotations


class DataDependent(RuntimeError):
    """A question whose answer is in the data of a tensor, asked where only metadata is known."""

    def __init__(self, operator: str, words: str) -> None:
        super().__init__(f"{operator}: {words}")
        self.operator = operator
        self.words = words
