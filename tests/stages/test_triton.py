"""Generated Triton under its interpreter equals eager, for every kind of kernel, dtype and odd size; and it compiles for sm_90."""

from __future__ import annotations

import importlib.util
import math
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.fx import Graph, GraphModule

import stoker
from stoker.autograd import aot
from stoker.codegen.backend import Built
from stoker.codegen.triton.host import host_kernel
from stoker.codegen.triton.operation import literal
from stoker.codegen.triton.tiling import alternatives, tiling_of
from stoker.codegen.triton.unit import Unit, unit_of
from stoker.pipeline import decompositions
from stoker.runtime.cubin import Job, compile_all
from tests.stages.interpreted import LIBDEVICE, Interpreted, compile_interpreted, in_place_of_the_processor

PLACES = torch.tensor([3, 1, 0, -1])
PROGRAMS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x: torch.tanh(x * 2 + 1).exp().sigmoid(),
    "broadcast": lambda x: x + x[:, :1] * x[:1],
    "transpose": lambda x: x.t().contiguous() * 2,
    "crossing": lambda x: x[:32, :32].t() + x[:32, :32],
    "slices": lambda x: x[1:, ::2] - x[:-1, 1::2] if x.shape[1] % 2 == 0 else x[1:] - x[:-1],
    "sum": lambda x: x.sum(),
    "rows": lambda x: x.sum(1),
    "columns": lambda x: x.sum(0),
    "prod": lambda x: x.prod(1),
    "extremes": lambda x: (x.amax(1), x.amin(0)),
    "arguments": lambda x: (x.argmax(1), x.argmin(0)),
    "softmax": lambda x: torch.softmax(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, 0),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "variance": lambda x: (x.var(0), x.std(1)),
    "cumulative": lambda x: (x.cumsum(1), x.cummax(0).values, x.cummax(1).indices),
    "truth": lambda x: ((x > 0).any(1), (x > -9).all(0)),
    "index": lambda x: x[PLACES],
    "index_add": lambda x: x.index_add(0, torch.tensor([3, 1, 0, 3]), x[:4] * 2),
    "gather": lambda x: x.gather(1, torch.zeros(x.shape[0], 3, dtype=torch.int64) + 2),
    "divisions": lambda x: (x // (x[:1] + 3), torch.div(x, x[:1] + 3, rounding_mode="trunc"), x % 3, x.fmod(3)),
    "cat": lambda x: torch.cat([x, x * 2], 1).relu(),
    "pad": lambda x: F.pad(x, (1, 2)),
    "where": lambda x: torch.where(x > 0, x, -x.abs().sqrt()),
    "pool": lambda x: F.max_pool2d(x[None, None], 3, 2),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.arange(x.shape[0]) % 3),
    "columns_of_computed": lambda x: ((y := F.gelu(x) * x[:1]), y.sum(0)),
    "matmul": lambda x: F.gelu(x @ x.t()) + 1,
    "strangers": lambda x: tuple(torch.full((3,), float(n)).cumsum(0).exp() + x[n % 5, :3] for n in range(9)),
}
SIZES = [(7, 33), (64, 64), (5, 9000)]


def single_graph(program: Callable[..., Any], inputs: list[torch.Tensor]) -> tuple[GraphModule, list[torch.Tensor]]:
    """A program as a graph that returns a tuple, and what eager gives."""
    wanted = program(*inputs)
    wanted = list(wanted) if isinstance(wanted, tuple) else [wanted]
    graph = Graph()
    places = tuple(graph.placeholder(f"x{n}") for n in range(len(inputs)))
    call = graph.call_function(
        lambda *given: [r] if isinstance(r := program(*given), torch.Tensor) else list(r), places
    )
    graph.output(tuple(graph.call_function(lambda r, k=k: r[k], (call,)) for k in range(len(wanted))))
    return GraphModule(torch.nn.Module(), graph), wanted


def side_by_side(
    program: Callable[..., Any], inputs: list[torch.Tensor], backend: Interpreted | None
) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """What generated Triton gives, each beside what eager gives."""
    module, wanted = single_graph(program, inputs)
    compiled = aot(
        module,
        inputs,
        forward_compiler=lambda m, f: compile_interpreted(m, f, backend),
        decompositions=decompositions(),
    )
    return list(zip(compiled(*inputs), wanted, strict=True))


def _agree(program: Callable[..., Any], inputs: list[torch.Tensor], backend: Interpreted | None = None) -> None:
    for mine, eager in side_by_side(program, inputs, backend):
        near = {torch.float32: (1e-4, 1e-4), torch.float16: (2e-2, 2e-2), torch.bfloat16: (5e-2, 5e-2)}
        rtol, atol = near.get(eager.dtype, (1e-6, 1e-6))
        torch.testing.assert_close(mine, eager, rtol=rtol, atol=atol, equal_nan=True)
        assert mine.stride() == eager.stride()


@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    if name == "crossing" or (name == "cumulative" and size[1] > 4096):
        size = (33, 40)
    _agree(PROGRAMS[name], [torch.randn(size)])


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int8, torch.bool], ids=str
)
def test_types(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = (torch.randn(6, 20) * 4).to(dtype)
    _agree(lambda x: (x == x[:1], torch.where(x > 0, x, x[:, :1]), x.t().contiguous(), x.float() + 1), [x])
    if dtype is not torch.bool:
        _agree(lambda x: (x + x * 2 - 1, x.abs(), x.neg(), x.sum(1), x.amax(0), x.clamp(-1, 2), x.sign()), [x])
    if dtype.is_floating_point:
        _agree(lambda x: (torch.softmax(x, 1), x.floor(), x.ceil(), x.round(), torch.fmod(x, 2), x // 3, x % 3), [x])


def test_numbers_that_are_none() -> None:
    x = torch.tensor([[1.0, float("nan"), 2.0], [float("inf"), -1.0, float("-inf")], [0.0, -0.0, 5.0]])
    programs: list[Callable[..., Any]] = [
        lambda x: (x.amax(1), x.argmax(1), x.amin(1), x.argmin(1)),
        lambda x: (torch.maximum(x, x.flip(1)), torch.minimum(x, x.flip(1)), x.relu(), x.clamp(0, 1)),
        lambda x: (x.isnan(), x.isinf(), x.sum(1), x.mean(1), x.to(torch.float16)),
    ]
    for program in programs:
        _agree(program, [x])


def test_nothing_to_reduce() -> None:
    """Loops that never run read nothing: sums are 0, products 1."""
    _agree(lambda x: (x.sum(1), x.prod(1), x.sum(0), (x > 0).all(1), x.mean(1)), [torch.randn(5, 0)])
    _agree(lambda x: (x.sum(0), x.sum()), [torch.randn(0, 3)])


def test_whole_numbers_in_half_precision() -> None:
    numbers = torch.tensor([0, 1, -3, 2049, 16777217, 33554435, 2**40 + 12345])
    _agree(lambda x: (x.half(), x.bfloat16(), (x > 0).half(), (x > 0).bfloat16()), [numbers])


def test_gradients() -> None:
    torch.manual_seed(0)
    given = [torch.randn(9, 16, requires_grad=True), torch.randn(16, requires_grad=True)]
    again = [g.detach().clone().requires_grad_() for g in given]

    def program(x: Any, w: Any) -> Any:
        return (F.layer_norm(F.gelu(x), (16,), w) * torch.softmax(x, -1)).sum()

    graph = Graph()
    places = tuple(graph.placeholder(n) for n in ("x", "w"))
    graph.output((graph.call_function(program, places),))
    compiled = aot(
        GraphModule(torch.nn.Module(), graph),
        given,
        forward_compiler=compile_interpreted,
        decompositions=decompositions(),
    )
    compiled(*given)[0].backward()
    program(*again).backward()
    for mine, eager in zip(given, again):
        torch.testing.assert_close(mine.grad, eager.grad, rtol=1e-4, atol=1e-4)


def test_small_kernels_run_side_by_side() -> None:
    """What has nothing to do with one another, but the same loops, is started once; what is large or depends is not joined."""
    steps = [torch.tensor(float(n)) for n in range(12)]
    backend = Interpreted()
    _agree(lambda *given: tuple(s + 1 for s in given), steps, backend)
    assert len(backend.units) == 1
    rows = [torch.randn(300) for _ in range(3)]
    backend = Interpreted()
    _agree(lambda a, b, c: (a.sum() * 2, b.exp(), c.sin(), b.exp().sum() + c[0]), rows, backend)
    large = [torch.randn(1 << 15) for _ in range(3)]
    backend = Interpreted()
    _agree(lambda *given: tuple(g + 1 for g in given), large, backend)
    assert len(backend.units) <= 3


def test_columns_are_reduced_by_the_kernel_that_makes_them() -> None:
    """What is stored and summed along columns is read by nobody again; pieces of the sum are added up by a second kernel."""

    def program(gradient: torch.Tensor, x: torch.Tensor, bias: torch.Tensor) -> Any:
        made = torch.ops.aten.gelu_backward(gradient, x + bias)
        return made, made.sum(0)

    torch.manual_seed(0)
    backend = Interpreted()
    _agree(program, [torch.randn(1024, 64), torch.randn(1024, 64), torch.randn(64)], backend)
    assert len(backend.units) == 2
    backend = Interpreted()
    _agree(lambda x: ((y := x.t() * 2), y.sum(1), y.amax(0)), [torch.randn(40, 24)], backend)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16], ids=str)
def test_a_loss_is_picked_by_the_kernel_that_reads_the_row(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, labels = torch.randn(24, 50).to(dtype), torch.randint(50, (24,))
    labels[3] = -100
    backend = Interpreted()
    _agree(lambda x, labels: F.cross_entropy(x, labels), [x, labels], backend)
    assert len(backend.units) == 2
    weight = torch.rand(50).to(dtype)
    for how in ("mean", "sum", "none"):
        _agree(lambda x, labels, w: F.cross_entropy(x, labels, w, reduction=how), [x, labels, weight])  # noqa: B023  (called here)


COMPILED = """
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

def kernel(a):
    {}

made = triton.compile(ASTSource(JITFunction(kernel), {{"a": "*fp32"}}, {{}}), target=GPUTarget("cuda", 90, 32))
print(made.asm["ttir"])
"""
"""In a process of its own: the interpreter changes Triton's language for good."""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_constants_keep_their_digits(dtype: torch.dtype, tmp_path: Path) -> None:
    """Triton's own constants of half precision have six digits after the point: 1e-8 would be 0."""
    values = [1e-8 if dtype is not torch.float16 else 1e-7, 1.2345678e-3, -3.14159e-5, 0.333333333, 1234.5]
    stores = [f"tl.store(a + {n}, {literal(v, dtype, [])}.to(tl.float32))" for n, v in enumerate(values)]
    path = tmp_path / "constants.py"
    path.write_text(COMPILED.format("\n    ".join(stores)))
    anew = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    text = subprocess.run([sys.executable, str(path)], env=anew, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = {float(text) for text in re.findall(r"arith.constant (\S+) : f32", text)}
    for value in values:
        wanted = float(torch.tensor(value, dtype=dtype))
        assert any(math.isclose(f, wanted, rel_tol=1e-6) for f in found), (value, found)


def test_sources_compile_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    backend = Interpreted()
    for name, program in PROGRAMS.items():
        size = (33, 40) if name in ("cumulative", "crossing") else (5, 9000)
        _agree(program, [torch.randn(size)], backend)
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90) for u in backend.units]
    binaries = compile_all(jobs)
    assert len(binaries) == len(jobs) and all(b.content.startswith(b"\x7fELF") for b in binaries)


@pytest.mark.parametrize(
    ("program", "narrow"),
    [
        (lambda x: x * 2 + x[:, :1], True),
        (lambda x: torch.softmax(x, -1), True),
        (lambda x: x.sum(0), True),
        (lambda x: x + x.shape[0], False),
        (lambda x: x.repeat(2, 1)[1:] * 2, False),
    ],
)
def test_sizes_of_a_call_in_32_bits(program: Callable[..., Any], narrow: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing but a size can be too large; a size that is data, or that a division looks at, is computed with in 64."""
    backend = in_place_of_the_processor(monkeypatch)
    compiled = stoker.compile(program, dynamic=True, fullgraph=True)
    for size in ((3, 7), (20, 33), (1000, 5)):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-4)
    stoker.reset()
    sized = [u for u in backend.units if any(name.startswith("n") for name, _ in u.signature)]
    assert sized and {u.limited for u in sized} == {narrow}
    assert all((kind == "i32") is u.limited for u in sized for name, kind in u.signature if name.startswith("n"))
    assert all(("program_id(0).to(tl.int64)" in u.source) is not u.limited for u in sized)


@pytest.mark.parametrize("number", range(14))
def test_other_tiles(number: int) -> None:
    """What tuning tries computes the same."""

    class Other(Interpreted):
        def build(self, kernels: Any, sites: Any, *, tune: bool) -> Any:
            found = []
            for kernel, site in zip(kernels, sites):
                usual = tiling_of(kernel, 132)
                choice = [usual, *alternatives(kernel, usual)]
                unit = unit_of(kernel, choice[min(number, len(choice) - 1)], site.origins)
                found.append(Built(None, host_kernel(unit, LIBDEVICE), unit.source))
            return found

    torch.manual_seed(0)
    _agree(lambda x: ((y := F.gelu(x) * x[:1]), y.sum(0)), [torch.randn(600, 130)], Other())
    _agree(lambda x: (torch.softmax(x, -1), x.t().contiguous()), [torch.randn(40, 33)], Other())


@pytest.mark.parametrize("columns", [33, 4096, 9000])
def test_sums_of_exponentials(columns: int) -> None:
    """They are of the precision of eager's, far from 0, too, and where numbers are as large as there are."""
    torch.manual_seed(0)
    largest = torch.finfo(torch.float32).max
    rows = [torch.randn(columns) * scale + shift for scale in (1.0, 30.0) for shift in (0.0, 90.0, -1e4, 3e7, 1e37)]
    rows += [torch.full((columns,), value) for value in (-largest, largest, 2.5e38, -math.inf, math.inf, math.nan)]
    rows += [
        torch.where(torch.arange(columns) % 3 == 0, row, low) for row in rows[:10] for low in (-largest, -math.inf)
    ]
    x = torch.stack(rows)
    target = x.nan_to_num().argmax(1)
    backend = Interpreted()

    def program(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.logsumexp(x, 1), F.cross_entropy(x, target, reduction="none")

    for mine, eager in side_by_side(program, [x], backend):
        torch.testing.assert_close(mine, eager, rtol=2e-6, atol=2e-6, equal_nan=True)
    assert any("decay_from(v" in u.source for u in backend.units)


def test_kernels_that_overlap() -> None:
    """A kernel that may be placed early touches memory only behind its wait."""
    found: list[Unit] = []

    class Seen(Interpreted):
        def build(self, kernels: Any, sites: Any, *, tune: bool) -> Any:
            found.extend(unit_of(k, tiling_of(k, 132), s.origins, overlaps=True) for k, s in zip(kernels, sites))
            return super().build(kernels, sites, tune=tune)

    _agree(lambda x: (torch.softmax(x, -1), x.t().contiguous(), x.sum()), [torch.randn(40, 33)], Seen())
    assert found
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90, u.stages) for u in found]
    for binary in compile_all(jobs):
        text = _machine_code(binary.content)
        assert text.index("ACQBULK") < min(m.start() for m in re.finditer(r"\b(LDG|STG|ATOMG|REDG|LD|ST)\b", text))


def _machine_code(binary: bytes) -> str:
    spec = importlib.util.find_spec("triton.backends.nvidia")
    assert spec is not None and spec.submodule_search_locations
    tool = Path(spec.submodule_search_locations[0]) / "bin" / "nvdisasm"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        return subprocess.run([tool, "-c", file.name], check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 5)], ids=str)
def test_moments_of_single_elements(monkeypatch: pytest.MonkeyPatch, shape: tuple[int, int]) -> None:
    in_place_of_the_processor(monkeypatch)
    x = torch.randn(shape)
    x[-1, -1] = torch.inf
    program = lambda x: (x.var(1, unbiased=False), *torch.var_mean(x, 0), F.layer_norm(x, x.shape[1:]))  # noqa: E731
    torch.testing.assert_close(stoker.compile(program)(x), program(x), equal_nan=True)


def test_reductions_down_to_one_element_of_a_size_that_varies(monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_the_processor(monkeypatch)
    program = lambda x: (x.sum(1), x.argmax(1), x.var(0, unbiased=False), x.var(1, unbiased=False))  # noqa: E731
    compiled = stoker.compile(program)
    for size in (4, 33, 1, 2):
        x = torch.randn(6, size)
        torch.testing.assert_close(compiled(x), program(x), rtol=1e-4, atol=1e-5)


def test_bytes_are_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    backend = in_place_of_the_processor(monkeypatch)
    x = torch.randint(0, 256, (2, 3, 16), dtype=torch.uint8)
    program = lambda x: (255 - x, x - 7, -x, x * 3)  # noqa: E731
    assert all(map(torch.equal, stoker.compile(program)(x), program(x)))
    assert backend.units


def test_zeros_have_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter's -x has them, the device's does not: no source says it of numbers with a point."""
    backend = in_place_of_the_processor(monkeypatch)
    x = torch.tensor([0.0, -0.0, 1.5])
    (found,) = stoker.compile(lambda x: (-x,))(x)
    assert torch.equal(found.signbit(), (-x).signbit())
    assert "negated(v0)" in backend.units[0].source
