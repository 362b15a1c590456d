"""Random programs against eager: tensor operators, views, writes, containers, objects, control flow, gradients, sizes, mutations.

    PYTHONPATH=. python tools/fuzz.py --seconds 60 --out /tmp/found [--sizes 20]

A program is a list of statements drawn from the table below, over variables of known kinds. It runs eagerly and compiled, several times
with other sizes and other surroundings, or with --sizes at so many sizes and otherwise equal surroundings, and everything a user can see is compared: results, their types, strides and memory shared with
inputs, what was written, printed and raised, gradients. A program that differs is made smaller, statement by statement, and written to a
file that shows the difference when run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import random
import textwrap
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.fx import GraphModule

import stoker
from stoker.autograd import aot
from stoker.codegen.aten import through_aten
from stoker.codegen.host import host_program
from stoker.lower.driver import lower_graph
from stoker.lower.registry import CannotLower
from stoker.passes.cut import cut
from stoker.passes.floats import take_out
from stoker.pipeline import build_kernels, decompositions, improve
from stoker.schedule.plan import make_plan
from tests.unit.codegen.plain_generator import PlainGenerator

os.environ.setdefault("STOKER_PATIENCE", "inf")  # kernels are what is compared

TENSOR, INT, LIST, DICT = "t", "n", "l", "d"
# A statement: its text, and the kind of variable that it defines as {new}. {t} {u} are tensors, {n} an int, {l} a list, {d} a dict, {k} a
# number, {s} a key; a line that ends in a colon gets a body, which in a `while` counts its steps.
STATEMENTS: list[tuple[str, str | None]] = [
    *((f"{{new}} = {text}", TENSOR) for text in (
        "{t}.sin() + {k}", "torch.relu({t} - {u})", "{t} * {u}", "{t} / ({u}.abs() + 1)", "{t} * {n}", "{t} + {n} * {k}", "-{t}",
        "torch.where({t} > {k}, {t}, {u})", "torch.softmax({t}, -1)", "{t}.sum(0)", "{t}.mean(-1, keepdim=True)", "{t}.cumsum(0)",
        "{t}.amax(-1)", "{t} @ {u}.t()", "torch.cat([{t}, {u}])", "torch.stack([{t}, {t}])", "{t}.clone()", "{t}.detach()", "{t}.exp().log1p()",
        "{t}.to(torch.float64)", "({t} > {k}).float()", "torch.zeros_like({t})", "torch.full_like({t}, {k})", "{t}.clamp(-{k}, {k})",
        "torch.tanh({t}).square()", "torch.nn.functional.layer_norm({t}, {t}.shape[-1:])", "helper({t}, {n})", "box.scaled({t})",
        "torch.arange({t}.shape[0]) + {t}.sum()", "{t}.var(0)", "{t}.flip(0)", "{t}.roll(1, 0)", "torch.maximum({t}, {u})",
        "{t}.long() % 3 + {u}", "({t} * 4).int() // 2 * {k}", "{t}[torch.tensor([{n} % 3])]", "{t}.gather(0, {u}.argsort(0))", "{t}.sort(0).values",
        "torch.rand_like({t}) + {u}", "torch.nn.functional.dropout({t}, 0.5)", "{t}.index_select(-1, torch.tensor([0, {n} % 4]))",
        "{t}[{t} > {k}].sum() + {u}", "{t}[{t} > {k}][{n} % 2:]", "{t}[{t} > {k}][torch.tensor([{n} % 3])]", "({t} > {k}) - {u}",
        "{t}.index_add(0, torch.tensor([{n} % 3]), {u}[:1])", "{t}.index_select(0, torch.tensor([0, {n} % 3]))[0]", "torch.einsum('...i,...i->...', {t}, {u})", "{t}.norm(dim=-1)", "{t}.to(torch.bfloat16).to({u}.dtype)",
        # views
        "{t}.t()", "{t}[1:]", "{t}[..., ::2]", "{t}.reshape(-1)", "{t}.view(-1)", "{t}.unsqueeze(0)", "{t}.expand(2, *{t}.shape)",
        "{t}[0]", "{t}.transpose(0, -1)", "{t}.chunk(2)[0]", "{t}.squeeze()", "{t}.narrow(0, 0, 1)", "{t}[:, None]", "{t}.contiguous()",
        # by numbers that vary
        "{t}[-{n}:]", "{t}[..., -{n}:] * 2", "{t}[:-{n}]", "{t}[{n} - 2 : {n}].sin()", "{t}.narrow(0, -{n}, 1)", "{t}.select(-1, -{n}) + {k}",
        "{t}.split({n} + 1)[-1]", "{t}.roll({n}, -1)", "torch.nn.functional.pad({t}, (1 - {n}, {n}))", "{t}.repeat_interleave({n} + 1, 0)",
        "{t}.tril({n} - 2)", "torch.arange({n}) * {k} + {t}.sum()", "{t}.expand({n}, *{t}.shape)", "torch.arange(-{n}, {n} + 1) * {t}.mean()",
        # out of Python's hands
        "{l}[0]", "{l}[-1] + 1", "{d}.get('{s}', {t})", "sum({l})", "max({l}, key=lambda e: e.dim())", "[e * 2 for e in {l}][0]",
        "next(iter({d}.values()), {t})", "torch.cat([e.reshape(-1) for e in {l}])", "functools.reduce(lambda a, b: a + b, {l})",
    )),
    *((text, None) for text in (
        "{t}.add_({k})", "{t}[0] = {k}", "{t}[:1].mul_({k})", "{t} += {k}", "{t}.zero_()", "{t}.copy_({u})", "{t}[..., -1] += {u}[..., -1]",
        "{t}.masked_fill_({t} > {k}, {k})", "{t}.t_()", "{l}.append({t})", "{l}.insert(0, {t})", "{l}.reverse()", "{l}[0] = {t}",
        "{d}['{s}'] = {t}", "{d}.update({s}={t})", "{d}.pop('{s}', None)", "box.value = {t}", "box.count += 1", "box.items.append({n})",
        "{t}.scatter_(0, torch.zeros({t}.shape, dtype=torch.long), {u})", "{t}[torch.tensor([{n} % 3])] += {k}", "{t}.clamp_(min={k})",
        "{t}[{t} < 0] = {k}", "torch.mul({t}, {k}, out={u})", "{t}[torch.tensor([0, {n} % 3])] = {u}", "{t}.index_copy_(0, torch.tensor([{n} % 3]), {u}[:1])",
        "{t}.index_fill_(-1, torch.tensor([{n} % 4]), {k})", "{t}.unsqueeze_(0)", "{t}.detach().add_({u})", "{t}.unbind(0)[0].mul_({k})",
        "{t}[-{n}:] = {k}", "{t}[..., -{n}:].mul_({k})", "{t}[:{n}] += {u}[-{n}:]", "{t}[-{n}] = {k}",
        "print('{s}', {n})", "print(tuple({t}.shape))", "state['{s}'] = {n}", "del {l}[:1]",
        "if {n} > 3:", "if {t}.shape[0] > 2:", "if {t}.dim() == 2:", "if {t}.sum().item() > 1e5:", "if '{s}' in {d}:", "if {l}:",
        "for e in {l}[:3]:", "for i in range({n} % 4):", "for key, e in {d}.items():", "with torch.no_grad():", "try:",
        "for e in {t}.unbind(0):", "for i, e in enumerate({t}):", "for i, e in zip(range({t}.shape[0]), {l}):", "while steps < {t}.shape[0]:",
    )),
    *((f"{{new}} = {text}", INT) for text in ("{n} + 1", "{t}.shape[0]", "{t}.dim()", "len({l})", "{n} * 2 - 1", "{n} // 2", "box.count", "len({d})")),
    *((f"{{new}} = {text}", LIST) for text in ("[{t}, {u}]", "list({t}.unbind(0))[:2]", "[*{l}, {t}]", "{l}[::-1]", "list({t}.chunk(2))", "{l}")),
    *((f"{{new}} = {text}", DICT) for text in ("{{'{s}': {t}}}", "dict(zip('ab', {l}))", "{{**{d}, '{s}': {t}}}", "{d}")),
]  # fmt: skip
PRELUDE = """
import functools
import torch


class Box:
    def __init__(self):
        self.value, self.count, self.items = None, 0, []

    def scaled(self, t):
        self.count += 1
        return t * self.count if self.value is None else t + self.value.sum()


def helper(t, n, *, k=2.0):
    for _ in range(n % 3):
        t = t * k if t.dim() > 1 else t + n
    return t
"""


@dataclass
class Program:
    """Statements, each a line or a line with a body."""

    body: list[Any]

    def text(self) -> str:
        lines = ["def program(x, y, n, l, d, box, state):", "    t = x + 1", "    steps = 0", *_lines(self.body, 1)]
        names = sorted(set(_defined(self.body)))
        return "\n".join([*lines, f"    return {{k: v for k, v in locals().items() if k in {names!r}}}"])


def _lines(body: list[Any], depth: int) -> Iterator[str]:
    for statement in body:
        head, inner = statement if isinstance(statement, tuple) else (statement, None)
        yield "    " * depth + head
        if head.startswith("while "):
            yield "    " * (depth + 1) + "steps += 1"
        if inner is not None:
            yield from _lines(inner, depth + 1) if inner else iter(["    " * (depth + 1) + "pass"])
            if head == "try:":
                yield "    " * depth + "except (RuntimeError, IndexError):"
                yield "    " * (depth + 1) + "n = n + 1"


def _defined(body: list[Any]) -> Iterator[str]:
    for statement in body:
        head, inner = statement if isinstance(statement, tuple) else (statement, [])
        if " = " in head and head.split(" = ")[0].isidentifier():
            yield head.split(" = ")[0]
        yield from _defined(inner)


@dataclass
class Writer:
    """Draws statements. Variables that a block defines are used inside it only: they may not be there afterwards."""

    choice: random.Random
    counter: Iterator[int] = field(default_factory=itertools.count)

    def block(self, known: dict[str, list[str]], length: int, depth: int) -> list[Any]:
        known = {kind: list(names) for kind, names in known.items()}
        made: list[Any] = []
        for _ in range(length):
            text, kind = self.choice.choice(STATEMENTS)
            opens = text.endswith(":")
            if opens and depth >= 2:
                continue
            filled = self.filled(text, known)
            if kind is not None:
                known[kind].append(filled.split(" = ")[0])
            made.append((filled, self.block(known, self.choice.randint(1, 3), depth + 1)) if opens else filled)
        return made

    def filled(self, text: str, known: dict[str, list[str]]) -> str:
        pick = lambda kind: self.choice.choice(known[kind][-4:] if self.choice.random() < 0.7 else known[kind])  # noqa: E731
        return text.format(
            t=pick(TENSOR), u=pick(TENSOR), n=pick(INT), l=pick(LIST), d=pick(DICT), new=f"v{next(self.counter)}",
            k=self.choice.choice(["0.5", "2.0", "1.25", "3"]), s=self.choice.choice("abc"),
        )  # fmt: skip


def draw(seed: int) -> Program:
    choice = random.Random(seed)
    known = {TENSOR: ["x", "y", "t"], INT: ["n"], LIST: ["l"], DICT: ["d"]}
    return Program(Writer(choice).block(known, choice.randint(2, 10), 0))


CALLS = 3


@dataclass(frozen=True)
class Trial:
    """How a program is run: under which settings, and with what from call to call."""

    seed: int
    settings: dict[str, Any]
    sizes: int = 0
    """At how many sizes, all else equal; 0: sizes, types and contents differ from call to call."""

    def calls(self) -> int:
        return self.sizes or CALLS

    def shape(self, call: int, choice: random.Random) -> tuple[int, int]:
        if not self.sizes:
            return choice.randint(1, 4), choice.randint(1, 5)
        drawn = random.Random(self.seed * 31 + call)
        return drawn.randint(1, 24), drawn.choice([1, 2, 3, 4, 5, 7, 8, 12, 16, 17, 33])

    def surroundings(self, call: int, namespace: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments of one call."""
        choice = random.Random(self.seed * 31 + (0 if self.sizes else call // 2))
        generator = torch.Generator().manual_seed(self.seed + call)
        shape = self.shape(call, choice)
        dtype = choice.choice([torch.float32, torch.float32, torch.float64])
        x = torch.randn(shape, generator=generator, dtype=dtype)
        y = torch.randn(shape, generator=generator, dtype=dtype).requires_grad_(choice.random() < 0.4)
        box = namespace["Box"]()
        box.count = choice.randint(0, 2)
        lists = [torch.randn(shape, generator=generator, dtype=dtype) for _ in range(choice.randint(1, 3))]
        return x, y, choice.randint(0, 6), lists, {"a": x * 2, "b": lists[0]}, box, {}


def seen(value: Any, inputs: list[torch.Tensor]) -> Any:
    """Everything about a value that a program can see, tensors as tensors."""
    if isinstance(value, torch.Tensor):
        shared = [value.untyped_storage().data_ptr() == t.untyped_storage().data_ptr() for t in inputs]
        strides = [s for s, size in zip(value.stride(), value.shape) if size > 1]
        return (
            "tensor",
            str(value.dtype),
            tuple(value.shape),
            strides,
            value.requires_grad,
            shared,
            value.detach().clone(),
        )
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [seen(part, inputs) for part in value]
    if isinstance(value, dict):
        return "dict", [(key, seen(part, inputs)) for key, part in value.items()]
    return type(value).__name__, getattr(value, "__dict__", None) and seen(vars(value), inputs) or str(value)


def outcome(function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    inputs = [*arguments[:2], *arguments[3]]
    printed = io.StringIO()
    torch.manual_seed(0)
    with contextlib.redirect_stdout(printed):
        try:
            result = function(*arguments)
            raised = None
        except Exception as error:
            result, raised = None, type(error).__name__
    left = [torch.get_rng_state(), torch.is_grad_enabled()]
    torch.set_grad_enabled(True)
    gradient = _gradient(result, arguments[1]) if raised is None else None
    return seen([result, arguments, printed.getvalue(), raised, *left], inputs), gradient


REFUSED = "refused"


def _gradient(result: dict[str, Any], leaf: torch.Tensor) -> Any:
    """Of a weighted sum of all results: neighbours have other weights. How it lies in memory is nobody's promise."""
    results = [t for t in result.values() if isinstance(t, torch.Tensor) and t.requires_grad]
    if not results or not leaf.requires_grad:
        return None
    try:
        total = [(t * (torch.arange(t.numel()).view(t.shape) % 5 + 1)).sum().double() for t in results]
        (found,) = torch.autograd.grad(torch.stack(total).sum(), leaf, allow_unused=True)
    except RuntimeError:
        return REFUSED
    except Exception as error:  # noqa: BLE001  (a defect of the back end, which eager does not have)
        return type(error).__name__
    return found


def same(a: Any, b: Any, atol: float = 1e-4) -> bool:
    if isinstance(a, torch.Tensor):
        if not isinstance(b, torch.Tensor) or a.shape != b.shape:
            return False
        return torch.allclose(a.double(), b.double(), rtol=1e-3, atol=atol, equal_nan=True)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def same_gradient(a: Any, b: Any) -> bool:
    """In float32 the gradient of a normalized row of two elements is nothing but rounding errors, of a hundredth at most. A third of the calls
    compute in float64."""
    single = isinstance(a, torch.Tensor) and a.dtype is torch.float32
    return same(a, b, 2e-2 if single else 1e-4)


def difference(program: Program, trial: Trial) -> str | None:
    """Where compiled code differs from eager; None if it does not."""
    namespace: dict[str, Any] = {}
    exec(compile(PRELUDE + program.text(), f"<program {trial.seed}>", "exec"), namespace)
    stoker.reset()
    compiled = stoker.compile(namespace["program"], **trial.settings)
    for call in range(trial.calls()):
        expected = outcome(namespace["program"], trial.surroundings(call, namespace))
        found = outcome(compiled, trial.surroundings(call, namespace))
        # what was overwritten may be what eager kept for the gradient, and not what we kept
        refused = expected[1] is REFUSED
        if not same(expected[0], found[0]) or not (refused or same_gradient(expected[1], found[1])):
            return f"call {call}\n  eager:    {expected}\n  compiled: {found}"
    return None


def smaller(program: Program) -> Iterator[Program]:
    """The program without one statement, or with a block in the place of its head."""
    for body in _smaller_bodies(program.body):
        yield Program(body)


def _smaller_bodies(body: list[Any]) -> Iterator[list[Any]]:
    for index, statement in enumerate(body):
        before, after = body[:index], body[index + 1 :]
        yield before + after
        if isinstance(statement, tuple):
            yield before + statement[1] + after
            yield from ([*before, (statement[0], inner), *after] for inner in _smaller_bodies(statement[1]))


def minimized(program: Program, trial: Trial) -> Program:
    for candidate in smaller(program):
        with contextlib.suppress(SyntaxError, NameError):
            if difference(candidate, trial) is not None:
                return minimized(candidate, trial)
    return program


def report(program: Program, trial: Trial, folder: Path) -> Path:
    small = minimized(program, trial)
    path = folder / f"program_{trial.seed}.py"
    words = textwrap.indent(str(difference(small, trial)), "# ")
    run = (
        f"\n\nif __name__ == '__main__':\n    from tools import fuzz\n    print(fuzz.rerun(__file__, fuzz.{trial!r}))\n"
    )
    path.write_text(f"{words}\n{PRELUDE}\n\n{small.text()}{run}")
    return path


def rerun(path: str, trial: Trial) -> str | None:
    """Run a program from a file again."""
    source = Path(path).read_text()
    program = Program([])
    program.text = lambda: source[source.index("def program(") : source.index("\n\nif __name__")]  # type: ignore[method-assign]
    return difference(program, trial)


PLAIN = PlainGenerator()


@stoker.register_backend(name="plain")
def plain(graph_module: GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
    """The default back end down to its kernels, which are Python functions: no program waits for g++."""
    targets = {"cpu": PLAIN.target}

    def compiler(module: GraphModule, fakes: list[Any]) -> Callable[..., Any]:
        if cut(module) is not None or take_out(module, by_value=True) is not None:
            return through_aten(module)
        improve(module)
        try:
            program = lower_graph(module, targets)
        except CannotLower:
            return through_aten(module)
        plan = make_plan(program, targets)
        kernels = build_kernels(plan, program.layouts, {"cpu": PLAIN})
        return _fresh(host_program(plan, [built.call for built in kernels]))

    return aot(graph_module, example_inputs, forward_compiler=compiler, decompositions=decompositions())


def _fresh(call: Callable[..., tuple[Any, ...]]) -> Callable[..., tuple[Any, ...]]:
    """Results in memory of their own, as the executor gives them: the host program's are parts of an arena."""

    def own(value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or value._base is None:
            return value
        memory = value.untyped_storage().clone()
        return torch.empty(0, dtype=value.dtype).set_(memory, value.storage_offset(), value.shape, value.stride())

    return lambda *inputs: tuple(map(own, call(*inputs)))


BACKENDS = {"eager": 30, "aot_eager": 31, "plain": 38, "stoker": 1}
"""In how many of a hundred programs; g++ takes as long for one as all else for six."""
SETTINGS = [
    {"backend": backend, "dynamic": dynamic}
    for backend, percent in BACKENDS.items()
    for _ in range(percent)
    for dynamic in (None, True, False)
]
random.Random(0).shuffle(SETTINGS)


def search(
    first: int, seconds: float, folder: Path, limit: int | None = None, sizes: int = 0
) -> tuple[int, list[Path]]:
    """Try programs until the time is over: how many, and the files of those that differ."""
    settings = [each for each in SETTINGS if not sizes or each["dynamic"] is not False]
    found: list[Path] = []
    start = time.monotonic()
    for tried, seed in enumerate(itertools.count(first)):
        if time.monotonic() - start > seconds or tried == limit:
            return tried, found
        trial = Trial(seed, settings[seed % len(settings)], sizes)
        program = draw(seed)
        if difference(program, trial) is not None:
            found.append(report(program, trial, folder))
            print(found[-1], trial, flush=True)
    raise AssertionError("count() does not end")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--sizes", type=int, default=0, help="run each program at so many sizes")
    parser.add_argument("--out", type=Path, default=Path("fuzz_found"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    tried, found = search(options.seed, options.seconds, options.out, sizes=options.sizes)
    print(f"{tried} programs, {len(found)} differ")
    raise SystemExit(bool(found))


if __name__ == "__main__":
    main()
