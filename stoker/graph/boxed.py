"""Python code of a graph that takes its inputs in one list, and empties it: each is freed after its last use."""

from __future__ import annotations

from typing import Any

from torch.fx import GraphModule
from torch.fx.graph import CodeGen


class Boxed(CodeGen):
    """Python code whose only argument is the list of a graph's inputs."""

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str, **options: Any) -> str:
        names = "".join(f"{v.split(':')[0].split('=')[0].strip()}, " for v in free_vars if v != "self")
        unpack = f"\n    {names}= inputs_list" if names else ""
        return f"def forward(self, inputs_list){maybe_return_annotation}:{unpack}\n    inputs_list.clear()"


def boxed(module: GraphModule) -> GraphModule:
    """The graph, whose code is to be written so."""
    module.graph.set_codegen(Boxed())
    return module
