"""Run every operator of OpInfo through the default back end, and write docs/coverage/lowerings.md.

    python tools/sweep_lowerings.py [--dtype float32,bool] [--samples 6] [--operators add,nn.functional.gelu] [--workers 2]
                                    [--generator triton] [--device cuda] [--seconds 300]

With `--generator triton` kernels are Triton's, run by its interpreter on the processor; `--device cuda` runs everything there. After
`--seconds` it stops, and the page says how many operators it did not come to.

For each sample, laid out densely, transposed, with gaps, or expanded: results, what was written to inputs, and gradients, of
the function and of its in-place form. Programs are compiled with `fullgraph=True`; one that breaks is run once more without, and
counted apart. The answer is eager's in float64. A result passes if it is as near to the answer as its
type allows, or nearly as near as eager's; results that are not floating point are eager's. Samples of one operator are one
program, so that the C++ compiler runs once; integers and truth values run as inference, which has code of its own.
tests/differential/test_lowerings.py runs a part of it.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import importlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

os.environ.setdefault("STOKER_PATIENCE", "inf")  # kernels are what is compared

if TYPE_CHECKING:
    import torch

sys.path[:0] = [str(Path(__file__).parent)]
sweep = importlib.import_module("sweep_operators")
torch = importlib.import_module("torch")  # after it: it sets what torch reads when it loads
pipeline = importlib.import_module("stoker.pipeline")
GraphBreakError = importlib.import_module("stoker.errors").GraphBreakError
stoker, autograd, log = sweep.stoker, sweep.autograd, sweep.log

DTYPES = ("float32", "int64", "bool", "bfloat16", "float16")
NO_WORSE = 4
"""Our error may be this many times eager's: both are a few roundings."""


class Observed(NamedTuple):
    """What one sample's call gave: results and written inputs, gradients, and the seeds of the gradients."""

    values: list[Any]
    gradients: list[Any]
    seeds: list[torch.Tensor]


DEVICE = "cpu"


def interpret_triton() -> None:
    """From now on, graphs of the processor run through generated Triton, under its interpreter."""
    interpreted = importlib.import_module("tests.stages.interpreted")
    host = importlib.import_module("stoker.codegen.host")
    pipeline.generators = lambda devices: {"cpu": interpreted.Interpreted()}
    pipeline.executor = lambda plan, layouts, kernels, otherwise=None: host.host_program(
        plan, [k.call for k in kernels]
    )


# Inputs.


def same_layout(tensor: torch.Tensor) -> torch.Tensor:
    """A copy with memory of its own, laid out as the tensor is: gaps and repeated elements included."""
    if tensor.layout is not torch.strided or tensor.is_conj() or tensor.is_neg():
        return sweep.copy_of(tensor)  # type: ignore[no-any-return]
    reach = 1 + sum((s - 1) * t for s, t in zip(tensor.shape, tensor.stride())) if tensor.numel() else 0
    memory = tensor.detach().as_strided([reach], [1], tensor.storage_offset()).clone().untyped_storage()
    made = torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(memory, 0, tensor.shape, tensor.stride())
    return made.requires_grad_(tensor.requires_grad)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.transpose(0, -1).contiguous().transpose(0, -1)


def with_gaps(tensor: torch.Tensor) -> torch.Tensor:
    return torch.stack([tensor, tensor], -1)[..., 0]


def expanded(tensor: torch.Tensor) -> torch.Tensor:
    return tensor[:1].expand(tensor.shape)


LAYOUTS = (None, transposed, with_gaps, expanded)


def laid_out(sample: Any, how: Any) -> Any:
    """The sample with its tensors laid out in another way."""

    def change(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.dim() or not tensor.numel() or tensor.layout is not torch.strided:
            return tensor
        return how(tensor.detach()).requires_grad_(tensor.requires_grad)  # type: ignore[no-any-return]

    made = copy.copy(sample)
    made.input, made.args, made.kwargs = sweep.map_tensors(change, [sample.input, tuple(sample.args), sample.kwargs])
    return made


def drawn(op: Any, dtype: torch.dtype, count: int) -> list[Any]:
    """Samples, and the first of them again in each other layout."""
    differentiable = op.supports_autograd and dtype.is_floating_point
    torch.manual_seed(0)
    plain = list(itertools.islice(op.sample_inputs(DEVICE, dtype, requires_grad=differentiable), count))
    others = LAYOUTS[1:]
    return plain + [laid_out(sample, others[n % len(others)]) for n, sample in enumerate(plain)]


# Observation.


def run(call: Any, samples: list[Any], in_place: bool, seeds: list[list[torch.Tensor]] | None = None) -> list[Observed]:
    """What a program over several samples gives, sample by sample."""
    leaves: list[list[torch.Tensor]] = []

    def fresh(tensor: torch.Tensor) -> torch.Tensor:
        leaves[-1].append(same_layout(tensor))
        return leaves[-1][-1] * 1 if in_place and tensor.requires_grad else leaves[-1][-1]

    given = []
    for sample in samples:
        leaves.append([])
        given.append(sweep.map_tensors(fresh, [(sample.input, *sample.args), sample.kwargs]))
    torch.manual_seed(1)
    outputs = [sweep.tensors_in(made) for made in call(given)]
    results = [[t for t in made if t.requires_grad and t.grad_fn is not None] for made in outputs]
    generator = torch.Generator().manual_seed(2)
    if seeds is None:
        seeds = [[torch.randn(r.shape, generator=generator).to(r.device, r.dtype) for r in made] for made in results]
    wanted = [[t for t in made if t.requires_grad] for made in leaves]
    found = _gradients(results, wanted, seeds)
    return [Observed(o + sweep.tensors_in(g), d, s) for o, g, d, s in zip(outputs, given, found, seeds)]


def _gradients(results: Any, wanted: Any, seeds: Any) -> list[list[Any]]:
    flat = [list(itertools.chain.from_iterable(part)) for part in (results, wanted, seeds)]
    if not flat[0] or not flat[1]:
        return [[] for _ in wanted]
    matching = [s.to(r.dtype) for r, s in zip(flat[0], flat[2])]
    gradients = iter(torch.autograd.grad(flat[0], flat[1], matching, allow_unused=True))
    return [[next(gradients) for _ in part] for part in wanted]


def widen(tensor: torch.Tensor) -> torch.Tensor:
    wide = {torch.float16: torch.float64}.get(tensor.dtype, sweep.WIDER.get(tensor.dtype, tensor.dtype))
    return tensor.detach().to(wide).requires_grad_(tensor.requires_grad)


def answer(program: Any, sample: Any, in_place: bool, seeds: list[torch.Tensor]) -> Observed | None:
    """Eager's in wider types, if eager can."""
    wide = copy.copy(sample)
    wide.input, wide.args, wide.kwargs = sweep.map_tensors(widen, [sample.input, tuple(sample.args), sample.kwargs])
    try:
        return run(program, [wide], in_place, [seeds])[0]
    except (RuntimeError, ValueError, TypeError):
        return None


# Comparison.


def judge(ours: Observed, eager: Observed, exact: Any) -> str:
    """'' if as good as can be asked, else in what way not. `exact` gives the answer in wider types when it is needed."""
    for kind, mine, theirs, position in (
        ("value", ours.values, eager.values, 0),
        ("gradient", ours.gradients, eager.gradients, 1),
    ):
        if len(mine) != len(theirs):
            return f"{kind}s: {len(mine)} for {len(theirs)}"
        for number, (a, b) in enumerate(zip(mine, theirs)):
            wrong = _shape_of(kind, a, b)
            if wrong:
                return wrong
            if a is None or identical(a, b):
                continue
            if not (a.is_floating_point() or a.is_complex()):
                return f"a {kind} differs: {int((a != b).sum())} of {a.numel()} elements"
            wide = exact()
            c = b if wide is None else wide[position][number]
            if not near(a, b, b if c is None or c.shape != b.shape else c):
                return f"a {kind} differs by {float(error(a, b).max()):.2g} from eager"
    return ""


def _shape_of(kind: str, a: Any, b: Any) -> str:
    if (a is None) != (b is None):
        return f"a {kind} is None"
    if a is None:
        return ""
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"a {kind} has other metadata"
    strided = kind == "value" and a.layout is torch.strided and a.numel() > 1
    return f"a {kind} has other strides" if strided and sweep.real_strides(a) != sweep.real_strides(b) else ""


def identical(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    return bool(((a == b) | ((a != a) & (b != b))).all())


def error(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Distances; 0 where both are the same infinity or neither is a number."""
    a, b = a.to(torch.promote_types(a.dtype, torch.float64)), b.to(torch.promote_types(b.dtype, torch.float64))
    same = (a == b) | ((a != a) & (b != b))
    return torch.where(same, torch.zeros((), dtype=torch.float64, device=a.device), (a - b).abs())


def near(a: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> bool:
    """Within the type's tolerance of the answer, or not much further from it than eager is."""
    with contextlib.suppress(AssertionError):
        torch.testing.assert_close(a, exact.to(a.dtype), equal_nan=True)
        return True
    mine, theirs = error(a, exact), error(eager, exact)
    return bool(
        (mine.nan_to_num(float("inf")).max() <= NO_WORSE * theirs.max()) | (error(a, eager).nan_to_num(1) == 0).all()
    )


# The back end, watched.


class Watch:
    """The default back end, noting which operators were lowered, decomposed, or left to the library and why."""

    def __init__(self) -> None:
        self.graphs = 0
        self.lowered: Counter[str] = Counter()
        self.library: dict[str, Counter[str]] = {}
        self.decomposed: Counter[str] = Counter()

    def __call__(self, graph: Any, inputs: list[Any]) -> Any:
        table = _Noting(pipeline.decompositions(), self.decomposed)
        compiler = functools.partial(self.compile, inference=not torch.is_grad_enabled())
        return autograd.aot(graph, inputs, forward_compiler=compiler, decompositions=table)

    def compile(self, module: Any, fakes: list[Any], *, inference: bool) -> Any:
        record = pipeline.Record()
        compiled = pipeline.compile_graph(module, fakes, record, inference=inference)
        program = record.products.get("program")
        if program is not None:
            self.graphs += 1
            for name, reason in program.declined:
                self.library.setdefault(name, Counter())[reason] += 1
            self.lowered.update(program.lowered)
        return compiled


class _Noting(dict[Any, Any]):
    def __init__(self, table: Any, used: Counter[str]) -> None:
        super().__init__(table)
        self.used = used

    def get(self, key: Any, default: Any = None) -> Any:
        found = super().get(key, default)
        if found is not None:
            self.used[str(key)] += 1
        return found


APART = ("after a break: ", "as captured: ")
"""How outcomes begin that are right, but not of a program compiled in one graph."""


def outcomes(
    function: Any, samples: list[Any], in_place: bool, watch: Watch, inference: bool, broken: str = ""
) -> list[str]:
    """For each sample: '' if it passes in one graph, 'skip' if eager refuses it, one of `APART` with the reason, else what went
    wrong. A program that does not capture as one graph runs once more, with breaks: `broken` then says why."""

    def program(given: Any) -> Any:
        return [function(*args, **kwargs) for args, kwargs in given]

    taken = [s for s in samples if _eager_takes(program, s, in_place)]
    skipped = ["skip"] * (len(samples) - len(taken))
    if not taken:
        return skipped
    expected = run(program, taken, in_place)
    log.clear()
    with torch.no_grad() if inference else contextlib.nullcontext():
        try:
            compiled = stoker.compile(program, backend=watch, dynamic=False, fullgraph=not broken)
            found = run(compiled, taken, in_place)
        except GraphBreakError as problem:
            stoker.reset()
            return outcomes(function, samples, in_place, watch, inference, _why_broken(problem))
        except Exception as problem:  # noqa: BLE001 the sweep reports whatever fails
            stoker.reset()
            if len(taken) > 1:
                alone = [outcomes(function, [sample], in_place, watch, inference, broken) for sample in taken]
                return skipped + list(itertools.chain.from_iterable(alone))
            cause = problem.__cause__ or problem
            return [*skipped, f"{type(cause).__name__}: {' '.join(str(cause).split())[:160]}"]
    through_aten = [e.reason for e in log.events("backend")]
    captured = [e.reason for e in log.events("as captured")]
    right = f"after a break: {broken}" if broken else f"as captured: {captured[0]}" if captured else ""
    stoker.reset()
    if through_aten:
        return [*skipped, *[f"through ATen: {through_aten[0]}"] * len(taken)]
    return skipped + [
        judge(a, b, functools.cache(functools.partial(answer, program, s, in_place, b.seeds))) or right
        for a, b, s in zip(found, expected, taken)
    ]


def _why_broken(problem: Any) -> str:
    """The reason of a break, on one line."""
    words = f"{problem.reason.construct}: {problem.reason.reason}"
    return re.sub(r"_\d+`", "`", " ".join(words.split()))[:160]


def _eager_takes(program: Any, sample: Any, in_place: bool) -> bool:
    try:
        run(program, [sample], in_place)
    except Exception:  # noqa: BLE001 what eager refuses is no sample
        return False
    return True


def sweep_one(op: Any, dtype: torch.dtype, samples: int, watch: Watch) -> dict[str, int]:
    """How often each outcome was seen for one operator."""
    try:
        given = drawn(op, dtype, samples)
    except Exception as problem:  # noqa: BLE001 some samples need libraries that are not installed
        return {f"no samples: {type(problem).__name__}": 1}
    count: Counter[str] = Counter()
    for function, in_place in ((op.op, False), (op.inplace_variant, True)):
        if function is not None:
            chosen = given if not in_place else given[: (samples + 1) // 2]
            for reason in outcomes(function, chosen, in_place, watch, not dtype.is_floating_point):
                wrong = in_place and reason not in ("", "skip") and not reason.startswith(APART)
                count[("in place: " if wrong else "") + reason] += 1
    return dict(count)


# One process works on a share of the operators; the first one collects.


def work(dtypes: list[str], samples: int, names: list[str], share: tuple[int, int], to: Path) -> None:
    """Sweep a share, a line of JSON for each operator: its beginning (so that a crash has a name), then its outcomes."""
    position, count = share
    todo = [
        (d, n, op)
        for d in dtypes
        for n, op in sweep.operators(getattr(torch, d))
        if not names or op.name in names or n in names
    ]
    done = {tuple(json.loads(line)[:2]) for line in to.read_text().splitlines()} if to.exists() else set()
    with to.open("a") as file:
        for dtype, name, op in todo[position::count]:
            if (dtype, name) in done:
                continue
            print(json.dumps([dtype, name, None]), file=file, flush=True)
            watch = Watch()
            row = sweep_one(op, getattr(torch, dtype), samples, watch)
            seen = {"lowered": watch.lowered, "library": watch.library, "decomposed": watch.decomposed}
            print(json.dumps([dtype, name, {"outcomes": row, **seen}]), file=file, flush=True)
            if verdict(row) == "fail":
                print(f"{dtype} {name}: { ({k: v for k, v in row.items() if k not in ('', 'skip')}) }", flush=True)


def verdict(row: dict[str, int]) -> str:
    """Of one operator and type: pass (in one graph), apart (right, but not all of it in one graph), fail or skip."""
    kinds = set(row) - {"skip"}
    if not kinds or all(k.startswith("no samples") for k in kinds):
        return "skip"
    if kinds == {""}:
        return "pass"
    return "apart" if all(k == "" or k.startswith(APART) for k in kinds) else "fail"


def collect(given: argparse.Namespace) -> dict[tuple[str, str], dict[str, Any]]:
    """Run the workers; one that crashed is started again behind the operator that crashed it."""
    end = time.monotonic() + given.seconds if given.seconds else float("inf")
    with tempfile.TemporaryDirectory() as directory:
        paths = [Path(directory) / str(n) for n in range(given.workers)]
        arguments = [
            sys.executable,
            __file__,
            "--dtype",
            given.dtype,
            "--samples",
            str(given.samples),
            "--operators",
            given.operators,
            "--generator",
            given.generator,
            "--device",
            given.device,
        ]
        running = {}

        def start(n: int) -> None:
            running[n] = subprocess.Popen([*arguments, "--share", f"{n}/{given.workers}", "--to", str(paths[n])])

        for n in range(given.workers):
            start(n)
        while running:
            time.sleep(1)
            if time.monotonic() > end:
                for process in running.values():
                    process.kill()
                    process.wait()
                break
            for n, process in list(running.items()):
                if process.poll() == 0:
                    del running[n]
                elif process.poll() is not None:
                    start(n)
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        stopped = {p.read_text().splitlines()[-1] for n, p in enumerate(paths) if n in running}
        for line in itertools.chain.from_iterable(p.read_text().splitlines() for p in paths):
            dtype, name, row = json.loads(line)
            if row is None and line in stopped:
                continue
            rows[dtype, name] = row or {
                "outcomes": {"the process died": 1},
                "lowered": {},
                "library": {},
                "decomposed": {},
            }
    return rows


# The page.

PAGE = """# Lowerings

Written by tools/sweep_lowerings.py from OpInfo's samples, at most {samples} for each operator and type, each in two layouts:
results, what is written to inputs, and gradients, of functions and of their in-place forms, with the default back end. A result
passes if it is within its type's tolerance (that of `torch.testing.assert_close`) of eager's answer in float64, or at most
{worse} times as far from it as eager's own; results that are not floating point are eager's. Strides are eager's. All samples of
an operator are one program: it is compiled in one graph, or else runs with breaks, or as it was captured, and is listed with why.

Run at commit {commit}, torch {torch}, {where}.{words}
"""
KINDS = ("lowered", "decomposed", "library call")


def write_page(
    path: Path,
    rows: dict[tuple[str, str], dict[str, Any]],
    samples: int,
    where: str = "on the processor",
    words: str = "",
) -> None:
    dtypes = [d for d in DTYPES if any(dtype == d for dtype, _ in rows)]
    lines = [
        PAGE.format(
            samples=samples,
            worse=NO_WORSE,
            commit=os.environ.get("STOKER_COMMIT") or _commit(),
            torch=torch.__version__,
            where=where,
            words=words,
        ),
        "| type | operators | pass in one graph | pass with a break, or as captured | fail | skip |",
        "|---" * 6 + "|",
    ]
    for dtype in dtypes:
        count = Counter(verdict(row["outcomes"]) for (d, _), row in rows.items() if d == dtype)
        numbers = (sum(count.values()), *(count[verdict] for verdict in ("pass", "apart", "fail", "skip")))
        lines.append(f"| {dtype} | {' | '.join(map(str, numbers))} |")
    failed = {key: row["outcomes"] for key, row in sorted(rows.items()) if verdict(row["outcomes"]) == "fail"}
    if failed:
        lines += ["", "## What fails", "", "| operator | type | outcomes (samples) |", "|---|---|---|"]
    for (dtype, name), row in failed.items():
        reasons = "; ".join(f"{k} ({v})" for k, v in row.items() if k not in ("", "skip")).replace("|", "/")
        lines.append(f"| {name} | {dtype} | {reasons} |")
    lines += _apart(rows) + _operators(rows)
    path.write_text("\n".join(lines) + "\n")
    verdicts: dict[str, dict[str, Any]] = {d: {} for d in dtypes}
    for (dtype, name), row in sorted(rows.items()):
        verdicts[dtype][name] = row["outcomes"]
    path.with_suffix(".json").write_text(json.dumps(verdicts, indent=1, sort_keys=True) + "\n")


def earlier(page: Path, swept: Sequence[str]) -> dict[tuple[str, str], dict[str, Any]]:
    """The rows of types that were not swept this time: what came of them, not what became of their operators."""
    found = json.loads(page.with_suffix(".json").read_text())
    unknown: dict[str, Any] = {"lowered": {}, "library": {}, "decomposed": {}}
    return {
        (dtype, name): {"outcomes": outcomes, **unknown}
        for dtype, verdicts in found.items()
        for name, outcomes in verdicts.items()
        if dtype not in swept
    }


def _commit() -> str:
    """The commit that was swept, by its short name."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    found = subprocess.run(command, cwd=sweep.ROOT, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"


def _apart(rows: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """Operators that are right without being compiled in one graph: which, in which types, and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for (dtype, name), row in sorted(rows.items()):
        for outcome in row["outcomes"]:
            if outcome.startswith(APART):
                found.setdefault((name, outcome), []).append(dtype)
    if not found:
        return []
    lines = ["", "## What is right, but not in one graph", "", "| operator | types | how |", "|---|---|---|"]
    for (name, outcome), dtypes in sorted(found.items()):
        lines.append(f"| {name} | {', '.join(d for d in DTYPES if d in dtypes)} | {outcome.replace('|', '/')} |")
    return lines


def _operators(rows: dict[tuple[str, str], dict[str, Any]]) -> list[str]:
    """For each ATen operator that was seen, what becomes of it."""
    lowered: Counter[str] = Counter()
    decomposed: Counter[str] = Counter()
    library: dict[str, Counter[str]] = {}
    for row in rows.values():
        lowered.update(row["lowered"])
        decomposed.update(row["decomposed"])
        for name, reasons in row["library"].items():
            library.setdefault(name, Counter()).update(reasons)
    names = sorted({*lowered, *decomposed, *library})
    total = {"lowered": len(lowered), "decomposed": len(decomposed), "library call": len(library)}
    words = ", ".join(f"{total[k]} {k}" for k in KINDS)
    lines = [
        "",
        "## What becomes of each ATen operator",
        "",
        f"{len(names)} overloads: {words}; some are several, depending on arguments.",
        "",
    ]
    lines += ["| operator | becomes | a library call because |", "|---|---|---|"]
    for name in names:
        kinds = [k for k, where in zip(KINDS, (lowered, decomposed, library)) if name in where]
        reasons = "; ".join(sorted(library.get(name, {})))
        lines.append(f"| {name.removeprefix('aten.')} | {', '.join(kinds)} | {reasons} |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dtype", default=",".join(DTYPES), help="names of types, separated by commas")
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--operators", default="", help="names of operators, separated by commas; all if none")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--generator", choices=("cpp", "triton"), default="cpp")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=0, help="stop after this time; 0: when all are done")
    parser.add_argument("--keep", action="store_true", help="keep the page's rows of other types")
    parser.add_argument("--share", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=Path, default=sweep.ROOT / "docs" / "coverage" / "lowerings.md")
    given = parser.parse_args()
    if given.generator == "triton":
        os.environ["TRITON_INTERPRET"] = "1"
    if given.share:
        global DEVICE
        DEVICE = given.device
        if given.generator == "triton":
            interpret_triton()
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        position, count = map(int, given.share.split("/"))
        names = [n for n in given.operators.split(",") if n]
        work(given.dtype.split(","), given.samples, names, (position, count), given.to)
        return
    os.environ["PYTHONPATH"] = os.pathsep.join([str(sweep.ROOT), os.environ.get("PYTHONPATH", "")])
    rows = collect(given)
    names = [n for n in given.operators.split(",") if n]
    wanted = [
        n for d in given.dtype.split(",") for n, op in sweep.operators(getattr(torch, d)) if not names or n in names
    ]
    for dtype in given.dtype.split(","):
        print(dtype, dict(Counter(verdict(row["outcomes"]) for (d, _), row in rows.items() if d == dtype)))
    where = {"cpu": "on the processor"}.get(given.device) or f"on an {torch.cuda.get_device_name()}"
    if given.generator == "triton":
        where = "by Triton's interpreter on the processor"
    left = len(wanted) - len(rows)
    words = f" It was stopped before {left} operators and types." if left else ""
    if given.keep:
        rows |= earlier(given.to, given.dtype.split(","))
        words += f" Rows of types other than {given.dtype} are of an earlier sweep."
    write_page(given.to, rows, given.samples, where, words)


if __name__ == "__main__":
    main()
