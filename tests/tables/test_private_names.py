"""Nobody reaches around `stoker.torch_private` for what torch does not publish."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tools.figures import Module, modules, private_names

KNOWN = modules()


def test_no_private_name_outside() -> None:
    found = {name: reached for name, reached in private_names(KNOWN).items() if reached}
    assert found == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("import torch\ntorch._C.x", 1),
        ("import torch\ntorch.fx._symbolic_trace.y", 1),
        ("def f(op): return op._schema", 1),
        ("def f(x): return x.untyped_storage()._cdata", 1),
        ("from torch._ops import OpOverload", 1),
        ("import torch.utils._pytree", 1),
        ("import torch\ntorch.ops.aten._softmax.default", 0),
        ("def f(self): return self._mine", 0),
        ("import sys\nsys._getframe()", 0),
        ("def f(x): return x.__dict__", 0),
    ],
)
def test_the_finder_finds(text: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "module.py"
    path.write_text(text)
    ast.parse(text)
    assert len(private_names({"module": Module("module", path)})["module"]) == count
