"""One recording: its inputs copied or followed, its results where nobody else writes."""

from __future__ import annotations

import pytest
import torch

from stoker.cudagraph.driver import CannotRecord
from stoker.cudagraph.recorder import Reason
from stoker.cudagraph.recording import place_of, record
from tests.unit.cudagraph.programs import two_steps, world_of
from tests.unit.cudagraph.stand_in import StandIn, double


def expected(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return 2 * (x + w)


@pytest.mark.parametrize("extra", [False, True])
@pytest.mark.parametrize("follows", [False, True])
def test_an_input_that_moves(device: StandIn, follows: bool, extra: bool) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device, extra=extra)), (x, w), frozenset({1}), ())
    assert made.patchable == (0,) and not made.refused and made.kernels == 2
    made.replay.patch(made.patchable if follows else ())
    for number in range(3):
        other = torch.randn(8)
        result, total = made.replay(other, w)
        assert torch.equal(result, expected(other, w)) and torch.equal(total, other + w)
        del result, total
        assert made.replay.copied_bytes == (0 if follows else 32 * (number + 1))
    assert made.replay.patched_nodes == (3 if follows else 0)
    assert made.replay.replays == 3


def test_where_it_was_costs_nothing(device: StandIn) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device)), (x, w), frozenset({1}), ())
    made.replay(x, w)
    made.replay(x, w)
    assert made.replay.patched_nodes == 1


def test_unaligned_memory_is_copied(device: StandIn) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device)), (x, w), frozenset({1}), ())
    odd = torch.randn(9)[1:]
    assert torch.equal(made.replay(odd, w)[0], expected(odd, w))
    assert made.replay.copied_bytes == 32
    assert torch.equal(made.replay(x, w)[0], expected(x, w))


def test_results_in_use_are_not_written(device: StandIn) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device)), (x, w), frozenset({1}), ())
    kept = made.replay(x, w)[0]
    before = kept.clone()
    assert made.replay(torch.randn(8), w) is NotImplemented
    assert made.replay.reason == Reason.RESULTS_IN_USE
    view = kept[2:4]
    del kept
    assert made.replay(x, w) is NotImplemented  # a view is as good
    assert torch.equal(view, before[2:4])
    del view
    assert made.replay(x, w) is not NotImplemented


def test_a_weight_that_moved(device: StandIn) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device)), (x, w), frozenset({1}), ())
    assert made.replay(x, torch.randn(8)) is NotImplemented
    assert made.replay.reason == Reason.MOVED


def test_another_size_and_another_stream(device: StandIn) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device)), (x, w), frozenset({1}), ((0, 0, 8), (0, -2, 1)))
    assert made.replay(torch.randn(4), w) is NotImplemented and made.replay.reason == Reason.OTHER_SIZE
    assert made.replay(torch.randn(16)[::2], w) is NotImplemented and made.replay.reason == Reason.OTHER_SIZE
    device.current_stream = 9
    assert made.replay(x, w) is NotImplemented and made.replay.reason == Reason.OTHER_STREAM


def test_numbers_among_the_inputs(device: StandIn) -> None:
    def run(x: torch.Tensor, count: int) -> tuple[object, ...]:
        out = torch.zeros(8)
        device.kernel(double, x.data_ptr(), out.data_ptr(), count)
        return out, count, None

    x = torch.randn(8)
    made = record(world_of(device, run), (x, 4), frozenset(), ((1, -1, 4),))
    result, count, nothing = made.replay(x, 4)
    assert torch.equal(result[:4], 2 * x[:4]) and count == 4 and nothing is None
    for other in (5, 2**70):
        assert made.replay(x, other) is NotImplemented and made.replay.reason == Reason.OTHER_SIZE


def test_a_result_that_is_given_twice_is_one(device: StandIn) -> None:
    plain = two_steps(device)

    def run(x: torch.Tensor, w: torch.Tensor) -> tuple[object, ...]:
        result, total = plain(x, w)
        return total, result, total, 3, 3, result

    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, run), (x, w), frozenset({1}), ())
    for _ in range(2):
        total, result, again, first, second, once_more = made.replay(x, w)
        assert again is total and once_more is result and first == second == 3
        assert torch.equal(result, expected(x, w)) and torch.equal(total, x + w)
        del total, result, again, once_more


def test_results_that_are_inputs(device: StandIn) -> None:
    constant = torch.arange(4.0)
    run = lambda x, w: (x, x[2:], w, w.view(2, 4), constant)  # noqa: E731
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, run, [constant]), (x, w), frozenset({1}), ())
    other = torch.randn(10)[2:]
    for _ in range(2):
        itself, part, weight, view, fixed = made.replay(other, w)
        assert itself is other and weight is w and torch.equal(part, other[2:])
        assert part.data_ptr() == other[2:].data_ptr() and view.shape == (2, 4) and view.data_ptr() == w.data_ptr()
        assert torch.equal(fixed, constant) and fixed is not constant


def test_nothing_begins_where_a_place_ends() -> None:
    """Small tensors lie side by side in an allocator's block, and the end of one would be the start of the next."""
    tensors = [torch.randn(128) for _ in range(20)]
    places = [place_of(t) for t in tensors]
    starts = {place.data_ptr() for place in places}
    assert all(place.untyped_storage().nbytes() > place.numel() == 512 for place in places)
    assert not starts & {place.data_ptr() + place.numel() for place in places}


def test_a_strided_input(device: StandIn) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor]:
        out = torch.empty(7)
        device.kernel(double, x.data_ptr(), out.data_ptr(), 7)
        return (out,)

    x = torch.randn(8)[::2]
    made = record(world_of(device, run), (x,), frozenset(), ())
    for follows in ((), made.patchable):
        made.replay.patch(follows)
        base = torch.randn(8)
        assert torch.equal(made.replay(base[::2])[0], 2 * base[:7])


def test_lazily_negated_inputs_are_not_replayed(device: StandIn) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device)), (x, w), frozenset({1}), ())
    negative = torch.view_as_complex(torch.randn(8, 2)).conj().imag
    assert negative.is_neg()
    assert made.replay(negative, w) is NotImplemented and made.replay.reason == Reason.LAZY


def test_the_driver_refuses(device: StandIn) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device)), (x, w), frozenset({1}), ())
    device.refuses = True
    assert made.replay(torch.randn(8), w) is NotImplemented and made.replay.reason == Reason.REFUSED


def test_waiting_cannot_be_recorded(device: StandIn) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor]:
        device.wait()
        return (x + 1,)

    with pytest.raises(CannotRecord, match="not permitted"):
        record(world_of(device, run), (torch.randn(3),), frozenset(), ())


def test_a_wrong_number_of_inputs(device: StandIn) -> None:
    x, w = torch.randn(8), torch.randn(8)
    made = record(world_of(device, two_steps(device)), (x, w), frozenset({1}), ())
    with pytest.raises(TypeError, match="takes 2 inputs, not 1"):
        made.replay(x)
