"""Write the outputs of a document's examples anew: `python tools/renew_examples.py docs/tour.md`.

What an example prints is put below it, as it was printed; the words between are left alone. Read the difference before you
commit it: the page is compared with what it prints at each test (tests/tables/test_doctests.py).
"""

from __future__ import annotations

import doctest
import sys
from pathlib import Path


def renewed(text: str, name: str) -> str:
    """The document with the outputs that its examples have today."""
    parts = doctest.DocTestParser().parse(text, name)
    examples = [part for part in parts if isinstance(part, doctest.Example)]
    printed: list[str] = []

    class Keep(doctest.DocTestRunner):
        def report_start(self, out, test, example):  # type: ignore[no-untyped-def]
            pass

        def report_success(self, out, test, example, got):  # type: ignore[no-untyped-def]
            printed.append(got)

        def report_failure(self, out, test, example, got):  # type: ignore[no-untyped-def]
            printed.append(got)

        def report_unexpected_exception(self, out, test, example, exc_info):  # type: ignore[no-untyped-def]
            raise exc_info[1]

    Keep().run(doctest.DocTest(examples, {"__name__": "__main__"}, name, name, 0, text), clear_globs=False)
    answers = iter(printed)
    return "".join(part if isinstance(part, str) else _shown(part, next(answers)) for part in parts)


def _shown(example: doctest.Example, got: str) -> str:
    pad = " " * example.indent
    first, *rest = example.source.rstrip("\n").split("\n")
    lines = [f"{pad}>>> {first}", *(f"{pad}... {line}".rstrip() for line in rest)]
    lines += [pad + (line or "<BLANKLINE>") for line in got.splitlines()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        path = Path(argument)
        path.write_text(renewed(path.read_text(), path.name))
