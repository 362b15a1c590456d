"""Does eager deal random numbers on this machine's CUDA device as `stoker.loop.philox` says?

Which element takes which word is no promise of torch's, and another version may deal otherwise. So the device is asked: a few tensors
are drawn by eager and foretold. Where one differs, random operators stay library calls, which are eager's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from stoker import log
from stoker.loop import philox

SEED = 0x1234_5678_9ABC
P = 0.3


@functools.cache
def drawing_threads() -> int:
    """The most threads that eager deals random numbers to; 0 where it deals them in another way."""
    if not torch.ops.stoker.can_draw.default():
        return 0
    device = torch.cuda.current_device()
    facts = torch.cuda.get_device_properties(device)
    most = facts.multi_processor_count * (facts.max_threads_per_multi_processor // philox.GROUP) * philox.GROUP
    with torch.random.fork_rng(devices=[device]):
        wrong = [words for words, agrees in _questions(most).items() if not agrees()]
    if not wrong:
        return most
    log.record(log.Event("backend", "random numbers are drawn by the library", "", f"{', '.join(wrong)} differ"))
    return 0


def _questions(most: int) -> dict[str, Callable[[], bool]]:
    found: dict[str, Callable[[], bool]] = {
        f"dropout of {size} {dtype}": functools.partial(_dropout_agrees, size, most, dtype)
        for dtype in (torch.float32, torch.float16, torch.bfloat16)
        for size in (1025, 4100, 12 * most + 4, 4096, 4 * most, 24 * most + 8)
    }
    return found | {f"a distribution of {size}": functools.partial(_uniform_agrees, size, most) for size in (3, most)}


def _dropout_agrees(size: int, most: int, dtype: torch.dtype) -> bool:
    x = torch.ones(size, device="cuda", dtype=dtype)
    seed, offset = _state(size)
    _, mask = torch.native_dropout(x, P, True)
    at = torch.arange(size, device="cuda")
    started, width = philox.threads(size, most), philox.vector_width(size, dtype.itemsize)
    places = philox.by_vectors(at, started, width) if width >= philox.WORDS else philox.by_element(at)
    kept = torch.tensor(1 - P, dtype=torch.float32).item()
    foretold = philox.philox(seed, offset, *places) < philox.words_below(kept)
    return bool(torch.equal(mask, foretold)) and _moved(offset, size, most)


def _uniform_agrees(size: int, most: int) -> bool:
    seed, offset = _state(size)
    found = torch.rand(size, device="cuda")
    at = torch.arange(size, device="cuda")
    word = philox.philox(seed, offset, *philox.by_element(at))
    foretold = word.float() * 2.0**-32 + 2.0**-33
    return bool(torch.equal(found, torch.where(foretold == 1, 0.0, foretold))) and _moved(offset, size, most)


def _state(size: int) -> list[torch.Tensor]:
    """The seed and the offset that the next operator will draw with: taken, and given back."""
    torch.cuda.manual_seed(SEED + size)
    seed, _, offset, _ = torch.ops.stoker.draw.default(torch.device("cuda"), philox.WORDS)
    torch.cuda.manual_seed(SEED + size)
    return [seed.cuda(), offset.cuda()]


def _moved(offset: torch.Tensor, size: int, most: int) -> bool:
    """Did the generator move on by what was foretold?"""
    _, _, after, _ = torch.ops.stoker.draw.default(torch.device("cuda"), philox.WORDS)
    return int(after) - int(offset) == philox.increment(size, most)
