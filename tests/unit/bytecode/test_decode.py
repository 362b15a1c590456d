"""What decode makes of the compiler's output."""

import pytest

from stoker.bytecode import Instruction, decode, opnames


def names(function) -> list[str]:
    return [instruction.name for instruction in decode(function.__code__)]


def operands(function, name: str) -> list[object]:
    return [instruction.value for instruction in decode(function.__code__) if instruction.name == name]


def test_operands_are_resolved():
    def f(a):
        b = a.shape
        return len(b) < 7 and b[0] + 1.5

    assert operands(f, "STORE_FAST") == ["b"]
    assert operands(f, "LOAD_ATTR") == ["shape"]
    assert operands(f, "LOAD_GLOBAL") == ["len"]
    assert operands(f, "COMPARE_OP") == ["<"]
    assert operands(f, "LOAD_CONST") == [7, 0, 1.5]
    assert operands(f, "BINARY_OP") == [0]


def test_flags_are_kept_apart_from_names():
    def f(a):
        return len(a), len

    flags = [each.flag for each in decode(f.__code__) if each.name == "LOAD_GLOBAL"]
    assert flags == [1, 0]


def test_jumps_point_at_instructions_in_one_dialect():
    def f(items):
        while items:
            if items is None:
                continue
            for item in items:
                if not item:
                    break
        return

    instructions = decode(f.__code__)
    targets = [each.value for each in instructions if isinstance(each.value, Instruction)]
    assert targets and all(target in instructions for target in targets)
    jumps = {each.name for each in instructions if "JUMP" in each.name}
    assert jumps <= {"JUMP", "POP_JUMP_IF_TRUE", "POP_JUMP_IF_FALSE", "POP_JUMP_IF_NONE", "POP_JUMP_IF_NOT_NONE"}


def test_superinstructions_are_split():
    def f(a, b):
        c, d = a, b
        e = d
        a.x = c + e
        return

    found = names(f)
    assert set(found) <= opnames()
    assert found[-2:] == ["LOAD_CONST", "RETURN_VALUE"]
    assert operands(f, "LOAD_FAST") == ["a", "b", "d", "c", "e", "a"]


def test_cells_are_loaded_by_one_name():
    def f(a):
        b = 1
        return lambda: (a, b, free)

    free = 1
    assert sorted(operands(f, "LOAD_CLOSURE")) == ["a", "b", "free"]
    assert sorted(operands(f, "MAKE_CELL")) == ["a", "b"]
    assert operands(f, "LOAD_FAST") == []
    assert names(f)[0] == "COPY_FREE_VARS"


def test_handlers():
    def f(a):
        try:
            return a()
        except ValueError:
            return None

    instructions = decode(f.__code__)
    [call] = [each for each in instructions if each.name == "CALL"]
    assert call.handler.target.name == "PUSH_EXC_INFO"
    assert (call.handler.depth, call.handler.lasti) == (0, False)
    assert call.handler.target.handler.lasti
    assert instructions[0].handler is None


def test_positions_and_offsets():
    def f(a):
        return a + 1

    [add] = [each for each in decode(f.__code__) if each.name == "BINARY_OP"]
    assert add.positions.lineno == f.__code__.co_firstlineno + 1
    assert f.__code__.co_code[add.offset] != 0
    assert add.positions.end_col_offset - add.positions.col_offset == len("a + 1")


def test_an_offset_is_that_of_the_traceback():
    """Also behind an EXTENDED_ARG."""
    code = compile("\n".join(f"x{number} = {number}" for number in range(300)) + "\nx299.missing", "many", "exec")
    with pytest.raises(AttributeError) as raised:
        exec(code, {})
    at = {each.offset: each for each in decode(code)}
    assert at[raised.tb.tb_next.tb_lasti].value == "missing"


def test_a_long_operand():
    code = compile("\n".join(f"x{number} = {number}.5" for number in range(70_000)), "many", "exec")
    stores = [each.value for each in decode(code) if each.name == "STORE_NAME"]
    assert stores == [f"x{number}" for number in range(70_000)]


def test_a_foreign_opcode_is_refused():
    code = (lambda: None).__code__
    with pytest.raises(ValueError, match="opcode"):
        decode(code.replace(co_code=b"\xff\x00" + code.co_code[2:]))
