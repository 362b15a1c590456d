"""Recurrent layers are one operator, whatever the length of the sequence: values, layouts and gradients are eager's."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import stoker

LAYERS: dict[str, Callable[..., nn.Module]] = {
    "gru": nn.GRU,
    "lstm": nn.LSTM,
    "tanh": nn.RNN,
    "relu": lambda *sizes, **settings: nn.RNN(*sizes, nonlinearity="relu", **settings),
    "projected": lambda *sizes, **settings: nn.LSTM(*sizes, proj_size=3, **settings),
}


def _step(f: Callable[..., Any], model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    model.zero_grad()
    leaf = x.clone().requires_grad_(torch.is_grad_enabled())
    output, last = f(leaf)
    results = [output, *(last if isinstance(last, tuple) else (last,))]
    if not torch.is_grad_enabled():
        return results
    (output.pow(2).sum() + results[1].sin().sum()).backward()
    return [*(r.detach() for r in results), leaf.grad, *(p.grad for p in model.parameters())]  # type: ignore[list-item]


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_layers(name: str, grad: bool) -> None:
    for batch_first, both in itertools.product((False, True), (False, True)):
        torch.manual_seed(0)
        model = LAYERS[name](5, 4, num_layers=2, batch_first=batch_first, bidirectional=both)
        compiled = stoker.compile(model)
        stoker.log.clear()
        for length in (7, 8, 9, 10):
            x = torch.randn(*((3, length, 5) if batch_first else (length, 3, 5)))
            with torch.set_grad_enabled(grad):
                got, want = _step(compiled, model, x), _step(model, model, x)
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)
            assert [t.stride() for t in got[:3]] == [t.stride() for t in want[:3]]
        assert len(stoker.events("recompile")) == 1 and not stoker.events("break")


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_dropout_between_layers(name: str, grad: bool) -> None:
    """The numbers drawn are eager's, and as many."""
    for batch_first, both in ((False, True), (True, False)):
        torch.manual_seed(0)
        model = LAYERS[name](5, 4, num_layers=3, dropout=0.3, batch_first=batch_first, bidirectional=both)
        compiled = stoker.compile(model)
        stoker.log.clear()
        for length in (7, 8, 9, 10):
            x = torch.randn(*((3, length, 5) if batch_first else (length, 3, 5)))
            outcomes = []
            for f in (compiled, model):
                torch.manual_seed(length)
                with torch.set_grad_enabled(grad):
                    outcomes.append([*_step(f, model, x), torch.get_rng_state()])
            torch.testing.assert_close(*outcomes, rtol=1e-5, atol=1e-6)
            assert [t.stride() for t in outcomes[0][:3]] == [t.stride() for t in outcomes[1][:3]]
        assert len(stoker.events("recompile")) == 1 and not stoker.events("break")


def test_a_state_that_is_given_and_one_that_is_used() -> None:
    model, x, h = nn.GRU(5, 4), torch.randn(6, 2, 5, requires_grad=True), torch.randn(1, 2, 4, requires_grad=True)

    def gradients(f: Callable[..., Any]) -> Any:
        return torch.autograd.grad(f(x, h)[1].sum(), [x, h, model.weight_ih_l0])

    torch.testing.assert_close(gradients(stoker.compile(model)), gradients(model))


def test_gradients_of_gradients() -> None:
    model, x = nn.GRU(5, 4), torch.randn(6, 2, 5, requires_grad=True)

    def second(f: Callable[..., Any]) -> Any:
        (g,) = torch.autograd.grad(f(x)[0].pow(3).sum(), x, create_graph=True)
        return torch.autograd.grad(g.pow(2).sum(), model.weight_hh_l0)

    torch.testing.assert_close(second(stoker.compile(model)), second(model))


def test_what_goes_its_own_way() -> None:
    x = torch.randn(6, 2, 5)
    packed_model = nn.GRU(5, 4)

    def packed(x):
        return pad_packed_sequence(packed_model(pack_padded_sequence(x, [6, 4]))[0])[0]

    torch.testing.assert_close(stoker.compile(packed)(x), packed(x))
    model = nn.LSTM(5, 4, num_layers=2, dropout=0.5)
    torch.manual_seed(3)
    want = model(x)[0]
    torch.manual_seed(3)
    torch.testing.assert_close(stoker.compile(model)(x)[0], want)


def test_a_graph_for_other_back_ends_has_the_function() -> None:
    seen = []

    def look(graph_module, inputs):
        seen.extend(n.target for n in graph_module.graph.nodes)
        return graph_module.forward

    stoker.compile(nn.GRU(5, 4), backend=look)(torch.randn(6, 2, 5))
    assert torch.gru in seen


@pytest.mark.parametrize("kind", [torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN])
def test_packed_sequences(kind):
    """Their lengths are data that eager's C++ reads."""
    torch.manual_seed(0)
    layer = kind(3, 4)

    def f(x, lengths):
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        return pad_packed_sequence(layer(packed)[0])[0]

    compiled = stoker.compile(f)
    for lengths in ([2, 3], [3, 1, 4], [5, 2], [1]):
        x = torch.randn(max(lengths), len(lengths), 3, requires_grad=True)
        grads = []
        for call in (f, compiled):
            result = call(x, torch.tensor(lengths))
            grads.append((result, torch.autograd.grad(result.sum(), x)[0]))
        torch.testing.assert_close(grads[1], grads[0])


def test_why_packed_sequences_break() -> None:
    layer = nn.LSTM(5, 4).bfloat16()

    def f(x, lengths):
        return pad_packed_sequence(layer(pack_padded_sequence(x, lengths))[0])[0]

    x, lengths = torch.randn(6, 2, 5).bfloat16(), torch.tensor([6, 4])
    before = len(stoker.events("break"))
    torch.testing.assert_close(stoker.compile(f)(x, lengths), f(x, lengths))
    reasons = [event.reason for event in stoker.events("break")[before:]]
    assert reasons and all("torch.lstm of a packed sequence" in reason for reason in reasons)


CELLS: dict[str, Callable[..., nn.Module]] = {
    "gru": nn.GRUCell,
    "lstm": nn.LSTMCell,
    "tanh": nn.RNNCell,
    "relu": lambda *sizes, **settings: nn.RNNCell(*sizes, nonlinearity="relu", **settings),
}


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", CELLS)
def test_cells_at_batches_that_change(name: str, grad: bool, bias: bool) -> None:
    torch.manual_seed(0)
    model = CELLS[name](5, 4, bias=bias)
    compiled = stoker.compile(model, fullgraph=True)
    stoker.log.clear()
    for batch in (3, 4, 7, 2, 6):
        x, states = torch.randn(batch, 5), [torch.randn(batch, 4) for _ in range(2 if name == "lstm" else 1)]
        found = []
        for run in (compiled, model):
            model.zero_grad()
            leaf = x.clone().requires_grad_(grad)
            with torch.set_grad_enabled(grad):
                given = tuple(states) if name == "lstm" else states[0]
                result = run(leaf, given) if batch != 7 else run(leaf)
            results = list(result) if name == "lstm" else [result]
            if grad:
                torch.stack(results).pow(2).sum().backward()
            found.append([*results, leaf.grad, *(p.grad for p in model.parameters())])
        torch.testing.assert_close(found[0], found[1], rtol=1e-5, atol=1e-6)
        assert [r.stride() for r in found[0][: len(states)]] == [r.stride() for r in found[1][: len(states)]]
    assert len(stoker.events("captured")) <= 4, "two with a state, two without"


def test_states_that_do_not_fit_a_cell() -> None:
    model = nn.GRUCell(5, 4)
    compiled = stoker.compile(model)
    for batch in (3, 4, 6):
        torch.testing.assert_close(compiled(torch.ones(batch, 5)), model(torch.ones(batch, 5)))
    for given in (torch.ones(1, 4), torch.ones(6, 3)):
        with pytest.raises(RuntimeError) as theirs:
            model(torch.ones(6, 5), given)
        with pytest.raises(RuntimeError) as mine:
            compiled(torch.ones(6, 5), given)
        assert str(mine.value) == str(theirs.value)


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("dtype", ["autocast", torch.bfloat16, torch.float32])
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_lower_precision_at_any_length(name: str, dtype: Any) -> None:
    """Which library computes decides types and values of results: eager's, where lengths vary, too."""
    torch.manual_seed(0)
    model = LAYERS[name](5, 4).eval()
    if isinstance(dtype, torch.dtype):
        model = model.to(dtype)
    compiled = stoker.compile(model, dynamic=True)
    for length in (7, 8, 12):
        x = torch.randn(length, 3, 5, dtype=next(model.parameters()).dtype)
        with torch.no_grad(), torch.autocast("cpu", enabled=dtype == "autocast"):
            got, want = _step(compiled, model, x), _step(model, model, x)
        assert [t.dtype for t in got] == [t.dtype for t in want]
        torch.testing.assert_close(got, want, rtol=2e-2, atol=2e-2)
