"""Loops whose number of rounds changes from call to call.

A `for` loop or a comprehension over `range(n)`, or over the rows or pieces of a tensor, or over `enumerate`, `zip` or `reversed` of these, becomes part of the graph around it, round after round. Where their number
has been seen to change, or only data tells it, that would be code for each number. Such a loop breaks at its head: CPython advances it, and its body is captured as a resume
function, which takes the iterator as it comes and never asks how much of it is left (tests/differential/test_rounds.py).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from types import CodeType
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.iterator import EnumerateIterator, IteratorValue, ZipIterator
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Era, Value
from stoker.errors import Break
from stoker.guard.source import Local, Source

if TYPE_CHECKING:
    from stoker.capture.frame import Frame

PARAMETER = "__rounds_"
"""How a resume function names the iterator of such a loop: its name says what it is."""


def goes_by_rounds(m: Machine, bounds: tuple[Value, ...]) -> bool:
    """Is a range made for a loop of this kind?"""
    symbols = [bound.symbol for bound in bounds if isinstance(bound, SymbolicValue)]
    return any(m.sizes.has_varied(symbol) for symbol in symbols) and is_for_a_loop(m)


ITERATORS = frozenset(map(id, (enumerate, zip, reversed)))
"""What a loop may go through to what it is over: CPython makes one of another, and captured code is asked for nothing."""


def is_for_a_loop(m: Machine) -> bool:
    """Does what is being made go to the head of a loop, at once or through `enumerate`, `zip` and `reversed`? A subgraph has no place to
    break, and is unrolled."""
    frame = m.current
    following = [i.name for i in itertools.islice(frame.instructions, frame.position, frame.position + FARTHEST)]
    last = next((name for name in following if not name.startswith(ON_THE_WAY)), None)
    if Era.now:
        return False
    if _starts_a_comprehension(frame, following):
        return True
    if last not in HEADS:
        return False
    return following[0] in HEADS or ITERATORS.issuperset(map(id, _waiting(frame)))


def _starts_a_comprehension(frame: Frame, following: list[str]) -> bool:
    """Is what is made the iterator of a comprehension? Until 3.11 that is a function, which is called with it; then it is a loop, which puts
    its variables away first (PEP 709)."""
    if following[0] in ("PRECALL", "CALL"):
        code = getattr(frame.stack[-1], "code", None) if frame.stack else None
        return isinstance(code, CodeType) and code.co_varnames[: code.co_argcount] == (".0",)
    return (
        following[0] == PUT_AWAY[0] and next((n for n in following if not n.startswith(PUT_AWAY)), None) == "FOR_ITER"
    )


PUT_AWAY = ("LOAD_FAST_AND_CLEAR", "SWAP", "BUILD_", "COPY", "CACHE")
HEADS = ("GET_ITER", "FOR_ITER")
FARTHEST = 64
ON_THE_WAY = ("LOAD_", "BINARY_", "CALL", "PRECALL", "KW_NAMES", "PUSH_NULL", "CACHE")
"""Instructions that get other arguments, and make the calls that wait for them."""


def _waiting(frame: Frame) -> Iterator[Any]:
    """The functions that wait on the stack for what is being made, innermost first; those below the iterator of a loop wait for the loop."""
    for value in reversed(frame.stack):
        if isinstance(value, IteratorValue):
            return
        if any("__call__" in vars(base) for base in value.python_type().__mro__):
            yield getattr(value, "real", None)


class SizedRange(Value):
    """`range(n)` on its way to the head of a loop."""

    def __init__(self, bounds: tuple[Value, ...]) -> None:
        self.bounds = bounds

    def python_type(self) -> type:
        return range

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        self.unsupported(f"the operator {operator}")

    def describe(self) -> str:
        numbers = (str(b.symbol) if isinstance(b, SymbolicValue) else str(b.constant()) for b in self.bounds)
        return f"`range({', '.join(numbers)})`"

    def iterator(self, m: Machine) -> Value:
        return RoundsIterator(self, type(iter(range(0))))

    def emit(self, e: Emitting) -> None:
        e.call_function(range, list(self.bounds))


class Rows(Value):
    """The rows of a tensor, as eager's `__iter__` and `unbind` take them."""

    def __init__(self, tensor: TensorValue, dimension: int) -> None:
        self.tensor, self.dimension = tensor, dimension

    def python_type(self) -> type:
        return tuple

    def describe(self) -> str:
        return f"the rows of {self.tensor.describe()}"

    def element(self) -> tuple[list[Any], list[Any]]:
        """Sizes and strides of a row."""
        sizes, strides = list(self.tensor.fake.shape), list(self.tensor.fake.stride())
        del sizes[self.dimension], strides[self.dimension]
        return sizes, strides

    def iterator(self, m: Machine) -> Value:
        return RoundsIterator(self, type(iter(())))

    def emit(self, e: Emitting) -> None:
        e.call_function(torch.unbind, [self.tensor, Constant(self.dimension)])


class Pieces(Rows):
    """Pieces of one length, of which the last may be shorter: `x.split(2)`."""

    def __init__(self, tensor: TensorValue, dimension: int, length: int) -> None:
        super().__init__(tensor, dimension)
        self.most = length

    def describe(self) -> str:
        return f"pieces of {self.tensor.describe()}"

    def element(self) -> tuple[list[Any], list[Any]]:
        return list(self.tensor.fake.shape), list(self.tensor.fake.stride())

    def emit(self, e: Emitting) -> None:
        e.call_function(torch.split, [self.tensor, Constant(self.most), Constant(self.dimension)])


def rows_of(m: Machine, value: Value, dimension: Value = Constant(0), length: Value | None = None) -> Value | None:  # noqa: B008
    """The rows of a tensor, or pieces of a length, on their way to the head of a loop of this kind; None for others."""
    numbers = [dimension] if length is None else [dimension, length]
    if type(value) is not TensorValue or m.overrides.active or any(type(n) is not Constant for n in numbers):
        return None
    rank, (along, *lengths) = value.fake.dim(), [number.constant() for number in numbers]
    if type(along) is not int or not -rank <= along < rank or any(type(n) is not int or n < 1 for n in lengths):
        return None
    if not m.sizes.has_varied(value.fake.shape[along]) or not is_for_a_loop(m):
        return None
    return (Pieces if lengths else Rows)(value, along % rank, *lengths)


def iterate(m: Machine, value: Value) -> Value:
    """`iter(value)` for a loop, or for what a loop goes through."""
    return m.operators.iterate(rows_of(m, value) or value)


class RoundsIterator(IteratorValue):
    """Its iterator: what captured code knows of it is how CPython makes it."""

    def __init__(self, over: SizedRange | Rows, kind: type, function: Callable[..., Any] = iter) -> None:
        self.over, self.kind, self.function = over, kind, function

    @classmethod
    def backwards(cls, over: SizedRange | Rows) -> RoundsIterator:
        return cls(over, type(reversed(range(0) if isinstance(over, SizedRange) else ())), reversed)

    def next(self, m: Machine) -> Value:
        stop_at_head(self.over.describe())

    def emit(self, e: Emitting) -> None:
        e.call_function(self.function, [self.over])


def goes_over_rounds(iterator: Value) -> bool:
    """Is it such an iterator, or `enumerate` or `zip` over one?"""
    match iterator:
        case EnumerateIterator(part=part):
            return goes_over_rounds(part)
        case ZipIterator(parts=parts):
            return any(map(goes_over_rounds, parts))
    return isinstance(iterator, RoundsIterator)


def elements_of(iterator: Value, text: str) -> Iterator[tuple[str, Any]]:
    """What the next element of such an iterator is made of, by the texts of the places where a resume function finds it: sizes and
    strides of rows, and None for numbers that vary."""
    match iterator:
        case EnumerateIterator(part=part):
            yield f"{text}[0]", None
            yield from elements_of(part, f"{text}[1]")
        case ZipIterator(parts=parts):
            for index, part in enumerate(parts):
                yield from elements_of(part, f"{text}[{index}]")
        case RoundsIterator(over=Rows() as rows):
            yield text, rows.element()
        case RoundsIterator():
            yield text, None


def stop_at_head(loop: str) -> NoReturn:
    raise Break(
        f"a loop over {loop}",
        "how many rounds it has changes from call to call, so that each round is a graph of its own",
        "write it with torch.scan or torch.while_loop, as an operator over the whole length, or for one fixed number of rounds",
    )


def is_left_by_rounds(source: Source | None) -> bool:
    """Is it the iterator of such a loop, as a resume function gets it?"""
    return isinstance(source, Local) and source.name.startswith(PARAMETER)


def is_a_round(code: CodeType) -> bool:
    """Does a code object go on in the middle of such a loop? It often has two versions as it is: what the first round is given lies
    otherwise in memory, or requires no gradient. So each of them serves sizes of one as well, where nothing asks whether they are."""
    return any(name.startswith(PARAMETER) for name in code.co_varnames[: code.co_argcount])
