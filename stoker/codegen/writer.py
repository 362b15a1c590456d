"""Text with indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Collects lines; `block` indents what is written inside it."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._depth = 0

    def line(self, words: str) -> None:
        self.lines.append("  " * self._depth + words)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        self.line(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.line("}")

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
