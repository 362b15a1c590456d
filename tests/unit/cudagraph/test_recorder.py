"""When a plan is recorded, and which recording serves a call: always the plan's results, whoever holds which of them."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest
import torch

from stoker import log
from stoker.cudagraph import recorder as policy
from stoker.cudagraph.choose import COPIED, FOLLOWED, PLAIN, same
from tests.unit.cudagraph.programs import defects, recorder_of, running_total, two_steps
from tests.unit.cudagraph.stand_in import StandIn, double


def check(results: Any, x: torch.Tensor, w: torch.Tensor) -> None:
    assert torch.equal(results[0], 2 * (x + w)) and torch.equal(results[1], x + w)


def case_of(compiled: Any) -> Any:
    (case,) = compiled.cases.values()
    return case


def test_the_first_calls_run_as_they_are(device: StandIn) -> None:
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    for _ in range(policy.WARM_CALLS):
        x = torch.randn(8)
        check(compiled(x, w), x, w)
    assert not device.launches and not compiled.replays
    x = torch.randn(8)
    check(compiled(x, w), x, w)
    assert device.launches and len(compiled.replays) == 1


def test_results_are_kept_by_the_caller(device: StandIn) -> None:
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    kept = []
    for _ in range(12):
        x = torch.randn(8)
        kept.append((x, compiled(x, w)))
    for x, results in kept:
        check(results, x, w)
    assert len(compiled.replays) == policy.MOST_AT_ONCE
    kept.clear()
    before = device.launches
    x = torch.randn(8)
    check(compiled(x, w), x, w)
    assert device.launches == before + 1


def test_the_last_result_in_use(device: StandIn) -> None:
    """The common loop: a name holds the last result while the next is computed."""
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    inputs = [torch.randn(8) for _ in range(10)]
    for x in inputs:
        results = compiled(x, w)
        check(results, x, w)
    assert len(compiled.replays) == 2


def test_a_weight_that_is_replaced(device: StandIn) -> None:
    compiled = recorder_of(device, two_steps(device))
    weights = [torch.randn(8), torch.randn(8)]
    for w in (weights[0],) * 5 + (weights[1],) * 5 + (weights[0],) * 5:
        x = torch.randn(8)
        check(compiled(x, w), x, w)
    assert 1 in case_of(compiled).moved
    before = device.launches
    x = torch.randn(8)
    check(compiled(x, weights[1]), x, weights[1])
    assert device.launches == before + 1


def test_a_weight_written_in_place(device: StandIn) -> None:
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    for _ in range(6):
        x = torch.randn(8)
        check(compiled(x, w), x, w)
        w.add_(1)


def test_sizes_have_recordings_of_their_own(device: StandIn) -> None:
    compiled = recorder_of(device, two_steps(device))
    weights = {n: torch.randn(n) for n in range(1, 30)}
    rng = random.Random(0)
    for _ in range(300):
        n = rng.choice([4, 4, 4, 8, 8, rng.randint(1, 29)])
        x = torch.randn(n)
        check(compiled(x, weights[n]), x, weights[n])
    recorded = [case for case in compiled.cases.values() if case.recordings]
    assert 2 <= len(recorded) <= policy.MOST_CASES
    assert len(compiled.replays) == sum(len(case.recordings) for case in recorded)


def test_streams_have_recordings_of_their_own(device: StandIn) -> None:
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    for stream in (7, 9, 7, 9, 7, 9, 7, 9):
        device.current_stream = stream
        x = torch.randn(8)
        check(compiled(x, w), x, w)
    assert len(compiled.cases) == 2 and all(case.recordings for case in compiled.cases.values())


def test_inside_a_recording_of_the_user(device: StandIn) -> None:
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    device.capturing_elsewhere = True
    for _ in range(5):
        x = torch.randn(8)
        check(compiled(x, w), x, w)
    assert not device.launches


def test_the_fastest_way_is_kept(device: StandIn) -> None:
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    for _ in range(3):
        compiled(torch.randn(8), w)
    choice = case_of(compiled).choice
    assert choice.way in (COPIED, FOLLOWED) and set(choice.microseconds) == {PLAIN, COPIED, FOLLOWED}
    assert choice.kernels == 2 and choice.moving == 1
    event = log.events("cudagraph")[-1]
    assert event.data is choice and "us" in event.subject


def test_what_gains_nothing_is_not_replayed(device: StandIn) -> None:
    device.launch_seconds = 0.01
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    for _ in range(6):
        x = torch.randn(8)
        check(compiled(x, w), x, w)
    case = case_of(compiled)
    assert case.choice.way == PLAIN and case.off == "it gains nothing" and case.made == 1 and not compiled.replays


def test_what_cannot_be_recorded_runs_as_it_is(device: StandIn) -> None:
    run = two_steps(device)

    def waits(x: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
        device.wait()
        return run(x, w)

    compiled, w = recorder_of(device, waits), torch.randn(8)
    for _ in range(5):
        x = torch.randn(8)
        check(compiled(x, w), x, w)
    assert "not permitted" in case_of(compiled).off
    assert "not recorded: operation not permitted" in log.events("cudagraph")[-1].subject


def test_a_defect_of_ours(device: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    monkeypatch.setattr(policy, "record", lambda *given: 1 / 0)
    monkeypatch.delenv("STOKER_STRICT", raising=False)
    defects.clear()
    for _ in range(5):
        x = torch.randn(8)
        check(compiled(x, w), x, w)
    assert [type(e) for e in defects] == [ZeroDivisionError] and "defect" in case_of(compiled).off
    monkeypatch.setenv("STOKER_STRICT", "1")
    compiled = recorder_of(device, two_steps(device))
    for _ in range(policy.WARM_CALLS):
        compiled(x, w)
    with pytest.raises(ZeroDivisionError):
        compiled(x, w)


def test_a_word_that_was_missed_is_noticed(device: StandIn) -> None:
    """A kernel that knows an input's address otherwise than by a parameter: following it would read what was there before."""
    hidden: dict[int, int] = {}

    def run(x: torch.Tensor, w: torch.Tensor) -> tuple[Any, ...]:
        out = torch.empty(8)
        number = len(hidden)
        hidden[number] = x.data_ptr()
        device.kernel(lambda key, target, n: double(hidden[key], target, n), number, out.data_ptr(), 8)
        return (out,)

    compiled, w = recorder_of(device, run), torch.randn(8)
    kept = []
    for _ in range(8):
        kept.append(torch.randn(8))
        assert torch.equal(compiled(kept[-1], w)[0], 2 * kept[-1])
    choice = case_of(compiled).choice
    assert choice.way == COPIED and FOLLOWED not in choice.microseconds and "another result" in choice.refused[0]


def test_a_driver_that_refuses(device: StandIn) -> None:
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    for _ in range(4):
        compiled(torch.randn(8), w)
    for recording in case_of(compiled).recordings:
        recording.replay.patch(recording.patchable)
    device.refuses = True
    kept = []
    for _ in range(4):
        kept.append(torch.randn(8))
        check(compiled(kept[-1], w), kept[-1], w)
    assert "refused" in case_of(compiled).off and not compiled.replays


def test_nothing_is_recorded_while_another_graph_is(device: StandIn) -> None:
    recorder = recorder_of(device, two_steps(device))
    x, w = torch.randn(8), torch.randn(8)
    with policy.RECORDING:
        for _ in range(5):
            assert torch.equal(recorder(x, w)[1], x + w)
    assert not recorder.replays and not recorder.cases
    for _ in range(5):
        assert torch.equal(recorder(x, w)[1], x + w)
    assert recorder.replays


def test_threads(device: StandIn) -> None:
    device.launch_seconds = 0.0001
    compiled, w = recorder_of(device, two_steps(device)), torch.randn(8)
    failures: list[Any] = []

    def work() -> None:
        kept = []
        try:
            for number in range(60):
                x = torch.randn(8)
                kept.append((x, compiled(x, w)))
                if number % 3 == 0:
                    for given, results in kept:
                        check(results, given, w)
                    kept.clear()
        except Exception as error:  # told to the main thread
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures and device.launches


@pytest.mark.parametrize(
    ("found", "expected", "equal"),
    [
        (3, 3, True),
        (None, 0, False),
        (torch.tensor([1, 2]), torch.tensor([1, 2]), True),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), False),
        (torch.tensor([1.0, 100.0]), torch.tensor([1.001, 100.0]), True),
        (torch.tensor([1.0, 1.0]), torch.tensor([1.1, 1.0]), False),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([float("nan"), 1.0]), True),
        (torch.tensor([float("nan"), 1.0]), torch.tensor([0.0, 1.0]), False),
        (torch.tensor([float("inf"), 1.0]), torch.tensor([float("inf"), 1.0]), True),
        (torch.tensor([float("inf"), 1.0]), torch.tensor([-float("inf"), 1.0]), False),
    ],
)
def test_same(found: Any, expected: Any, equal: bool) -> None:
    assert same(found, expected) is equal


@pytest.mark.parametrize("states", [1, 2, 5])
@pytest.mark.parametrize("follow", [True, False], ids=["followed", "copied"])
def test_inputs_that_the_plan_writes(device: StandIn, states: int, follow: bool) -> None:
    """To record and to measure leaves no trace in them; a state that moves is written where it lies."""
    defects.clear()
    compiled = recorder_of(device, running_total(device), written=frozenset({1}))
    totals = [torch.randn(8) for _ in range(states)]
    expected = [total.clone() for total in totals]
    for number in range(20):
        x, which = torch.randn(8), number % states
        for replay in compiled.replays:
            replay.patch((0, 1) if follow else ())
        version = totals[which]._version
        total, result = compiled(x, totals[which])
        expected[which] += x
        assert total is totals[which] and torch.equal(total, expected[which])
        assert torch.equal(result, 2 * expected[which])
        assert totals[which]._version == version
    assert not defects and compiled.replays


def test_what_a_way_writes_is_compared(device: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording that leaves another content in an input is not used."""
    run = running_total(device)
    compiled = recorder_of(device, run, written=frozenset({1}))

    def forgetful(x: torch.Tensor, total: torch.Tensor) -> tuple[Any, ...]:
        device.kernel(double, total.data_ptr(), total.data_ptr(), 8)
        return run(x, total)

    monkeypatch.setattr(
        compiled, "world", policy.World(run, lambda keeps: forgetful, device, 0, (), compiled.world.written)
    )
    x, total = torch.ones(8), torch.zeros(8) + 1
    for number in range(6):
        compiled(x, total)
        assert torch.equal(total, torch.full((8,), 2.0 + number))
    assert case_of(compiled).choice.way == PLAIN
