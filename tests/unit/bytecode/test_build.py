"""Every emitter, by running what it emits."""

import inspect
import operator
from types import CellType, FunctionType, SimpleNamespace

import pytest

from stoker.bytecode import BINARY_OPS, COMPARE_OPS, Instruction, assemble, build, decode, encode

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
    assert run(build.return_const(marker)) is marker


def test_an_unbound_local_raises():
    with pytest.raises(UnboundLocalError):
        run(build.delete_fast("x"), build.load_fast("x", check=True), arguments={"x": 1})
    assert run(build.load_fast("x", check=True), arguments={"x": 1}) == 1


def test_cells():
    load_and_store = [*consts(2), *build.store_deref("x"), *build.load_deref("x")]
    assert run(load_and_store, arguments={"x": 1}, cellvars=("x",)) == 2
    assert run(build.load_deref("x"), arguments={"x": 1}, cellvars=("x",)) == 1
    cell = run(build.load_closure("x"), arguments={"x": 1}, cellvars=("x",))
    assert isinstance(cell, CellType) and cell.cell_contents == 1
    with pytest.raises(NameError):
        run(build.delete_deref("x"), build.load_deref("x"), arguments={"x": 1}, cellvars=("x",))
    assert run(build.make_cell("x"), build.load_deref("x"), arguments={"x": 3}) == 3


def test_free_variables():
    code = assemble([*build.load_deref("x"), *build.return_value()], name="f", freevars=("x",))
    assert FunctionType(code, {}, closure=(CellType(4),))() == 4


def test_globals():
    names = {"x": 1, "gone": 2}
    assert run(build.load_global("x"), build.store_global("y"), build.load_global("y"), names=names) == 1
    run(build.delete_global("gone"), consts(None), names=names)
    assert names["y"] == 1 and "gone" not in names
    assert run(build.load_global("len")) is len


def test_attributes():
    thing = SimpleNamespace(a=1, b=2)
    assert run(build.load_const(thing), build.load_attr("a")) == 1
    run(consts(5, thing), build.store_attr("c"), consts(thing), build.delete_attr("b"), consts(None))
    assert vars(thing) == {"a": 1, "c": 5}


def test_the_stack():
    assert run(consts(1, 2), build.pop_top()) == 1
    assert run(consts(1, 2), build.copy(2), build.build_tuple(3)) == (1, 2, 1)
    assert run(consts(1, 2, 3), build.swap(3), build.build_tuple(3)) == (3, 2, 1)
    assert run(consts(1), build.swap(1), build.nop()) == 1
    for depth in range(1, 6):
        moved = [0, 1, 2, 3, 4]
        moved.insert(5 - depth, moved.pop())
        assert run(consts(0, 1, 2, 3, 4), build.rotate(depth), build.build_tuple(5)) == tuple(moved)


def test_containers():
    assert run(consts(1, 2), build.build_tuple(2)) == (1, 2)
    assert run(consts(1, 2), build.build_list(2)) == [1, 2]
    assert run(consts(1, 2), build.build_set(2)) == {1, 2}
    assert run(consts("a", 1, "b", 2), build.build_map(2)) == {"a": 1, "b": 2}
    assert run(consts(1, 2), build.build_slice()) == slice(1, 2)
    assert run(consts(1, 9, 2), build.build_slice(3)) == slice(1, 9, 2)
    assert run(consts("a", "b", "c"), build.build_string(3)) == "abc"
    assert run(consts(1, 2), build.build_list(2), build.list_to_tuple()) == (1, 2)
    assert run(consts((1, 2, 3)), build.unpack_sequence(3), build.build_tuple(3)) == (3, 2, 1)


def test_subscripts():
    box = [1, 2, 3]
    assert run(consts(box, 1), build.subscript()) == 2
    run(consts(7, box, 0), build.store_subscript(), consts(box, 1), build.delete_subscript(), consts(None))
    assert box == [7, 3]


OPERATIONS = {
    "+": operator.add, "&": operator.and_, "//": operator.floordiv, "<<": operator.lshift, "*": operator.mul,
    "%": operator.mod, "|": operator.or_, "**": operator.pow, ">>": operator.rshift, "-": operator.sub,
    "/": operator.truediv, "^": operator.xor,
}  # fmt: skip


@pytest.mark.parametrize("text", BINARY_OPS)
def test_binary(text):
    plain = text if text in OPERATIONS else text[:-1]
    if "@" in text:
        matrix = type("Matrix", (), {"__matmul__": lambda self, other: ("@", other)})()
        assert run(consts(matrix, 3), build.binary(text)) == ("@", 3)
    else:
        assert run(consts(13, 3), build.binary(text)) == OPERATIONS[plain](13, 3)


def test_in_place_works_in_place():
    box = [1]
    assert run(consts(box, [2]), build.binary("+=")) is box and box == [1, 2]


@pytest.mark.parametrize("text", COMPARE_OPS)
@pytest.mark.parametrize("pair", [(1, 2), (2, 2), (2, 1), (1.0, float("nan")), ("a", "b")])
def test_compare(text, pair):
    """Often enough that the interpreter specialises."""
    expected = eval(f"a {text} b", {}, dict(zip("ab", pair)))
    code = assemble(
        [*build.load_fast("a"), *build.load_fast("b"), *build.compare(text), *build.return_value()],
        name="f",
        argnames=("a", "b"),
    )
    function = FunctionType(code, {})
    assert [function(*pair) for _ in range(100)] == [expected] * 100


def test_compare_refuses_what_is_not_a_comparison():
    with pytest.raises(ValueError, match="is not one of"):
        build.compare("in")


def test_is_and_in():
    assert run(consts(len, len), build.is_op()) is True
    assert run(consts(len, len), build.is_op(invert=True)) is False
    assert run(consts(1, [1]), build.contains_op()) is True
    assert run(consts(1, [1]), build.contains_op(invert=True)) is False


def test_unary():
    assert [run(consts(5), build.unary(text)) for text in ("-", "+", "~", "not")] == [-5, 5, -6, False]
    assert run(consts([]), build.unary("not")) is True
    with pytest.raises(ValueError, match="not a unary operator"):
        build.unary("!")


@pytest.mark.parametrize(
    "emit, taken",
    [
        (build.pop_jump_if_false, [0, "", None, []]),
        (build.pop_jump_if_true, [1, "a", [0]]),
        (build.pop_jump_if_none, [None]),
        (build.pop_jump_if_not_none, [0, 1, "", "a", [], [0]]),
    ],
)
@pytest.mark.parametrize("value", [0, 1, "", "a", None, [], [0]])
def test_conditional_jumps(emit, taken, value):
    target = consts("jumped")
    end = build.return_value()
    body = [*build.load_fast("x"), *emit(target[0]), *consts("fell"), *build.jump(end[0]), *target, *end]
    code = assemble(body, name="f", argnames=("x",))
    assert FunctionType(code, {})(value) == ("jumped" if value in taken else "fell")


def test_raising():
    with pytest.raises(KeyError):
        run(consts(KeyError("x")), build.raise_value())


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
    assert run(build.call(method, build.call(build.load_global("abs"), consts(-1)))) == 1


def test_call_ex():
    assert run(build.call_ex(consts(collect), consts((1, 2)))) == ((1, 2), {})
    assert run(build.call_ex(consts(collect), consts((1,)), consts({"k": 2}))) == ((1,), {"k": 2})
    assert run(consts(collect, (1, 2)), build.call_ex_stacked()) == ((1, 2), {})
    assert run(consts(collect, (1,), {"k": 2}), build.call_ex_stacked(kwargs=True)) == ((1,), {"k": 2})


def test_make_function():
    def template(a, b=1, *, c=2):
        return a, b, c

    plain = run(build.make_function(template.__code__))
    assert plain(1, 2, c=3) == (1, 2, 3)
    full = run(
        build.make_function(
            template.__code__,
            defaults=consts((10,)),
            kwdefaults=[*consts("c", 20), *build.build_map(1)],
            annotations=consts(("a", int)),
        )
    )
    assert full(1) == (1, 10, 20) and full.__annotations__ == {"a": int}


def test_make_function_with_a_closure():
    inner = assemble(
        [*build.load_deref("x"), *build.load_deref("y"), *build.build_tuple(2), *build.return_value()],
        name="inner",
        freevars=("x", "y"),
    )
    cells = [build.load_closure("x"), build.load_closure("y")]
    function = run(build.make_function(inner, cells), arguments={"x": 1, "y": 2}, cellvars=("y", "x"))
    assert function() == (1, 2)


def test_prologue_is_that_of_the_compiler():
    free = 1

    def plain(a, b):
        return lambda: (a, b, free)

    def generator(a):
        yield lambda: (a, free)

    for function in (plain, generator):
        opening = [(each.name, each.value) for each in build.prologue(function.__code__)]
        instructions = [(each.name, each.value) for each in decode(function.__code__)]
        assert instructions[: len(opening)] == opening
    assert [each.name for each in build.open_frame()] == ["RESUME"]


def test_a_body_under_a_new_prologue():
    def f(a):
        return (lambda: a)()

    body = decode(f.__code__)
    while body[0].name != "RESUME":
        del body[0]
    code = encode([*build.prologue(f.__code__), *body[1:]], f.__code__)
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
    named = assemble(build.return_const(1), name="g", filename="there.py", firstlineno=7)
    assert (named.co_filename, named.co_firstlineno) == ("there.py", 7)


def test_assemble_a_generator():
    flags = inspect.CO_OPTIMIZED | inspect.CO_NEWLOCALS | inspect.CO_GENERATOR
    body = [
        *consts(1),
        Instruction("YIELD_VALUE", 0),
        Instruction("RESUME", 1),
        *build.pop_top(),
        *build.return_const(2),
    ]
    code = assemble(body, name="f", flags=flags)
    assert list(FunctionType(code, {})()) == [1]
