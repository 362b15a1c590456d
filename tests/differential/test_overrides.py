"""What a subclass overrides is called: containers, numbers, texts, enums, callables. What it holds is guarded, not what it shows."""

from __future__ import annotations

import collections
import enum
import functools
import types
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch

import stoker

X = torch.arange(3.0)


class AList(list):  # type: ignore[type-arg]
    def __len__(self):
        return 100

    def __getitem__(self, i):
        return super().__getitem__(i) * 2 if isinstance(i, int) else super().__getitem__(i)

    def __iter__(self):
        return (e + 10 for e in list.__iter__(self))

    def append(self, value):
        super().append(value + 1)

    def __contains__(self, value):
        return True

    def __eq__(self, other):
        return True

    def __add__(self, other):
        return "added"

    def __bool__(self):
        return False

    __hash__ = None


class ADict(dict):  # type: ignore[type-arg]
    def __getitem__(self, key):
        return super().__getitem__(key) * 2

    def get(self, key, default=None):
        return 77

    def keys(self):
        return ["x", "y"]

    def items(self):
        return [("q", 5)]

    def __contains__(self, key):
        return key == "zz"

    def __len__(self):
        return 9

    def __missing__(self, key):
        return 4

    def __iter__(self):
        return iter(["i1"])

    def __setitem__(self, key, value):
        super().__setitem__(key, value + 100)

    def update(self, *args, **kwargs):
        super().update({"updated": 1})


class ATuple(tuple):
    def __getitem__(self, i):
        return 5.0

    def __len__(self):
        return 8

    def __iter__(self):
        return iter((1, 2))

    def __contains__(self, value):
        return True

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 3

    def index(self, value):
        return 42

    def __add__(self, other):
        return 13


class Pair(NamedTuple):
    a: float
    b: float


class APair(Pair):
    @property
    def b(self):
        return 50

    @property
    def both(self):
        return self.a + self.b

    def __len__(self):
        return 5


class WithState(tuple):
    def __new__(cls, items):
        made = super().__new__(cls, items)
        made.state = 3
        return made


class AnInt(int):
    def __add__(self, other):
        return 1000

    def __eq__(self, other):
        return True

    def __lt__(self, other):
        return True

    def __bool__(self):
        return False

    def __index__(self):
        return 2

    def __float__(self):
        return 8.5

    def __int__(self):
        return 6

    def __hash__(self):
        return 5

    def __neg__(self):
        return 44

    def __str__(self):
        return "text"

    def __format__(self, specification):
        return "formatted"

    def __abs__(self):
        return 21

    def bit_length(self):
        return 99


class AFloat(float):
    def __mul__(self, other):
        return 4.0

    def __rmul__(self, other):
        return other * 0.5

    def __gt__(self, other):
        return True


class AText(str):
    def upper(self):
        return "UP"

    def __len__(self):
        return 12

    def __eq__(self, other):
        return True

    def __hash__(self):
        return hash("zz")

    def __contains__(self, other):
        return True

    def __getitem__(self, i):
        return "g"

    def __add__(self, other):
        return "plus"

    def __mod__(self, other):
        return "mod"

    def __iter__(self):
        return iter("xy")

    def join(self, parts):
        return "joined"

    def __str__(self):
        return "shown"


class ASet(set):  # type: ignore[type-arg]
    def __contains__(self, value):
        return True

    def __len__(self):
        return 6

    def __iter__(self):
        return iter([3, 4])

    def __or__(self, other):
        return "or"

    def add(self, value):
        super().add(value * 2)


class AFrozenSet(frozenset):  # type: ignore[type-arg]
    def __contains__(self, value):
        return value == 1234


class AnOrderedDict(collections.OrderedDict):  # type: ignore[type-arg]
    def __getitem__(self, key):
        return 3


class ADefaultDict(collections.defaultdict):  # type: ignore[type-arg]
    def __missing__(self, key):
        return 17


class AUserDict(collections.UserDict):  # type: ignore[type-arg]
    def __getitem__(self, key):
        return 6


class AWeakDict(weakref.WeakValueDictionary):  # type: ignore[type-arg]
    def __getitem__(self, key):
        return 8


class AWeakKeyDict(weakref.WeakKeyDictionary):  # type: ignore[type-arg]
    def get(self, key, default=None):
        return 4


class ADeque(collections.deque):  # type: ignore[type-arg]
    def __len__(self):
        return 4

    def append(self, value):
        super().append(value + 5)

    def __getitem__(self, i):
        return 2.5


class APartial(functools.partial):  # type: ignore[type-arg]
    def __call__(self, *args):
        return super().__call__(*args) * 2


class Called:
    def __call__(self, x):
        return x * 3


class CalledAgain(Called):
    def __call__(self, x):
        return super().__call__(x) + 1


class AnError(ValueError):
    def __str__(self):
        return "mine"


class Level(enum.IntEnum):
    A = 1
    B = 2

    def __add__(self, other):
        return 40

    def __str__(self):
        return "level"

    @property
    def doubled(self):
        return self.value * 2


class Flags(enum.Flag):
    A = 1
    B = 2

    def __contains__(self, other):
        return False


class Name(str, enum.Enum):
    A = "a"

    def upper(self):
        return "NAME"


CASES: list[tuple[Callable[[], Any], str]] = [
    (lambda: AList([1, 2, 3]), "len(o); o[1]; sum(o); [e for e in o]; 5 in o; o == []; o + [1]; 1 if o else 2; list(o); o[0:2]; [*o]"),
    (lambda: AList([1, 2, 3]), "sorted(o); max(o); o.append(3), list.__len__(o); tuple(o); bool(o); (lambda *a: a)(*o)"),
    (lambda: ADict(a=1, b=2), "o['a']; o.get('a'); list(o.keys()); list(o.items()); ('a' in o, 'zz' in o); len(o); [k for k in o]; o['none']"),
    (lambda: ADict(a=1, b=2), "o.__setitem__('n', 1), dict.get(o, 'n'); o.update(z=3), dict.keys(o); dict(o); {**o}; o | {'c': 1}; {'c': 1} | o; o | o; o.copy(); o.__ror__({'c': 1}); dict.__or__({'d': 1}, o); list(o.values())"),
    (lambda: ATuple((1, 2, 3)), "o[0]; len(o); list(o); 9 in o; o == (); o.index(1); o + (1,); {o: 1}[o]; tuple(o); (*o, 1)"),
    (lambda: APair(1.0, 2.0), "o[0]; o.a + o.b; o.both; len(o); list(o); o._asdict(); o == (1.0, 2.0)"),
    (lambda: WithState((1, 2)), "o.state; o[0]; len(o); list(o); o == (1, 2)"),
    (lambda: AnInt(7), "o + 1; 1 + o; o * 2; o == 3; o < 0; 1 if o else 2; x[o - 7]; float(o); int(o); -o; str(o); f'{o}'; '%s' % o; abs(o)"),
    (lambda: AnInt(7), "[1, 2, 3][o]; list(range(o)); {5: 1}.get(o); x * o; max(o, 3); o.bit_length(); isinstance(o, int); x.sum(0 * o)"),
    (lambda: AFloat(2.0), "o * 3; 3 * o; o > 100; x * o; o * x; x + o; o + 1"),
    (lambda: AText("abc"), "o.upper(); len(o); o == 'q'; {'zz': 4}.get(o); 'q' in o; o[0]; o + 'd'; o % 3; list(o); o.join(['a']); str(o); o.lower(); 'a' + o; ','.join([o])"),
    (lambda: ASet([1, 2]), "5 in o; len(o); list(o); o | {1}; o.add(5), set.__len__(o); set(o); sorted(o); frozenset(o); o - {1}"),
    (lambda: AFrozenSet([1, 2]), "len(o); (1 in o, 1234 in o); sorted(o); o | {3}"),
    (lambda: AnOrderedDict(a=1), "o['a']; list(o.items()); len(o)"),
    (lambda: ADefaultDict(list), "o['k'], len(o)"),
    (lambda: AUserDict(a=1), "o['a']; list(o.items()); o.get('a'); len(o)"),
    (lambda: AWeakDict(), "o['a']; len(o)"),
    (lambda: AWeakKeyDict(), "o.get('a')"),
    (lambda: ADeque([1]), "len(o); o.append(1), list(o); o[0]"),
    (lambda: APartial(torch.add, 1), "o(x)"),
    (CalledAgain, "o(x); callable(o)"),
    (lambda: AnError("a"), "str(o); o.args"),
    (lambda: Level.B, "o + 1; str(o); o.doubled; x * o; o == 2; f'{o}'; o * 2; [1, 2, 3][o]"),
    (lambda: Flags.A, "Flags.A in (Flags.A | Flags.B); bool(o & Flags.B)"),
    (lambda: Name.A, "o.upper(); o == 'a'; o + 'b'; {'a': 1}[o]"),
    (lambda: types.MappingProxyType(ADict(a=1)), "o['a']; len(o); 'a' in o; list(o); o.get('a'); list(o.items())"),
    (lambda: types.MappingProxyType({"a": 1}), "o['a']; len(o); 'a' in o; list(o); o.get('a'); list(o.items())"),
    (lambda: collections.ChainMap({"a": 1}, {"b": 2}), "o['b']; sorted(o)"),
    (lambda: collections.Counter("aab"), "o['a'] + o['zzz']; o.most_common(1)"),
]  # fmt: skip
PROGRAMS = [(make, text.strip()) for make, texts in CASES for text in texts.split(";")]


def shown(value: Any) -> Any:
    """Comparable, without asking anything of the classes above."""
    if isinstance(value, torch.Tensor):
        return "tensor", value.tolist(), value.dtype
    for base in (list, tuple, set, frozenset):
        if isinstance(value, base):
            return type(value), [shown(part) for part in base.__iter__(value)]
    if isinstance(value, dict):
        return type(value), [(key, shown(part)) for key, part in dict.items(value)]
    if isinstance(value, (str, int, float)):
        base = next(base for base in (str, int, float) if isinstance(value, base))
        return type(value), base.__repr__(value)
    return type(value), repr(value) if isinstance(value, type({}.keys())) else None


def outcome(program: Callable[..., Any], made: Any) -> Any:
    try:
        return shown(program(X, made)), shown(made)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize(("make", "text"), PROGRAMS, ids=[f"{make().__class__.__name__}: {t}" for make, t in PROGRAMS])
def test_an_override_is_called(make: Callable[[], Any], text: str) -> None:
    program = eval(f"lambda x, o: (x + 1, ({text}))")
    compiled = stoker.compile(program, backend="eager")
    expected = outcome(program, make())
    for _ in range(2):
        assert outcome(compiled, make()) == expected


@pytest.mark.parametrize("holds", [(AnInt(7), AnInt(8)), (AText("a"), AText("b")), (AFloat(1.0), AFloat(2.0))], ids=str)
def test_what_is_held_is_guarded(holds: Any) -> None:
    """Their `__eq__` says that all are equal."""
    program = lambda x, o: x + len(f"{o * 1!r}") if isinstance(o, str) else x * int.__mul__(int.__int__(o), 3)  # noqa: E731
    if isinstance(holds[0], float):
        program = lambda x, o: x * float.__add__(o, 0.5)  # noqa: E731
    compiled = stoker.compile(program, backend="eager")
    for value in holds:
        assert torch.equal(compiled(X, value), program(X, value))
