"""Small things that libraries do besides computing: dictionaries by keys, named results made by hand, types with variables, sets of
functions, text of a class, numbers of objects, references to what is gone."""

from __future__ import annotations

import collections
import collections.abc
import re
import typing
import weakref

import pytest
import torch
from harness import BREAK, program
from packaging import version
from torch.utils._pytree import tree_map, tree_map_only

import stoker
from stoker import log

T = typing.TypeVar("T")


class Marking(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, (value, 1))


class Counting(collections.defaultdict):
    made = 0

    def __init__(self, *args):
        super().__init__(list, *args)


class Version(str):
    def __lt__(self, other):
        return len(self) < len(other)


@program("fromkeys() of classes of dictionaries")
def test_from_keys(x):
    counting = Counting.fromkeys([1, 2])
    plain = collections.defaultdict.fromkeys(["a", "b"], x)
    return plain, plain.default_factory, Marking.fromkeys("ab", x + 1), counting, type(Marking.fromkeys(()))


@program("fromkeys() of a class, with wrong arguments")
def test_from_keys_refused(x):
    try:
        Marking.fromkeys()
    except TypeError as error:
        return str(error), x + 1


@program("a named result of torch made by hand", default=True)
def test_named_results(x):
    made = torch.return_types.max((x, x + 1))
    values, indices = made
    return made, made.values * 2, indices, torch.return_types.qr([x, x]).R, isinstance(made, tuple), len(made)


@program("a named result of torch made of too little")
def test_named_results_refused(x):
    try:
        torch.return_types.max((x,))
    except TypeError as error:
        return str(error), x + 1


@program("functions annotated with variables of types")
def test_types_with_variables(x):
    def apply(
        function: typing.Callable[[T], T], given: typing.Dict[str, typing.Union[T, int]], rest: tuple[T, ...]
    ) -> T:
        return function(x)

    def spread(rest: dict[str, typing.List[T]], more: list[tuple[T, int]]) -> T:
        return x

    def called(function: collections.abc.Callable[[T], T], other: collections.abc.Callable[..., T]) -> T:
        return function(x)

    called(torch.cos, None)
    return (
        called.__annotations__["function"],
        apply(torch.sin, {}, ()),
        spread({}, []),
        apply.__annotations__["function"],
        spread.__annotations__["more"],
    )


@program("a tree mapped over tensors alone", default=True)
def test_mapped_tree(x):
    tree = {"a": [x, "text", (x + 1, 3)], "b": None}
    return tree_map_only(torch.Tensor, lambda leaf: leaf * 2, tree), tree_map(lambda leaf: leaf, tree)


@program("an iterator asked for attributes, and a dictionary made of it")
def test_attributes_of_iterators(x):
    pairs = iter([("a", x), ("b", x + 1)])
    first = dict(pairs)
    return first, collections.OrderedDict(pairs), hasattr(iter([]), "keys"), hasattr(iter([]), "__next__")


@program("text of a class, matched", inputs=lambda: (torch.ones(2), Version("3.11")))
def test_matched_text_of_a_class(x, text):
    found = re.match(r"(\d+)\.(\d+)", text)
    return x + int(found.group(1)), found.groups(), re.sub(r"\d", "n", text), text < "3.1100"


@program("the version of torch, compared and parsed")
def test_version_of_torch(x):
    major = re.match(r"(\d+)\.", torch.__version__)
    told = [torch.__version__ >= (2, 0), torch.__version__ < "2.1", torch.__version__ == "parrot", int(major.group(1))]
    parsed = version.parse(torch.__version__)
    return (
        x + 1 if parsed >= version.parse("2.0.0") else x,
        told,
        parsed.release,
        version.Version("1.0rc1").is_prerelease,
    )


@program("what matched text of a class holds", BREAK, inputs=lambda: (torch.ones(2), Version("3.11")))
def test_text_behind_a_match(x, text):
    return type(re.match(r"\d", text).string), x + 1


HANDLED = frozenset([torch.add, torch.sin, len, torch.Tensor.add, list])
CHANGING = {torch.mul, test_from_keys}


def looked_up(x, function):
    found = x + 1 if function in HANDLED else x * 2
    return found, function in CHANGING, function in {torch.add, torch.mul}, len(HANDLED & {torch.add, print})


def test_sets_of_functions():
    compiled = stoker.compile(looked_up, backend="eager", fullgraph=True)
    for function in (torch.add, torch.mul, torch.cos, len, torch.Tensor.add, list, test_from_keys, torch.add):
        assert str(compiled(torch.ones(2), function)) == str(looked_up(torch.ones(2), function))


def test_a_set_of_functions_that_grows():
    known = {torch.add}

    def function(x, given):
        known.add(given)
        return x + len(known), torch.mul in known

    compiled = stoker.compile(function, backend="eager", fullgraph=True)
    for given, expected in (
        (torch.add, (1, False)),
        (torch.sin, (2, False)),
        (torch.mul, (3, True)),
        (torch.mul, (3, True)),
    ):
        found, held = compiled(torch.zeros(1), given)
        assert (found.item(), held) == expected
    assert known == {torch.add, torch.sin, torch.mul}


class Chosen(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.ones(2), torch.zeros(2)

    def forward(self, x, number):
        return x * self.first if number == id(self.first) else x + self.second if id(self.second) != number else x


def test_a_number_of_an_object_is_compared():
    model = Chosen()
    compiled = stoker.compile(model, backend="eager", fullgraph=True)
    x, kept = torch.full((2,), 3.0), model.first
    for number in (id(model.first), id(model.second), 5, id(model.first), -1):
        assert torch.equal(compiled(x, number), model(x, number))
    model.first = torch.full((2,), 7.0)
    for number in (id(model.first), id(kept)):
        assert torch.equal(compiled(x, number), model(x, number))


def test_a_number_of_an_object_made_inside_breaks():
    log.clear()
    number = id(object())

    def function(x):
        return x + (id([x]) == number), id(x) == 3.0, id(x) > 0

    found, same, positive = stoker.compile(function, backend="eager")(torch.zeros(1))
    assert found.shape == (1,) and not same and positive and log.events("break")


@pytest.mark.parametrize("make", [lambda: torch.ones(2), lambda: Chosen(), lambda: Marking()])
def test_references_to_what_is_gone(make):
    def function(reference, x):
        return x.sin() if reference() is None else x.cos()

    compiled = stoker.compile(function, backend="eager", fullgraph=True)
    for _ in range(2):
        target = make() if not isinstance(make(), dict) else Chosen()
        reference, x = weakref.ref(target), torch.ones(2)
        assert torch.equal(compiled(reference, x), x.cos())
        del target
        assert torch.equal(compiled(reference, x), x.sin())


def test_references_to_what_is_gone_are_compared():
    target = Chosen()
    gone = weakref.ref(target)
    del target

    def function(one, other, x):
        return x + 1, one == other, one != other, one in [other]

    compiled = stoker.compile(function, backend="eager")
    for other in (gone, weakref.ref(Chosen())):
        assert compiled(gone, other, torch.ones(1))[1:] == function(gone, other, torch.ones(1))[1:]


@pytest.mark.parametrize("cls", [collections.defaultdict, Counting])
def test_a_factory_for_a_dictionary_from_outside(cls):
    """`__init__` may be called again, and by CPython in a frame of its own."""

    def start_again(held, x):
        held.__init__(*([set] if cls is collections.defaultdict else []), {"a": 1})
        return x + 1

    for call in (start_again, stoker.compile(start_again)):
        held = cls.__new__(cls)
        held["b"] = 2
        assert torch.equal(call(held, torch.ones(2)), torch.full((2,), 2.0))
        assert held.default_factory is (set if cls is collections.defaultdict else list)
        assert dict(held) == {"b": 2, "a": 1}
