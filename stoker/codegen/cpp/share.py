"""Kernels that differ in numbers alone become one function that takes the numbers.

In:  the text of each kernel, with marks around the numbers that might as well be variables (`mark.py`).
Out: C++ in pieces, each with the kernels that it defines.

The layers of a deep network are often equal but for their sizes, and a compiler's time is in proportion to what it reads: of the 126
kernels of densenet121, 90 are calls of four functions.

Requirements, held by tests/unit/codegen/test_share.py:
  1. A kernel does what it would do alone.
  2. What is shared depends on the kernels alone, so that the same plan gives the same source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stoker.codegen.cpp.expression import declared
from stoker.codegen.cpp.mark import MARK, plain

LONG = 64_000
"""Characters that a compiler takes more than a second for: less is left as it is, since known numbers make some kernels a little faster."""
SHARED_FROM = 3
"""So many kernels are worth one that knows less."""
_HEAD = "[[gnu::noinline, gnu::noclone]] static int {name}(void* const* arguments, const int64_t* sizes{numbers}) {{\n"
_CALL = 'extern "C" int {name}(void* const* arguments, const int64_t* sizes) {{ return {shared}(arguments, sizes{numbers}); }}\n'


@dataclass(frozen=True, slots=True)
class SourcePiece:
    """Text that stays together, and the kernels in it."""

    text: str
    kernels: tuple[str, ...]


def share(functions: Mapping[str, str]) -> list[SourcePiece]:
    """Pieces that define all of the functions, given by name."""
    if sum(map(len, functions.values())) < LONG:
        return [_alone(name, text) for name, text in functions.items()]
    alike: dict[str, list[str]] = {}
    for name, text in functions.items():
        alike.setdefault(MARK.sub("⟨⟩", _body(text)), []).append(name)
    pieces: list[SourcePiece] = []
    for names in alike.values():
        if len(names) >= SHARED_FROM:
            pieces.append(_shared(names, [_body(functions[name]) for name in names]))
        else:
            pieces += [_alone(name, functions[name]) for name in names]
    return pieces


def _alone(name: str, function: str) -> SourcePiece:
    return SourcePiece(declared(plain(function)), (name,))


def _body(function: str) -> str:
    return function.partition("\n")[2]


def _shared(names: Sequence[str], bodies: Sequence[str]) -> SourcePiece:
    """One function for all, and for each a function that calls it. Numbers that are equal in all of them stay in it."""
    given: dict[tuple[str, ...], str] = {}
    """A number of each kernel, and the parameter that stands for it."""
    words: list[str] = []
    for occurrence in zip(*(MARK.findall(body) for body in bodies), strict=True):
        values = tuple(text.removeprefix("wide_") for text in occurrence)
        varies = len(set(values)) > 1
        words.append(given.setdefault(values, f"number{len(given)}") if varies else occurrence[0])
    found = iter(words)
    shared = f"shared_{names[0]}"
    parameters = "".join(f", const {_type(values[0])} {name}" for values, name in given.items())
    head = _HEAD.format(name=shared, numbers=parameters)
    calls = [
        _CALL.format(name=name, shared=shared, numbers="".join(f", {values[n]}" for values in given))
        for n, name in enumerate(names)
    ]
    return SourcePiece(declared(head + MARK.sub(lambda _: next(found), bodies[0])) + "".join(calls), tuple(names))


def _type(number: str) -> str:
    return "int64_t" if number.removesuffix("LL").lstrip("-").isdigit() else "double"
