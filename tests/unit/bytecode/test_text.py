"""The listing."""

from stoker.bytecode import build, render
from tests.unit.bytecode import writing


def test_a_listing():
    end = writing.return_const("end")
    body = [
        *build.load_fast("x"),
        *writing.pop_jump_if("NONE", end[0]),
        *build.load_fast("x"),
        *build.load_const(1),
        *writing.binary("+="),
        *build.return_value(),
        *end,
    ]
    assert render(body).splitlines() == [
        "          LOAD_FAST              x",
        "          POP_JUMP_IF_NONE       -> L1",
        "          LOAD_FAST              x",
        "          LOAD_CONST             1",
        "          BINARY_OP              +=",
        "          RETURN_VALUE",
        "      L1: LOAD_CONST             'end'",
        "          RETURN_VALUE",
    ]


def test_lines_handlers_and_code():
    def f(a):
        try:
            return a(lambda: 1)
        except ValueError:
            return 2

    first = f.__code__.co_firstlineno
    text = render(f.__code__)
    assert f"{first + 2}" in text
    assert "! L1 at 0" in text
    assert "<code test_lines_handlers_and_code.<locals>.f.<locals>.<lambda>>" in text
