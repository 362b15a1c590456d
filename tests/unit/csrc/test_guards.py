"""Guard programs: each accessor and each check, in both directions."""

import collections
import gc
import math
import sys
import types
import weakref

import pytest

from stoker import _C

A, C, MISSING = types.SimpleNamespace(**_C.ACCESSORS), types.SimpleNamespace(**_C.CHECKS), _C.MISSING


def plain():
    return None


def node(accessor, argument=None, *children, checks=(), slot=-1):
    return (accessor, argument, list(checks), list(children), slot)


def program(*roots, slots=0, **more):
    return _C.GuardProgram(list(roots), slots, **more)


def local_check(kind, argument):
    """A program of one check, with guard index 5, on the first bound slot."""
    return program(node(A.LOCAL, 0, checks=[(kind, argument, 5)]))


def holds(kind, argument, value):
    result = local_check(kind, argument).check([value], plain)
    assert result in ((), 5)
    return result == ()


def fetch(value, accessor, argument=None, function=plain):
    """What an accessor reaches from a value; LookupError if it fails (reporting the guard below it)."""
    tree = program(node(A.LOCAL, 0, node(accessor, argument, checks=[(C.PYTHON, lambda o: True, 3)], slot=0)), slots=1)
    result = tree.check([value], function)
    if result == 3:
        raise LookupError
    return result[0]


class Thing:
    def __init__(self, **attributes):
        self.__dict__.update(attributes)

    def method(self):
        return self


class Slotted:
    __slots__ = ("field",)


# Accessors

WORD = "a global"


def make_closure(value):
    def read():
        return value

    return read


def test_roots():
    tree = program(
        node(A.LOCAL, 1, slot=0),
        node(A.GLOBALS, slot=1),
        node(A.GLOBAL, "WORD", slot=2),
        node(A.GLOBAL, "len", slot=3),
        node(A.CLOSURE, 0, slot=4),
        node(A.CONST, 12.5, slot=5),
        slots=6,
    )
    function = make_closure("inside")
    function = types.FunctionType(function.__code__, globals(), closure=function.__closure__)
    assert tree.check([1, 2], function) == (2, globals(), WORD, len, "inside", 12.5)
    assert tree.check([1], function) == -1, "no such local, and no guard to blame"
    assert program(node(A.GLOBAL, "absent", checks=[(C.IS, None, 4)])).check([], plain) == 4
    assert program(node(A.CLOSURE, 0, checks=[(C.IS, None, 4)])).check([], plain) == 4


def keywords(a, b=1, *, c=2):
    return a, b, c


def _present():
    box = Thing(x=1)
    slotted = Slotted()
    slotted.field = 7
    closed = make_closure(9)
    return {
        "ATTR": (box, "x", 1),
        "ATTR method": (box, "__class__", Thing),
        "DICT": (box, None, box.__dict__),
        "DICT of module": (math, None, math.__dict__),
        "DICT_ITEM": ({"k": 3}, "k", 3),
        "DICT_ITEM int key": ({4: 3}, 4, 3),
        "DICT_ITEM subclass": (collections.OrderedDict(k=3), "k", 3),
        "LIST_ITEM": ([1, 2], 1, 2),
        "TUPLE_ITEM": ((1, 2), 1, 2),
        "ITEM": (collections.deque([5, 6]), 1, 6),
        "TYPE": (box, None, Thing),
        "CELL": (closed.__closure__[0], None, 9),
        "FUNC_CODE": (keywords, None, keywords.__code__),
        "FUNC_DEFAULTS": (keywords, None, (1,)),
        "FUNC_DEFAULTS none": (plain, None, None),
        "FUNC_KWDEFAULTS": (keywords, None, {"c": 2}),
        "FUNC_CLOSURE": (closed, 0, closed.__closure__[0]),
        "FUNC_GLOBALS": (keywords, None, globals()),
        "METHOD_SELF": (box.method, None, box),
        "METHOD_FUNC": (box.method, None, Thing.method),
        "WEAKREF": (weakref.ref(box), None, box),
        "DICT_KEY": ({"a": 1, "b": 2}, 1, "b"),
        "DICT_KEY subclass": (collections.OrderedDict(a=1, b=2), 1, "b"),
        "SLOT": (slotted, Slotted.field, 7),
        "ASKED": ([1, 2], len, 2),
    }


@pytest.mark.parametrize("case", _present())
def test_accessor_reaches(case):
    value, argument, expected = _present()[case]
    assert fetch(value, _C.ACCESSORS[case.split()[0]], argument) == expected


ABSENT = {
    "ATTR": (Thing(), "x"),
    "DICT": (3, None),
    "DICT_ITEM": ({}, "k"),
    "DICT_ITEM no dict": ([], "k"),
    "LIST_ITEM": ([1], 1),
    "LIST_ITEM no list": ((1, 2), 1),
    "TUPLE_ITEM": ((1,), 1),
    "ITEM": ({}, "k"),
    "CELL": (types.CellType(), None),
    "FUNC_CODE": (len, None),
    "FUNC_DEFAULTS": (len, None),
    "FUNC_KWDEFAULTS": (len, None),
    "FUNC_CLOSURE": (plain, 0),
    "FUNC_GLOBALS": (len, None),
    "METHOD_SELF": (plain, None),
    "METHOD_FUNC": (plain, None),
    "WEAKREF": (weakref.ref(Thing()), None),
    "WEAKREF no reference": (3, None),
    "DICT_KEY": ({"a": 1}, 1),
    "DICT_KEY subclass": (collections.OrderedDict(a=1), 1),
    "SIZE no tensor": (3, 0),
    "SLOT": (Slotted(), Slotted.field),
    "SLOT wrong type": (3, Slotted.field),
    "ASKED": (3, len),
}


@pytest.mark.parametrize("case", ABSENT)
def test_accessor_fails_the_first_guard_below_it(case):
    value, argument = ABSENT[case]
    with pytest.raises(LookupError):
        fetch(value, _C.ACCESSORS[case.split()[0]], argument)


def test_every_accessor_is_tested():
    roots = {"LOCAL", "GLOBALS", "GLOBAL", "CLOSURE", "CONST"}
    in_test_tensor = {"SIZE"}
    assert {case.split()[0] for case in _present()} | roots | in_test_tensor == set(_C.ACCESSORS)


# Checks

NAN, OTHER_NAN = float("nan"), -float("nan")
KEY = object()
THING = Thing()

CHECK_CASES = [
    ("TYPE_IS", int, [3], [True, 3.0]),
    ("IS", THING, [THING], [Thing(), None]),
    ("IS", None, [None], [0]),
    ("IS_NOT", None, [0, THING], [None]),
    ("EQUALS", 3, [3], [4, 3.0, True, "3"]),
    ("EQUALS", 2**80, [2**80], [2**80 + 1]),
    ("EQUALS", True, [True], [1, False]),
    ("EQUALS", "text", ["te" + "xt"[:2], str(b"text", "ascii")], ["Text", b"text"]),
    ("EQUALS", b"x", [bytes([120])], [b"y"]),
    ("EQUALS", 0.0, [0.0], [-0.0, 0, 1.0]),
    ("EQUALS", NAN, [float("nan")], [OTHER_NAN, 0.0]),
    ("EQUALS", 1 + 2j, [complex(1, 2)], [1 + 3j]),
    ("EQUALS", (1, (2.0, "x")), [(1, (2.0, "x"))], [(1, (2, "x")), (True, (2.0, "x")), (1,)]),
    ("EQUALS", frozenset({1, 2}), [frozenset({2, 1})], [frozenset({1})]),
    ("EQUALS", slice(1, 2), [slice(1, 2)], [slice(1, 3)]),
    ("LENGTH", 2, [[1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, frozenset({1, 2}), collections.deque([1, 2]), "ab"], [[1], 5]),
    ("DICT_KEYS", ("a", 1), [{"a": 0, 1: 0}], [{1: 0, "a": 0}, {"a": 0, True: 0}, {"a": 0}, {"a": 0, 1: 0, 2: 0}, []]),
    ("EQUALS", frozenset({1}), [frozenset({1})], [frozenset({True}), frozenset({1.0}), {1}]),
    ("EQUALS", range(0, 3, 2), [range(0, 3, 2)], [range(0, 4, 2)]),
    ("EQUALS", slice(1, 2), [slice(1, 2)], [slice(True, 2), slice(1.0, 2)]),
    ("SET_ELEMENTS", (0, 8), [{0, 8}, frozenset({0, 8})], [{8, 0}, {0}, [0, 8]]),
    ("SET_ELEMENTS", (1,), [{1}, frozenset({1})], [{True}, {1.0}, {1, 2}, None]),
    ("HAS_KEY", "k", [{"k": None}], [{}, []]),
    ("LACKS_KEY", "k", [{}, {"x": 1}], [{"k": None}, []]),
    ("CODE_IS", plain.__code__, [plain], [keywords, len, plain.__code__]),
    ("RANGE", (2, 5), [2, 5], [1, 6, True, 3.0, 2**70]),
    ("RANGE", (None, 5), [-(2**40)], [6]),
    ("RANGE", (2, None), [2**40], [1]),
    ("PYTHON", lambda x: x > 3, [4], [3, "a"]),
]


@pytest.mark.parametrize("kind, argument, passing, failing", CHECK_CASES)
def test_check(kind, argument, passing, failing):
    for value in passing:
        assert holds(_C.CHECKS[kind], argument, value), value
    for value in failing:
        assert not holds(_C.CHECKS[kind], argument, value), value


def test_every_check_is_tested():
    elsewhere = {"TENSOR", "SAME_AS", "NOT_SAME_AS", "TYPE_ATTRS"}
    assert {case[0] for case in CHECK_CASES} | elsewhere == set(_C.CHECKS)


def test_identity_of_a_dead_object_never_holds_again():
    thing = Thing()
    tree = local_check(C.IS, thing)
    death = weakref.ref(thing)
    del thing
    assert death() is None, "a guard keeps nothing alive"
    for _ in range(100):  # some of these lie at the old address
        assert tree.check([Thing()], plain) == 5


def test_same_object_in_several_places():
    one, other = [], []
    tree = program(
        node(A.LOCAL, 0, slot=0),
        node(A.LOCAL, 1, checks=[(C.SAME_AS, 0, 1)], slot=1),
        node(A.LOCAL, 2, checks=[(C.NOT_SAME_AS, (0, 1), 2)]),
        slots=2,
    )
    assert tree.check([one, one, other], plain) == (one, one)
    assert tree.check([one, other, other], plain) == 1
    assert tree.check([one, one, one], plain) == 2


def test_ordered_dict_order_is_seen():
    values = collections.OrderedDict(a=1, b=2)
    tree = local_check(C.DICT_KEYS, ("a", "b"))
    first = program(node(A.LOCAL, 0, node(A.DICT_KEY, 0, slot=0)), slots=1)
    assert tree.check([values], plain) == () and first.check([values], plain) == ("a",)
    values.move_to_end("a")
    assert tree.check([values], plain) == 5 and first.check([values], plain) == ("b",)


# Remembered dictionaries


def deep_program():
    """box.__dict__['inner'].__dict__['x'] == 1, has keys, lacks 'gone'."""
    inner = node(
        A.DICT_ITEM,
        "inner",
        node(
            A.DICT, None, node(A.DICT_ITEM, "x", checks=[(C.EQUALS, 1, 2)], slot=0), checks=[(C.LACKS_KEY, "gone", 1)]
        ),
    )
    return program(node(A.LOCAL, 0, node(A.DICT, None, inner, checks=[(C.HAS_KEY, "inner", 0)])), slots=1)


def _set(box):
    box.inner.x = 2


def _delete(box):
    del box.inner.x


def _replace(box):
    box.inner = Thing(x=2)


def _clear(box):
    box.__dict__.clear()


def _clear_inner(box):
    box.inner.__dict__.clear()


def _update(box):
    box.inner.__dict__.update(x=2)


def _add(box):
    box.inner.gone = 1


def _setattr(box):
    object.__setattr__(box.inner, "x", 2)


def _pop(box):
    box.__dict__.pop("inner")


def _new_dict(box):
    box.inner.__dict__ = {"x": 2}


def _setdefault(box):
    box.inner.__dict__.setdefault("gone", 0)


def _inplace_or(box):
    box.inner.__dict__ |= {"x": 2}


MUTATIONS = [
    _set,
    _delete,
    _replace,
    _clear,
    _clear_inner,
    _update,
    _add,
    _setattr,
    _pop,
    _new_dict,
    _setdefault,
    _inplace_or,
]


class Attributes:
    """Attributes set one by one, as most classes do: CPython stores them in a split table."""

    def __init__(self, x):
        self.x = x
        self.y = None


@pytest.mark.parametrize("mutate", MUTATIONS)
@pytest.mark.parametrize("make", [lambda: Thing(x=1), lambda: Attributes(1)])
def test_every_mutation_is_seen(mutate, make):
    box, tree = Thing(inner=make()), deep_program()
    for _ in range(3):
        assert tree.check([box], plain) == (1,)
    mutate(box)
    assert isinstance(tree.check([box], plain), int)
    again = Thing(inner=make())
    assert tree.check([again], plain) == (1,)


def test_repeated_stores_by_specialized_bytecode_are_seen():
    box, tree = Thing(inner=Attributes(1)), deep_program()

    def store(value):
        box.inner.x = value

    for _ in range(100):
        store(1)
        assert tree.check([box], plain) == (1,)
        store(2)
        assert tree.check([box], plain) == 2


def test_what_failed_under_a_tag_fails_again():
    box = {"flag": 2}
    tree = program(node(A.LOCAL, 0, node(A.DICT_ITEM, "flag", checks=[(C.EQUALS, 1, 3)])))
    assert [tree.check([box], plain) for _ in range(3)] == [3, 3, 3]
    box["flag"] = 1
    assert [tree.check([box], plain) for _ in range(3)] == [(), (), ()]
    box["flag"] = True
    assert [tree.check([box], plain) for _ in range(3)] == [3, 3, 3]


def test_remembered_values_are_not_kept_alive():
    box, tree = Thing(inner=Thing(x=1)), deep_program()
    assert tree.check([box], plain) == (1,)
    death = weakref.ref(box.inner)
    box.inner = None
    assert death() is None
    assert tree.check([box], plain) == 1, "None has no __dict__: the first guard below is blamed"


def test_globals_are_seen_changing():
    space = {"__builtins__": {"name": "builtin"}}
    function = types.FunctionType(plain.__code__, space)
    tree = program(node(A.GLOBAL, "name", slot=0), slots=1)
    assert tree.check([], function) == ("builtin",)
    space["name"] = "global"
    assert tree.check([], function) == ("global",) == tree.check([], function)
    del space["name"]
    assert tree.check([], function) == ("builtin",)


# Types


def test_type_attributes_see_patches_of_the_class_and_its_bases():
    class Base:
        def run(self):
            return 1

    class Derived(Base):
        pass

    run = Base.run
    tree = local_check(C.TYPE_ATTRS, (Derived, (("run", run), ("absent", MISSING))))
    for _ in range(3):
        assert tree.check([Derived()], plain) == ()
    Base.run = lambda self: 2
    assert tree.check([Derived()], plain) == 5
    Base.run = run
    assert tree.check([Derived()], plain) == ()
    Derived.run = run
    assert tree.check([Derived()], plain) == (), "found elsewhere, but the same object"
    Base.absent = 1
    assert tree.check([Derived()], plain) == 5
    del Base.absent
    assert tree.check([Derived()], plain) == ()

    class Other:
        absent = 3

    Derived.__bases__ = (Base, Other)
    assert tree.check([Derived()], plain) == 5


# Shapes


def shape_program(text, guards=None):
    """Conditions as text: one symbol per letter a..c, in reverse Polish order."""
    words = {
        "+": "ADD",
        "-": "SUB",
        "*": "MUL",
        "//": "FLOORDIV",
        "%": "MOD",
        "==": "EQ",
        "!=": "NE",
        "<": "LT",
        "<=": "LE",
    }
    conditions = []
    for condition in text.split(";"):
        instructions = []
        for word in condition.split():
            if word in "abc":
                instructions.append((_C.SHAPE_OPS["SYMBOL"], "abc".index(word)))
            elif word.lstrip("-").isdigit():
                instructions.append((_C.SHAPE_OPS["CONST"], int(word)))
            else:
                instructions.append((_C.SHAPE_OPS[words.get(word, word.upper())], None))
        conditions.append(instructions)
    roots = [node(A.LOCAL, i, slot=i) for i in range(3)]
    shapes = ([(i, None) for i in range(3)], conditions, guards or list(range(len(conditions))))
    return _C.GuardProgram(roots, 3, shapes)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("a b + c ==", lambda a, b, c: a + b == c),
        ("a b - c <", lambda a, b, c: a - b < c),
        ("a b * c <=", lambda a, b, c: a * b <= c),
        ("a b // c ==", lambda a, b, c: b != 0 and a // b == c),
        ("a b % c ==", lambda a, b, c: b != 0 and a % b == c),
        ("a b min c !=", lambda a, b, c: min(a, b) != c),
        ("a b max c ==", lambda a, b, c: max(a, b) == c),
        ("a 0 < b 0 < or c 0 < not and", lambda a, b, c: (a < 0 or b < 0) and not c < 0),
    ],
)
def test_shape_operations_equal_pythons(text, expected):
    tree = shape_program(text)
    numbers = range(-4, 5)
    for a in numbers:
        for b in numbers:
            for c in numbers:
                assert (tree.check([a, b, c], plain) == (a, b, c)) == expected(a, b, c), (a, b, c)


def test_shape_conditions_fail_on_overflow_and_division_by_zero():
    big = 2**62
    for text in ("a a + 0 <", "a a * a * 0 <", "0 a - a - a - 0 <", "a 0 // a <=", "a 0 % a <="):
        assert shape_program(text).check([big, 1, 1], plain) == 0
    assert shape_program("a b // 0 <").check([-(2**63), -1, 0], plain) == 0
    assert shape_program("a a ==").check([2**70, 0, 0], plain) == 0, "no 64-bit integer"
    assert shape_program("a a ==").check([1.0, 0, 0], plain) == 0, "no integer"


def test_shape_program_reports_the_failed_guard():
    tree = shape_program("a 1 ==;b 2 ==;c 3 ==", [10, 20, 30])
    assert tree.check([1, 2, 3], plain) == (1, 2, 3)
    assert tree.check([1, 9, 9], plain) == 20
    assert tree.check([1, 2, 9], plain) == 30
    assert tree.size == 3


@pytest.mark.parametrize("text", ["a", "a b +", "+", "a b"])
def test_shape_programs_are_checked_when_built(text):
    if text in ("a", "a b +"):
        shape_program(text)
    else:
        with pytest.raises(ValueError, match="shape program"):
            shape_program(text)


# The program as an object


@pytest.mark.parametrize(
    "roots, slots",
    [
        ([(99, None, [], [], -1)], 0),
        ([node(A.ATTR, "x")], 0),
        ([node(A.LOCAL, 0, slot=1)], 1),
        ([node(A.LOCAL, 0)], 1),
        ([node(A.LOCAL, 0, slot=0), node(A.LOCAL, 0, slot=0)], 1),
        ([node(A.LOCAL, -1)], 0),
        ([node(A.LOCAL, 0, checks=[(99, None, 0)])], 0),
        ([node(A.LOCAL, 0, checks=[(C.SAME_AS, 3, 0)])], 0),
        ([node(A.LOCAL, 0, checks=[(C.TYPE_IS, 3, 0)])], 0),
        ([node(A.LOCAL, 0, checks=[(C.TENSOR, 3, 0)])], 0),
    ],
)
def test_a_wrong_description_is_an_error(roots, slots):
    with pytest.raises((ValueError, TypeError)):
        _C.GuardProgram(roots, slots)


def test_failure_leaves_no_exception_and_no_reference():
    value = Thing(a=[1, 2, 3])
    tree = program(
        node(A.LOCAL, 0, node(A.ATTR, "a", slot=1), node(A.ATTR, "missing", checks=[(C.IS, None, 4)]), slot=0), slots=2
    )
    before = sys.getrefcount(value), sys.getrefcount(value.a)
    for _ in range(100):
        assert tree.check([value], plain) == 4
    assert (sys.getrefcount(value), sys.getrefcount(value.a)) == before


def test_programs_are_collected_with_their_cycles():
    class Owner:
        pass

    owner = Owner()
    owner.tree = program(node(A.CONST, owner, checks=[(C.PYTHON, lambda o, owner=owner: True, 0)]))
    death = weakref.ref(owner)
    del owner
    gc.collect()
    assert death() is None


def test_a_check_that_mutates_what_is_being_checked():
    def mutate(value):
        box.__dict__.clear()
        return True

    box = Thing(inner=Thing(x=1))
    inner = node(
        A.DICT_ITEM, "inner", node(A.DICT, None, node(A.DICT_ITEM, "x", slot=0)), checks=[(C.PYTHON, mutate, 0)]
    )
    tree = program(node(A.LOCAL, 0, node(A.DICT, None, inner)), slots=1)
    assert tree.check([box], plain) == (1,)
    assert tree.check([box], plain) == 0


def test_a_length_that_mutates_what_is_being_checked():
    class Sized:
        def __len__(self):
            box.__dict__.clear()
            return 1

    box = Thing(inner=Thing(sized=Sized(), x=1))
    inside = node(A.DICT, None, node(A.DICT_ITEM, "sized", checks=[(C.LENGTH, 1, 0)]), node(A.DICT_ITEM, "x", slot=0))
    tree = program(node(A.LOCAL, 0, node(A.DICT, None, node(A.DICT_ITEM, "inner", inside))), slots=1)
    assert tree.check([box], plain) == (1,)
