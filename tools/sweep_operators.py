"""Run every operator of OpInfo through aot_eager, and write docs/coverage/operators.md.

    python tools/sweep_operators.py [--dtype float32] [--samples 8] [--only name] [--decompose]

For each sample: forward values and gradients of the function, and of its in-place form, eager against compiled, bit
for bit (within rounding with --decompose). A sample that eager itself refuses is skipped.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "differential" / "autograd")]
capture = importlib.import_module("programs").capture
aot_module = importlib.import_module("stoker.autograd")
fake_module = importlib.import_module("stoker.fake")


UNINITIALIZED = {"empty", "empty_like", "new_empty", "new_empty_strided", "empty_strided", "empty_permuted"}


def map_tensors(function: Callable[[torch.Tensor], Any], value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        made = [map_tensors(function, v) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {k: map_tensors(function, v) for k, v in value.items()}
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(found.append, value)
    return found


def copy_of(tensor: torch.Tensor, inner: bool) -> torch.Tensor:
    made = tensor.detach().clone(memory_format=torch.preserve_format).requires_grad_(tensor.requires_grad)
    return made * 1 if inner and made.requires_grad else made


def observe(call: Any, leaves: list[Any], inputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """What a call returns and leaves in its inputs, and the gradients of all that."""
    torch.manual_seed(1)
    outputs = tensors_in(list(call(*inputs)))
    results = [t for t in outputs if t.requires_grad and t.grad_fn is not None]
    wanted = [t for t in leaves if t.requires_grad]
    gradients: list[Any] = []
    if results and wanted:
        torch.manual_seed(2)
        seeds = [torch.randn_like(r) for r in results]
        gradients = list(torch.autograd.grad(results, wanted, seeds, allow_unused=True))
    return [*outputs, *inputs], gradients


def compare(function: Any, sample: Any, in_place: bool, options: dict[str, Any], exact: bool) -> str:
    """'' when equal, a reason when not, 'skip' when eager refuses."""

    def inputs() -> tuple[list[Any], list[Any]]:
        leaves = [copy_of(t, False) for t in tensors_in([sample.input, sample.args, sample.kwargs])]
        return leaves, [t * 1 if in_place and t.requires_grad else t for t in leaves]

    def program(*tensors: Any) -> Any:
        given = iter(tensors)
        args, kwargs = map_tensors(lambda _: next(given), [(sample.input, *sample.args), sample.kwargs])
        return function(*args, **kwargs)

    try:
        graph, lifted, _ = capture(program, *inputs()[1])
        leaves, given = inputs()
        if len(lifted) != len(given) or not any(True for n in graph.graph.nodes if n.op.startswith("call")):
            return "skip"
        expected = observe(graph, leaves, given)
    except Exception:  # noqa: BLE001 what eager or the tests' capture refuses is no sample
        return "skip"
    try:
        leaves, given = inputs()
        call = aot_module.aot(graph, given, forward_compiler=aot_module.run_eagerly, **options)
        fell_back = call is graph
        leaves, given = inputs()
        found = observe(call, leaves, given)
    except Exception as error:  # noqa: BLE001 the sweep reports whatever fails
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:120] if str(error).strip() else ''}"
    wrong = difference(found, expected, exact)
    return wrong or ("fallback" if fell_back else "")


def difference(found: Any, expected: Any, exact: bool) -> str:
    for kind, ours, theirs in zip(("value", "gradient"), found, expected):
        if len(ours) != len(theirs):
            return f"{kind}s: {len(ours)} for {len(theirs)}"
        for a, b in zip(ours, theirs):
            if (a is None) != (b is None):
                return f"a {kind} is None"
            if a is None:
                continue
            if a.dtype != b.dtype or a.shape != b.shape:
                return f"a {kind} has other metadata"
            if kind == "value" and a.layout is torch.strided and a.numel() > 1 and real_strides(a) != real_strides(b):
                return f"a {kind} has other strides"
            if wrong := unequal(a, b, exact):
                return wrong if wrong == "rounding" else f"a {kind} differs: {wrong}"
    return ""


def unequal(a: torch.Tensor, b: torch.Tensor, exact: bool) -> str:
    """'' when equal (close, unless `exact`), 'rounding' when close but not equal, else in what way they differ."""
    try:
        torch.testing.assert_close(a, b, equal_nan=True, **({} if exact else {"rtol": 1e-4, "atol": 1e-4}))
    except AssertionError as error:
        return " ".join(str(error).split("\n")[2:5])[:100]
    if not exact:
        return ""
    try:
        torch.testing.assert_close(a, b, equal_nan=True, rtol=0, atol=0)
    except AssertionError:
        return "rounding"
    return ""


def real_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(t for s, t in zip(tensor.shape, tensor.stride()) if s > 1)


def sweep(dtype: torch.dtype, samples: int, only: str | None, options: dict[str, Any], exact: bool) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for op in op_db:
        if op.name in UNINITIALIZED or only and op.name != only or dtype not in op.supported_dtypes("cpu"):
            continue
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        outcomes: Counter[str] = Counter()
        differentiable = op.supports_autograd and dtype.is_floating_point or dtype.is_complex
        try:
            drawn = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=differentiable), samples))
        except Exception as error:  # noqa: BLE001 some samples need libraries that are not installed
            rows[name] = {f"no samples: {type(error).__name__}": 1}
            continue
        for sample in drawn:
            for function, in_place in ((op.op, False), (op.inplace_variant, True)):
                if function is not None:
                    reason = compare(function, sample, in_place, options, exact)
                    outcomes[("in place: " if in_place and reason not in ("", "skip") else "") + reason] += 1
        rows[name] = dict(outcomes)
        bad = {k: v for k, v in outcomes.items() if k not in ("", "skip")}
        if bad:
            print(f"{name}: {bad}", flush=True)
    return rows


def verdict(row: dict[str, int]) -> str:
    kinds = set(row) - {"", "skip"}
    if not kinds:
        return "pass" if "" in row else "skip"
    if all(k.endswith("rounding") for k in kinds):
        return "rounding"
    if all(k.endswith(("fallback", "rounding")) for k in kinds):
        return "eager"
    return "fail"


def write_page(path: Path, found: dict[str, dict[str, Any]]) -> None:
    lines = [
        "# Operators through aot_eager",
        "",
        "Written by tools/sweep_operators.py from OpInfo's samples: forward, gradients, in-place forms, eager against",
        "compiled, bit for bit. *Rounding*: close, not equal; eager's gradient formula takes another path for tensor",
        "subclasses, or its in-place kernel rounds differently. *As captured*: shapes depend on data, or memory is",
        "exchanged; the graph runs as it was captured.",
        "*Skipped*: no sample that eager takes.",
        "",
        "| type | pass | rounding | as captured | fail | skipped |",
        "|---|---|---|---|---|---|",
    ]
    for dtype, rows in found.items():
        count = Counter(verdict(row) for row in rows.values())
        numbers = [count[k] for k in ("pass", "rounding", "eager", "fail", "skip")]
        lines.append(f"| {dtype} | " + " | ".join(map(str, numbers)) + " |")
    lines += ["", "| operator | type | verdict | reasons |", "|---|---|---|---|"]
    for dtype, rows in found.items():
        for name, row in sorted(rows.items()):
            if verdict(row) in ("fail", "eager", "rounding"):
                reasons = "; ".join(f"{k} ({v})" for k, v in row.items() if k not in ("", "skip")).replace("|", "/")
                lines.append(f"| {name} | {dtype} | {verdict(row)} | {reasons} |")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    path.with_suffix(".json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default="float32", help="names of types, separated by commas")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--only")
    parser.add_argument("--decompose", action="store_true")
    parser.add_argument("--to", type=Path, default=ROOT / "docs" / "coverage" / "operators.md")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    options: dict[str, Any] = {}
    if given.decompose:
        options["decompositions"] = importlib.import_module("stoker.decompose").table()
    found: dict[str, dict[str, Any]] = {}
    for dtype in given.dtype.split(","):
        found[dtype] = sweep(getattr(torch, dtype), given.samples, given.only, options, not given.decompose)
        print(dtype, dict(Counter(verdict(row) for row in found[dtype].values())), flush=True)
        if not given.only:
            write_page(given.to, found)


if __name__ == "__main__":
    main()
