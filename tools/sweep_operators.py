"""Run every operator of OpInfo through `stoker.compile`, and write docs/coverage/operators.md.

    python tools/sweep_operators.py [--dtype float32,bool] [--samples 8] [--only name] [--decompose]

For each sample: results, what was written to inputs, and gradients, of the function and of its in-place form, eager
against captured and run with aot_eager, bit for bit (within rounding with --decompose). A sample that eager itself
refuses is skipped. tests/differential/test_operators.py runs a part of it.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import itertools
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

os.environ.setdefault("STOKER_PATIENCE", "inf")  # kernels are what is compared
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX2")  # bfloat16 products by AMX are not repeatable in eager itself

import torch
from rich.console import Console
from rich.progress import track
from torch.testing._internal import common_methods_invocations as opinfo

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]
stoker = importlib.import_module("stoker")
autograd = importlib.import_module("stoker.autograd")
compiling = importlib.import_module("stoker.autograd.compile")
log = importlib.import_module("stoker.log")

opinfo.wrapper_set_seed = lambda op, *args, **kwargs: op(
    *args, **kwargs
)  # `observe` seeds, outside of what is compiled


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


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    made = tensor.detach().clone(memory_format=torch.preserve_format)
    return made.requires_grad_(tensor.requires_grad)


def observe(call: Any, sample: Any, in_place: bool) -> tuple[list[Any], list[Any]]:
    """What a call returns and leaves in its inputs, and the gradients of all that."""
    leaves: list[torch.Tensor] = []

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        leaves.append(copy_of(tensor))
        return leaves[-1] * 1 if in_place and tensor.requires_grad else leaves[-1]

    args, kwargs = map_tensors(fresh, [(sample.input, *sample.args), sample.kwargs])
    torch.manual_seed(1)
    outputs = tensors_in(call(args, kwargs))
    results = [t for t in outputs if t.requires_grad and t.grad_fn is not None]
    wanted = [t for t in leaves if t.requires_grad]
    gradients: list[Any] = []
    if results and wanted:
        torch.manual_seed(2)
        seeds = [torch.randn_like(r) for r in results]
        gradients = list(torch.autograd.grad(results, wanted, seeds, allow_unused=True))
    return [*outputs, *tensors_in([args, kwargs])], gradients


class Watch:
    """A back end that notes what became of the graphs it was given."""

    def __init__(self, options: dict[str, Any]) -> None:
        self.options = options
        self.compiled = self.left = 0

    def __call__(self, graph: Any, inputs: list[Any]) -> Any:
        options = {"forward_compiler": autograd.run_eagerly, "backward_compiler": compiling.run_boxed, **self.options}
        call = autograd.aot(graph, inputs, **options)
        if call is graph:
            self.left += 1
        else:
            self.compiled += 1
        return call


def compare(function: Any, sample: Any, in_place: bool, options: dict[str, Any], exact: bool) -> str:
    """'' when equal, a reason when not, 'skip' when eager refuses."""

    def program(args: Any, kwargs: Any) -> Any:
        return function(*args, **kwargs)

    try:
        expected = observe(program, sample, in_place)
    except Exception:  # noqa: BLE001 what eager refuses is no sample
        return "skip"
    watch = Watch(options)
    log.clear()
    try:
        found = observe(stoker.compile(program, backend=watch, dynamic=False), sample, in_place)
    except Exception as error:  # noqa: BLE001 the sweep reports whatever fails
        return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
    wrong = difference(found, expected, exact)
    if "differs" in wrong and as_good(found, expected, program, sample, in_place):
        wrong = "rounding"
    if wrong or watch.compiled:
        return wrong
    if watch.left:
        return "as captured"
    reasons = [e.reason for e in log.events("break") + log.events("skip")]
    return f"not captured: {reasons[0] if reasons else 'no operator'}"


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


WIDER = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.complex64: torch.complex128}


def as_good(found: Any, expected: Any, program: Any, sample: Any, in_place: bool) -> bool:
    """Is what we found as near to the answer in wider types as what eager found? Then both are rounding."""

    def widen(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to(WIDER.get(tensor.dtype, tensor.dtype)).requires_grad_(tensor.requires_grad)

    wide = copy.copy(sample)
    wide.input, wide.args, wide.kwargs = map_tensors(widen, [sample.input, tuple(sample.args), sample.kwargs])
    try:
        exact = observe(program, wide, in_place)
    except RuntimeError:
        return False
    for ours, theirs, answers in zip(found, expected, exact):
        for a, b, c in zip(ours, theirs, answers):
            if a is None or c is None or not (a.is_floating_point() or a.is_complex()) or a.numel() == 0:
                continue
            if not (a - c).abs().max() <= 8 * (b - c).abs().max() + 1e-6 * c.abs().max():
                return False
    return True


def real_strides(tensor: torch.Tensor) -> tuple[int, ...]:
    return tuple(t for s, t in zip(tensor.shape, tensor.stride()) if s > 1)


def sweep_one(op: Any, dtype: torch.dtype, samples: int, options: dict[str, Any], exact: bool) -> dict[str, int]:
    """How often each outcome was seen for one operator."""
    outcomes: Counter[str] = Counter()
    differentiable = op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    try:
        drawn = list(itertools.islice(op.sample_inputs("cpu", dtype, requires_grad=differentiable), samples))
    except Exception as error:  # noqa: BLE001 some samples need libraries that are not installed
        return {f"no samples: {type(error).__name__}": 1}
    for sample in drawn:
        for function, in_place in ((op.op, False), (op.inplace_variant, True)):
            if function is not None:
                reason = compare(function, sample, in_place, options, exact)
                outcomes[("in place: " if in_place and reason not in ("", "skip") else "") + reason] += 1
    stoker.reset()
    return dict(outcomes)


def operators(dtype: torch.dtype) -> Iterable[tuple[str, Any]]:
    """Names and OpInfos of the operators whose results can be compared."""
    for op in opinfo.op_db:
        if op.name not in UNINITIALIZED and dtype in op.supported_dtypes("cpu"):
            yield op.name + (f".{op.variant_test_name}" if op.variant_test_name else ""), op


def sweep(dtype: torch.dtype, samples: int, only: str | None, options: dict[str, Any], exact: bool) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    chosen = [(name, op) for name, op in operators(dtype) if not only or op.name == only]
    for name, op in track(chosen, str(dtype), console=Console(stderr=True)):
        rows[name] = sweep_one(op, dtype, samples, options, exact)
        if verdict(rows[name]) not in ("pass", "skip"):
            print(f"{name}: { ({k: v for k, v in rows[name].items() if k not in ('', 'skip')}) }", flush=True)
    return rows


VERDICTS = {"pass": "", "rounding": "rounding", "as captured": "as captured", "not captured": "not captured"}
"""Verdicts from best to worst, with the outcome that gives them; every other outcome fails."""


def verdict(row: dict[str, int]) -> str:
    kinds = {
        k.removeprefix("in place: ").split(":")[0] if "not captured" in k else k.removeprefix("in place: ") for k in row
    }
    kinds -= {"skip"}
    if not kinds or all(k.startswith("no samples") for k in kinds):
        return "skip"
    if not kinds <= set(VERDICTS.values()):
        return "fail"
    return next(v for v, outcome in reversed(VERDICTS.items()) if outcome in kinds)


PAGE = """# Operators

Written by tools/sweep_operators.py from OpInfo's samples, at most {samples} for each operator and type: results, what is
written to inputs, and gradients, of functions and of their in-place forms; eager against `stoker.compile` with the back
end aot_eager, bit for bit.

*Rounding*: close, not equal: eager's gradient formula takes another path for tensor subclasses (`prod`, `masked_fill`), its
in-place kernel rounds differently (`div_`), or eager hands a library a mark to conjugate where the graph conjugates first
(products and factorizations of complex matrices). *As captured*: shapes depend on data (the gradient of the value of
`index_fill`, of `index_put` by a mask), or memory is exchanged (`resize_`; `addbmm_` and other in-place forms that resize);
the graph runs as it was captured.
*Not captured*: no graph was made; the call runs in Python. *Skipped*: no sample that eager takes.
"""
COLUMNS = ("pass", "rounding", "as captured", "not captured", "fail", "skip")


def write_page(path: Path, found: dict[str, dict[str, Any]], samples: int) -> None:
    lines = [PAGE.format(samples=samples), "| type | operators | " + " | ".join(COLUMNS) + " |", "|---" * 8 + "|"]
    for dtype, rows in found.items():
        count = Counter(verdict(row) for row in rows.values())
        lines.append(f"| {dtype} | {len(rows)} | " + " | ".join(str(count[k]) for k in COLUMNS) + " |")
    lines += ["", "| operator | type | verdict | outcomes (samples) |", "|---|---|---|---|"]
    for dtype, rows in found.items():
        for name, row in sorted(rows.items()):
            if verdict(row) not in ("pass", "skip"):
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
            write_page(given.to, found, given.samples)


if __name__ == "__main__":
    main()
