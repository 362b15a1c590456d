"""Attributes by the descriptor protocol: what a class has, read, set and deleted through an object made by captured code."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from stoker.capture.evaluator import Evaluator
from stoker.capture.static import MISSING
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import InstanceValue
from stoker.errors import Raised


class Base:
    inherited = "base"


class Sample(Base):
    plain = 3

    @property
    def asked(self) -> str:
        return "property"

    @staticmethod
    def static(x: Any) -> Any:
        return x

    @classmethod
    def named(cls) -> str:
        return cls.__name__

    @functools.cached_property
    def once(self) -> str:
        return "cached"

    def method(self) -> Any:
        return self.plain


class Slotted:
    __slots__ = ("field",)


class Described:
    """A descriptor that sets: it comes before the instance's own dictionary."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return "described" if instance is not None else "of the class"

    def __set__(self, instance: Any, value: Any) -> None:
        instance.__dict__["kept"] = value


class Holder:
    described = Described()


class Fallback:
    def __getattr__(self, name: str) -> str:
        return f"fell back to {name}"


@pytest.mark.parametrize("name", ["plain", "inherited", "asked", "once"])
def test_read(m: Evaluator, name: str) -> None:
    assert InstanceValue(Sample).attribute(m, name).constant() == getattr(Sample(), name)


@pytest.mark.parametrize(("name", "args"), [("static", [4]), ("named", []), ("method", [])])
def test_call(m: Evaluator, name: str, args: list[Any]) -> None:
    found = InstanceValue(Sample).attribute(m, name).call(m, [Constant(a) for a in args], {})
    assert found.constant() == getattr(Sample(), name)(*args)


def test_own_attributes_come_before_those_of_the_class(m: Evaluator) -> None:
    value = InstanceValue(Sample)
    value.set_attribute(m, "plain", Constant(7))
    assert value.attribute(m, "plain").constant() == 7
    value.delete_attribute(m, "plain")
    assert value.attribute(m, "plain").constant() == 3


def test_descriptors_that_set_come_first(m: Evaluator) -> None:
    value = InstanceValue(Holder)
    value.set_attribute(m, "described", Constant(1))
    assert value.attribute(m, "described").constant() == "described"
    assert value.attribute(m, "kept").constant() == 1


def test_slots(m: Evaluator) -> None:
    value = InstanceValue(Slotted)
    with pytest.raises(Raised):
        value.attribute(m, "field")
    value.set_attribute(m, "field", Constant(2))
    assert value.attribute(m, "field").constant() == 2


def test_a_fallback_is_asked_last(m: Evaluator) -> None:
    assert InstanceValue(Fallback).attribute(m, "nothing").constant() == "fell back to nothing"


def test_the_words_of_a_missing_attribute(m: Evaluator) -> None:
    with pytest.raises(Raised) as raised:
        InstanceValue(Sample).attribute(m, "nothing")
    assert raised.value.value.describe() == "AttributeError(\"'Sample' object has no attribute 'nothing'\")"


def test_what_was_looked_up_on_a_class_is_remembered(m: Evaluator) -> None:
    assert m.attributes.class_lookup(Sample, "plain") == 3
    assert m.attributes.class_lookup(Sample, "nothing") is MISSING
    assert m.attributes.class_attributes[Sample] == {"plain": 3, "nothing": MISSING}


def test_special_methods_are_looked_up_on_the_class_alone(m: Evaluator) -> None:
    value = InstanceValue(Sample)
    value.set_attribute(m, "__len__", Constant(None))
    assert m.attributes.special_method(value, "__len__") is None
