"""What programs ask memory for first: loads stand in front of the reductions they do not depend on, and behind the writes they do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.runtime.cubin import Job, compile_all
from tests.stages.interpreted import Interpreted
from tests.stages.test_triton import side_by_side


def picked(x: torch.Tensor, labels: torch.Tensor) -> Any:
    return F.nll_loss(F.log_softmax(x, -1), labels)


def scaled_by_table(x: torch.Tensor, labels: torch.Tensor) -> Any:
    """A factor for each row, from a table at a computed place."""
    table = torch.linspace(-2, 2, 9)
    return torch.softmax(x, -1) * table[labels % 9][:, None]


def written_and_read(x: torch.Tensor, labels: torch.Tensor) -> Any:
    """What a kernel reads was written by it or another one."""
    rows = x * 2
    rows[labels] = 1.0
    return rows, torch.softmax(rows, -1), rows.sum(-1)


def in_place(x: torch.Tensor, labels: torch.Tensor) -> Any:
    y = x.clone()
    y -= y.amax(-1, keepdim=True)
    y *= y.exp().sum(-1, keepdim=True)
    return y


def places_from_a_reduction(x: torch.Tensor, labels: torch.Tensor) -> Any:
    return x.gather(1, x.argmax(-1, keepdim=True)), x[torch.arange(x.shape[0]), x.abs().argmin(-1)] + labels


def conditions(x: torch.Tensor, labels: torch.Tensor) -> Any:
    padded = F.pad(x, (2, 3), value=0.5)
    return padded.logsumexp(-1), (padded - padded.mean(-1, keepdim=True)).relu()


def whole_numbers(x: torch.Tensor, labels: torch.Tensor) -> Any:
    return (labels != 3).sum(), labels.float().mean() * x.sum(), labels.cumsum(0)


PROGRAMS: list[Callable[..., Any]] = [
    picked,
    scaled_by_table,
    written_and_read,
    in_place,
    places_from_a_reduction,
    conditions,
    whole_numbers,
]


@pytest.mark.parametrize("size", [(6, 50), (5, 9000), (3, 1024)], ids=str)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(program: Callable[..., Any], size: tuple[int, int]) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(size), torch.randint(size[0], (size[0],))]
    for mine, eager in side_by_side(program, inputs, None):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-4)


def order(source: str, *words: str) -> list[int]:
    """Where words first stand, in the generated function."""
    text = source[source.rindex("@triton.jit") :]
    return [text.index(w) for w in words]


def test_a_label_and_what_it_picks_are_read_before_the_row_is_reduced() -> None:
    backend = Interpreted()
    side_by_side(picked, [torch.randn(24, 50), torch.randint(50, (24,))], backend)
    source = backend.units[0].source
    row, label, reduction = order(source, "tl.load(a0", "tl.load(a1", "tl.reduce(")
    assert row < label < reduction and source.rindex("tl.load(") < source.index("tl.reduce(")


def test_a_kernel_of_one_program_reads_all_at_once() -> None:
    backend = Interpreted()
    side_by_side(lambda x, y: x.sum() / y.amax(), [torch.randn(700), torch.randn(700)], backend)
    (unit,) = backend.units
    assert unit.source.rindex("tl.load(") < unit.source.index("tl.sum(")


def test_compiles_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    backend = Interpreted()
    for program in PROGRAMS:
        side_by_side(program, [torch.randn(6, 50), torch.randint(6, (6,))], backend)
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90) for u in backend.units]
    assert all(b.content.startswith(b"\x7fELF") for b in compile_all(jobs))
