"""A process that compiles Triton sources. It imports Triton alone, never torch or the rest of Stoker.

In:  on standard input a JSON object a line: `source` (a path), `signature`, `aligned`, `warps`, `options`, `architecture`, `output` (a
     path without its ending), `name` (of the function). It ends when its input does.
Out: on standard output a line each: {"output": ...}, with `error` if it failed. A binary lies at output.cubin, what a launch needs to
     know at output.json; both appear by rename, the description last.

What Triton keeps for itself would be kept twice, and in the user's home, which may not be written: it goes when the process does.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any


def compile_unit(job: dict[str, Any]) -> None:
    """Compile one source."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    spec = importlib.util.spec_from_file_location("unit", job["source"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    attributes = {(position,): [["tt.divisibility", 16]] for position in job["aligned"]}
    source = ASTSource(
        fn=getattr(module, job["name"]), signature=dict(job["signature"]), constexprs={}, attrs=attributes
    )
    target = GPUTarget("cuda", job["architecture"], 32)
    made = triton.compile(source, target=target, options={"num_warps": job["warps"], **job["options"]})
    output = Path(job["output"])
    _write(output.with_suffix(".cubin"), made.asm["cubin"])
    described = {
        "name": made.metadata.name,
        "shared_bytes": made.metadata.shared,
        "warps": made.metadata.num_warps,
        "digest": hashlib.sha256(made.asm["cubin"]).hexdigest(),
    }
    _write(output.with_suffix(".json"), json.dumps(described).encode())


def _write(path: Path, content: bytes) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    part.write_bytes(content)
    part.chmod(0o600)
    part.replace(path)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="stoker-triton-") as own:
        os.environ["TRITON_CACHE_DIR"] = own
        for line in sys.stdin:
            job = json.loads(line)
            answer: dict[str, Any] = {"output": job["output"]}
            try:
                compile_unit(job)
            except Exception:  # noqa: BLE001  (whatever it is, the process that asked gets to know)
                answer["error"] = traceback.format_exc()
            print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
