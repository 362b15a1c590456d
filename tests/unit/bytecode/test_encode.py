"""Encode, where the standard library does not reach: far jumps, odd constants, changed layouts, wrong lists."""

from types import FunctionType

import pytest

from stoker.bytecode import EncodeError, Instruction, assemble, build, decode, encode
from tests.unit.bytecode import writing


def call(code, *arguments):
    return FunctionType(code, {"__builtins__": __builtins__})(*arguments)


def returning(*constants):
    loads = [instruction for constant in constants for instruction in build.load_const(constant)]
    return assemble([*loads, *build.build_tuple(len(constants)), *build.return_value()], name="f")


def test_constants_that_a_program_can_tell_apart_stay_apart():
    constants = (
        1,
        1.0,
        True,
        0.0,
        -0.0,
        0j,
        -0j,
        complex(0.0, -0.0),
        b"a",
        "a",
        (1,),
        (1.0,),
        (True,),
        ((0.0,),),
        ((-0.0,),),
    )
    result = call(returning(*constants))
    assert list(map(repr, result)) == list(map(repr, constants))


def test_equal_literals_share_a_place():
    assert len(returning(1, 1, "a", "a", (1, "a"), (1, "a"), frozenset({1}), frozenset({1})).co_consts) == 5


def test_objects_are_constants_by_identity():
    first, second, nan = [1], [1], float("nan")
    result = call(returning(first, second, len, test_encode_doc, nan, first))
    assert result[0] is first and result[1] is second and result[2] is len
    assert result[3] is test_encode_doc and result[4] is nan and result[5] is first


def test_encode_doc():
    def documented():
        """Words."""
        return "other"

    code = encode(decode(documented.__code__), documented.__code__)
    assert code.co_consts[0] == "Words."
    assert FunctionType(assemble(writing.return_const("not a docstring"), name="f"), {}).__doc__ is None


@pytest.mark.parametrize("distance", [1, 100, 255, 256, 300, 40_000])
@pytest.mark.parametrize("condition", ["TRUE", "NOT_NONE"])
def test_jumps_of_any_distance_in_both_directions(distance, condition):
    """Counts down from n, going round a loop of `distance` instructions."""
    top, end = writing.nop(), writing.nop()
    padding = [instruction for _ in range(distance) for instruction in writing.nop()]
    leave = writing.pop_jump_if("FALSE", end[0])
    body = [
        *top,
        *build.load_fast("n"),
        *leave,
        *padding,
        *build.load_fast("n"),
        *build.load_const(1),
        *writing.binary("-"),
        *build.store_fast("n"),
        *build.load_const(True),
        *writing.pop_jump_if(condition, top[0]),
        *writing.return_const("not here"),
        *end,
        *writing.return_const("done"),
    ]
    assert call(assemble(body, name="f", argnames=("n",)), 3) == "done"


def test_a_conditional_jump_to_a_backward_conditional_jump():
    """The target of a jump may itself be rewritten into two instructions."""
    top = writing.nop()
    back = writing.pop_jump_if("TRUE", top[0])
    body = [
        *build.jump((enter := build.load_fast("go"))[0]),
        *top,
        *writing.return_const("came back"),
        *enter,
        *build.jump(back[0]),
        *back,
        *writing.return_const("fell through"),
    ]
    code = assemble(body, name="f", argnames=("go",))
    assert call(code, 1) == "came back"
    assert call(code, 0) == "fell through"


def test_new_locals_do_not_move_cells():
    def f(a, b):
        c = a
        return (lambda: (a, c, f)), b

    instructions = decode(f.__code__)
    start = [each.name for each in instructions].index("RESUME") + 1
    extra = [*build.load_fast("b"), *build.store_fast("new"), *build.load_fast("new"), *build.store_fast("b")]
    code = encode([*instructions[:start], *extra, *instructions[start:]], f.__code__)
    assert code.co_varnames == (*f.__code__.co_varnames, "new")
    cells = FunctionType(code, globals(), closure=f.__closure__)(1, 2)
    assert cells[0]() == (1, 1, f) and cells[1] == 2


def test_changes_override_the_template():
    def f(a, b=2):
        return a, b

    code = encode(decode(f.__code__), f.__code__, co_name="g", co_qualname="h.g", co_argcount=1, co_firstlineno=5)
    assert (code.co_name, code.co_qualname, code.co_argcount, code.co_firstlineno) == ("g", "h.g", 1, 5)
    before = [position[0] for position in f.__code__.co_positions()]
    assert [position[0] for position in code.co_positions()][-1] == before[-1]


def test_an_argument_list_in_a_new_order():
    def f(a, b):
        return a - b

    code = encode(decode(f.__code__), f.__code__, co_varnames=("b", "a"))
    assert call(code, 1, 10) == 9


def test_exceptions_find_their_handlers_after_instructions_moved():
    def f(a):
        try:
            return 1 / a
        except ZeroDivisionError as error:
            return type(error).__name__
        finally:
            a = None

    instructions = decode(f.__code__)
    padded = []
    for instruction in instructions:
        filler = Instruction("NOP", positions=instruction.positions, handler=instruction.handler)
        padded += [instruction, filler] if instruction.name == "LOAD_CONST" else [instruction]
    code = encode(padded, f.__code__)
    assert call(code, 0) == "ZeroDivisionError" and call(code, 2) == 0.5


@pytest.mark.parametrize(
    "body, words",
    [
        ([Instruction("NO_SUCH")], "not an opcode"),
        ([Instruction("JUMP", Instruction("NOP"))], "not in the list"),
        ([Instruction("LOAD_DEREF", "x"), Instruction("RETURN_VALUE")], "not a cell"),
        ([Instruction("BUILD_TUPLE", "x"), Instruction("RETURN_VALUE")], "needs a number"),
        ([Instruction("POP_TOP")], "empty stack"),
        ([Instruction("NOP")], "past the last"),
        ([(again := Instruction("NOP")), again, *writing.return_const(1)], "twice"),
    ],
)
def test_lists_that_are_no_code_are_refused(body, words):
    with pytest.raises(ValueError, match=words):
        assemble(body, name="f")


def test_a_loop_instruction_cannot_jump_backward():
    top = writing.nop()
    with pytest.raises(EncodeError):
        assemble([*top, *build.load_const(()), Instruction("GET_ITER"), Instruction("FOR_ITER", top[0])], name="f")


def test_a_stack_that_disagrees_at_a_join_is_refused():
    end = writing.return_const(1)
    body = [*build.load_const(1), *writing.pop_jump_if("TRUE", end[0]), *build.load_const(2), *end]
    with pytest.raises(ValueError, match="values on the stack"):
        assemble(body, name="f")
