"""Text with indentation."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class Writer:
    """Collects lines; `block` and `indented` indent what is written inside them."""

    def __init__(self, indent: str = "  ") -> None:
        self.lines: list[str] = []
        self._indent = indent
        self._depth = 0

    def line(self, words: str) -> None:
        self.lines.append(self._indent * self._depth + words)

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """In braces."""
        with self.indented(f"{head} {{" if head else "{"):
            yield
        self.line("}")

    @contextmanager
    def indented(self, head: str) -> Iterator[None]:
        """By indentation alone."""
        self.line(head)
        self._depth += 1
        yield
        self._depth -= 1

    def text(self) -> str:
        return "\n".join(self.lines) + "\n"
