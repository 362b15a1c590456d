"""The tables of versions.py against the interpreter that runs this test."""

import ast
import opcode
from pathlib import Path

import pytest

from stoker.bytecode import effect, versions

FROM_INTERPRETER = frozenset(
    name
    for name, code in opcode.opmap.items()
    if code < 256 and not name.startswith("INSTRUMENTED_") and name not in getattr(opcode, "_specialized_opmap", {})
)


def as_decoded(names: frozenset[str]) -> frozenset[str]:
    """Real opcode names to those that decode yields, by rules that do not look at our tables' opcode lists."""
    decoded = set()
    for name in names - versions.INTERNAL - set(versions.SPLITS):
        if name in ("JUMP_FORWARD", "JUMP_BACKWARD"):
            decoded.add("JUMP")
        elif name.startswith("POP_JUMP_"):
            decoded.add(name.replace("FORWARD_", "").replace("BACKWARD_", ""))
        else:
            decoded.add(name)
    return frozenset(decoded | {"LOAD_CLOSURE"})


def test_opnames_are_those_of_this_interpreter():
    assert versions.opnames() == as_decoded(FROM_INTERPRETER)


def test_forms_yield_exactly_opnames():
    names = {form.name for form in versions.FORMS.values()} - set(versions.SPLITS)
    assert names | {"LOAD_CLOSURE"} == versions.opnames()


def test_every_jump_has_a_form():
    jumps = {form.name for form in versions.FORMS.values() if form.operand is versions.OperandKind.JUMP}
    assert jumps == set(versions.FORWARD)
    for table in (versions.FORWARD, versions.BACKWARD):
        assert set(table.values()) <= set(opcode.opmap)


def test_every_opname_of_every_version_has_a_stack_effect():
    assert frozenset().union(*versions.OPNAMES.values()) == effect.KNOWN


@pytest.mark.parametrize("number, text", list(enumerate(versions.BINARY_OPS)))
def test_binary_operators(number, text):
    assert opcode._nb_ops[number][1] == text


def test_comparisons():
    assert tuple(opcode.cmp_op[:6]) == versions.COMPARE_OPS


def test_inverting_twice_changes_nothing():
    assert {versions.INVERTED[name] for name in versions.CONDITIONAL_JUMPS} == versions.CONDITIONAL_JUMPS
    assert all(versions.INVERTED[versions.INVERTED[name]] == name for name in versions.CONDITIONAL_JUMPS)


def test_nothing_else_asks_for_the_version():
    """`VERSION` and `sys.version_info` are read in versions.py alone: elsewhere a fact has a name."""
    root = Path(versions.__file__).parent.parent
    for path in sorted(root.rglob("*.py")):
        if path.name != "versions.py":
            read = {node.id for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Name)}
            attributes = {
                node.attr for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Attribute)
            }
            assert "VERSION" not in read and "version_info" not in attributes, path
