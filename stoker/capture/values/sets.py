"""Sets and frozensets, with CPython's order.

The order of a set depends on the hashes of its elements and on how it was made. Beside the elements' Values there is a
real set of the same constants, made by the same operations: its order is the program's. Where an element is not a
constant, or an outside set was changed, the order is not known, and iterating breaks.

Requirements (tests/differential/test_sets.py):
  1. Iterating a set, and iterating one that the captured code returns, gives eager's order.
  2. Of equal elements (1, 1.0, True), the one that CPython keeps is kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.python_operators import BINARY, COMPARE
from stoker.capture.values.constant import Constant
from stoker.capture.values.sequence import TupleValue, is_taken_one_by_one, take_each
from stoker.capture.values.value import Exhausted, NotConstant, Value, keep_apart
from stoker.guard.source import Source

KEYS: type = type({}.keys())
ITEMS: type = type({}.items())
SET_TYPES = (set, frozenset, KEYS, ITEMS)


@dataclass(frozen=True)
class SetRecipe:
    """How to make an object of constants: `function(*parts)`, then methods of it, in order."""

    function: Callable[..., Any]
    parts: tuple[Any, ...] = ()
    steps: tuple[tuple[str, tuple[Any, ...]], ...] = ()


@dataclass(frozen=True)
class FoundSet:
    """A set from outside, as it is found: only itself has its order after an operation."""

    found: Any
    value: SetValue


def build(recipe: Any) -> Any:
    """Follow a recipe; what is not one is itself."""
    if isinstance(recipe, FoundSet):
        return recipe.found
    if not isinstance(recipe, SetRecipe):
        return recipe
    made = recipe.function(*map(build, recipe.parts))
    for name, parts in recipe.steps:
        getattr(made, name)(*map(build, parts))
    return made


def _pass(*items: Any) -> tuple[Any, ...]:
    return items


def _keys(*items: Any) -> Any:
    return dict.fromkeys(items).keys()


def _pairs(*items: Any) -> Any:
    return dict(items).items()


def _mapping(*items: Any) -> dict[Any, None]:
    return dict.fromkeys(items)


@dataclass(frozen=True)
class Operand:
    """What an operation takes: the elements, how to make the real object (UNKNOWN: not of constants), a Value for later."""

    entries: dict[Any, Value]
    recipe: Any
    value: Value


UNKNOWN = object()


def _key(m: Machine, item: Value) -> Any:
    """What an element is looked up by: a set, which has no hash, by the frozenset that equals it."""
    held = item.stored()
    return frozenset(held._entries) if isinstance(held, SetValue) else item.hash_key(m)


def constant_of(value: Value) -> Any:
    try:
        return value.constant()
    except NotConstant:
        return UNKNOWN


def operand(m: Machine, value: Value) -> Operand:
    """Any iterable as an operand of a set's method."""
    held = value.stored()
    if isinstance(held, SetValue):
        return Operand(dict(held._entries), held.recipe(), held.copied())
    kind = value.python_type()
    real = constant_of(value) if isinstance(value, Constant) else UNKNOWN
    elements = value.items_list(m)
    entries: dict[Any, Value] = {}
    hashed = value.hashed_elements(m)
    for key, element in hashed if hashed is not None else ((element.hash_key(m), element) for element in elements):
        keep_apart(m, key, () if key in entries else entries)
        entries.setdefault(key, element)
    constants = [constant_of(element) for element in elements]
    recipe = real
    if real is UNKNOWN and UNKNOWN not in constants:
        makers = {KEYS: _keys, ITEMS: _pairs, dict: _mapping}
        recipe = SetRecipe(next((makers[base] for base in kind.__mro__ if base in makers), _pass), tuple(constants))
    never_changes = kind is frozenset and isinstance(value, Constant)  # and operators take sets alone
    return Operand(entries, recipe, value if never_changes else TupleValue(elements))


class SetValue(Value):
    """A set or frozenset. `layout` is the real set that tells the order, None where nobody knows it."""

    def __init__(
        self,
        entries: dict[Any, Value],
        cls: type = set,
        source: Source | None = None,
        real: Any = None,
        made: Any = None,
    ) -> None:
        self._entries, self.cls, self.source, self.real = entries, cls, source, real
        self.steps: list[tuple[str, list[Operand]]] = []
        if real is None and made is None:
            constants = tuple(constant_of(value) for value in entries.values())
            made = UNKNOWN if UNKNOWN in constants else SetRecipe(cls, (constants,) if constants else ())
        self.start: Any = made
        self.layout: Any = None if made is UNKNOWN else build(made)
        if real is not None:
            self.layout = dict.fromkeys(cls.__iter__(real))  # type: ignore[attr-defined]  # of a subclass, what it holds

    def python_type(self) -> type:
        return self.cls

    def recipe(self) -> Any:
        """How to make such a set anew; UNKNOWN if its order is not known."""
        if self.layout is None:
            return UNKNOWN
        if self.real is not None:
            return (
                FoundSet(self.real, self) if type(self.real) is self.cls else SetRecipe(self.cls, (tuple(self.layout),))
            )
        steps = [(name, tuple(part.recipe for part in parts)) for name, parts in self.steps]
        return SetRecipe(self.start.function, self.start.parts, (*self.start.steps, *steps))

    def copied(self) -> SetValue:
        """What `set(self)` makes: as large a table as its elements need, whatever the history."""
        return SetValue(dict(self._entries), self.cls, made=_of(self.cls, self.recipe()))

    def constant(self) -> Any:
        if self.cls is not frozenset or self.layout is None:
            raise NotConstant("set")
        return self.layout if isinstance(self.layout, frozenset) else frozenset(self.layout)

    def length(self, m: Machine) -> Value:
        return Constant(len(self._entries))

    def truth(self, m: Machine) -> bool:
        return bool(self._entries)

    def contains(self, m: Machine, item: Value) -> Value:
        if item.stored().is_none_of(m, self._entries):
            return Constant(False)
        return Constant(self._one(m, item).entries.keys() <= self._entries.keys())

    def iterator(self, m: Machine) -> Value:
        return SetIterator(self, self.elements(m))

    def items_list(self, m: Machine) -> list[Value]:
        return self.elements(m)

    def elements(self, m: Machine) -> list[Value]:
        if self.layout is not None:
            return [self._entries[key] for key in self.layout]
        if len(self._entries) > 1:
            self.unsupported("iteration over a set of unknown order", "use a list or a dict, whose order is defined")
        return list(self._entries.values())

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        return compare_sets(m, operator, self, other) if issubclass(other.python_type(), SET_TYPES) else None

    def binary(self, m: Machine, operator: str, other: Value, reflected: bool) -> Value | None:
        plain = operator.rstrip("=")
        if plain not in ("&", "|", "-", "^") or not issubclass(other.python_type(), SET_TYPES):
            return None
        if reflected:  # of a frozenset from outside, which is a constant, or of a view
            return combine(m, plain, other, self) if not isinstance(other, SetValue) else None
        if operator.endswith("=") and self.cls is set:
            if not issubclass(other.python_type(), (set, frozenset)):
                return None
            part = operand(m, other)
            self.change(m, IN_PLACE[plain], [part], _combined(plain, self._entries, part.entries))
            return self
        return combine(m, plain, self, other)

    def change(self, m: Machine, name: str, parts: list[Operand], entries: dict[Any, Value]) -> None:
        """An operation in place: the elements afterwards are known."""
        m.effects.will_mutate(self)
        if self.real is not None or any(part.recipe is UNKNOWN for part in parts):
            self.layout = None
        elif self.layout is not None:
            getattr(self.layout, name)(*(build(part.recipe) for part in parts))
        self._entries = entries
        self.steps.append((name, parts))

    def attribute(self, m: Machine, name: str) -> Value:
        return m.attributes.builtin(self, name)

    def _one(self, m: Machine, item: Value) -> Operand:
        key = _key(m, item)
        if key not in self._entries:
            keep_apart(m, key, self._entries)
        return Operand({key: item}, constant_of(item), item)

    def method_add(self, m: Machine, item: Value) -> Value:
        key, entries = item.hash_key(m), self._entries
        keep_apart(m, key, () if key in entries else entries)
        self.change(m, "add", [Operand({key: item}, constant_of(item), item)], entries)
        entries.setdefault(key, item)
        return Constant(None)

    def method_discard(self, m: Machine, item: Value) -> Value:
        part = self._one(m, item)
        self.change(m, "discard", [part], _combined("-", self._entries, part.entries))
        return Constant(None)

    def method_remove(self, m: Machine, item: Value) -> Value:
        part = self._one(m, item)
        if not part.entries.keys() & self._entries.keys():
            m.exceptions.raise_(KeyError, item)
        self.change(m, "discard", [part], _combined("-", self._entries, part.entries))
        return Constant(None)

    def method_pop(self, m: Machine) -> Value:
        if not self._entries:
            m.exceptions.raise_(KeyError, "pop from an empty set")
        if self.real is not None or self.layout is None:
            self.unsupported("pop() of a set of unknown order", "use a list or a dict, whose order is defined")
        m.effects.will_mutate(self)
        self.steps.append(("pop", []))
        return self._entries.pop(self.layout.pop())

    def method_clear(self, m: Machine) -> Value:
        self.change(m, "clear", [], {})
        return Constant(None)

    def method_copy(self, m: Machine) -> Value:
        return self if self.cls is frozenset else self.copied()

    def _updated(self, m: Machine, name: str, operator: str, others: tuple[Value, ...]) -> Value:
        parts = [operand(m, other) for other in others]
        entries = self._entries
        for part in parts:
            entries = _combined(operator, entries, part.entries)
        self.change(m, name, parts, entries)
        return Constant(None)

    def method_update(self, m: Machine, *others: Value) -> Value:
        return _updated_each(m, self, "update", "|", others, self.method_add)

    def method_difference_update(self, m: Machine, *others: Value) -> Value:
        return _updated_each(m, self, "difference_update", "-", others, self.method_discard)

    def method_intersection_update(self, m: Machine, *others: Value) -> Value:
        return self._updated(m, "intersection_update", "&", others)

    def method_symmetric_difference_update(self, m: Machine, other: Value) -> Value:
        return self._updated(m, "symmetric_difference_update", "^", (other,))

    def _made_by(self, m: Machine, method: str, operator: str, others: tuple[Value, ...]) -> Value:
        parts = [operand(m, other) for other in others]
        return _made(self.cls, getattr(self.cls, method), operator, [operand(m, self), *parts])

    def method_union(self, m: Machine, *others: Value) -> Value:
        return self._made_by(m, "union", "|", others)

    def method_intersection(self, m: Machine, *others: Value) -> Value:
        return self._made_by(m, "intersection", "&", others)

    def method_difference(self, m: Machine, *others: Value) -> Value:
        return self._made_by(m, "difference", "-", others)

    def method_symmetric_difference(self, m: Machine, other: Value) -> Value:
        return self._made_by(m, "symmetric_difference", "^", (other,))

    def method_issubset(self, m: Machine, other: Value) -> Value:
        return Constant(set(self._entries) <= set(operand(m, other).entries))

    def method_issuperset(self, m: Machine, other: Value) -> Value:
        return Constant(set(self._entries) >= set(operand(m, other).entries))

    def method_isdisjoint(self, m: Machine, other: Value) -> Value:
        return Constant(not set(self._entries) & set(operand(m, other).entries))

    def hash_key(self, m: Machine) -> Any:
        if self.cls is set:
            m.exceptions.raise_(TypeError, "unhashable type: 'set'")
        return frozenset(self._entries)

    def emit(self, e: Emitting) -> None:
        recipe = self.recipe()
        if recipe is UNKNOWN:
            e.refuse_asking_again(self._entries)
            e.call_function(self.cls, [TupleValue(list(self._entries.values()))])
        else:
            given: list[Value] = []
            recipe = _without_givens(recipe, given)
            e.call_function(build_from if given else build, [Constant(recipe), *given])
        e.name_top(self)

    def shown(self) -> Any:
        """A set that prints as this one; None if its order is not known."""
        return self.layout if self.real is None or self.layout is None else self.real

    def fill(self, e: Emitting) -> None:
        """Of an instance of a subclass that the captured code made. A frozenset is made whole."""
        if self._entries and self.cls is set:
            e.refuse_asking_again(self._entries)
            e.method_call(self, set.update, [TupleValue(list(self._entries.values()))])

    def write_back(self, e: Emitting) -> None:
        """The same changes again, so that the order becomes eager's."""
        for name, parts in self.steps:
            e.refuse_asking_again(key for part in parts for key in part.entries)
            e.method_call(self, getattr(set, name), [part.value for part in parts])


def _updated_each(m: Machine, held: SetValue, name: str, operator: str, others: tuple[Value, ...], one: Any) -> Value:
    for other in others:
        if is_taken_one_by_one(other) and not isinstance(other.stored(), SetValue):  # C looks into any set
            take_each(m, other, lambda item: one(m, item))
        else:
            held._updated(m, name, operator, (other,))
    return Constant(None)


class GrowingSet(SetValue):
    """A set that existed before the call. While captured code only adds to it and takes from it, nobody asks what it holds."""

    def __init__(self, look: Callable[[], dict[Any, Value]], source: Source, real: Any) -> None:
        self._look, self._found = look, None
        self.cls, self.source, self.real, self.steps, self.start = set, source, real, [], None

    _look: Callable[[], dict[Any, Value]]
    _found: dict[Any, Value] | None

    @property
    def _entries(self) -> dict[Any, Value]:
        if self._found is None:
            self._found = self._look()
            for name, (part,) in self.steps:
                self._found = _combined("|" if name == "add" else "-", self._found, part.entries)
        return self._found

    @_entries.setter
    def _entries(self, entries: dict[Any, Value]) -> None:
        self._found = entries

    @property
    def layout(self) -> Any:
        """In the order that it was found in; once it is changed, nobody knows."""
        return None if self.steps else dict.fromkeys(self._entries)

    @layout.setter
    def layout(self, layout: Any) -> None:
        assert layout is None, "it is known only of a set that was not changed"

    def method_add(self, m: Machine, item: Value) -> Value:
        return super().method_add(m, item) if self._found is not None else self._step(m, "add", item)

    def method_discard(self, m: Machine, item: Value) -> Value:
        return super().method_discard(m, item) if self._found is not None else self._step(m, "discard", item)

    def _step(self, m: Machine, name: str, item: Value) -> Value:
        part = Operand({_key(m, item): item}, constant_of(item), item)
        m.effects.will_mutate(self)
        self.steps.append((name, [part]))
        return Constant(None)


class SetIterator(Value):
    """An iterator over a set; a change of size under it is CPython's RuntimeError."""

    def __init__(self, held: SetValue, elements: list[Value]) -> None:
        self.held, self.elements, self.size, self.position = held, elements, len(elements), 0

    def python_type(self) -> type:
        return type(iter(set()))

    def iterator(self, m: Machine) -> Value:
        return self

    def next(self, m: Machine) -> Value:
        if len(self.held._entries) != self.size:
            m.exceptions.raise_(RuntimeError, "Set changed size during iteration")
        if self.position >= len(self.elements):
            raise Exhausted
        self.position += 1
        return self.elements[self.position - 1]

    def emit(self, e: Emitting) -> None:
        """What is left, in its order. A set that has changed since is another: its iterator could not be advanced to the same place."""
        if len(self.held._entries) != self.size:
            e.call_function(_changed, [])
        elif self.held.steps:
            e.call_function(iter, [TupleValue(self.elements[self.position :])])
        else:
            e.call_function(_advanced, [self.held, Constant(self.position)])


def _advanced(held: Any, position: int) -> Any:
    iterator = iter(held)
    for _ in range(position):
        next(iterator)
    return iterator


def _changed() -> Any:
    held = {0}
    iterator = iter(held)
    held.add(1)
    return iterator


@dataclass(frozen=True)
class _Parameter:
    number: int


def _without_givens(recipe: Any, given: list[Value]) -> Any:
    """The recipe with numbers in the places of outside sets, which are collected. One that was changed is made anew."""
    if isinstance(recipe, FoundSet):
        if recipe.value.steps:
            return SetRecipe(type(recipe.found), (tuple(recipe.found),))
        given.append(recipe.value)
        return _Parameter(len(given) - 1)
    if not isinstance(recipe, SetRecipe):
        return recipe
    parts = tuple(_without_givens(part, given) for part in recipe.parts)
    steps = tuple((name, tuple(_without_givens(part, given) for part in operands)) for name, operands in recipe.steps)
    return SetRecipe(recipe.function, parts, steps)


def build_from(recipe: Any, *given: Any) -> Any:
    """Follow a recipe with the outside sets that it is about."""
    if isinstance(recipe, _Parameter):
        return given[recipe.number]
    if not isinstance(recipe, SetRecipe):
        return recipe
    made = recipe.function(*(build_from(part, *given) for part in recipe.parts))
    for name, parts in recipe.steps:
        getattr(made, name)(*(build_from(part, *given) for part in parts))
    return made


IN_PLACE = {"|": "__ior__", "&": "__iand__", "-": "__isub__", "^": "__ixor__"}


def _combined(operator: str, mine: dict[Any, Value], theirs: dict[Any, Value]) -> dict[Any, Value]:
    match operator:
        case "&":
            return {k: v for k, v in mine.items() if k in theirs}
        case "|":
            return {**mine, **{k: v for k, v in theirs.items() if k not in mine}}
        case "-":
            return {k: v for k, v in mine.items() if k not in theirs}
    return {k: v for k, v in [*mine.items(), *theirs.items()] if (k in mine) != (k in theirs)}


def _made(cls: type, function: Callable[..., Any], operator: str, parts: list[Operand]) -> SetValue:
    """A new set out of operands, by a real function where all of them are of constants."""
    entries = parts[0].entries
    for part in parts[1:]:
        entries = _combined(operator, entries, part.entries)
    if any(part.recipe is UNKNOWN for part in parts):
        return SetValue(entries, cls, made=UNKNOWN)
    made = SetValue({}, cls, made=SetRecipe(function, tuple(part.recipe for part in parts)))
    made._entries = {key: _picked(key, [part.entries for part in parts]) for key in made.layout}
    return made


def _picked(key: Any, tables: list[dict[Any, Value]]) -> Value:
    """Of equal elements of several sets, the one that the result holds."""
    found = [table[key] for table in tables if key in table]
    return next((value for value in found if constant_of(value) is key), found[0])


def combine(m: Machine, operator: str, left: Value, right: Value) -> SetValue:
    """`left operator right` of sets and views. With a view, it is the view that answers, by a set."""
    cls, by_set = left.python_type(), issubclass(right.python_type(), (set, frozenset))
    kind = cls if cls in (set, frozenset) and by_set else set
    return _made(kind, BINARY[operator], operator, [operand(m, left), operand(m, right)])


def compare_sets(m: Machine, operator: str, left: Value, right: Value) -> Value:
    return Constant(COMPARE[operator](set(operand(m, left).entries), set(operand(m, right).entries)))


def set_of(m: Machine, value: Value, cls: type = set) -> SetValue:
    """`set(value)`."""
    if isinstance(value, SetValue) and cls is frozenset is value.cls:
        return value
    part = operand(m, value)
    return SetValue(part.entries, cls, made=_of(cls, part.recipe))


def _of(cls: type, recipe: Any) -> Any:
    return UNKNOWN if recipe is UNKNOWN else SetRecipe(cls, (recipe,))


def in_any_order(m: Machine, value: Value) -> list[Value]:
    """The elements of an iterable for someone who sorts them: the order of a set need not be known if they differ."""
    if isinstance(value, SetValue) and value.layout is None:
        kinds = {type(constant_of(element)) for element in value._entries.values()}
        if len(kinds) == 1 and kinds <= {int, str}:
            return list(value._entries.values())
    return value.items_list(m)
