"""Trails: a warm program answers as a fresh one does, whatever has changed, and by its trail where nothing has."""

import collections
import gc
import random
import sys
import types
import weakref

import pytest

from stoker import _C

A, C = types.SimpleNamespace(**_C.ACCESSORS), types.SimpleNamespace(**_C.CHECKS)


def plain():
    return None


def other():
    return 1


def node(accessor, argument=None, *children, checks=(), slot=-1):
    return (accessor, argument, list(checks), list(children), slot)


class Thing:
    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)


class Twin(Thing):
    """The class that a Thing may change to."""


class Slotted:
    __slots__ = ("field",)

    def __init__(self, field):
        self.field = field


def make_closure(value):
    def read():
        return value

    return read


# One tree with each kind of step


class World:
    """An object with a part of each kind, and the guards on it."""

    def __init__(self):
        self.function = make_closure(1.5)
        self.function.__defaults__ = (None, "default")
        self.box = Thing(
            inner=Thing(number=1000, text="words"),
            table=collections.OrderedDict(),
            ordered=collections.OrderedDict(a=1, b=2),
            plain={"k": 3, "l": 4},
            items=[Thing(x=1), 7],
            pair=(Thing(x=1), 8),
            slotted=Slotted("field"),
            function=self.function,
            volatile=0,
        )
        self.roots = self.describe()

    def describe(self):
        def number(value):
            self.count += 1
            return [(C.EQUALS, value, self.count)]

        def check(*checks):
            self.count += len(checks)
            return [(kind, argument, self.count - i) for i, (kind, argument) in enumerate(checks)]

        def thing(accessor, argument, name, value):
            inside = node(
                A.DICT, None, node(A.DICT_ITEM, name, checks=number(value)), checks=check((C.LACKS_KEY, "gone"))
            )
            return node(accessor, argument, inside, checks=check((C.TYPE_IS, Thing)))

        self.count = 0
        inside = [
            thing(A.DICT_ITEM, "inner", "number", 1000),
            node(A.DICT_ITEM, "table", checks=check((C.TYPE_IS, collections.OrderedDict), (C.LENGTH, 0))),
            node(A.DICT_ITEM, "ordered", checks=check((C.DICT_KEYS, ("a", "b")))),
            node(
                A.DICT_ITEM,
                "plain",
                node(A.DICT_ITEM, "k", checks=number(3), slot=0),
                node(A.DICT_KEY, 0, checks=number("k")),
                checks=check((C.TYPE_IS, dict), (C.LENGTH, 2), (C.HAS_KEY, "l"), (C.DICT_KEYS, ("k", "l"))),
            ),
            node(
                A.DICT_ITEM,
                "items",
                thing(A.LIST_ITEM, 0, "x", 1),
                node(A.ITEM, 1, checks=number(7)),
                checks=check((C.TYPE_IS, list), (C.LENGTH, 2)),
            ),
            node(A.DICT_ITEM, "pair", thing(A.TUPLE_ITEM, 0, "x", 1), node(A.ITEM, -1, checks=number(8))),
            node(A.DICT_ITEM, "slotted", node(A.SLOT, Slotted.__dict__["field"], checks=number("field"))),
            node(
                A.DICT_ITEM,
                "function",
                node(A.FUNC_DEFAULTS, None, node(A.ITEM, 1, checks=number("default"), slot=1)),
                node(A.FUNC_CLOSURE, 0, node(A.CELL, None, checks=number(1.5))),
                checks=check((C.CODE_IS, self.function.__code__)),
            ),
        ]
        dictionary = node(A.DICT, None, *inside, checks=check((C.LACKS_KEY, "forward"), (C.HAS_KEY, "inner")))
        return [node(A.LOCAL, 0, dictionary, checks=check((C.TYPE_IS, Thing)))]

    def program(self):
        return _C.GuardProgram(self.roots, 2)


def _new_dict(thing):
    thing.__dict__ = {**thing.__dict__, "gone": 1}


def _swap_back(world):
    """Other objects, equal in all that is guarded: the answer stays."""
    world.box.inner = Thing(number=1000)
    world.box.pair = (Thing(x=1), 8)
    world.box.plain = {"k": 3, "l": 4}


MUTATIONS = {
    "root class": lambda w: setattr(w.box, "__class__", Twin),
    "root dict": lambda w: setattr(w.box, "__dict__", {}),
    "root lacks key": lambda w: setattr(w.box, "forward", 1),
    "inner value": lambda w: setattr(w.box.inner, "number", 1001),
    "inner deleted": lambda w: delattr(w.box.inner, "number"),
    "inner class": lambda w: setattr(w.box.inner, "__class__", Twin),
    "inner swapped": lambda w: setattr(w.box, "inner", Thing(number=1001)),
    "inner dict replaced": lambda w: _new_dict(w.box.inner),
    "table filled": lambda w: w.box.table.update(hook=1),
    "table is another type": lambda w: setattr(w.box, "table", {}),
    "order": lambda w: w.box.ordered.move_to_end("a"),
    "plain item": lambda w: w.box.plain.update(k=4),
    "plain grows": lambda w: w.box.plain.update(m=4),
    "plain order": lambda w: w.box.plain.update(k=w.box.plain.pop("k")),
    "plain cleared": lambda w: w.box.plain.clear(),
    "list item": lambda w: w.box.items.__setitem__(0, Thing(x=2)),
    "list item's value": lambda w: setattr(w.box.items[0], "x", 2),
    "list grows": lambda w: w.box.items.append(1),
    "list shrinks": lambda w: w.box.items.pop(),
    "list moves": lambda w: w.box.items.__setitem__(slice(None), [Thing(x=1), 9] * 40),
    "list's number": lambda w: w.box.items.__setitem__(1, 8),
    "tuple swapped": lambda w: setattr(w.box, "pair", (Thing(x=2), 8)),
    "tuple item's value": lambda w: setattr(w.box.pair[0], "x", 2),
    "tuple item's class": lambda w: setattr(w.box.pair[0], "__class__", Twin),
    "slot": lambda w: setattr(w.box.slotted, "field", "other"),
    "slot deleted": lambda w: delattr(w.box.slotted, "field"),
    "slotted swapped": lambda w: setattr(w.box, "slotted", Slotted("else")),
    "defaults": lambda w: setattr(w.function, "__defaults__", (None, "changed")),
    "no defaults": lambda w: setattr(w.function, "__defaults__", None),
    "cell": lambda w: setattr(w.function.__closure__[0], "cell_contents", 2.5),
    "function swapped": lambda w: setattr(w.box, "function", plain),
    "code": lambda w: setattr(w.function, "__code__", make_closure_of_other().__code__),
}


def make_closure_of_other():
    value = 1

    def read():
        return value + 1

    return read


@pytest.mark.parametrize("case", MUTATIONS)
@pytest.mark.parametrize("times", [1, 2, 5])
def test_each_mutation_is_seen_by_a_warm_trail(case, times):
    world = World()
    program = world.program()
    for _ in range(times):
        assert program.check([world.box], plain) == (3, "default")
    assert program.followed == times - 1
    MUTATIONS[case](world)
    expected = world.program().check([world.box], plain)
    assert isinstance(expected, int) and [program.check([world.box], plain) for _ in range(3)] == [expected] * 3
    assert isinstance(program.check([World().box], plain), tuple)


def test_equal_objects_pass_and_make_a_new_trail():
    world = World()
    program = world.program()
    for _ in range(3):
        program.check([world.box], plain)
    _swap_back(world)
    followed = program.followed
    assert program.check([world.box], plain) == (3, "default") and program.followed == followed
    assert program.check([world.box], plain) == (3, "default") and program.followed == followed + 1


def test_each_instance_has_its_trail():
    worlds = [World() for _ in range(20)]
    program = worlds[0].program()
    for _ in range(3):
        for world in worlds:
            assert program.check([world.box], plain) == (3, "default")
    assert program.followed == 2 * len(worlds)
    worlds[7].box.inner.number = 0
    answers = [program.check([world.box], plain) for world in worlds]
    assert [isinstance(answer, int) for answer in answers] == [i == 7 for i in range(20)]


def test_fresh_objects_for_each_call_are_soon_no_longer_recorded():
    first = World()
    program = first.program()
    for _ in range(400):
        world = World()
        assert program.check([world.box], plain) == (3, "default")
        world.box.inner.number = 0
        assert isinstance(program.check([world.box], plain), int)


@pytest.mark.parametrize("where", ["root", "inner"])
def test_a_dictionary_that_keeps_changing_does_not_lose_the_trail(where):
    world = World()
    program = world.program()
    thing = world.box if where == "root" else world.box.inner
    for turn in range(40):
        assert program.check([world.box], plain) == (3, "default")
        thing.volatile = turn + 10**6
    assert program.followed > 20
    for case in ("inner value", "list item's value", "tuple item's class", "plain item", "slot", "cell"):
        world, fresh = World(), None
        program = world.program()
        thing = world.box if where == "root" else world.box.inner
        for turn in range(20):
            assert program.check([world.box], plain) == (3, "default")
            thing.volatile = turn
        MUTATIONS[case](world)
        fresh = world.program().check([world.box], plain)
        assert program.check([world.box], plain) == fresh and isinstance(fresh, int)


def test_many_changing_dictionaries_are_found_together():
    things = [Thing(x=1, counter=0, child=Thing(y=2)) for _ in range(30)]
    space = {f"t{i}": thing for i, thing in enumerate(things)}
    child = node(A.DICT_ITEM, "child", node(A.DICT, None, node(A.DICT_ITEM, "y", checks=[(C.EQUALS, 2, 1)])))
    inside = node(A.DICT, None, node(A.DICT_ITEM, "x", checks=[(C.EQUALS, 1, 0)]), child)
    program = _C.GuardProgram([node(A.CONST, space, *[node(A.DICT_ITEM, name, inside) for name in space])], 0)
    for turn in range(20):
        for thing in things:
            thing.counter = turn
        assert program.check([], plain) == ()
    assert program.followed >= 12
    things[17].child.y = 3
    assert program.check([], plain) == 1


def test_text_lookups_stay_free_of_python_code():
    class Loud:
        def __hash__(self):
            return hash("inner")

        def __eq__(self, other):
            calls.append(other)
            return False

    calls = []
    world = World()
    program = world.program()
    for turn in range(20):
        program.check([world.box], plain)
        world.box.volatile = turn
    world.box.__dict__ = {Loud(): 1, **world.box.__dict__}
    assert program.check([world.box], plain) == (3, "default")
    world.box.inner.number = 1
    assert isinstance(program.check([world.box], plain), int)


def test_identity_of_a_dead_object_in_a_cell():
    first = Thing()
    function = make_closure(first)
    cell = node(A.FUNC_CLOSURE, 0, node(A.CELL, None, checks=[(C.IS, first, 5)]))
    program = _C.GuardProgram([node(A.CONST, function, cell, checks=[(C.CODE_IS, function.__code__, 1)])], 0)
    assert [program.check([], plain) for _ in range(3)] == [(), (), ()] and program.followed == 2
    del cell
    death = weakref.ref(first)
    function.__closure__[0].cell_contents = None
    del first
    assert death() is None
    for _ in range(100):  # some of these lie at the old address
        function.__closure__[0].cell_contents = Thing()
        assert program.check([], plain) == 5


def test_another_number_at_the_same_address():
    """Equal numbers are pinned by their dictionary's tag, never by their address alone."""
    box, wrong = Thing(value=1000.5, counter=0), 0
    program = _C.GuardProgram(
        [node(A.LOCAL, 0, node(A.DICT, None, node(A.DICT_ITEM, "value", checks=[(C.EQUALS, 1000.5, 1)])),
              checks=[(C.TYPE_IS, Thing, 0)])], 0)  # fmt: skip
    for turn in range(300):
        box.counter = turn
        box.value = 1000.5 if turn % 3 else 1000.5 + turn + 1
        wrong += (program.check([box], plain) == ()) != (box.value == 1000.5)
    assert wrong == 0


def test_another_number_at_the_same_address_in_a_cell():
    function = make_closure(float("1000.5"))
    cell = node(A.FUNC_CLOSURE, 0, node(A.CELL, None, checks=[(C.EQUALS, 1000.5, 5)]))
    program = _C.GuardProgram([node(A.CONST, function, cell, checks=[(C.CODE_IS, function.__code__, 1)])], 0)
    for turn in range(100):
        assert [program.check([], plain) for _ in range(3)] == [(), (), ()]
        function.__closure__[0].cell_contents = None
        function.__closure__[0].cell_contents = float(turn)  # where the old one lay
        assert program.check([], plain) == 5
        function.__closure__[0].cell_contents = None
        function.__closure__[0].cell_contents = float("1000.5")


def test_nothing_is_kept_alive():
    world = World()
    program = world.program()
    for _ in range(3):
        program.check([world.box], plain)
    deaths = [weakref.ref(thing) for thing in (world.box, world.box.inner, world.box.items[0], world.box.pair[0])]
    del world
    gc.collect()
    assert [death() for death in deaths] == [None] * 4
    for _ in range(50):  # some of these boxes lie at the old address
        bad = World()
        bad.box.inner.number = 3
        assert isinstance(program.check([bad.box], plain), int)
        assert isinstance(program.check([World().box], plain), tuple)


def test_no_reference_is_lost_or_kept():
    world = World()
    program = world.program()
    objects = [world.box, world.box.inner, world.box.plain, world.function, world.box.items]
    program.check([world.box], plain)
    before = [sys.getrefcount(thing) for thing in objects]
    for _ in range(100):
        program.check([world.box], plain)
    world.box.items.append(1)
    for _ in range(100):
        program.check([world.box], plain)
    assert [sys.getrefcount(thing) for thing in objects] == before


def test_python_code_that_changes_what_has_passed():
    """The trail is recorded from what is, not from what the walk saw."""

    def change(value):
        box.x = 2
        return True

    box = Thing(x=1, y=1)
    inside = [node(A.DICT_ITEM, "x", checks=[(C.EQUALS, 1, 0)]), node(A.DICT_ITEM, "y", checks=[(C.PYTHON, change, 1)])]
    program = _C.GuardProgram([node(A.LOCAL, 0, node(A.DICT, None, *inside), checks=[(C.TYPE_IS, Thing, 2)])], 0)
    assert program.check([box], plain) == ()
    assert [program.check([box], plain) for _ in range(3)] == [0, 0, 0]


def test_python_code_that_frees_the_rest_of_the_trail():
    def drop(value):
        if len(calls) == 2:
            box.__dict__.clear()
            gc.collect()
        calls.append(value)
        return True

    calls = []
    box = Thing(y=1, inner=Thing(items=collections.deque([5])))
    deep = node(A.DICT, None, node(A.DICT_ITEM, "items", node(A.ITEM, 0, checks=[(C.EQUALS, 5, 2)]), slot=0))
    inside = [node(A.DICT_ITEM, "y", checks=[(C.PYTHON, drop, 1)]), node(A.DICT_ITEM, "inner", deep)]
    program = _C.GuardProgram([node(A.LOCAL, 0, node(A.DICT, None, *inside), checks=[(C.TYPE_IS, Thing, 0)])], 1)
    for _ in range(3):
        assert program.check([box], plain) == (collections.deque([5]),)
    assert program.followed == 2 and program.check([box], plain) == 1


def test_a_trail_that_is_replaced_while_it_runs():
    def recurse(value):
        if depth:
            return True
        depth.append(1)
        box.inner.x += 1000
        box.inner.x -= 1000
        answers.extend(program.check([box], plain) for _ in range(3))
        depth.pop()
        return True

    depth, answers = [], []
    box = Thing(y=1, inner=Thing(x=1))
    inside = [
        node(A.DICT_ITEM, "y", checks=[(C.PYTHON, recurse, 1)]),
        node(A.DICT_ITEM, "inner", node(A.DICT, None, node(A.DICT_ITEM, "x", checks=[(C.EQUALS, 1, 2)]))),
    ]
    program = _C.GuardProgram([node(A.LOCAL, 0, node(A.DICT, None, *inside), checks=[(C.TYPE_IS, Thing, 0)])], 0)
    assert [program.check([box], plain) for _ in range(10)] == [()] * 10 and set(answers) == {()}


def _length_guarded(box):
    sized = node(A.DICT_ITEM, "sized", checks=[(C.LENGTH, 1, 0)])
    program = _C.GuardProgram([node(A.LOCAL, 0, node(A.DICT, None, sized), checks=[(C.TYPE_IS, Thing, 1)])], 0)
    return lambda: [program.check([box], plain) for _ in range(3)]


def test_a_length_that_only_python_knows():
    class Sized:
        def __len__(self):
            return 1

    check = _length_guarded(Thing(sized=Sized()))
    assert check() == [()] * 3
    Sized.__len__ = lambda self: 5
    assert check() == [0] * 3
    Sized.__len__ = lambda self: 1
    assert check() == [()] * 3


@pytest.mark.parametrize("kind", [dict, list, tuple])
def test_of_containers_the_length_is_what_they_hold(kind):
    """Their own `__len__` is the program's: it is called there, and that the class has one is another guard's matter."""

    class Sized(kind):
        def __len__(self):
            raise AssertionError("a guard runs no code of the program")

    box = Thing(sized=Sized([("a", 1)]))
    check = _length_guarded(box)
    assert check() == [()] * 3
    box.sized = Sized([("a", 1), ("b", 2)])
    assert check() == [0] * 3


def test_same_objects_are_compared_on_the_trail():
    shared = Thing()
    box = Thing(a=shared, b=shared, c=Thing())
    inside = [
        node(A.DICT_ITEM, "a", slot=0),
        node(A.DICT_ITEM, "b", checks=[(C.SAME_AS, 0, 1)]),
        node(A.DICT_ITEM, "c", checks=[(C.NOT_SAME_AS, (0,), 2)]),
    ]
    program = _C.GuardProgram([node(A.LOCAL, 0, node(A.DICT, None, *inside), checks=[(C.TYPE_IS, Thing, 0)])], 1)
    assert [program.check([box], plain) for _ in range(3)] == [(shared,)] * 3
    box.c = shared
    assert [program.check([box], plain) for _ in range(3)] == [2] * 3
    box.b = Thing()
    assert [program.check([box], plain) for _ in range(3)] == [1] * 3


# Random trees and mutations


class Fuzz:
    """A random object graph, guards on it, and random mutations of it."""

    names = ("a", "b", "c", "d")

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.guards = self.slots = 0
        self.undo = []
        self.root = Thing(**{name: self.value(3) for name in self.names})
        self.constant = {name: self.value(2) for name in self.names}

    def leaf(self):
        return self.random.choice(
            [None, True, 1, 2, "text", float(self.random.randrange(3)), 1000 + self.random.randrange(3)]
        )

    def value(self, depth):
        kind = self.random.choice(["leaf", "thing", "dict", "ordered", "list", "tuple", "slotted", "function"])
        if depth == 0 or kind == "leaf":
            return self.leaf()
        parts = {name: self.value(depth - 1) for name in self.names[: self.random.randrange(1, 4)]}
        if kind == "function":
            made = make_closure(parts["a"])
            made.__defaults__ = tuple(parts.values())
            return made
        make = {"thing": lambda p: Thing(**p), "dict": dict, "ordered": collections.OrderedDict,
                "list": lambda p: list(p.values()), "tuple": lambda p: tuple(p.values()),
                "slotted": lambda p: Slotted(p["a"])}  # fmt: skip
        return make[kind](parts)

    def check(self, kind, argument):
        self.guards += 1
        return (kind, argument, self.guards)

    def describe(self, accessor, argument, value):
        checks, children = [], []
        chance = self.random.random
        if chance() < 0.7:
            checks.append(self.check(C.TYPE_IS, type(value)))
        if isinstance(value, dict):
            items = [(A.DICT_ITEM, name, item) for name, item in value.items()]
            if chance() < 0.5:
                checks.append(self.check(C.LENGTH, len(value)))
            if chance() < 0.3:
                checks.append(self.check(C.DICT_KEYS, tuple(value)))
            if chance() < 0.5:
                checks.append(self.check(C.LACKS_KEY, "absent"))
        elif isinstance(value, Thing):
            items = [(A.DICT, None, value.__dict__)]
        elif isinstance(value, (list, tuple)):
            index = A.LIST_ITEM if isinstance(value, list) else A.TUPLE_ITEM
            items = [(self.random.choice([index, A.ITEM]), i, item) for i, item in enumerate(value)]
            if chance() < 0.5:
                checks.append(self.check(C.LENGTH, len(value)))
        elif isinstance(value, Slotted):
            items = [(A.SLOT, Slotted.__dict__["field"], value.field)]
        elif isinstance(value, types.FunctionType):
            items = [(A.FUNC_DEFAULTS, None, value.__defaults__)]
            checks.append(self.check(C.CODE_IS, value.__code__))
            children.append(node(A.FUNC_CLOSURE, 0, self.describe(A.CELL, None, value.__closure__[0].cell_contents)))
        else:
            items = []
            checks.append(self.check(C.EQUALS, value) if chance() < 0.9 else self.check(C.IS, value))
        for child_accessor, child_argument, item in items:
            if chance() < 0.8:
                children.append(self.describe(child_accessor, child_argument, item))
        slot = -1
        if chance() < 0.2:
            slot, self.slots = self.slots, self.slots + 1
        return node(accessor, argument, *children, checks=checks, slot=slot)

    def containers(self):
        found, queue = [], [self.root, self.constant]
        while queue:
            value = queue.pop()
            if isinstance(value, dict):
                found.append(value)
                queue.extend(value.values())
            elif isinstance(value, (list, tuple)):
                found.extend([value] if isinstance(value, list) else [])
                queue.extend(value)
            elif isinstance(value, (Thing, Slotted, types.FunctionType)):
                found.append(value)
                queue.extend(
                    [value.__dict__] if isinstance(value, Thing) else
                    [value.field] if isinstance(value, Slotted) else
                    [value.__closure__[0].cell_contents, *(value.__defaults__ or ())])  # fmt: skip
        return found

    def copy(self, value):
        """Another object, equal to this one (mostly)."""
        if self.random.random() < 0.1:
            return self.value(2)
        if isinstance(value, float):
            return float(str(value))
        if isinstance(value, int) and not isinstance(value, bool):
            return int(str(value))
        if isinstance(value, (dict, list)):
            return value.copy()
        if isinstance(value, tuple):
            return (*value,)
        if isinstance(value, Thing):
            return type(value)(**value.__dict__)
        if isinstance(value, Slotted):
            return Slotted(value.field)
        return value

    def mutate(self):
        """Change something; what undoes it goes on the stack."""
        target = self.random.choice(self.containers())
        pick = self.random.choice
        if isinstance(target, Thing) and pick([True, False]):
            old_class, old_dict = type(target), target.__dict__
            if pick([True, False]):
                target.__class__ = Twin if old_class is Thing else Thing
                self.undo.append(lambda: setattr(target, "__class__", old_class))
            else:
                target.__dict__ = dict(old_dict)
                self.undo.append(lambda: setattr(target, "__dict__", old_dict))
            return
        if isinstance(target, Thing):
            target = target.__dict__
        if isinstance(target, dict):
            key = pick([*self.names, "absent"])
            old = dict(target)
            if key in target and pick([True, False, False]):
                del target[key]
            else:
                target[key] = self.copy(target[key]) if key in target else self.leaf()

            def restore():
                target.clear()
                target.update(old)

            self.undo.append(restore)
        elif isinstance(target, list):
            old = list(target)
            if target and pick([True, True, False]):
                index = self.random.randrange(len(target))
                target[index] = self.copy(target[index])
            else:
                target.append(1)
            self.undo.append(lambda: target.__setitem__(slice(None), old))
        elif isinstance(target, Slotted):
            old = target.field
            target.field = self.copy(old)
            self.undo.append(lambda: setattr(target, "field", old))
        else:
            cell, old_contents, old_defaults = (
                target.__closure__[0],
                target.__closure__[0].cell_contents,
                target.__defaults__,
            )
            if pick([True, False]):
                cell.cell_contents = self.copy(old_contents)
            else:
                target.__defaults__ = tuple(map(self.copy, old_defaults or ()))
            self.undo.append(
                lambda: (setattr(cell, "cell_contents", old_contents), setattr(target, "__defaults__", old_defaults))
            )


def _same(one, two):
    return type(one) is type(two) and (one == two if isinstance(one, int) else all(map(lambda a, b: a is b, one, two)))


@pytest.mark.parametrize("seed", range(60))
def test_a_warm_program_answers_as_a_fresh_one(seed):
    fuzz = Fuzz(seed)
    roots = [fuzz.describe(A.LOCAL, 0, fuzz.root), fuzz.describe(A.CONST, fuzz.constant, fuzz.constant)]
    warm = _C.GuardProgram(roots, fuzz.slots)
    passed = 0
    for _ in range(150):
        fresh = _C.GuardProgram(roots, fuzz.slots).check([fuzz.root], plain)
        for _ in range(fuzz.random.randrange(1, 4)):
            assert _same(warm.check([fuzz.root], plain), fresh)
        passed += isinstance(fresh, tuple)
        if fuzz.undo and (isinstance(fresh, int) or fuzz.random.random() < 0.3):
            fuzz.undo.pop()()
        else:
            fuzz.mutate()
    assert passed > 20 and warm.followed > 10
