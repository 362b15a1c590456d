"""What mypy is told to overlook has a code and a reason."""

from __future__ import annotations

import re

import pytest

from tools.figures import Module, modules

KNOWN = modules()
IGNORE = re.compile(r"# type: ignore(?P<code>\[[\w, -]+\])?(?P<reason>\s+#\s\S.*)?$")


@pytest.mark.parametrize("module", KNOWN.values(), ids=lambda m: m.name)
def test_every_exception_has_a_code_and_a_reason(module: Module) -> None:
    for line in module.path.read_text().splitlines():
        found = IGNORE.search(line)
        if found is not None:
            assert found["code"] and found["reason"], line
