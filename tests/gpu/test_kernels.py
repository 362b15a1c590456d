"""Generated Triton kernels on a CUDA device: small programs against eager, forward and backward. Runs where there is one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from tests.stages import test_float8 as float8
from tests.unit.passes import test_heads as heads

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

PROGRAMS: dict[str, Callable[..., Any]] = {
    "add": lambda x, w, b: x + x,
    "chain": lambda x, w, b: torch.tanh(x * 2 + 1).exp().sigmoid(),
    "softmax": lambda x, w, b: torch.softmax(x, -1),
    "log_softmax": lambda x, w, b: F.log_softmax(x, -1),
    "layer_norm": lambda x, w, b: F.layer_norm(x, (x.shape[-1],), b, b),
    "rms_norm": lambda x, w, b: F.rms_norm(x, (x.shape[-1],), b),
    "gelu": lambda x, w, b: F.gelu(x),
    "linear": lambda x, w, b: F.relu(F.linear(x, w, b)),
    "transpose": lambda x, w, b: x.transpose(0, 1).contiguous() * 2,
    "sum": lambda x, w, b: x.sum(),
    "columns": lambda x, w, b: x.sum((0, 1)),
    "mean": lambda x, w, b: x.mean(-1),
    "std": lambda x, w, b: x.std(1),
    "maximum": lambda x, w, b: x.amax(-1) + x.amin(-1),
    "argmax": lambda x, w, b: x.argmax(-1),
    "cumsum": lambda x, w, b: x.float().cumsum(-1),
    "cat": lambda x, w, b: torch.cat([x, x * 2], -1),
    "where": lambda x, w, b: torch.where(x > 0, x, b),
    "slices": lambda x, w, b: x[..., ::2] - x[..., 1::2],
    "gather": lambda x, w, b: x.gather(1, (x[..., :4] * 0).long()),
    "embedding": lambda x, w, b: F.embedding((x[..., 0] * 0).long() + 3, w),
    "index_add": lambda x, w, b: x.index_add(0, torch.tensor([1, 0, 1], device=x.device), x[:3] * 2),
    "cross_entropy": lambda x, w, b: F.cross_entropy(x.flatten(0, 1), (x.flatten(0, 1)[:, 0] * 0).long() + 2),
    "dropout": lambda x, w, b: F.dropout(x, 0.5),
    "scalar_of_cpu": lambda x, w, b: x * torch.tensor(3.0),
    "attention": lambda x, w, b: F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None]),
    "long_rows": lambda x, w, b: torch.softmax(x.reshape(3, -1).repeat(1, 20), -1).sum(0),
}


def inputs(dtype: torch.dtype, requires_grad: bool = False) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = ((6, 33, 64), (64, 64), (64,))
    return [torch.randn(s, device="cuda", dtype=dtype, requires_grad=requires_grad) for s in shapes]


def run(function: Callable[..., Any], dtype: torch.dtype, train: bool) -> list[torch.Tensor | None]:
    given = inputs(dtype, train)
    torch.manual_seed(1)
    out = function(*given)
    if not train or not out.requires_grad:
        return [out]
    out.float().square().sum().backward()
    return [out.detach(), *(g.grad for g in given)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str, train: bool, dtype: torch.dtype) -> None:
    program = PROGRAMS[name]
    wanted = run(program, dtype, train)
    stoker.reset()
    found = run(stoker.compile(program, fullgraph=True), dtype, train)
    assert not stoker.events("backend"), stoker.events("backend")
    truth = run(program, torch.float64, train)
    for mine, eager, exact in zip(found, wanted, truth, strict=True):
        if eager is None:
            assert mine is None
            continue
        assert mine.dtype is eager.dtype and mine.stride() == eager.stride()
        if name != "dropout" and eager.is_floating_point():
            assert_no_farther(mine, eager, exact)
        else:
            torch.testing.assert_close(mine, eager)


def assert_no_farther(mine: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> None:
    """As near to the truth as eager is, but for a few roundings."""
    apart, allowed = (mine.double() - exact).abs(), (eager.double() - exact).abs()
    few = 4 * torch.finfo(eager.dtype).eps * exact.abs().clamp_min(1.0)
    worst = (apart - 2 * allowed.max() - few).max()
    assert bool(worst <= 0), f"{float(apart.max())} from the truth, eager {float(allowed.max())}"


@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes(dynamic: bool) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, -1) * x.sum(-1, keepdim=True)

    compiled = stoker.compile(program, dynamic=dynamic)
    for size in (2, 5, 33, 1000):
        x = torch.randn(3, size, device="cuda")
        torch.testing.assert_close(compiled(x), program(x))


def test_unaligned_and_strided_inputs() -> None:
    program = lambda x: x * 2 + 1  # noqa: E731
    compiled = stoker.compile(program)
    base = torch.randn(1000, device="cuda", dtype=torch.float16)
    for x in (base[:64], base[1:65], base[3:67]):
        torch.testing.assert_close(compiled(x), program(x))


def test_streams() -> None:
    compiled = stoker.compile(lambda x: torch.softmax(x, -1).sum(0))
    x = torch.randn(512, 512, device="cuda")
    wanted = torch.softmax(x, -1).sum(0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        found = compiled(x)
    torch.cuda.current_stream().wait_stream(side)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("rows", [37, 2048])
def test_kernels_wait_for_those_before(rows: int, mode: str) -> None:
    """A kernel is placed while the one ahead of it still runs: it reads what that one wrote, and overwrites what that one had read."""

    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        for _ in range(8):
            x = torch.softmax(x, -1) + y
            x = x - x.mean(0)
            y.copy_(x.t() * 0.5)
            x = x @ x + y
        return x

    def whole(dtype: torch.dtype) -> list[torch.Tensor]:
        return [x.to(dtype, copy=True), y.to(dtype, copy=True)]

    x, y = (torch.randn(rows, rows, device="cuda") / rows for _ in range(2))
    compiled, first = stoker.compile(program, mode=mode, fullgraph=True), None
    with torch.no_grad():
        exact = whole(torch.float64)
        exact = [program(*exact), exact[1]]
        for _ in range(50):
            given = whole(torch.float32)
            found = [compiled(*given).clone(), given[1]]
            first = first or found
            torch.testing.assert_close(found, first, rtol=0, atol=0)
    torch.testing.assert_close([t.double() for t in found], exact, rtol=1e-3, atol=1e-8)


def test_index_out_of_range_is_told() -> None:
    compiled = stoker.compile(lambda x, i: x[i] * 2)
    x = torch.randn(8, device="cuda")
    compiled(x, torch.tensor([1, 2], device="cuda"))
    compiled(x, torch.tensor([1, 9], device="cuda"))
    torch.cuda.synchronize()
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([1, 2], device="cuda"))
    torch.testing.assert_close(compiled(x, torch.tensor([1, 2], device="cuda")), x[1:3] * 2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
@pytest.mark.parametrize("name", [n for n in {**heads.SHARED, **heads.LEFT} if n not in ("added", "cached", "written")])
def test_heads_that_share_keys(name: str, dtype: torch.dtype) -> None:
    program = (heads.SHARED | heads.LEFT)[name]
    given = [t.cuda().to(dtype) if t.is_floating_point() else t.cuda() for t in heads.inputs()]
    stoker.reset()
    torch.testing.assert_close(stoker.compile(program)(*given), program(*given), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("name", float8.PROGRAMS)
@pytest.mark.parametrize("dtype", float8.DTYPES, ids=str)
def test_float8(name: str, dtype: torch.dtype) -> None:
    program, x = float8.PROGRAMS[name], float8.numbers().cuda()
    stoker.reset()
    found, wanted = stoker.compile(program, fullgraph=True)(x, dtype), program(x, dtype)
    for mine, eager in zip(found, wanted, strict=True):
        assert float8.same(mine, eager)


def test_a_product_of_float8() -> None:
    def program(x: torch.Tensor, w: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        a, b = (t.clamp(-448, 448).to(torch.float8_e4m3fn) for t in (x / scale, w / scale))
        return torch._scaled_mm(a, b.t(), scale, scale, out_dtype=torch.bfloat16).relu()

    given = [
        torch.randn(64, 128, device="cuda"),
        torch.randn(32, 128, device="cuda"),
        torch.tensor(0.25, device="cuda"),
    ]
    torch.testing.assert_close(stoker.compile(program, fullgraph=True)(*given), program(*given), rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32], ids=str)
def test_small_and_large_constants(dtype: torch.dtype) -> None:
    """Those that half precision lacks, too."""
    x = torch.tensor([0.0, 1.0, -2.0, 1e-5], device="cuda").to(dtype)
    for value in (1e-8, 3e-6, 1e-30, 1e30, 7e4):
        program = lambda x, value=value: (x + value, x * value, (x + value) / (x * x + value), x > value)  # noqa: E731
        stoker.reset()
        torch.testing.assert_close(stoker.compile(program)(x), program(x), equal_nan=True)


def test_numbers_of_the_program_divide_as_in_eager() -> None:
    """Eager multiplies with the inverse: the last digit shows it."""
    x = torch.randn(1000, device="cuda")
    for program in (lambda x: x / 400, lambda x: x / 3.7, lambda x: x.half() / 7, lambda x: x / x.abs().amax()):
        assert torch.equal(stoker.compile(program)(x), program(x))
    scale = torch.tensor(0.3)
    program = lambda x: x / scale  # noqa: E731
    assert torch.equal(stoker.compile(program)(x), program(x))


def test_functions_near_zero() -> None:
    x = torch.tensor([1e-40, -1e-40, 1e-38, 0.0, -0.0, 1e-31, 0.5, -0.5], device="cuda")
    program = lambda x: (x.lgamma(), x.log(), x.exp(), x.sqrt(), x.erf())  # noqa: E731
    for mine, eager in zip(stoker.compile(program)(x), program(x)):
        torch.testing.assert_close(mine, eager, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16], ids=str)
@pytest.mark.parametrize("channels_last", [False, True])
def test_strides_of_convolutions(dtype: torch.dtype, channels_last: bool) -> None:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3, padding=1), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 1))
    model = model.cuda().to(dtype).to(memory_format=layout)
    x = torch.randn(2, 4, 6, 6, device="cuda", dtype=dtype).to(memory_format=layout)
    mine, eager = stoker.compile(model)(x), model(x)
    assert mine.stride() == eager.stride()
    torch.testing.assert_close(mine, eager, rtol=1e-2, atol=1e-2)


def test_gradients_of_values_that_are_chosen_several_times() -> None:
    """Each choice's gradient fills memory and adds to it."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        weights, chosen = (x @ w).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for number in range(4):
            row, slot = torch.where(chosen == number)
            out = out.index_add(0, row, x[row].sin() * weights[row, slot, None])
        return out

    torch.manual_seed(0)
    x, w = (torch.randn(s, device="cuda", dtype=torch.float64, requires_grad=True) for s in ((6, 8), (8, 4)))
    expected, results = (
        torch.autograd.grad(way(x, w).square().sum(), (x, w)) for way in (program, stoker.compile(program))
    )
    torch.testing.assert_close(results, expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("masked", ["all", "some", "none", "no mask", "infinite"])
@pytest.mark.parametrize(("batch", "heads", "shared"), [(1, 32, 8), (3, 4, 4), (1, 6, 1)])
def test_attention_of_few_queries(batch: int, heads: int, shared: int, masked: str, dtype: torch.dtype) -> None:
    """Where the library would leave the device idle; a query that sees nothing has eager's value, too."""
    torch.manual_seed(0)
    q, k, v = (
        torch.randn(batch, h, n, 64, device="cuda", dtype=dtype) for h, n in ((heads, 1), (shared, 700), (shared, 700))
    )
    seen = {"all": 0, "some": 300, "none": 700}.get(masked)
    mask = None if seen is None else torch.arange(700, device="cuda")[None, None, None] < seen
    if masked == "infinite":
        mask = torch.full((batch, 1, 1, 700), -torch.inf, device="cuda", dtype=dtype)

    def program(q: Any, k: Any, v: Any, mask: Any) -> Any:
        return F.scaled_dot_product_attention(q * 1.5, k, v, mask, enable_gqa=True).transpose(1, 2) + 1

    with torch.no_grad():
        mine, eager = stoker.compile(program)(q, k, v, mask), program(q, k, v, mask)
    assert (mine.shape, mine.stride()) == (eager.shape, eager.stride())
    near = {torch.float16: 4e-3, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(mine, eager, rtol=near, atol=near)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("columns", "shared"), [(2048, 2048), (1000, 300), (77, 8192), (5, 20000)])
def test_products_of_one_row(columns: int, shared: int, dtype: torch.dtype, bias: bool) -> None:
    torch.manual_seed(0)
    x, w, b = (torch.randn(s, device="cuda").to(dtype) for s in ((1, shared), (columns, shared), (columns,)))
    program = lambda x, w, b: F.silu(F.linear(x, w, b if bias else None))  # noqa: E731
    with torch.no_grad():
        mine, truth = stoker.compile(program)(x, w, b), program(x.double(), w.double(), b.double())
    near = {torch.float32: 1e-4, torch.float16: 2e-3, torch.bfloat16: 1e-2}[dtype]
    torch.testing.assert_close(mine.double(), truth, rtol=near, atol=near * shared**0.5)


@pytest.mark.parametrize("hides", ["nothing", "keys", "rows"])
@pytest.mark.parametrize("bias", [None, (6, 3), (1, 3), (6, 1)], ids=str)
@pytest.mark.parametrize("dense", [False, True])
def test_attention_in_windows(dense: bool, bias: tuple[int, int] | None, hides: str) -> None:
    """Another kernel than eager's, with its values and strides; also of queries that see nothing."""
    torch.manual_seed(0)
    sizes = (6, 3, 49, 32) if dense else (6, 49, 3, 32)
    q, k, v = (torch.randn(sizes, device="cuda").half() for _ in range(3))
    added = None if bias is None else torch.randn(*bias, 49, 49, device="cuda").half()
    if added is not None and hides != "nothing":
        added[(..., 5) if hides == "keys" else (..., 5, slice(None))] = -torch.inf

    def program(q: Any, k: Any, v: Any, added: Any) -> Any:
        heads = (t if dense else t.transpose(1, 2) for t in (q * 2, k, v))
        return F.scaled_dot_product_attention(*heads, added)

    with torch.no_grad():
        mine, eager = stoker.compile(program)(q, k, v, added), program(q, k, v, added)
    assert (mine.shape, mine.stride()) == (eager.shape, eager.stride())
    torch.testing.assert_close(mine, eager, rtol=4e-3, atol=4e-3)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    ("image", "weight", "stride"),
    [
        ((2, 3, 64, 64), (96, 3, 16, 16), 16),  # patches side by side
        ((2, 3, 33, 30), (32, 3, 4, 4), 4),  # with a rest
        ((2, 64, 14, 14), (72, 64, 3, 3), 1),  # weights that are brought into cuDNN's order
        ((2, 24, 14, 14), (40, 24, 2, 2), 2),
    ],
)
def test_convolutions(image: Any, weight: Any, stride: int, bias: bool, train: bool) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Conv2d(weight[1], weight[0], weight[2:], stride, bias=bias).cuda().half()
    x = torch.randn(image, device="cuda").half().requires_grad_(train)
    program = lambda x: F.gelu(layer(x))  # noqa: E731
    results = []
    for way in (program, stoker.compile(program)):
        with torch.set_grad_enabled(train):
            result = way(x)
        gradients = torch.autograd.grad(result.float().square().sum(), (x, *layer.parameters())) if train else ()
        results.append((result, *gradients))
    for mine, eager in zip(results[1], results[0]):
        assert mine.stride() == eager.stride()
        torch.testing.assert_close(mine, eager, rtol=1e-2, atol=1e-2 * float(eager.abs().max()))


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("order", ["usual", "channels last", "of one image"])
@pytest.mark.parametrize(
    ("channels", "made", "groups", "kernel"),
    [(72, 72, 3, (3, 3)), (48, 96, 2, (3, 5)), (80, 80, 4, (1, 32)), (80, 80, 4, (32,)), (72, 108, 3, (3,))],
)
def test_convolutions_in_groups(
    channels: int, made: int, groups: int, kernel: tuple[int, ...], order: str, dtype: torch.dtype, train: bool
) -> None:
    """By kernels of ours, whatever the order of memory; as near to the truth as the library's, and its strides."""
    torch.manual_seed(0)
    kind = torch.nn.Conv1d if len(kernel) == 1 else torch.nn.Conv2d
    layer = kind(channels, made, kernel, padding=tuple(k // 2 for k in kernel), groups=groups)  # type: ignore[arg-type]  # of as many numbers
    exact, layer = layer.double().cuda(), copy.deepcopy(layer).cuda().to(dtype)
    x = torch.randn(1 if order == "of one image" else 3, channels, *(17 for _ in kernel), device="cuda").to(dtype)
    if order == "channels last":
        x = x.movedim(1, -1).contiguous().movedim(-1, 1)
    results = []
    for network in (layer, stoker.compile(layer, fullgraph=True), exact):
        given = x.to(next(network.parameters()).dtype).detach().requires_grad_(train)
        with torch.set_grad_enabled(train):
            result = F.gelu(network(given))
        gradients = torch.autograd.grad(result.square().sum(), (given, *network.parameters())) if train else ()
        results.append((result, *gradients))
    for eager, mine, truth in zip(*results, strict=True):
        assert mine.stride() == eager.stride()
        apart = [float((t.double() - truth).norm() / truth.norm()) for t in (mine, eager)]
        assert apart[0] <= 1.5 * apart[1] + 1e-3


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_zeros_have_signs(dtype: torch.dtype) -> None:
    x = torch.tensor([0.0, -0.0, 1.5, torch.inf, -torch.inf], device="cuda").to(dtype)
    program = lambda x: (-x, (-x) * 2, x.neg().abs().neg())  # noqa: E731
    for mine, eager in zip(stoker.compile(program)(x), program(x)):
        assert torch.equal(mine, eager)
        assert torch.equal(mine.signbit(), eager.signbit())


def _moments(x: torch.Tensor, columns: bool) -> tuple[torch.Tensor, ...]:
    rows = (x.var(1, unbiased=False), x.var(1), F.layer_norm(x, x.shape[1:]))
    return (*rows, *torch.var_mean(x, 0)) if columns else rows


@pytest.mark.parametrize("shape", [(1, 1), (5, 1), (1, 5)])
def test_moments_of_single_elements(shape: tuple[int, int]) -> None:
    """Of an infinite one, too; its mean with others is infinite or no number in eager, by which thread has it."""
    x = torch.randn(shape, device="cuda")
    compiled = stoker.compile(_moments)
    for infinite in (False, True):
        if infinite and 1 in shape[1:]:
            x[-1, -1] = torch.inf
        torch.testing.assert_close(compiled(x, not infinite), _moments(x, not infinite), equal_nan=True)


def test_the_place_of_the_largest_of_more_than_32_bits_count() -> None:
    x = torch.zeros(2**31 + 4099, dtype=torch.int8, device="cuda")
    x[2**31] = 7
    assert int(stoker.compile(lambda x: x.argmax())(x)) == 2**31


def test_bytes_are_subtracted() -> None:
    x = torch.randint(0, 256, (2, 3, 16), device="cuda", dtype=torch.uint8)
    program = lambda x: (255 - x, x - 7, -x, x * 3)  # noqa: E731
    for mine, eager in zip(stoker.compile(program)(x), program(x)):
        assert torch.equal(mine, eager)
