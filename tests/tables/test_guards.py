"""The guard kinds of Python and of the C++ program are the same family."""

from __future__ import annotations

from stoker import _C
from stoker.guard import guard, source


def family(base, module):
    return [
        kind for kind in vars(module).values() if isinstance(kind, type) and issubclass(kind, base) and kind is not base
    ]


def test_every_check_is_known_to_the_program():
    assert {check.kind for check in family(guard.Check, guard)} == set(_C.CHECKS)


def test_every_accessor_is_known_to_the_program():
    assert {kind.accessor for kind in family(source.Source, source)} <= set(_C.ACCESSORS)
