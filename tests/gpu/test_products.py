"""Matrix products inside kernels, on a CUDA device: as near to the truth as eager, in every tile; chosen only where they are faster."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker import pipeline
from stoker.codegen.generators import generator
from stoker.codegen.triton import backend
from stoker.codegen.triton.choose import Answer
from stoker.runtime.tune import library_has
from tests.gpu.test_kernels import assert_no_farther
from tests.stages.test_convolutions import FORMS, given
from tests.stages.test_products import given as factors
from tests.stages.test_prologues import PROGRAMS as PROLOGUES

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

PROGRAMS: dict[str, Callable[..., Any]] = {
    "gelu": lambda x, w, b: F.gelu(x @ w.t()),
    "linear": lambda x, w, b: F.silu(F.linear(x, w, b)),
    "gated": lambda x, w, b: F.silu(x @ w.t()) * (x @ (w * 2).t()),
    "batch": lambda x, w, b: torch.bmm(x.expand(3, *x.shape), w.t().expand(3, -1, -1)).tanh() + b,
}
SIZES = [(256, 128, 384), (33, 50, 70), (16, 512, 256)]


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """From here on, products are computed by kernels cut in the nth way, whatever is faster."""
    backend_of: Any = generator("cuda")

    def force(number: int) -> None:
        def chosen(candidate: Any, layouts: Any, plain: Any, builds: Any) -> Answer:
            return Answer(min(number, len(builds) - 1), "")

        monkeypatch.setattr(backend, "fastest_product", chosen)
        monkeypatch.setattr(backend, "remembered", lambda question, subject, measure: measure().best)
        stoker.reset()
        backend_of._products.clear()

    yield force
    backend_of._products.clear()


@pytest.mark.parametrize("number", range(10))
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_tile(name: str, size: tuple[int, int, int], number: int, forced: Callable[[int], None]) -> None:
    forced(number)
    rows, shared, columns = size
    torch.manual_seed(0)
    given = [
        torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((rows, shared), (columns, shared), (columns,))
    ]
    program = PROGRAMS[name]
    found = stoker.compile(program, fullgraph=True, options={"autotune": True})(*given)
    assert_no_farther(found, program(*given), program(*(g.double() for g in given)))


@pytest.mark.parametrize("number", [0, 6])
@pytest.mark.parametrize("size", [(256, 128, 384), (33, 50, 70)], ids=str)
@pytest.mark.parametrize("name", PROLOGUES)
def test_every_prologue(name: str, size: tuple[int, int, int], number: int, forced: Callable[[int], None]) -> None:
    forced(number)
    inputs, program = [i.cuda() for i in factors(size)], PROLOGUES[name]
    with torch.no_grad():
        found = stoker.compile(program, fullgraph=True, options={"autotune": True})(*inputs)
        assert_no_farther(found, program(*inputs), program(*(i.double() for i in inputs)))


@pytest.mark.parametrize("number", [0, 3, 5, 7])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_convolution(form: str, number: int, forced: Callable[[int], None]) -> None:
    forced(number)
    inputs, how = given(form, weights_last=number % 2 == 1)
    inputs = [i.cuda() for i in inputs]
    program = lambda x, w, b: F.silu(F.conv2d(x, w, b, **how))  # noqa: E731
    with torch.no_grad():
        found = stoker.compile(program, fullgraph=True, options={"autotune": True})(*inputs)
        assert_no_farther(found, program(*inputs), program(*(i.double() for i in inputs)))
    backend_of: Any = generator("cuda")
    assert any(tiling is not None for tiling in backend_of._products.values())


def test_the_faster_convolution_is_kept() -> None:
    x = torch.randn(16, 64, 56, 56, device="cuda", dtype=torch.float16).contiguous(memory_format=torch.channels_last)
    w = torch.randn(64, 64, 3, 3, device="cuda", dtype=torch.float16).contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        compiled = stoker.compile(lambda x, w: F.conv2d(x, w, padding=1).relu(), options={"autotune": True})
        torch.testing.assert_close(compiled(x, w), F.conv2d(x, w, padding=1).relu(), rtol=2e-2, atol=2e-1)
    assert any("by the library" in event.reason for event in stoker.events("tuned"))


def test_the_faster_is_kept() -> None:
    x, w = (torch.randn(2048, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    program = PROGRAMS["gelu"]
    compiled = stoker.compile(lambda x, w: program(x, w, None), fullgraph=True, options={"autotune": True})
    torch.testing.assert_close(compiled(x, w), F.gelu(x @ w.t()), rtol=2e-2, atol=2e-2)
    assert any("by the library" in event.reason for event in stoker.events("tuned"))


def written_out(y: torch.Tensor) -> torch.Tensor:
    return 0.5 * y * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (y + 0.044715 * torch.pow(y, 3.0))))


FUNCTIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "relu": torch.relu,
    "gelu": lambda y: F.gelu(y, approximate="tanh"),
    "written out": written_out,
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_the_library_computes(name: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whether it is faster is measured; here it is always taken."""
    form = "relu" if name == "relu" else "gelu"
    if not library_has(form):
        pytest.skip(f"the library has another {form}")
    monkeypatch.setattr(pipeline, "choose_activation", lambda *asked: True)
    torch.manual_seed(0)
    given = [torch.randn(s, device="cuda", dtype=dtype) for s in ((4, 64, 256), (512, 256), (512,))]
    program = lambda x, w, b: FUNCTIONS[name](F.linear(x, w, b)) + 1  # noqa: E731
    stoker.reset()
    stoker.log.clear()
    with torch.no_grad():
        found = stoker.compile(program, fullgraph=True)(*given)
        wanted, truth = program(*given), program(*(g.double() for g in given))
    assert any("_addmm_activation" in str(event.data) for event in stoker.events("compiled"))
    assert_no_farther(found, wanted, truth)


def test_functions_are_measured() -> None:
    x, w, b = (torch.randn(s, device="cuda", dtype=torch.float16) for s in ((2048, 768), (3072, 768), (3072,)))
    program = lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh")  # noqa: E731
    with torch.no_grad():
        torch.testing.assert_close(stoker.compile(program)(x, w, b), program(x, w, b), rtol=1e-2, atol=1e-1)


@pytest.mark.parametrize("bias", [False, True])
def test_a_result_with_odd_rows_is_made_in_its_own_memory(bias: bool) -> None:
    """Parts of it are made aligned where later ones will be: little more memory is needed than the result's."""
    torch.manual_seed(0)
    x, w, b = (torch.randn(s, device="cuda", dtype=torch.float16) for s in ((2048, 256), (30522, 256), (30522,)))
    program = lambda x, w, b: F.linear(x, w, b if bias else None)  # noqa: E731
    compiled = stoker.compile(program, fullgraph=True)
    with torch.no_grad():
        compiled(x, w, b)
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        found = compiled(x, w, b)
        torch.cuda.synchronize()
        needed = torch.cuda.max_memory_allocated() - held
        assert_no_farther(found, program(x, w, b), program(x.double(), w.double(), b.double()))
    assert needed < 1.05 * found.numel() * found.element_size()
