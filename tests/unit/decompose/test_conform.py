"""A decomposition's results have the operator's own type, sizes and strides, whatever way its arguments lie."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stoker
from stoker import log
from stoker.decompose import OURS
from stoker.decompose.registry import _conforming
from stoker.fake import FakeMode, FakeStorage
from stoker.fake.meta import meta_of
from stoker.fake.tensor import make_fake

aten = torch.ops.aten


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        (aten._softmax.default, (torch.randn(3, 4).t(), 0, False)),
        (aten._log_softmax.default, (torch.randn(1, 4).expand(3, 4), 1, False)),
        (aten.masked_fill.Scalar, (torch.randn(4, 3).t(), torch.ones(3, 4, dtype=torch.bool), 0.5)),
        (aten.hardtanh.default, (torch.arange(4),)),
        (
            aten.native_batch_norm.default,
            (torch.randn(2, 3, 4).bfloat16(), None, None, torch.zeros(3), torch.ones(3), False, 0.1, 1e-5),
        ),
        (aten.native_layer_norm.default, (torch.randn(2, 6).bfloat16(), [6], torch.ones(6), torch.zeros(6), 1e-5)),
        (aten.native_group_norm.default, (torch.randn(2, 6, 5).bfloat16(), None, None, 2, 6, 5, 3, 1e-5)),
        (aten.native_group_norm.default, (torch.randn(2, 6, 5).bfloat16(), torch.ones(6), None, 2, 6, 5, 3, 1e-5)),
    ],
    ids=lambda value: str(value) if not isinstance(value, tuple) else "",
)
def test_conforms(operator: Any, arguments: tuple[Any, ...]) -> None:
    mode = FakeMode()
    fakes = tuple(mode.from_real(a) if isinstance(a, torch.Tensor) else a for a in arguments)
    with mode:
        made = OURS[operator](*fakes)
    eager = operator(*arguments)
    for mine, wanted in zip(*((r,) if isinstance(r, torch.Tensor) else r for r in (made, eager)), strict=True):
        assert (mine.dtype, mine.shape, mine.stride()) == (wanted.dtype, wanted.shape, wanted.stride())


def test_moments_on_an_accelerator_are_wide() -> None:
    mode = FakeMode()
    x = make_fake(meta_of(torch.bfloat16, (2, 6, 5), None, torch.device("cuda", 0)), FakeStorage(mode))
    with mode:
        made = OURS[aten.native_group_norm.default](x, None, None, 2, 6, 5, 3, 1e-5)
    assert [m.dtype for m in made] == [torch.bfloat16, torch.float32, torch.float32]


def test_another_type_is_a_defect(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = FakeMode()
    wrong = _conforming(aten.relu.default, lambda x: x.double())
    monkeypatch.setenv("STOKER_STRICT", "1")
    with mode, pytest.raises(AssertionError, match="aten.relu.default gives torch.float32"):
        wrong(mode.from_real(torch.randn(3)))
    monkeypatch.delenv("STOKER_STRICT")
    log.clear()
    with mode:
        assert wrong(mode.from_real(torch.randn(3))) is NotImplemented
    assert [e.subject for e in log.events("backend")] == ["aten.relu.default is not decomposed"]


HALVES = {
    "spread": lambda x: x.std(0),
    "spread and mean": lambda x: torch.std_mean(x, 0),
    "logarithm": lambda x: x.logsumexp(0),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", HALVES)
def test_half_precision(name: str, dtype: torch.dtype) -> None:
    """What does not fit into the type in the middle does not overflow; of nothing, the operator is left alone."""
    compiled = stoker.compile(HALVES[name])
    for x in (torch.tensor([[60000.0, 1.0], [-4.0, 2.0]]), torch.zeros(0, 2), torch.linspace(-3, 3, 60).view(20, 3)):
        torch.testing.assert_close(compiled(x.to(dtype)), HALVES[name](x.to(dtype)), equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint64, torch.bool, torch.int8])
def test_angles_of_whole_numbers(dtype: torch.dtype) -> None:
    x = torch.tensor([0, 1, 100], dtype=dtype)
    torch.testing.assert_close(stoker.compile(lambda x: torch.angle(x))(x), torch.angle(x))


def test_running_sums_of_real_parts() -> None:
    z = torch.tensor([[1 + 2j, 3j], [2, -1j]])
    program = lambda z: z.cumsum(0, dtype=torch.int8)  # noqa: E731
    torch.testing.assert_close(stoker.compile(program)(z), program(z))


def test_no_entropy_of_complex_numbers() -> None:
    with pytest.raises(NotImplementedError, match="entr"):
        stoker.compile(lambda z: torch.special.entr(z))(torch.tensor([1 + 2j]))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("eps", [1e-3, -1.0, None])
def test_limits_of_odds(eps: float | None, dtype: torch.dtype) -> None:
    """They are rounded to the type, in which 0.999 may be 1; a negative one is none."""
    x = torch.tensor([60000.0, 1.0, -4.0, 2.0, 0.5, 0.0001], dtype=dtype)
    program = lambda x: torch.logit(x, eps)  # noqa: E731
    torch.testing.assert_close(stoker.compile(program)(x), program(x), equal_nan=True)


def test_no_place_in_a_single_number() -> None:
    with pytest.raises(RuntimeError, match="boundaries tensor dimension is 1"):
        stoker.compile(lambda x: torch.searchsorted(x, x))(torch.tensor(2.0))
