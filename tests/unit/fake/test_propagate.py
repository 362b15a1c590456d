"""Propagation: promotion, layouts, devices, errors, writing forms, custom operators, and the memo."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

from stoker.fake import FakeMode, FakeStorage, FakeTensor, NoMetaRule, propagate
from stoker.fake.meta import meta_of
from stoker.fake.tensor import make_fake

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]
DTYPES += [torch.complex64]


def describe(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tuple(tensor.shape), tensor.stride(), tensor.device


def same_as_eager(function: Any, *args: Any) -> None:
    """Both give the same metadata, or both raise the same error."""
    mode = FakeMode()
    fakes = [mode.from_real(a) if isinstance(a, torch.Tensor) else a for a in args]
    try:
        real = function(*args)
    except NotImplementedError:  # a kernel that lacks a type, which differs from device to device
        return
    except (RuntimeError, IndexError) as error:
        with mode, pytest.raises(type(error)) as caught:
            function(*fakes)
        assert str(caught.value).splitlines()[0] == str(error).splitlines()[0]
        return
    with mode:
        fake = function(*fakes)
    assert describe(real) == describe(fake)


NUMBERS = [True, 2, 2.5, 1j]
BINARY = [torch.add, torch.mul, torch.div, torch.eq, torch.lt, torch.pow, torch.maximum, torch.floor_divide]


@pytest.mark.parametrize("function", BINARY)
def test_promotion(function: Any) -> None:
    for a, b in itertools.product(DTYPES, DTYPES):
        for left, right in (((2, 3), (2, 3)), ((2, 3), ()), ((), ())):
            same_as_eager(function, torch.ones(left, dtype=a), torch.ones(right, dtype=b))


@pytest.mark.parametrize("function", [torch.add, torch.mul, torch.div, torch.eq, torch.pow, torch.clamp_min])
def test_promotion_of_numbers(function: Any) -> None:
    for dtype, number, sizes in itertools.product(DTYPES, NUMBERS, ((2, 3), ())):
        same_as_eager(function, torch.ones(sizes, dtype=dtype), number)


def test_unary_promotion() -> None:
    for function in (torch.exp, torch.neg, torch.isnan, torch.abs, torch.sigmoid, torch.relu, torch.floor, torch.sum):
        for dtype in DTYPES:
            same_as_eager(function, torch.ones(2, 3, dtype=dtype))
    for function in (
        torch.mean,
        torch.cumsum,
        torch.softmax,
        torch.amax,
        torch.var,
        torch.argmax,
        torch.any,
        torch.prod,
    ):
        for dtype in DTYPES:
            same_as_eager(lambda x, f=function: f(x, 0), torch.ones(2, 3, dtype=dtype))


LAYOUTS = {
    "dense": lambda: torch.ones(2, 3, 4, 5),
    "channels last": lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.ones(5, 4, 3, 2).permute(3, 2, 1, 0),
    "strided": lambda: torch.ones(2, 3, 4, 10)[..., ::2],
    "expanded": lambda: torch.ones(2, 1, 4, 1).expand(2, 3, 4, 5),
    "one channel": lambda: torch.ones(2, 1, 4, 5).to(memory_format=torch.channels_last),
    "row": lambda: torch.ones(5),
    "column": lambda: torch.ones(4, 1),
    "number": lambda: torch.ones(()),
    "empty": lambda: torch.ones(2, 3, 0, 5),
    "empty stretched": lambda: torch.ones(5, 0, 3, 2).permute(3, 2, 1, 0),
}


@pytest.mark.parametrize(("left", "right"), list(itertools.product(LAYOUTS, LAYOUTS)))
def test_layouts_of_two(left: str, right: str) -> None:
    same_as_eager(torch.add, LAYOUTS[left](), LAYOUTS[right]())
    same_as_eager(lambda a, b: torch.where(a > 0, a, b), LAYOUTS[left](), LAYOUTS[right]())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_one(layout: str) -> None:
    x = LAYOUTS[layout]()
    functions = [torch.relu, torch.clone, torch.zeros_like, lambda x: x.half(), lambda x: x * 2, lambda x: x.sum(-1)]
    functions += [lambda x: x.contiguous(), lambda x: x.reshape(-1), lambda x: x.softmax(-1), lambda x: x.cumsum(-1)]
    functions += [lambda x: x.flip(0), lambda x: x.sort(-1)[0], lambda x: x.squeeze(), lambda x: x.unsqueeze(-1)]
    functions += [lambda x: torch.cat([x, x], -1), lambda x: torch.stack([x, x]), lambda x: x[..., None, :1]]
    functions += [
        lambda x: x.to(torch.float64, memory_format=torch.contiguous_format),
        lambda x: x.masked_fill(x > 0, 1),
    ]
    for function in functions:
        same_as_eager(function, x)


IMAGES = {
    "conv2d": lambda x: torch.nn.functional.conv2d(x, torch.ones(6, 3, 3, 3)),
    "conv2d channels-last weight": lambda x: torch.nn.functional.conv2d(
        x, torch.ones(6, 3, 3, 3).to(memory_format=torch.channels_last)
    ),
    "pointwise conv2d": lambda x: torch.nn.functional.conv2d(x, torch.ones(6, 3, 1, 1)),
    "grouped conv2d": lambda x: torch.nn.functional.conv2d(x, torch.ones(3, 1, 3, 3), groups=3),
    "conv_transpose2d": lambda x: torch.nn.functional.conv_transpose2d(x, torch.ones(3, 6, 3, 3), stride=2),
    "max_pool2d": lambda x: torch.nn.functional.max_pool2d(x, 2),
    "avg_pool2d": lambda x: torch.nn.functional.avg_pool2d(x, 2, ceil_mode=True),
    "adaptive_avg_pool2d": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, (2, 2)),
    "adaptive_avg_pool2d to one": lambda x: torch.nn.functional.adaptive_avg_pool2d(x, 1),
    "batch_norm": lambda x: torch.nn.functional.batch_norm(x, torch.zeros(3), torch.ones(3)),
    "batch_norm training": lambda x: torch.nn.functional.batch_norm(x, torch.zeros(3), torch.ones(3), training=True),
    "group_norm": lambda x: torch.nn.functional.group_norm(x, 3),
    "interpolate": lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "nearest": lambda x: torch.nn.functional.interpolate(x, scale_factor=2.0),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1, 1, 1)),
    "reflect": lambda x: torch.nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "pixel_shuffle": lambda x: torch.nn.functional.pixel_shuffle(torch.cat([x, x, x, x], 1), 2),
    "cat": lambda x: torch.cat([x, x], 1),
    "dropout": lambda x: torch.nn.functional.dropout(x, 0.5),
    "mean": lambda x: x.mean((2, 3), keepdim=True) * x,
}


@pytest.mark.parametrize("name", IMAGES)
def test_image_formats(name: str) -> None:
    for sizes in ((2, 3, 8, 8), (1, 3, 6, 6), (2, 3, 5, 5)):
        same_as_eager(IMAGES[name], torch.ones(sizes))
        same_as_eager(IMAGES[name], torch.ones(sizes).to(memory_format=torch.channels_last))


WRONG = {
    "add": lambda: torch.ones(2, 3) + torch.ones(4),
    "mm": lambda: torch.ones(2, 3) @ torch.ones(4, 5),
    "mm types": lambda: torch.ones(2, 3) @ torch.ones(3, 5, dtype=torch.float64),
    "bmm": lambda: torch.bmm(torch.ones(2, 3, 4), torch.ones(2, 5, 6)),
    "addmm": lambda: torch.addmm(torch.ones(3), torch.ones(2, 3), torch.ones(3, 4)),
    "view": lambda: torch.ones(2, 3).view(4),
    "view strides": lambda: torch.ones(2, 3).t().view(6),
    "expand": lambda: torch.ones(2, 3).expand(4, 3),
    "permute": lambda: torch.ones(2, 3).permute(0, 0),
    "transpose": lambda: torch.ones(2, 3).transpose(0, 2),
    "select": lambda: torch.ones(2, 3)[5],
    "cat": lambda: torch.cat([torch.ones(2, 3), torch.ones(2, 4)]),
    "stack": lambda: torch.stack([torch.ones(2, 3), torch.ones(2, 4)]),
    "sum": lambda: torch.ones(2, 3).sum(2),
    "mean": lambda: torch.ones(2, 3, dtype=torch.int64).mean(),
    "max": lambda: torch.ones(0).max(),
    "conv": lambda: torch.nn.functional.conv2d(torch.ones(1, 3, 8, 8), torch.ones(4, 2, 3, 3)),
    "layer_norm": lambda: torch.nn.functional.layer_norm(torch.ones(2, 3), (4,)),
    "embedding": lambda: torch.nn.functional.embedding(torch.ones(3), torch.ones(5, 2)),
    "gather": lambda: torch.ones(2, 3).gather(0, torch.ones(2, 3)),
    "in place": lambda: torch.ones(3).add_(torch.ones(2, 3)),
    "in place type": lambda: torch.ones(3, dtype=torch.int64).add_(1.5),
    "split": lambda: torch.ones(5).split([2, 2]),
    "pool": lambda: torch.nn.functional.max_pool2d(torch.ones(1, 1, 2, 2), 5),
    "copy": lambda: torch.ones(3).copy_(torch.ones(4)),
    "topk": lambda: torch.ones(3).topk(5),
    "unsqueeze": lambda: torch.ones(3).unsqueeze(4),
    "arange": lambda: torch.arange(5, 1),
    "nll": lambda: torch.nn.functional.nll_loss(torch.ones(3, 4), torch.ones(5, dtype=torch.int64)),
}


@pytest.mark.parametrize("name", WRONG)
def test_errors_in_the_words_of_eager(name: str) -> None:
    with pytest.raises((RuntimeError, IndexError, ValueError)) as eager:
        WRONG[name]()
    with FakeMode(), pytest.raises((RuntimeError, IndexError, ValueError)) as fake:
        WRONG[name]()
    assert type(fake.value) is type(eager.value)
    assert str(fake.value).splitlines()[0] == str(eager.value).splitlines()[0]


def test_devices() -> None:
    mode = FakeMode()
    there = make_fake(meta_of(torch.float32, (2, 3), None, torch.device("cuda:0")), FakeStorage(mode))
    with mode:
        here = torch.ones(2, 3)
        assert (there + 1).device == torch.device("cuda:0")
        assert (there * torch.tensor(2.0)).device == torch.device("cuda:0")
        assert there.cpu().device.type == "cpu" and torch.zeros_like(there).device.type == "cuda"
        for wrong in (lambda: there + here, lambda: there @ here.t(), lambda: torch.cat([there, here])):
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
                wrong()


def test_out_variants() -> None:
    with FakeMode():
        a, out = torch.ones(2, 3), torch.empty(0)
        assert torch.add(a, a, out=out) is out and out.shape == (2, 3)
        values, indices = torch.empty(0), torch.empty(0, dtype=torch.int64)
        torch.max(a, 0, out=(values, indices))
        assert values.shape == indices.shape == (3,)
        fits = torch.empty(3, 2).t()
        assert torch.mul(a, 2, out=fits).stride() == (1, 2)


def test_inference_mode() -> None:
    with FakeMode(), torch.inference_mode():
        x = torch.ones(2, 3, 4)
        assert torch.nn.functional.linear(x, torch.ones(5, 4), torch.ones(5)).shape == (2, 3, 5)
        assert torch.matmul(x, torch.ones(4, 6)).shape == (2, 3, 6)
        assert x.reshape(6, 4).shape == (6, 4)


def test_custom_operators() -> None:
    @torch.library.custom_op("stoker_test::halve", mutates_args=())
    def halve(x: torch.Tensor) -> torch.Tensor:
        return x[::2].clone()

    library = torch.library.Library("stoker_test_old", "DEF")
    library.define("mystery(Tensor x) -> Tensor")
    library.impl("mystery", lambda x: x.clone(), "CPU")

    @halve.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        assert x.device.type == "cpu"
        return x.new_empty((x.shape[0] + 1) // 2, *x.shape[1:])

    with FakeMode():
        assert halve(torch.ones(5, 2)).shape == (3, 2)
        with pytest.raises(NoMetaRule):
            torch.ops.stoker_test_old.mystery(torch.ones(5, 2))


def test_memo_hits_equal_misses() -> None:
    mode = FakeMode()
    with mode:
        x, y = torch.zeros(3, 4), torch.zeros(3, 4)
        first, second = x.t(), y.t()
        assert first.meta is second.meta
        assert first.memory is x.memory and second.memory is y.memory
        assert y.add_(x) is y and x.add_(y) is x
        assert (x + 1).dtype is torch.float32 and (x.long() + 1).dtype is torch.int64
        assert (x.long() + 1.0).dtype is torch.float32 and (x.bool() + True).dtype is torch.bool
        parts = x.split(2, 1)
        again = y.split(2, 1)
        assert all(a.memory is x.memory for a in parts) and all(a.memory is y.memory for a in again)
    before = len(propagate.STATIC_MEMO)
    with FakeMode():
        torch.zeros(3, 4).t()
    assert len(propagate.STATIC_MEMO) == before


def test_default_dtype_is_part_of_the_key() -> None:
    with FakeMode():
        assert torch.zeros(2).dtype is torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.zeros(2).dtype is torch.float64
            assert (torch.ones(2, dtype=torch.int64) / 2).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


def test_real_tensors_join() -> None:
    mode = FakeMode()
    real = torch.ones(3)
    with mode:
        out = real + mode.from_real(torch.ones(2, 3))
        assert isinstance(out, FakeTensor) and out.shape == (2, 3)
        assert isinstance(real * 2, FakeTensor)


def test_equal_metadata_is_one_object() -> None:
    cpu = torch.device("cpu")
    assert meta_of(torch.float32, (2, 3), None, cpu) is meta_of(torch.float32, [2, 3], (3, 1), cpu)
    assert meta_of(torch.float32, (2, 3), None, cpu) is not meta_of(torch.float32, (2, 3), (1, 2), cpu)


def test_equal_numbers_of_other_types_are_other_arguments() -> None:
    mode = FakeMode()
    x = mode.from_real(torch.arange(4))
    multiply = torch.ops.aten.mul.Scalar
    for number in (2 + 0j, 2, 2.0, 1, True, 1 + 0j):
        assert mode.propagate(multiply, (x, number), {}).dtype is (torch.arange(4) * number).dtype
