"""Decode and encode every code object of the standard library: nothing is lost, and what comes back runs.

Left out: Lib/test and the packages' own tests (time), and files that this Python does not compile (lib2to3's data).
Other interpreters run this file through test_every_python.py.
"""

from __future__ import annotations

import importlib
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType

import pytest

from stoker.bytecode import Instruction, decode, encode
from stoker.bytecode.table import read_exception_table
from stoker.bytecode.versions import stack_slots

SHAPE = (
    "co_varnames co_cellvars co_freevars co_flags co_name co_qualname co_filename co_firstlineno co_argcount "
    "co_posonlyargcount co_kwonlyargcount co_nlocals"
)
LEFT_OUT = {"test", "tests", "idle_test", "site-packages"}


def standard_library() -> Iterator[CodeType]:
    root = Path(sysconfig.get_path("stdlib"))
    for path in sorted(root.rglob("*.py")):
        if LEFT_OUT.isdisjoint(path.relative_to(root).parts):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    module = compile(path.read_bytes(), str(path), "exec")
            except (SyntaxError, ValueError):
                continue
            yield from nested(module)


def nested(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested(constant)


def structure(instructions: list[Instruction]) -> list[tuple]:
    """Everything an instruction says but its offset, with targets by place."""
    place = {instruction: number for number, instruction in enumerate(instructions)}
    rows = []
    for instruction in instructions:
        value, handler = instruction.value, instruction.handler
        operand = ("to", place[value]) if isinstance(value, Instruction) else (type(value), repr(value))
        led = handler and (place[handler.target], handler.depth, handler.lasti)
        rows.append((instruction.name, operand, instruction.flag, instruction.positions, led))
    return rows


def handled(code: CodeType) -> list[tuple]:
    """What the interpreter's own table says of each decoded instruction. A target is known by what it is."""
    instructions = decode(code)
    rows = []
    for start, end, target, depth, lasti in read_exception_table(code.co_exceptiontable):
        [handler] = {each.name for each in instructions if each.offset == 2 * target}
        rows += [
            (number, handler, depth, lasti)
            for number, instruction in enumerate(instructions)
            if 2 * start <= instruction.offset < 2 * end
        ]
    return rows


def lines(code: CodeType) -> list[int | None]:
    """The line of each instruction as `co_lines` tells it."""
    at = {}
    for start, end, line in code.co_lines():
        at |= dict.fromkeys(range(start, end, 2), line)
    return [at[instruction.offset] for instruction in decode(code)]


def test_nothing_is_lost() -> None:
    count = 0
    for code in standard_library():
        count += 1
        before = decode(code)
        again = encode(before, code)
        where = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
        assert structure(decode(again)) == structure(before), where
        assert again.co_stacksize >= code.co_stacksize, where
        for name in SHAPE.split():
            assert getattr(again, name) == getattr(code, name), (where, name)
        if count % 10 == 0:  # these are slow, and follow from the structure
            assert handled(again) == handled(code), where
            assert lines(again) == lines(code), where
    print(f"{count} code objects")
    assert count > 10_000


def test_slots_are_where_the_interpreter_has_them() -> None:
    for code in standard_library():
        slots = stack_slots(code.co_varnames, code.co_cellvars, code.co_freevars)
        assert slots == tuple(code._varname_from_oparg(slot) for slot in range(len(slots)))


# Modules whose functions are replaced by their decoded and encoded selves, and a use of each.


def use_json(json: ModuleType) -> object:
    text = json.dumps({"a": [1, 2.5, None, True], "b": {"c": "\u00e9\n"}}, indent=2, sort_keys=True)
    with pytest.raises(json.JSONDecodeError):
        json.loads('{"a": }')
    return text, json.loads(text), list(json.JSONEncoder().iterencode([{"x": (1, 2)}, {}]))


def use_textwrap(textwrap: ModuleType) -> object:
    text = "The quick brown fox jumps over the lazy dog, and " * 5
    return textwrap.fill(text, 30), textwrap.dedent("  a\n    b\n"), textwrap.shorten(text, 40)


def use_heapq(heapq: ModuleType) -> object:
    return list(heapq.merge([1, 4, 9], [2, 3], [0, 10], key=lambda x: x)), heapq.nsmallest(3, [5, 1, 4, 2], key=abs)


def use_dataclasses(dataclasses: ModuleType) -> object:
    @dataclasses.dataclass(order=True, frozen=True)
    class Point:
        x: int
        y: list = dataclasses.field(default_factory=list, compare=False)

    with pytest.raises(dataclasses.FrozenInstanceError):
        Point(1).x = 2
    return repr(Point(1)), Point(1) < Point(2), dataclasses.asdict(Point(3, [4])), dataclasses.replace(Point(5), x=6).x


def use_argparse(argparse: ModuleType) -> object:
    parser = argparse.ArgumentParser(prog="p", exit_on_error=False)
    parser.add_argument("--many", nargs="*", type=int)
    parser.add_argument("file")
    with pytest.raises(argparse.ArgumentError):
        parser.parse_args(["x", "--many", "no"])
    return vars(parser.parse_args(["f", "--many", "1", "2"])), parser.format_usage()


def use_contextlib(contextlib: ModuleType) -> object:
    seen = []

    @contextlib.contextmanager
    def manager():
        try:
            yield seen.append("in")
        finally:
            seen.append("out")

    with contextlib.suppress(ValueError), contextlib.ExitStack() as stack:
        stack.enter_context(manager())
        stack.callback(seen.append, "callback")
        raise ValueError
    return seen


def use_asyncio(runners: ModuleType) -> object:
    import asyncio

    async def numbers():
        for number in range(3):
            await asyncio.sleep(0)
            yield number

    async def work():
        return [number async for number in numbers()], await asyncio.gather(asyncio.sleep(0, 1), asyncio.sleep(0, 2))

    return runners.run(work())


def use_statistics(statistics: ModuleType) -> object:
    return statistics.stdev([1, 2, 3.5]), statistics.quantiles([1, 5, 2, 8], n=3), statistics.mode("aab")


def use_ast(ast: ModuleType) -> object:
    tree = ast.parse("def f(a, *b, c=1, **d):\n  with x as y: return [i async for i in z if i]\nf'{a!r:>{w}}'")
    return ast.unparse(tree), ast.dump(tree), ast.literal_eval("{'a': (1, -2j)}")


def use_difflib(difflib: ModuleType) -> object:
    return list(difflib.unified_diff(["a", "b", "c"], ["a", "x", "c"])), difflib.get_close_matches(
        "appel", ["apple", "ape"]
    )


USES = {
    "json": (use_json, ["json.decoder", "json.encoder", "json.scanner"]),
    "textwrap": (use_textwrap, []),
    "heapq": (use_heapq, []),
    "dataclasses": (use_dataclasses, []),
    "argparse": (use_argparse, []),
    "contextlib": (use_contextlib, []),
    "asyncio.runners": (use_asyncio, ["asyncio.base_events", "asyncio.tasks", "asyncio.events"]),
    "statistics": (use_statistics, []),
    "ast": (use_ast, []),
    "difflib": (use_difflib, []),
}


def functions(module: ModuleType) -> Iterator[FunctionType]:
    """The functions that a module defines, in classes too."""
    for holder in [module, *(value for value in vars(module).values() if isinstance(value, type))]:
        for value in vars(holder).values():
            function = getattr(value, "__func__", None) or getattr(value, "fget", None) or value
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                yield function


def encode_again(code: CodeType, padding: int) -> CodeType:
    """Through decode and encode, with the code objects inside, and with `padding` NOPs before each load.

    The padding makes jumps long and moves all that exception and location tables speak of.
    """
    instructions = []
    for instruction in decode(code):
        if isinstance(instruction.value, CodeType):
            instruction.value = encode_again(instruction.value, padding)
        if instruction.name in ("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL"):
            spot, handler = instruction.positions, instruction.handler
            instructions += [Instruction("NOP", positions=spot, handler=handler) for _ in range(padding)]
        instructions.append(instruction)
    return encode(instructions, code)


@pytest.mark.parametrize("padding", [0, 40])
@pytest.mark.parametrize("name", USES)
def test_what_comes_back_runs(name: str, padding: int, monkeypatch: pytest.MonkeyPatch) -> None:
    use, further = USES[name]
    module = importlib.import_module(name)
    expected = use(module)
    changed = 0
    for each in [module, *map(importlib.import_module, further)]:
        for function in functions(each):
            monkeypatch.setattr(function, "__code__", encode_again(function.__code__, padding))
            changed += 1
    assert changed > 5
    assert use(module) == expected
