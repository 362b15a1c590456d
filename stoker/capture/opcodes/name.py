"""Variables: locals, globals, cells, attributes, imports."""

from __future__ import annotations

import builtins
import importlib.util
import sys
from typing import NoReturn

from stoker.bytecode import Instruction
from stoker.capture.frame import Frame
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import CellValue, unbound_cell
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.value import NULL, Lazy, Null, Value
from stoker.errors import Break
from stoker.guard.source import Fixed


def LOAD_CONST(m: Machine, f: Frame, i: Instruction) -> None:
    f.push(m.wrap.constant(i.value))


def LOAD_FAST(m: Machine, f: Frame, i: Instruction) -> None:
    found = f.locals.get(i.value)
    if found is None:
        m.exceptions.raise_(
            UnboundLocalError, f"cannot access local variable '{i.value}' where it is not associated with a value"
        )
    if type(found) is Lazy and not _only_moves(f):
        found = f.locals[i.value] = m.wrap.force(found)
    f.push(found)


LOAD_FAST_CHECK = LOAD_FAST
UNCONDITIONAL = frozenset({"JUMP", "JUMP_FORWARD", "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT"})


def _only_moves(f: Frame) -> bool:
    """Is what is loaded dropped or stored at once? So a resume function does with the result of a call that the program does not use."""
    after = f.instructions[f.position]
    if after.name in UNCONDITIONAL:
        after = after.value
    return after.name in ("POP_TOP", "STORE_FAST")


def LOAD_FAST_AND_CLEAR(m: Machine, f: Frame, i: Instruction) -> None:
    """An inlined comprehension puts the variable it shadows aside: the value, or the cell itself."""
    f.push(f.cells.pop(i.value) if i.value in f.cells else f.locals.pop(i.value, NULL))


def STORE_FAST(m: Machine, f: Frame, i: Instruction) -> None:
    value = f.pop()
    f.locals.pop(i.value, None)
    if isinstance(value, CellValue) and i.value in (*f.code.co_cellvars, *f.code.co_freevars):
        f.cells[i.value] = value
    elif not isinstance(value, Null):
        f.locals[i.value] = value


STORE_FAST_MAYBE_NULL = STORE_FAST


def DELETE_FAST(m: Machine, f: Frame, i: Instruction) -> None:
    if f.locals.pop(i.value, None) is None:
        m.exceptions.raise_(
            UnboundLocalError, f"cannot access local variable '{i.value}' where it is not associated with a value"
        )


def MAKE_CELL(m: Machine, f: Frame, i: Instruction) -> None:
    f.cells[i.value] = CellValue(f.locals.pop(i.value, None))


def LOAD_CLOSURE(m: Machine, f: Frame, i: Instruction) -> None:
    if i.value in f.cells:
        f.push(f.cells[i.value])
    else:  # 3.13 reads cells and values of such a slot by one opcode; a comprehension may keep a value there
        LOAD_FAST(m, f, i)


def LOAD_DEREF(m: Machine, f: Frame, i: Instruction) -> None:
    found = f.cells[i.value].get(m)
    if found is None:
        _raise_unbound(m, f, i.value)
    f.push(found)


def _raise_unbound(m: Machine, f: Frame, name: str) -> NoReturn:
    """An empty cell, in the words for where the program has the variable: a resume function has all cells from outside."""
    error = unbound_cell(name, name in f.program.origin.code.co_freevars)
    fields = {"name": name} if type(error) is NameError else {}
    m.exceptions.raise_(type(error), *error.args, **fields)


def STORE_DEREF(m: Machine, f: Frame, i: Instruction) -> None:
    f.cells[i.value].set(m, f.pop())


def DELETE_DEREF(m: Machine, f: Frame, i: Instruction) -> None:
    cell = f.cells[i.value]
    if cell.get(m) is None:
        _raise_unbound(m, f, i.value)
    cell.set(m, None)


def global_value(m: Machine, f: Frame, name: str) -> Value:
    found = f.globals.lookup(m, Constant(name))
    if found is None:
        found = m.wrap.globals(vars(builtins)).lookup(m, Constant(name))
    if found is None:
        m.exceptions.raise_(NameError, f"name '{name}' is not defined", name=name)
    return found


def LOAD_GLOBAL(m: Machine, f: Frame, i: Instruction) -> None:
    found = global_value(m, f, i.value)
    f.push_callable(found, i.flag)


def STORE_GLOBAL(m: Machine, f: Frame, i: Instruction) -> None:
    f.globals.store(m, Constant(i.value), f.pop())


def DELETE_GLOBAL(m: Machine, f: Frame, i: Instruction) -> None:
    if f.globals.lookup(m, Constant(i.value)) is None:
        m.exceptions.raise_(NameError, f"name '{i.value}' is not defined", name=i.value)
    f.globals.remove(m, Constant(i.value))


def _names(f: Frame, i: Instruction) -> DictValue:
    if f.names is None:
        raise Break(f"instruction {i.name}", "class bodies and module code are not captured")
    return f.names


def LOAD_NAME(m: Machine, f: Frame, i: Instruction) -> None:
    found = _names(f, i).lookup(m, Constant(i.value))
    f.push(found if found is not None else global_value(m, f, i.value))


def STORE_NAME(m: Machine, f: Frame, i: Instruction) -> None:
    _names(f, i).store(m, Constant(i.value), f.pop())


def DELETE_NAME(m: Machine, f: Frame, i: Instruction) -> None:
    if _names(f, i).lookup(m, Constant(i.value)) is None:
        m.exceptions.raise_(NameError, f"name '{i.value}' is not defined", name=i.value)
    _names(f, i).remove(m, Constant(i.value))


def LOAD_ATTR(m: Machine, f: Frame, i: Instruction) -> None:
    found = m.attributes.read(f.pop(), i.value)
    f.push_callable(found, i.flag)


def LOAD_METHOD(m: Machine, f: Frame, i: Instruction) -> None:
    f.push_callable(m.attributes.read(f.pop(), i.value), 1)


def STORE_ATTR(m: Machine, f: Frame, i: Instruction) -> None:
    receiver, value = f.pop(), f.pop()
    receiver.set_attribute(m, i.value, value)


def DELETE_ATTR(m: Machine, f: Frame, i: Instruction) -> None:
    f.pop().delete_attribute(m, i.value)


def LOAD_SUPER_ATTR(m: Machine, f: Frame, i: Instruction) -> None:
    receiver, cls, _ = f.pop(), f.pop(), f.pop()
    found = m.operators.super_of(cls, receiver).attribute(m, i.value)
    f.push_callable(found, i.flag & 1)


def IMPORT_NAME(m: Machine, f: Frame, i: Instruction) -> None:
    names, level = m.concrete.constant(f.pop(), "an import"), m.concrete.constant(f.pop(), "an import")
    package = f.globals.lookup(m, Constant("__package__"))
    anchor = package.constant() if isinstance(package, Constant) and package.value else ""
    parts = anchor.split(".")
    full = ".".join([*parts[: len(parts) - level + 1], *([i.value] if i.value else [])]) if level else i.value
    if imported(m, full) is None:
        raise Break(f"import {full}", "the module is not imported yet", "import it at the top of the file")
    shown = imported(m, full if names or level else full.split(".")[0])
    assert shown is not None
    for name in names or ():
        if imported(m, f"{full}.{name}") is None and not m.operators.has_attribute(shown, name):
            raise Break(
                f"import of {full}.{name}", "the module is not imported yet", "import it at the top of the file"
            )
    f.push(shown)


def imported(m: Machine, name: str) -> Value | None:
    """A module that is imported. A library's is imported while capturing: what that does is not the program's business."""
    if name not in sys.modules and _is_in_library(m, name):
        m.concrete.run(importlib.import_module, name)
    return m.wrap.dictionary(sys.modules, Fixed(sys.modules, "sys.modules")).lookup(m, Constant(name))


def _is_in_library(m: Machine, name: str) -> bool:
    package = sys.modules.get(name.partition(".")[0])
    if not m.policy.is_library(str(vars(package).get("__file__")) if package is not None else ""):
        return False
    try:
        spec = importlib.util.find_spec(name)
    except ImportError:
        return False
    return spec is not None and spec.origin is not None and m.policy.is_library(spec.origin)


def IMPORT_FROM(m: Machine, f: Frame, i: Instruction) -> None:
    module = f.stack[-1]
    full = f"{module.constant().__name__}.{i.value}"
    if m.operators.has_attribute(module, i.value):
        f.push(module.attribute(m, i.value))
        return
    found = imported(m, full)
    f.push(found if found is not None else module.attribute(m, i.value))
