"""The state of the house in figures: lines, import cycles, classes, `Any`, private names of torch, names given twice.

    python tools/figures.py        prints them; fails where a figure is past its gate

Imports under TYPE_CHECKING and inside functions count as imports: a cycle of types is a cycle for the reader.
"""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).parent.parent
PYTHON_GOAL, CPP_GOAL = 45_000, 5_000
PYTHON_GATE, CPP_GATE = 1.5 * PYTHON_GOAL, 1.3 * CPP_GOAL
CYCLE_GATE, METHODS_GATE = 11, 40
PRESCRIBED = "stoker.shape.symnode."  # torch asks a symbolic number for each of these methods by name
WRITTEN = "// Written by tools/"  # how a file begins that nobody wrote by hand
DOOR = "stoker.torch_private"  # the one module that may name what torch does not publish


@dataclass(frozen=True)
class Module:
    """One Python file of the package."""

    name: str
    path: Path

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.path.read_text())

    @property
    def package(self) -> str:
        return ".".join(self.name.split(".")[:2]) if self.name.count(".") > 1 or self.is_package else "stoker"

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @cached_property
    def lines(self) -> int:
        return len(self.path.read_text().splitlines())


def modules() -> dict[str, Module]:
    found = {}
    for path in sorted((ROOT / "stoker").rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        found[name] = Module(name, path)
    return found


def imports_of(module: Module, known: dict[str, Module]) -> set[str]:
    """The modules of the package that this one names in an import, and the packages whose opening that runs."""
    found: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in known else node.module)
    opened = {".".join(name.split(".")[:end]) for name in found for end in range(2, name.count(".") + 1)}
    outside = {name for name in opened if not module.name.startswith(f"{name}.")}
    return {name for name in found | outside if name in known and name not in ("stoker", module.name)}


def cycles(known: dict[str, Module]) -> list[list[str]]:
    """Groups of modules that all reach each other by imports, largest first (Tarjan's algorithm)."""
    edges = {name: sorted(imports_of(module, known)) for name, module in known.items()}
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        order[name] = lowest[name] = len(order)
        stack.append(name)
        for other in edges[name]:
            if other not in order:
                visit(other)
                lowest[name] = min(lowest[name], lowest[other])
            elif other in stack:
                lowest[name] = min(lowest[name], order[other])
        if lowest[name] == order[name]:
            group = stack[stack.index(name) :]
            del stack[stack.index(name) :]
            if len(group) > 1:
                found.append(sorted(group))

    sys.setrecursionlimit(10_000)
    for name in edges:
        if name not in order:
            visit(name)
    return sorted(found, key=len, reverse=True)


def classes(known: dict[str, Module]) -> Iterator[tuple[str, ast.ClassDef]]:
    for module in known.values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ClassDef):
                yield module.name, node


def method_counts(known: dict[str, Module]) -> list[tuple[int, str]]:
    """Methods of each class with those mixed into it: what is written about one `self`.

    Of several bases the first is what the class is, the others are parts of it.
    """
    bodies = {node.name: node for _, node in classes(known)}

    def answered(node: ast.ClassDef, seen: frozenset[str]) -> set[str]:
        own = {member.name for member in node.body if isinstance(member, ast.FunctionDef)}
        for base in node.bases[1:]:
            if isinstance(base, ast.Name) and base.id in bodies and base.id not in seen:
                own |= answered(bodies[base.id], seen | {base.id})
        return own

    counted = [
        (len(answered(node, frozenset({node.name}))), f"{module}.{node.name}") for module, node in classes(known)
    ]
    return sorted((entry for entry in counted if not entry[1].startswith(PRESCRIBED)), reverse=True)


def uses_of_any(module: Module) -> int:
    return sum(isinstance(node, ast.Name) and node.id == "Any" for node in ast.walk(module.tree))


def private_names(known: dict[str, Module]) -> dict[str, list[str]]:
    """By module: names that torch does not publish, reached other than through `torch_private`.

    Such a name begins with one underscore, is read from an object other than `self`, and no file of the package gives it.
    ATen's operators are not torch's private names, whatever they begin with.
    """
    given = {name for module in known.values() for name in _names_given(module)}
    return {
        module.name: sorted(_reaches(module, given), key=lambda text: int(text.split(":")[0]))
        for module in known.values()
        if module.name != DOOR
    }


OWN = (["self"], ["cls"])


def _names_given(module: Module) -> Iterator[str]:
    for node in ast.walk(module.tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and _chain(node.value) in OWN:
            yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def _reaches(module: Module, given: set[str]) -> Iterator[str]:
    others = {alias.name for node in module.tree.body if isinstance(node, ast.Import) for alias in node.names} - {
        "torch"
    }
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in given:
            chain = _chain(node.value)
            if chain[0] not in {"self", "cls", "aten", *others} and chain[:2] != ["torch", "ops"]:
                yield f"{node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            origin = (node.module or "").split(".") if isinstance(node, ast.ImportFrom) else []
            for alias in node.names:
                whole = [*origin, *alias.name.split(".")]
                if whole[0] == "torch" and any(_is_private(part) for part in whole):
                    yield f"{node.lineno}: {'.'.join(whole)}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith(("__", "_stoker"))


def _chain(node: ast.expr) -> list[str]:
    """`torch.ops.aten` as its names; empty where it does not begin with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else [""]


def given_twice(known: dict[str, Module]) -> dict[str, list[str]]:
    """Names of classes that more than one module gives."""
    found: dict[str, list[str]] = defaultdict(list)
    for module, node in classes(known):
        if not node.name.startswith("_"):
            found[node.name].append(module)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def repeated_pairs() -> str:
    """How many pairs of places share six or more lines, where the command that finds them is installed."""
    command = shutil.which("duplicates")
    if command is None:
        return "not counted: the command is not installed"
    done = subprocess.run([command, "--repo", "stoker", "--most", "200"], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.splitlines()[0] if done.stdout else "not counted: it said nothing"


def main() -> int:
    known = modules()
    reached = private_names(known)
    lines: dict[str, int] = defaultdict(int)
    anys: dict[str, int] = defaultdict(int)
    private: dict[str, list[str]] = defaultdict(list)
    for module in known.values():
        lines[module.package] += module.lines
        anys[module.package] += uses_of_any(module)
        private[module.package] += [f"{module.name}:{name}" for name in reached.get(module.name, [])]
    sources = [p.read_text() for p in (ROOT / "csrc").iterdir() if p.suffix in (".cpp", ".h")]
    native = sum(len(text.splitlines()) for text in sources if not text.startswith(WRITTEN))

    print(f"{'lines':>8} {'Any':>6} {'private':>8}  package")
    for package in sorted(lines):
        print(f"{lines[package]:8,} {anys[package]:6} {len(private[package]):8}  {package}")
    total = sum(lines.values())
    print(
        f"{total:8,} {sum(anys.values()):6} {sum(map(len, private.values())):8}  all of it (goal: {PYTHON_GOAL:,} lines)"
    )
    print(f"{native:8,} {'':6} {'':8}  csrc (goal: {CPP_GOAL:,} lines)")
    print("largest files:")
    for module in sorted(known.values(), key=lambda m: -m.lines)[:6]:
        print(f"{module.lines:8,}  {module.path.relative_to(ROOT)}")

    groups, counts = cycles(known), method_counts(known)
    print(f"import cycles, types included (gate: {CYCLE_GATE} modules):")
    for group in groups:
        print(f"{len(group):8}  {', '.join(name.removeprefix('stoker.') for name in group)}")
    print(f"largest classes, by methods with mixed-in ones (gate: {METHODS_GATE}):")
    for count, name in counts[:5]:
        print(f"{count:8}  {name}")
    print("private names of torch outside torch_private:")
    for names in private.values():
        for name in names:
            print(f"{'':8}  {name}")
    print("classes of one name in two places:")
    for name, places in given_twice(known).items():
        print(f"{'':8}  {name}: {', '.join(places)}")

    print(f"repeated code: {repeated_pairs()}")

    past = []
    if total > PYTHON_GATE or native > CPP_GATE:
        past.append("lines")
    if groups and len(groups[0]) > CYCLE_GATE:
        past.append("import cycles")
    if given_twice(known):
        past.append("names of classes")
    if counts[0][0] > METHODS_GATE:
        past.append("methods of a class")
    if past:
        print(f"past the gate: {', '.join(past)}")
    return bool(past)


if __name__ == "__main__":
    sys.exit(main())
