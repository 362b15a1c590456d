"""Random Python programs: eager and compiled agree on the result, the arguments afterwards, printed output and exceptions.

Programs are source text: tensors, ints, lists, dictionaries and text, moved about by branches, loops, comprehensions, closures,
generators, exceptions, context managers, calls with keywords, and now and then something that breaks the graph. The same
programs come at each run; `STOKER_FUZZ=5000` tries that many others.
"""

from __future__ import annotations

import itertools
import linecache
import os
import random
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import stoker
from stoker import log
from tests.differential.harness import BREAK, Program, Runner, compare

COUNT = int(os.environ.get("STOKER_FUZZ", "0"))
SEEDS = range(1000, 1000 + COUNT) if COUNT else range(160)
MARK = re.compile(r"\bNEW_(\w+)\b")  # a name to assign, once the right side is written
names = itertools.count()

PRELUDE = """
import contextlib
import functools
import itertools
import operator
import torch


class Box:
    size = 3

    def __init__(self, held):
        self.held = held

    @property
    def doubled(self):
        return self.held * 2

    def shifted(self, by=1):
        return self.held + by

    def __len__(self):
        return 2

    def __eq__(self, other):
        return isinstance(other, Box)


def weighted(x, *rest, scale=2, **named):
    return x * scale + len(rest) + sum(named.values())
"""


class Writer:
    """Writes one program: statements over tensors `t*`, ints `n*`, lists of ints `xs*`, dictionaries `d*` and text `s*`."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.kinds: dict[str, list[str]] = {
            "t": ["t0", "t1"],
            "n": ["n0", "n1"],
            "xs": ["xs0"],
            "d": ["d0"],
            "s": ["s0"],
        }
        self.fresh = itertools.count(10)
        self.in_loop = False

    def pick(self, kind: str) -> str:
        return self.random.choice(self.kinds[kind])

    def new(self, kind: str) -> str:
        """A name to assign: a fresh one, or one that is there."""
        if self.random.random() < 0.5:
            return self.pick(kind)
        name = f"{kind}{next(self.fresh)}"
        self.kinds[kind].append(name)
        return name

    def number(self) -> str:
        n, m, xs, d = self.pick("n"), self.pick("n"), self.pick("xs"), self.pick("d")
        small = self.random.randint(1, 5)
        return self.random.choice(
            [
                f"{n} + {small}", f"{n} * 2 - {m}", f"{n} % {small}", f"-{n} // {small}", f"len({xs})", f"sum({xs}[:3])",
                f"max([{n}, {m}])", f"{d}.get('a', {small})", f"({n} if {n} > {m} else {m})", f"{self.pick('t')}.shape[0]",
                f"abs({n}) & 7", f"int({n} == {m})", f"len({self.pick('s')})", f"({n} << 1) ^ {small}", f"len(Box({n}))",
                f"functools.reduce(lambda a, b: a + b, {xs}, {small})", f"sum(1 for v in {xs} if v > {small})",
                f"min({n}, {m}, key=lambda v: -v)", f"Box({n}).doubled", f"Box.size * {small}", f"round({n} / {small})",
                f"{self.pick('t')}.dim()", f"bool({xs}) + {n}", f"next(iter({xs}), {small})", f"divmod({n}, {small})[1]",
            ]
        )  # fmt: skip

    def tensor(self) -> str:
        t, u, n = self.pick("t"), self.pick("t"), self.pick("n")
        return self.random.choice(
            [
                f"{t} + {u}", f"{t} * {n}", f"torch.relu({t})", f"{t} - {u}.mean()", f"{t}.exp().clamp(max=9)", f"{t} / 3",
                f"torch.where({t} > 0, {t}, {u})", f"{t}.sum(-1, keepdim=True) + {u}", f"torch.stack([{t}, {u}]).amax(0)",
                f"weighted({t}, {n}, scale=0.5, more={n})", f"weighted({t}, *{self.pick('xs')}[:2])", f"Box({t}).shifted()",
                f"{t}.flip(0).contiguous()", f"torch.cat([{t}, {u}])[: {t}.shape[0]]", f"sum([{t}, {u}])", f"{t}[0] + {u}",
                f"functools.partial(torch.add, {t})({u})", f"operator.sub({t}, {u})", f"[{t}, {u}][{n} % 2] * 1.0",
                f"({t} @ {u}.t()).tanh()[:, :1] + {t}", f"getattr({t}, 'abs')()", f"{t}.clone().add_({n})",
            ]
        )  # fmt: skip

    def condition(self) -> str:
        n, m, xs, d = self.pick("n"), self.pick("n"), self.pick("xs"), self.pick("d")
        return self.random.choice(
            [
                f"{n} > {m}", f"{n} % 2", f"{xs}", f"'a' in {d}", f"not {d} or {n}", f"{n} in {xs}", f"1 < {n} <= {m} + 4",
                f"{self.pick('s')}.startswith('a')", f"isinstance({n}, int) and {n} != {m}", f"{xs} == sorted({xs})",
                f"Box(1) == Box(2) and {n} < 6", f"{self.pick('t')} is {self.pick('t')}", f"any(v > 2 for v in {xs})",
            ]
        )  # fmt: skip

    def block(self, depth: int) -> list[str]:
        lines: list[str] = []
        held = {kind: list(found) for kind, found in self.kinds.items()}
        for _ in range(self.random.randint(1, 3)):
            lines += self.statement(depth)
        self.kinds = held  # what a block may not have assigned is not read behind it
        return lines

    def statement(self, depth: int) -> list[str]:
        simple = [
            self.assign_number,
            self.assign_tensor,
            self.assign_tensor,
            self.list_change,
            self.dict_change,
            self.text,
        ]
        compound = [self.branch, self.loop, self.attempt, self.function, self.generator, self.scope, self.unpack]
        rare = [self.breaking, self.printing]
        weights = [(simple, 6), (compound, 4 if depth else 0), (rare, 1)]
        group = self.random.choices([group for group, _ in weights], [weight for _, weight in weights])[0]
        lines = self.random.choice(group)(depth)
        return [MARK.sub(lambda found: self.new(found[1]), line) for line in lines]

    def assign_number(self, depth: int) -> list[str]:
        right = self.number()
        return [f"{self.new('n')} = ({right}) % 97"]

    def assign_tensor(self, depth: int) -> list[str]:
        right = self.tensor()
        if self.random.random() < 0.2:
            return [f"{self.pick('t')} += {right}"] if self.random.random() < 0.3 else [f"t0 = {right}"]
        return [f"{self.new('t')} = {right}"]

    def list_change(self, depth: int) -> list[str]:
        xs, n = self.pick("xs"), self.pick("n")
        return [
            self.random.choice(
                [
                    f"{xs}.append({n})", f"{xs}.insert(0, {n})", f"{xs}[:] = {xs}[::-1]", f"{xs}.sort()", f"{xs} += [{n}, 1]",
                    f"{xs}.extend(v + 1 for v in {xs}[:2])", f"NEW_xs = [v * 2 for v in {xs} if v != {n}]",
                    f"NEW_xs = list({self.pick('d')}.values())", f"NEW_xs = {xs}[1:] + [{n}]",
                    f"NEW_xs = [a + b for a, b in zip({xs}, {self.pick('xs')})]", f"{xs}.reverse()",
                    f"NEW_xs = sorted(set({xs}), reverse=True)", f"{xs} and {xs}.pop()",
                    f"NEW_xs = [i * v for i, v in enumerate({xs}, 1)]",
                    f"NEW_xs = list(itertools.accumulate({xs}))",
                ]
            )
        ]  # fmt: skip

    def dict_change(self, depth: int) -> list[str]:
        d, n = self.pick("d"), self.pick("n")
        return [
            self.random.choice(
                [
                    f"{d}['a'] = {n}", f"{d}[{self.pick('s')}] = {n}", f"{d}.setdefault('b', {n})", f"{d}.pop('a', None)",
                    f"{d}.update(c={n})", f"NEW_d = {{k: v + 1 for k, v in {d}.items()}}",
                    f"NEW_d = {{**{d}, 'z': {n}}}", f"NEW_d = {d} | {{'y': {n}}}",
                    f"NEW_d = dict(zip('abc', {self.pick('xs')}))",
                ]
            )
        ]  # fmt: skip

    def text(self, depth: int) -> list[str]:
        s, n = self.pick("s"), self.pick("n")
        right = self.random.choice(
            [
                f"f'{{{n}:>3}}{{{s}[:2]}}'",
                f"{s}.upper() + 'a'",
                f"'-'.join(map(str, {self.pick('xs')}[:3]))",
                f"'a%d' % {n}",
            ]
        )
        return [f"{self.new('s')} = {right}"]

    def branch(self, depth: int) -> list[str]:
        lines = [f"if {self.condition()}:", *indented(self.block(depth - 1))]
        return lines + ["else:", *indented(self.block(depth - 1))] if self.random.random() < 0.6 else lines

    def loop(self, depth: int) -> list[str]:
        index = f"n{next(self.fresh)}"
        over = self.random.choice([f"range({self.pick('n')} % 4)", f"list({self.pick('xs')})[:3]", "(2, 5)"])
        outside, self.in_loop = self.in_loop, True
        self.kinds["n"].append(index)
        body = self.block(depth - 1)
        if self.random.random() < 0.3:
            body += [f"if {self.condition()}:", f"    {self.random.choice(['break', 'continue'])}"]
        self.kinds["n"].remove(index)
        self.in_loop = outside
        return [f"for {index} in {over}:", *indented(body)]

    def attempt(self, depth: int) -> list[str]:
        wrong = self.random.choice(
            [
                f"{self.pick('d')}['missing']", f"{self.pick('xs')}[40]", f"1 // ({self.pick('n')} % 2)", "raise ValueError('no')",
                f"int({self.pick('s')})", f"{self.pick('t')}.no_such_attribute", f"{self.pick('n')}()", "weighted()",
                f"[].index({self.pick('n')})", "next(iter([]))",
            ]
        )  # fmt: skip
        caught = self.random.choice(["Exception", "(KeyError, IndexError, ValueError)", "LookupError"])
        lines = ["try:", *indented(self.block(depth - 1)), f"    {wrong}", f"except {caught} as error:"]
        lines += [f"    {self.pick('s')} = type(error).__name__ + str(error)[:40]", *indented(self.block(depth - 1))]
        return lines + ["finally:", *indented(self.assign_number(depth))] if self.random.random() < 0.4 else lines

    def function(self, depth: int) -> list[str]:
        name, n, t = f"f{next(self.fresh)}", self.pick("n"), self.pick("t")
        made = self.random.choice(
            [
                [f"def {name}(x, k={n}):", f"    return x * k + {t}.mean()"],
                [f"def {name}(x):", f"    nonlocal_list.append({n})", "    return x + len(nonlocal_list)"],
                [f"{name} = lambda x, *rest: x - len(rest) + {n}"],
            ]
        )
        return ["nonlocal_list = []", *made, f"NEW_t = {name}({t})"]

    def generator(self, depth: int) -> list[str]:
        name, xs = f"g{next(self.fresh)}", self.pick("xs")
        lines = [
            f"def {name}(limit):",
            "    for k in range(limit):",
            "        got = yield k",
            "        if got: return 'early'",
        ]
        used = self.random.choice(
            [
                f"NEW_xs = list({name}({self.pick('n')} % 5))", f"NEW_n = sum({name}(3)) % 97",
                f"{xs}.extend({name}(2))", f"NEW_xs = [*{name}(2), *{name}(3)]",
            ]
        )  # fmt: skip
        return [*lines, used]

    def scope(self, depth: int) -> list[str]:
        manager = self.random.choice(["torch.no_grad()", "contextlib.nullcontext()", "contextlib.suppress(KeyError)"])
        return [f"with {manager}:", *indented(self.block(depth - 1))]

    def unpack(self, depth: int) -> list[str]:
        right = self.random.choice([f"({self.pick('n')}, {self.pick('n')})", f"(*{self.pick('xs')}, 1, 2)[:2]"])
        a, b = self.new("n"), self.new("n")
        return [f"{a}, {b} = {right}"] if a != b else self.assign_number(depth)

    def breaking(self, depth: int) -> list[str]:
        return [f"NEW_n = int({self.pick('t')}.sum().item() > 0)"]

    def printing(self, depth: int) -> list[str]:
        return [f"print({self.pick('n')}, {self.pick('s')}, len({self.pick('xs')}))"]

    def program(self) -> str:
        body: list[str] = []
        for _ in range(self.random.randint(3, 8)):
            body += self.statement(2)
        tensors, rest = ", ".join(self.kinds["t"][-3:]), ", ".join(self.pick(kind) for kind in ("n", "xs", "d", "s"))
        head = "def program(t0, t1, n0, xs0, d0, s0='abc'):\n    n1 = 3\n"
        return (
            PRELUDE + "\n\n" + head + textwrap.indent("\n".join([*body, f"return [{tensors}], {rest}"]), "    ") + "\n"
        )


def indented(lines: list[str]) -> Iterator[str]:
    return (f"    {line}" for line in lines)


def compiled_from(text: str) -> Callable[..., Any]:
    filename = f"<fuzz {next(names)}>"
    linecache.cache[filename] = (len(text), None, text.splitlines(True), filename)
    namespace: dict[str, Any] = {"__name__": "fuzz"}
    exec(compile(text, filename, "exec"), namespace)  # noqa: S102
    return namespace["program"]


def inputs() -> tuple[Any, ...]:
    return torch.randn(3, 4), torch.randn(3, 4), random.randint(0, 5), [3, 1, 2], {"a": 1, "k": 4}


def agree(text: str) -> None:
    function = compiled_from(text)
    made = Program("fuzz", function, BREAK, inputs, False, (), False)
    eager = Runner(made, lambda f: f)
    compiled = Runner(made, lambda f: stoker.compile(f, backend=lambda graph, _: graph.forward))
    for seed in (0, 0, 1):
        compare(eager(seed), compiled(seed), f"seed {seed}")


BATCH = 20


@pytest.mark.parametrize("first", SEEDS[::BATCH])
def test_programs_agree(first: int) -> None:
    for seed in SEEDS[SEEDS.index(first) :][:BATCH]:
        log.clear()
        text = Writer(seed).program()
        try:
            agree(text)
        except Exception as error:
            raise AssertionError(f"program {seed}:\n{text.removeprefix(PRELUDE)}\n{error}") from error
