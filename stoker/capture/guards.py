"""The guards of one capture: conditions under which the replacement code may run again.

In:  a source and a check, as the evaluator looks at objects.
Out: `all`, each condition once, in the order in which they were met.
"""

from __future__ import annotations

import abc
from collections.abc import Callable
from typing import Any

from stoker.capture.machine import Machine
from stoker.capture.values.constant import is_plain
from stoker.capture.values.value import Value
from stoker.guard.guard import (
    Check,
    DictKeys,
    Equals,
    Guard,
    Holds,
    HoldsTogether,
    Is,
    Length,
    NotSameAs,
    SameAs,
    SetElements,
    TensorMatch,
    same_answer,
)
from stoker.guard.source import Asked, Attribute, Fixed, Source, ordered_keys, root_of


class Registered:
    """What `issubclass` answered. It may answer otherwise after a registration, and the registries count those."""

    def __init__(self) -> None:
        self.token = abc.get_cache_token()
        self.answers: dict[tuple[type, type], bool] = {}

    def hold(self) -> bool:
        token = abc.get_cache_token()
        if token != self.token:
            if any(issubclass(cls, family) is not answer for (cls, family), answer in self.answers.items()):
                return False
            self.token = token
        return True


class Guards:
    """What must still hold, by what it is about."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.all: dict[Any, Guard] = {}
        self.registered: Registered | None = None

    def add(self, source: Source, check: Check) -> None:
        """Remember a condition, once."""
        root = root_of(source)
        if isinstance(root, Fixed) and root.snapshot:
            return
        key = (source, check.kind, _argument_key(check))
        if key not in self.all:
            self.all[key] = Guard(source, check, self.m.location())

    def add_unless_fixed(self, source: Source, check: Check) -> None:
        if not isinstance(source, Fixed):
            self.add(source, check)

    def keys(self, source: Source, real: dict) -> None:
        if all(is_plain(key) for key in ordered_keys(real)):
            self.add(source, DictKeys(tuple(ordered_keys(real))))
        else:
            self.add(source, Length(dict.__len__(real)))

    def ask(self, source: Source, real: Any, question: Callable[[Any], Any], words: str) -> Any:
        """What an object answers to a question that no source can express. It is asked again before each run."""
        answer = self.m.concrete.run(question, real)
        root = root_of(source)
        key = (source, "asked", words)
        if key not in self.all and not (isinstance(root, Fixed) and root.snapshot):
            check = Holds(lambda now: same_answer(question(now), answer), words)
            self.all[key] = Guard(source, check, self.m.location())
        return answer

    def ask_the_same(self, value: Value, real: Any, question: Callable[[Any], Any], construct: str) -> Any:
        """What only this very object answers, such as the text with its address. One that was another at an earlier call is not asked:
        each would have a version of its own."""
        source = value.source
        if (
            real is None
            or source is None
            or value.python_type() is not type(real)
            or self.m.sizes.int_is_dynamic(Asked(source, id), id(real))
        ):
            value.unsupported(construct)
        return self.ask(source, real, question, f"has the same {question.__name__.strip('_')}")

    def is_subclass(self, cls: type, family: type) -> bool:
        """`issubclass` where the registries of abstract classes may have a say."""
        if family in cls.__mro__:
            return True
        answer: bool = self.m.concrete.run(issubclass, cls, family)
        if self.registered is None:
            self.registered = Registered()
            source = Fixed(self.registered, "the registries of abstract classes")
            self.all[source] = Guard(source, Holds(Registered.hold, "answer as before"), self.m.location())
        self.registered.answers[cls, family] = answer
        return answer

    def attribute_equals(self, source: Any, name: str, value: Any) -> None:
        self.add(Attribute(source, name), Equals(value))

    def identity(self, value: Value) -> None:
        if value.source is not None and not isinstance(value.source, Fixed):
            self.add(value.source, Is(value.real))  # type: ignore[attr-defined]  # kinds with an identity keep their object


def _argument_key(check: Check) -> Any:
    try:
        argument = check.argument
    except AssertionError:
        if isinstance(check, HoldsTogether):
            return id(check.predicate)
        assert isinstance(check, (SameAs, NotSameAs))
        argument = check.other if isinstance(check, SameAs) else check.others
    if isinstance(argument, (int, str, float, bytes, bool, type(None), Source)):
        return (type(argument), argument)
    if isinstance(check, (DictKeys, SetElements)):
        return "keys"
    return id(argument) if not isinstance(check, (TensorMatch,)) else None
