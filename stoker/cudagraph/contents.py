"""What stands in the inputs that a plan writes, while the plan is tried out."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any


class Contents:
    """Keeps what inputs hold, and puts it back: at the end, and whenever asked. No version is counted."""

    def __init__(self, inputs: Sequence[Any], written: Collection[int]) -> None:
        self._kept = [(inputs[number].data, inputs[number].detach().clone()) for number in written]

    def put_back(self) -> None:
        for target, content in self._kept:
            target.copy_(content)

    def __enter__(self) -> Contents:
        return self

    def __exit__(self, *error: object) -> None:
        self.put_back()
