"""Eager's random numbers on a CUDA device: Philox4x32-10, and which element takes which of its words.

A generator is a seed and an offset. A thread of eager's kernels is a `lane`; its `block`th call of the generator gives four words of
32 bits. Elements are dealt to at most so many threads in one of two ways: each thread one element and one word (`by_element`), while
there are no more elements than threads; or a vector of four or eight neighbours, with one call for each four (`by_vectors`), which is
how dropout walks memory.

Facts: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (2011); curand_kernel.h; ATen/native/cuda/DistributionTemplates.h
and Dropout.cu. `stoker.codegen.triton.stream` asks the device whether they hold there.
"""

from __future__ import annotations

import ctypes
from typing import Any

import torch

ROUND_MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
ROUNDS = 10
LOW = 0xFFFFFFFF
GROUP = 256
"""Threads that eager starts together."""
WORDS = 4
VECTOR_BYTES = 16
"""What a thread of dropout reads at a time, if the number of elements allows it."""


def philox(seed: Any, offset: Any, block: Any, lane: Any, word: Any) -> Any:
    """A word of the generator, in tensors of int64.

    >>> one = torch.ones((), dtype=torch.int64)
    >>> [hex(int(philox(0 * one, 0 * one, 0 * one, 0 * one, w * one))) for w in range(2)]
    ['0x6627e8d5', '0xe169c58d']
    """
    keys = [seed & LOW, (seed >> 32) & LOW]
    counter = (offset >> 2) + block
    c = [counter & LOW, (counter >> 32) & LOW, lane & LOW, (lane >> 32) & LOW]
    for _ in range(ROUNDS):
        a, b = c[0] * ROUND_MULTIPLIERS[0], c[2] * ROUND_MULTIPLIERS[1]
        c = [((b >> 32) & LOW) ^ c[1] ^ keys[0], b & LOW, ((a >> 32) & LOW) ^ c[3] ^ keys[1], a & LOW]
        keys = [(key + step) & LOW for key, step in zip(keys, KEY_STEPS)]
    words = torch.stack(torch.broadcast_tensors(*c, word)[:WORDS])
    return torch.gather(words, 0, torch.broadcast_to(word, words.shape[1:])[None])[0]


def threads(count: int, most: int) -> int:
    """The threads that eager starts for so many elements."""
    return GROUP * min(most // GROUP, -(-count // GROUP))


def increment(count: int, most: int) -> int:
    """How far the offset is moved for so many elements."""
    return ((count - 1) // (threads(count, most) * WORDS) + 1) * WORDS


def by_element(element: Any) -> tuple[Any, Any, Any]:
    """(block, lane, word) of an element where each thread has one."""
    return element * 0, element, element * 0


def by_vectors(element: Any, started: int, width: int) -> tuple[Any, Any, Any]:
    """(block, lane, word) of an element where threads take so many neighbours at a time."""
    vector, calls = element // width, width // WORDS
    block = vector // started
    return block if calls == 1 else block * calls + element % width // WORDS, vector % started, element % WORDS


def vector_width(count: int, element_bytes: int) -> int:
    """How many elements a thread of dropout takes at a time, of so many that begin aligned.

    >>> [vector_width(4096, 4), vector_width(4096, 2), vector_width(4100, 2), vector_width(4098, 2), vector_width(33, 2)]
    [4, 8, 4, 2, 1]
    """
    width = VECTOR_BYTES // element_bytes
    while count % width:
        width //= 2
    return width


def uniform(word: int) -> float:
    """A word as a number in (0, 1], rounded to float32 as the device does."""
    return ctypes.c_float(ctypes.c_float(word).value * 2.0**-32 + 2.0**-33).value


def words_below(p: float) -> int:
    """How many words stand for numbers below p: `uniform(word) < p` is `word < words_below(p)`.

    >>> words_below(0.5), words_below(0.0), words_below(1.0) < 2**32 < 1 + words_below(1.5)
    (2147483584, 0, True)
    """
    low, high = 0, 1 << 32
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if uniform(middle) < p else (low, middle)
    return low
