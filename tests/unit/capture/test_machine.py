"""The Protocols of `stoker.capture.machine` are what is asked, no more: narrow interfaces stay narrow."""

from __future__ import annotations

import ast
import inspect
import re
import typing
from pathlib import Path

import pytest

from stoker.capture import machine
from stoker.capture.evaluator import Evaluator

CAPTURE = Path(inspect.getfile(machine)).parent
SOURCES = {path: path.read_text() for path in sorted(CAPTURE.rglob("*.py")) if path.name != "machine.py"}
TREE = ast.parse(inspect.getsource(machine))
PROTOCOLS = {node.name: node for node in TREE.body if isinstance(node, ast.ClassDef)}
COMPONENTS = {
    member.name: typing.cast(ast.Name, member.returns).id
    for member in PROTOCOLS["Machine"].body
    if isinstance(member, ast.FunctionDef)
    and member.decorator_list
    and isinstance(member.returns, ast.Name)
    and member.returns.id in PROTOCOLS
}


def members(protocol: str) -> list[str]:
    found = []
    for member in PROTOCOLS[protocol].body:
        if isinstance(member, ast.FunctionDef):
            found.append(member.name)
        elif isinstance(member, ast.AnnAssign) and isinstance(member.target, ast.Name):
            found.append(member.target.id)
    return found


@pytest.mark.parametrize("component", COMPONENTS)
def test_every_member_is_asked_for_from_outside_its_component(component: str) -> None:
    wanted = {name: re.compile(rf"\bm\.{component}\.{name}\b") for name in members(COMPONENTS[component])}
    own = inspect.getfile(type(fresh().__dict__[component]))
    for name, pattern in wanted.items():
        assert any(pattern.search(text) for path, text in SOURCES.items() if str(path) != own), name


@pytest.mark.parametrize("component", COMPONENTS)
def test_the_evaluator_has_every_member(component: str) -> None:
    found = fresh().__dict__[component]
    assert [name for name in members(COMPONENTS[component]) if not hasattr(found, name)] == []


def test_no_component_is_large() -> None:
    for component in COMPONENTS:
        methods = [name for name in vars(type(fresh().__dict__[component])) if not name.startswith("__")]
        assert len(methods) <= 40, component


def fresh() -> Evaluator:
    from stoker.capture.evaluator import Request
    from stoker.capture.policy import Policy
    from stoker.capture.sizes import History

    def nothing() -> None:
        return None

    return Evaluator(Request(nothing.__code__, nothing, []), Policy(), History(), None)
