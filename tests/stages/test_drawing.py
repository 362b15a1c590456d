"""Random numbers in generated Triton, under its interpreter, are those of eager's CUDA kernels: foretold here thread by thread.

The forecast walks the loops of eager's kernels as they are written (ATen/native/cuda/Dropout.cu, DistributionTemplates.h), one number at a
time, so that it shares nothing with the index arithmetic of the compiled kernels but the generator.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

from stoker.autograd import aot
from stoker.loop import philox
from stoker.pipeline import decompositions
from stoker.runtime.cubin import Job, compile_all
from tests.stages.interpreted import Generator, Interpreted, compile_interpreted
from tests.stages.test_triton import single_graph

THREADS = 512
"""Of a very small device, so that threads take several turns."""
SEED, OFFSET = 0xDEADBEEF12345678 - (1 << 64), 40


def four_words(offset: int, lane: int, call: int) -> list[int]:
    numbers = torch.tensor([SEED, offset, call, lane])
    return [int(philox.philox(*numbers, torch.tensor(word))) for word in range(4)]


def dropout_forecast(count: int, p: float, offset: int, vector: int = 4) -> tuple[list[bool], int]:
    """Which elements stay, and the offset afterwards."""
    groups = min(THREADS // 256, -(-count // 256))
    started, kept = groups * 256, float(torch.tensor(1 - p))
    stays = [False] * count
    width = vector if count % vector == 0 else 4 if count % 4 == 0 else 1
    for thread in range(started):
        call = 0
        at = thread * width
        while at < count:
            words = [w for more in range(max(width // 4, 1)) for w in four_words(offset, thread, call + more)]
            places = [at + k for k in range(width)] if width >= 4 else [at + started * k for k in range(4)]
            for place, word in zip(places, words):
                if place < count:
                    stays[place] = philox.uniform(word) < kept
            call += max(width // 4, 1)
            at += started * max(width, 4)
    return stays, offset + ((count - 1) // (started * 4) + 1) * 4


def drawn(
    program: Callable[..., Any], inputs: list[torch.Tensor], backend: Interpreted | None = None
) -> tuple[list[torch.Tensor], Interpreted]:
    backend = backend or Interpreted(Generator(THREADS, SEED, OFFSET))
    compiled = aot(
        single_graph(program, inputs)[0],
        inputs,
        forward_compiler=lambda m, f: compile_interpreted(m, f, backend),
        decompositions=decompositions(),
    )
    return list(compiled(*inputs)), backend


def as_eager(x: torch.Tensor, stays: list[bool], p: float) -> tuple[torch.Tensor, torch.Tensor]:
    mask = torch.empty_like(x, dtype=torch.bool)
    mask.as_strided((x.numel(),), (1,)).copy_(torch.tensor(stays))
    kept = torch.tensor(1 - p, dtype=torch.float32)
    return (x.float() * mask.float() * (1 / kept.double()).float()).to(x.dtype), mask


@pytest.mark.parametrize("shape", [(8,), (7, 3), (33, 20), (3, 4, 100), (1, 501), (16, 1024), (2, 6)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_dropout(shape: tuple[int, ...], dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(shape) * 3).to(dtype)
    x.view(-1)[1] = math.nan
    (found, mask), backend = drawn(lambda x: torch.native_dropout(x * 2, 0.3, True), [x])
    stays, offset = dropout_forecast(x.numel(), 0.3, OFFSET, 16 // dtype.itemsize)
    wanted, wanted_mask = as_eager(x * 2, stays, 0.3)
    assert torch.equal(mask, wanted_mask)
    torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)
    assert backend.generator is not None and backend.generator.offset == offset


@pytest.mark.parametrize(("row", "run"), [(1024, 8), (4096, 16), (1020, 8), (1000, 8)])
def test_neighbours_of_one_thread(row: int, run: int) -> None:
    """A thread computes the words of all elements that it reads or writes at once, if they divide a row."""
    x = (torch.randn(2, row) * 3).half()
    (found, mask), backend = drawn(lambda x: torch.native_dropout(x - x.amax(-1, keepdim=True), 0.3, True), [x])
    stays, _ = dropout_forecast(x.numel(), 0.3, OFFSET, 8)
    wanted, wanted_mask = as_eager(x - x.amax(-1, keepdim=True), stays, 0.3)
    assert torch.equal(mask, wanted_mask) and torch.equal(found, wanted)
    (source,) = {u.source for u in backend.units if "philox_words" in u.source}
    assert re.findall(r"r_run = .* \* (\d+)", source) == [str(run)] * source.count("r_run = ")


def test_of_memory_in_another_order() -> None:
    x = torch.randn(20, 36).t()
    (found, mask), _ = drawn(lambda x: torch.native_dropout(x + 1, 0.5, True), [x])
    wanted, wanted_mask = as_eager(x + 1, dropout_forecast(720, 0.5, OFFSET)[0], 0.5)
    assert torch.equal(mask, wanted_mask) and torch.equal(found, wanted) and found.stride() == wanted.stride()


def test_inside_other_kernels() -> None:
    """Dropout of rows that are reduced afterwards, twice, and of what it was given: words are asked for once."""
    x = torch.randn(6, 200)

    def program(x: torch.Tensor) -> Any:
        first = torch.native_dropout(torch.softmax(x, -1), 0.1, True)[0]
        second = torch.native_dropout(first + x, 0.4, True)[0]
        return second.sum(-1), first, second.t().contiguous()

    found, backend = drawn(program, [x])
    stays, offset = dropout_forecast(1200, 0.1, OFFSET)
    first = as_eager(torch.softmax(x, -1), stays, 0.1)[0]
    stays, offset = dropout_forecast(1200, 0.4, offset)
    second = as_eager(first + x, stays, 0.4)[0]
    for mine, eager in zip(found, (second.sum(-1), first, second.t().contiguous())):
        torch.testing.assert_close(mine, eager, rtol=1e-5, atol=1e-5)
    assert backend.generator is not None and backend.generator.offset == offset
    assert sum("philox_words" in u.source for u in backend.units) >= 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_distributions(dtype: torch.dtype) -> None:
    x = torch.zeros(5, 7, dtype=dtype)
    found, backend = drawn(
        lambda x: (torch.rand_like(x), torch.randn_like(x), torch.empty_like(x).bernoulli_(0.3), torch.rand(3)), [x]
    )
    sizes, offset = (35, 35, 35, 3), OFFSET
    words = []
    for size in sizes:
        words.append([four_words(offset, lane, 0) for lane in range(size)])
        offset += 4
    assert backend.generator is not None and backend.generator.offset == offset
    uniform = [[philox.uniform(w[0]) for w in draws] for draws in words]
    radius = [math.sqrt(-2 * math.log(u)) for u in uniform[1]]
    normal = [r * math.sin(2 * math.pi * philox.uniform(w[1])) for r, w in zip(radius, words[1])]
    for mine, wanted in zip(found, (uniform[0], normal, [u < 0.3 for u in uniform[2]], uniform[3])):
        eager = torch.tensor(wanted, dtype=torch.float64).to(mine.dtype).view(mine.shape)
        torch.testing.assert_close(mine, eager, rtol=0 if wanted is not normal else 1e-3, atol=2e-6)


def test_more_than_threads_are_drawn_by_the_library() -> None:
    found, backend = drawn(lambda x: torch.rand_like(x), [torch.zeros(THREADS + 1)])
    assert backend.generator is not None and backend.generator.offset == OFFSET
    assert found[0].unique().numel() > THREADS // 2


def test_the_library_draws_between() -> None:
    """What the library draws stands in its place between what kernels draw."""
    order: list[str] = []

    class Told(Generator):
        def draw(self, device: torch.device, increment: int) -> torch.Tensor:
            order.append("kernels")
            return super().draw(device, increment)

    def program(x: torch.Tensor) -> Any:
        a, b = torch.rand_like(x), torch.rand_like(x)
        return a + b, torch.randperm(4), torch.rand_like(x)

    _, backend = drawn(program, [torch.zeros(9)], Interpreted(Told(THREADS, SEED)))
    assert order == ["kernels", "kernels"] and backend.generator is not None and backend.generator.offset == 12


def test_compiles_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    backend = Interpreted(Generator(THREADS, SEED))
    drawn(lambda x: torch.native_dropout(x * 2, 0.3, True), [torch.randn(64, 256)], backend)
    drawn(lambda x: torch.native_dropout(torch.softmax(x, -1), 0.3, True), [torch.randn(6, 200)], backend)
    drawn(lambda x: (torch.randn_like(x), torch.rand_like(x)), [torch.randn(9)], backend)
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90) for u in backend.units]
    assert all(b.content.startswith(b"\x7fELF") for b in compile_all(jobs))
