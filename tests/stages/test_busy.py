"""What keeps a GPU busy and its memory in order, by generated Triton under its interpreter: reductions in pieces, images laid out for
convolutions, biases added by whoever reads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker.lower.pieces import cut
from stoker.shape.expr import constant, symbol
from tests.stages.interpreted import Interpreted, in_place_of_the_processor


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Interpreted:
    return in_place_of_the_processor(monkeypatch)


def _same(program: Callable[..., Any], inputs: list[torch.Tensor], compiled: Any = None) -> None:
    compiled = compiled or stoker.compile(program, fullgraph=True)
    with torch.no_grad():
        found, wanted = compiled(*inputs), program(*inputs)
    for mine, eager in zip(*(made if isinstance(made, tuple) else (made,) for made in (found, wanted)), strict=True):
        torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-4, equal_nan=True)
        assert mine.stride() == eager.stride()


def _whole(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (x + 1).isinf().any(), x.sum(), x.amax(), x.amin(), (x > -9).all(), x.long().amax(), (x * 0 + 1).prod()


@pytest.mark.parametrize("size", [(1, 256, 512), (8, 64, 300), (3, 40009), (100003,), (1, 7, 1, 20000)], ids=str)
def test_reductions_of_everything(size: tuple[int, ...], backend: Interpreted) -> None:
    """However the elements are shared out among dimensions, several programs read them; a second kernel joins what they found."""
    torch.manual_seed(0)
    _same(_whole, [torch.randn(size)])
    assert len(backend.units) == 2


def test_reductions_of_sizes_that_change(backend: Interpreted) -> None:
    torch.manual_seed(0)
    program = lambda x: (*_whole(x), x.sum(0), x.amax(0))  # noqa: E731
    compiled = stoker.compile(program, dynamic=True, fullgraph=True)
    for rows in (5, 100, 3, 3000):
        _same(program, [torch.randn(rows, 37)], compiled)


@pytest.mark.parametrize("size", [(2, 4, 20000), (8, 3, 4096), (60000,), (4, 2, 9001), (1, 2, 30, 700)], ids=str)
def test_moments_of_long_rows(size: tuple[int, ...], backend: Interpreted) -> None:
    """Few channels of many elements each are walked in pieces too; a number far from 0 shows what is lost."""
    torch.manual_seed(0)
    x = torch.randn(size) * 2 + 100
    dims = [d for d in range(len(size)) if d != 1]
    _same(lambda x: (*torch.var_mean(x, dims), x.var(dims, keepdim=True), x.std(-1)), [x])


def test_how_loops_are_cut() -> None:
    def counts(*sizes: int, wanted: int = 528) -> tuple[list[int | None], int | None] | None:
        found = cut(tuple(map(constant, sizes)), wanted)
        return None if found is None else ([n.value for n in found.counts], found.ragged)

    assert counts(1, 512, 512) == ([1, 512, 1], None)
    assert counts(8, 64, 300) == ([8, 64, 1], None)
    assert counts(8, 600, 30) == ([8, 60, 1], None)
    assert counts(40009, 37) == ([527, 1], 0)
    assert counts(100003) == ([527], 0)
    assert counts(3, 40009) == ([3, 176], 1)
    assert counts(197, wanted=2) == ([2], 0)  # no divisor: still cut, or it would be cut for ever
    for size in range(2, 100):
        for wanted in range(2, 12):
            found = counts(size, 5, wanted=wanted)
            assert size * 5 <= wanted if found is None else 1 < math.prod(n or 0 for n in found[0]) <= wanted
    found = cut((symbol("rows"), constant(37)), 528)
    assert found is not None and found.ragged == 0 and [n.value for n in found.counts] == [528, 1]


def test_places_that_are_costly_to_find_are_found_once(backend: Interpreted) -> None:
    """Each is used by all elements of a row: T5's buckets of distances."""

    size = 380  # too many to be held as a constant

    def biases(weight: torch.Tensor) -> torch.Tensor:
        away = (torch.arange(size)[None] - torch.arange(size)[:, None]).abs()
        far = (torch.log(away.float() / 4 + 1) / 3 * torch.exp(-away.float() / 20).sqrt() * 9).long()
        return F.embedding(torch.where(away < 4, away, far.clamp(max=15)), weight).permute(2, 0, 1) * 2

    _same(biases, [torch.randn(16, 8)])
    bodies = [u.source.rsplit("@triton.jit", 1)[1] for u in backend.units]
    assert len(bodies) == 2 and sum("log(" in body for body in bodies) == 1
    assert "log(" not in next(body for body in bodies if "flags" in body)


def test_tables_of_several_readers_are_computed_once(backend: Interpreted) -> None:
    """Though they are made of nothing: DeBERTa's distances, which every layer looks up."""
    size = 380

    def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        away = (torch.arange(size)[None] - torch.arange(size)[:, None]).abs().float()
        table = (torch.log(away + 1) * torch.exp(-away / 20).sqrt()).tanh()
        return x * table, y - table

    _same(program, [torch.randn(3, size, size), torch.randn(2, size, size)])
    bodies = [u.source.rsplit("@triton.jit", 1)[1] for u in backend.units]
    assert sum("log(" in body for body in bodies) == 1


def test_rows_that_share_memory_are_made_together(backend: Interpreted) -> None:
    """A row that jumps from one line of a matrix to the next reads what its neighbours need: DeBERTa's attention."""

    def program(x: torch.Tensor, table: torch.Tensor, places: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x + torch.gather(table, -1, places.expand(x.shape)).transpose(-1, -2), -1)

    size = 64
    places = (torch.arange(size)[None] - torch.arange(size)[:, None]).clamp(-9, 9) + 9
    _same(program, [torch.randn(300, size, size), torch.randn(300, size, 19), places])
    (unit,) = backend.units
    assert "tl.arange(0, 16)" in unit.source


def _stem(x: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, place: torch.Tensor) -> Any:
    h = F.gelu(F.conv1d(x, a, b, padding=1))
    h = F.gelu(F.conv1d(h, c, b, stride=2, padding=1)).permute(0, 2, 1) + place
    h = h + F.layer_norm(h, h.shape[-1:]) @ place.t() @ place
    return F.layer_norm(h, h.shape[-1:]), h


def test_convolutions_along_one_dimension(backend: Interpreted) -> None:
    """Channels are fastest between them, so that rows behind them lie along memory; what leaves has eager's strides."""
    torch.manual_seed(0)
    sizes = ((2, 8, 20), (16, 8, 3), (16,), (16, 16, 3), (10, 16))
    _same(_stem, [torch.randn(size) for size in sizes])


@pytest.mark.parametrize("size", [(1, 1, 9), (2, 1, 9), (2, 3, 1), (1, 3, 9), (2, 3, 9)], ids=str)
def test_images_of_one_of_something(size: tuple[int, ...], backend: Interpreted) -> None:
    weight, bias = torch.randn(4, size[1], 3), torch.randn(4)
    _same(lambda x, w, b: F.conv1d(x, w, b, padding=1).relu() + 1, [torch.randn(size), weight, bias])


@pytest.mark.parametrize("grouped", [False, True])
def test_biases_of_convolutions(grouped: bool, backend: Interpreted) -> None:
    """Added in the kernel that reads the result."""
    torch.manual_seed(0)
    groups = 8 if grouped else 1
    x, w, b = torch.randn(2, 8, 6, 6), torch.randn(8, 8 // groups, 3, 3), torch.randn(8)
    _same(lambda x, w, b: F.conv2d(x, w, b, padding=1, groups=groups).relu() * 2, [x, w, b])
    assert len(backend.units) <= 3
    _same(lambda x, w, b: F.conv_transpose2d(x, w, b, groups=groups).relu() * 2, [x, w, b])
    _same(lambda x, w, b: F.conv2d(x, w, b, groups=groups), [x, w, b])


@pytest.mark.parametrize("size", [(2, 70, 96), (1, 200, 65), (3, 64, 128)], ids=str)
def test_rows_whose_other_memory_lies_by_columns(size: tuple[int, ...], backend: Interpreted) -> None:
    """What a row keeps to itself is in registers, whatever way the rest is walked: gradients of norms behind a transposition."""

    def program(h: torch.Tensor, g: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        with torch.enable_grad():
            x = h.transpose(1, 2).detach().requires_grad_()
            y = F.layer_norm(x, x.shape[-1:], w).mean(1)
            (found,) = torch.autograd.grad(y, x, g)
        return found.contiguous()

    b, n, c = size
    _same(program, [torch.randn(b, c, n), torch.randn(b, c), torch.randn(c)])


def test_rows_that_are_read_where_a_condition_holds(backend: Interpreted) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        rows = torch.softmax(x, -1)
        first = F.pad(rows[:1].exp(), (0, 0, 0, x.shape[0] - 1))
        return rows + first * first.sum(-1, keepdim=True)

    _same(program, [torch.randn(6, 40)])


def test_the_last_of_what_repeats_a_length_that_changes(backend: Interpreted) -> None:
    """The place of the last is -1, modulo a length: a number known to the writer, whose remainder by what is not is rounded down."""

    def program(x: torch.Tensor) -> torch.Tensor:
        places = torch.arange(1, x.shape[1] + 1, dtype=torch.float32).repeat(x.shape[0], 2)
        return x.repeat(1, 2) + places / (places[:, -1:] + 1e-6)

    compiled = stoker.compile(program, dynamic=True, fullgraph=True)
    for sizes in ((3, 5), (4, 7), (2, 16)):
        _same(program, [torch.randn(sizes)], compiled)


@pytest.mark.parametrize("kept", [False, True])
def test_rows_that_are_written_and_read_where_a_condition_holds(kept: bool, backend: Interpreted) -> None:
    """What was just written is read from registers: no thread of a program may read what another has yet to write."""

    def program(x: torch.Tensor, y: torch.Tensor, first: torch.Tensor) -> tuple[torch.Tensor, ...]:
        total = x + y
        joined = torch.cat((first, total[:, 1:]), 1)
        normed = F.layer_norm(joined, joined.shape[-1:])
        return (total, normed, joined) if kept else (total, normed)

    _same(program, [torch.randn(3, 9, 40), torch.randn(3, 9, 40), torch.randn(3, 1, 40)])
