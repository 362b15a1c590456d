"""Every emitter, by running what it emits."""

import inspect
from types import CellType, FunctionType, SimpleNamespace

import pytest

from stoker.bytecode import Instruction, assemble, build, decode, encode
from tests.unit.bytecode import writing

EMITTERS = {
    name for name, value in vars(build).items() if inspect.isfunction(value) and value.__module__ == build.__name__
}
PUBLIC = {name for name in EMITTERS if not name.startswith("_")}


def run(*parts, arguments=None, names=None, **options):
    """Assemble the parts and a return, call with keyword arguments, give the result."""
    arguments = arguments or {}
    code = assemble(
        [*(each for part in parts for each in part), *build.return_value()],
        name="f",
        argnames=tuple(arguments),
        **options,
    )
    return FunctionType(code, names if names is not None else {"__builtins__": __builtins__})(**arguments)


def consts(*values):
    return [each for value in values for each in build.load_const(value)]


def collect(*arguments, **keywords):
    return arguments, keywords


def test_this_file_names_every_emitter():
    source = inspect.getsource(inspect.getmodule(run))
    assert [name for name in sorted(PUBLIC) if f"build.{name}" not in source and f"{name}(" not in source] == []


def test_constants_and_locals():
    marker = object()
    assert run(build.load_const(marker)) is marker
    assert run(build.load_fast("x"), build.store_fast("y"), build.load_fast("y"), arguments={"x": 1}) == 1
    assert run(writing.return_const(marker)) is marker


def test_an_unbound_local_raises():
    with pytest.raises(UnboundLocalError):
        run(build.delete_fast("x"), build.load_fast("x", check=True), arguments={"x": 1})
    assert run(build.load_fast("x", check=True), arguments={"x": 1}) == 1


def test_cells():
    load_and_store = [*consts(2), *build.store_deref("x"), *writing.load_deref("x")]
    assert run(load_and_store, arguments={"x": 1}, cellvars=("x",)) == 2
    assert run(writing.load_deref("x"), arguments={"x": 1}, cellvars=("x",)) == 1
    cell = run(build.load_closure("x"), arguments={"x": 1}, cellvars=("x",))
    assert isinstance(cell, CellType) and cell.cell_contents == 1
    with pytest.raises(NameError):
        run(build.delete_deref("x"), writing.load_deref("x"), arguments={"x": 1}, cellvars=("x",))


def test_free_variables():
    code = assemble([*writing.load_deref("x"), *build.return_value()], name="f", freevars=("x",))
    assert FunctionType(code, {}, closure=(CellType(4),))() == 4


def test_attributes():
    thing = SimpleNamespace(a=1, b=2)
    assert run(build.load_const(thing), build.load_attr("a")) == 1
    run(consts(5, thing), build.store_attr("c"), consts(thing), build.delete_attr("b"), consts(None))
    assert vars(thing) == {"a": 1, "c": 5}


def test_the_stack():
    assert run(consts(1, 2), build.pop_top()) == 1
    assert run(consts(1, 2), build.copy(2), build.build_tuple(3)) == (1, 2, 1)
    for depth in range(1, 6):
        moved = [0, 1, 2, 3, 4]
        moved.insert(5 - depth, moved.pop())
        assert run(consts(0, 1, 2, 3, 4), build.rotate(depth), build.build_tuple(5)) == tuple(moved)


def test_containers():
    assert run(consts(1, 2), build.build_tuple(2)) == (1, 2)
    assert run(consts((1, 2, 3)), build.unpack_sequence(3), build.build_tuple(3)) == (3, 2, 1)


def test_a_jump_goes_over_what_lies_between():
    end = build.return_value()
    assert run(consts("jumped"), build.jump(end[0]), build.pop_top(), consts("fell"), end) == "jumped"


@pytest.mark.parametrize("count", range(6))
def test_calls(count):
    values = list(range(count))
    loads = [consts(value) for value in values]
    keywords = {"k": consts("v"), "l": consts("w")}
    function = consts(collect)
    assert run(build.call(function, *loads)) == (tuple(values), {})
    assert run(build.call(consts(collect), *map(consts, values), kwargs=keywords)) == (
        tuple(values),
        {"k": "v", "l": "w"},
    )
    assert run(consts(collect, *values), build.call_stacked(count)) == (tuple(values), {})
    stacked = run(consts(collect, *values, "v"), build.call_stacked(count + 1, ["k"]))
    assert stacked == (tuple(values), {"k": "v"})


def test_calls_leave_the_stack_below_alone():
    assert run(consts("below"), build.call(consts(abs), consts(-1)), build.build_tuple(2)) == ("below", 1)
    assert run(consts("below", abs, -1), build.call_stacked(1), build.build_tuple(2)) == ("below", 1)
    assert run(consts("below", max, 1, 2, 3, 4), build.call_stacked(4), build.build_tuple(2)) == ("below", 4)


def test_calls_of_methods_and_nested_calls():
    method = [*consts([3, 1]), *build.load_attr("index")]
    assert run(build.call(method, build.call(writing.load_global("abs"), consts(-1)))) == 1


def prologue(code):
    generator = bool(code.co_flags & inspect.CO_GENERATOR)
    return build.open_frame(code.co_cellvars, code.co_freevars, generator=generator)


def test_prologue_is_that_of_the_compiler():
    free = 1

    def plain(a, b):
        return lambda: (a, b, free)

    def generator(a):
        yield lambda: (a, free)

    for function in (plain, generator):
        opening = [(each.name, each.value) for each in prologue(function.__code__)]
        instructions = [(each.name, each.value) for each in decode(function.__code__)]
        assert instructions[: len(opening)] == opening
    assert [each.name for each in build.open_frame()] == ["RESUME"]


def test_a_body_under_a_new_prologue():
    def f(a):
        return (lambda: a)()

    body = decode(f.__code__)
    while body[0].name != "RESUME":
        del body[0]
    code = encode([*prologue(f.__code__), *body[1:]], f.__code__)
    assert FunctionType(code, {})(3) == 3


def test_assemble_names_and_arguments():
    def origin():
        return None

    loads = [each for name in ("a", "k", "rest", "more") for each in build.load_fast(name)]
    code = assemble(
        [*loads, *build.build_tuple(4), *build.return_value()],
        name="f",
        argnames=("a",),
        kwonly=("k",),
        varargs="rest",
        varkeywords="more",
        template=origin.__code__,
    )
    assert FunctionType(code, {})(1, 2, 3, k=4, z=5) == (1, 4, (2, 3), {"z": 5})
    assert (code.co_name, code.co_filename) == ("f", __file__)
    assert code.co_firstlineno == origin.__code__.co_firstlineno
    named = assemble(writing.return_const(1), name="g", filename="there.py", firstlineno=7)
    assert (named.co_filename, named.co_firstlineno) == ("there.py", 7)


def test_assemble_a_generator():
    flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_GENERATOR
    body = [
        *consts(1),
        Instruction("YIELD_VALUE", 0),
        Instruction("RESUME", 1),
        *build.pop_top(),
        *writing.return_const(2),
    ]
    code = assemble(body, name="f", flags=flags)
    assert list(FunctionType(code, {})()) == [1]
