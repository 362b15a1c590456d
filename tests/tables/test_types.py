"""What mypy is told to overlook has a code and a reason."""

from __future__ import annotations

import re

import pytest

from tools.figures import Module, modules

KNOWN = modules()
HELD = ("stoker.capture", "stoker.bytecode", "stoker.autograd", "stoker.guard", "stoker.frame")
IGNORE = re.compile(r"# type: ignore(?P<code>\[[\w, -]+\])?(?P<reason>\s+#\s\S.*)?$")


@pytest.mark.parametrize("module", [m for m in KNOWN.values() if m.name.startswith(HELD)], ids=lambda m: m.name)
def test_every_exception_has_a_code_and_a_reason(module: Module) -> None:
    for line in module.path.read_text().splitlines():
        found = IGNORE.search(line)
        if found is not None:
            assert found["code"] and found["reason"], line
