"""Packed sequences, with lengths as numbers and as data: one graph, eager's values and gradients, and its refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
    pad_sequence,
    unpack_sequence,
)

import stoker
from stoker import log

torch.manual_seed(0)
LSTM = nn.LSTM(3, 4, batch_first=True)
GRU = nn.GRU(3, 4, 2, bidirectional=True)
RNN = nn.RNN(3, 4)
PROJECTED = nn.LSTM(3, 4, 2, proj_size=2, bidirectional=True, batch_first=True)
DROPPING = nn.GRU(3, 4, 3, dropout=0.4)
LINEAR = nn.Linear(4, 2)


def by_a_list(x, lengths):
    return pack_padded_sequence(x, [5, 4, 2], batch_first=True)


def by_a_tensor_made_inside(x, lengths):
    return pack_padded_sequence(x, torch.tensor([5, 4, 2]), batch_first=True).data * 2


def by_data(x, lengths):
    packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(packed, batch_first=True)


def by_numbers_of_data(x, lengths):
    output, _ = LSTM(pack_padded_sequence(x, lengths.tolist(), batch_first=True, enforce_sorted=False))
    return pad_packed_sequence(output, batch_first=True)[0]


def by_computed_lengths(x, lengths):
    longer = (torch.arange(5) < lengths[:, None]).sum(-1)
    _, (h, _) = LSTM(pack_padded_sequence(x, longer, batch_first=True, enforce_sorted=False))
    return LINEAR(h[-1])


def lstm(x, lengths):
    output, (h, c) = LSTM(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    padded, told = pad_packed_sequence(output, batch_first=True)
    return padded, told, h, c


def lstm_to_a_length(x, lengths):
    output, (h, _) = LSTM(pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False))
    padded, _ = pad_packed_sequence(output, batch_first=True, padding_value=-1.0, total_length=6)
    return LINEAR(padded[:, -1]) + LINEAR(h[-1]), (padded * x.new_ones(3, 6, 1)).mean(1)


def lstm_from_states(x, lengths):
    states = torch.ones(1, 3, 4), x[None, :, 0, :1].expand(1, 3, 4).contiguous()
    output, (h, c) = LSTM(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False), states)
    return output.data.sum(), h, c, output.batch_sizes


def projected(x, lengths):
    output, (h, c) = PROJECTED(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
    return output, h, c


def gru(x, lengths):
    output, h = GRU(pack_padded_sequence(x.transpose(0, 1), [5, 4, 2]))
    return pad_packed_sequence(output)[0], h


def rnn(x, lengths):
    output, h = RNN(pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False))
    return pad_packed_sequence(output)[0].relu(), h


def dropping(x, lengths):
    output, h = DROPPING(pack_padded_sequence(x.transpose(0, 1), lengths, enforce_sorted=False))
    return output.data, h, torch.rand(2)


def of_sequences(x, lengths):
    output, h = GRU(pack_sequence([x[0], x[1, :3], x[2, :2]]))
    return pad_packed_sequence(output, padding_value=-1.0)[0], h


def to_sequences(x, lengths):
    output, h = GRU(pack_sequence([x[0, :2], x[1, :3], x[2, :2]], enforce_sorted=False))
    return unpack_sequence(output), h, pad_sequence([x[0, :2], x[1]])


def made_by_hand(x, lengths):
    p = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
    return pad_packed_sequence(PackedSequence(p.data.exp(), p.batch_sizes, p.sorted_indices, p.unsorted_indices))


PROGRAMS = [
    by_a_list, by_a_tensor_made_inside, by_data, by_numbers_of_data, by_computed_lengths, lstm, lstm_to_a_length, lstm_from_states,
    projected, gru, rnn, dropping, of_sequences, to_sequences, made_by_hand,
]  # fmt: skip
MODULES = (LSTM, GRU, RNN, PROJECTED, DROPPING, LINEAR)
LENGTHS = ([5, 4, 2], [2, 5, 1], [5, 5, 5], [3, 3, 4], [1, 1, 1])


def _tensors(found: Any) -> list[torch.Tensor]:
    if isinstance(found, (tuple, list)):
        return [tensor for part in found for tensor in _tensors(part)]
    return [] if found is None else [found]


def _outcome(program: Callable[..., Any], lengths: list[int]) -> Any:
    torch.manual_seed(sum(lengths))
    for module in MODULES:
        module.zero_grad()
    x = torch.randn(3, 5, 3, requires_grad=True)
    found = program(x, torch.tensor(lengths))
    tensors = _tensors(found)
    sum(t.sin().sum() for t in tensors if t.requires_grad).backward()  # type: ignore[union-attr]  # there are some
    weights = [p.grad for module in MODULES for p in module.parameters()]
    return str(type(found)), tensors, [t.stride() for t in tensors], x.grad, weights


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_in_eager(program: Callable[..., Any], backend: str) -> None:
    log.clear()
    compiled = stoker.compile(program, backend=backend)
    for lengths in LENGTHS:
        found, wanted = _outcome(compiled, lengths), _outcome(program, lengths)
        assert found[0] == wanted[0]
        torch.testing.assert_close(found[1:], wanted[1:])
    assert not log.events("break")
    assert len(log.events("captured")) == 1


def test_without_gradients() -> None:
    compiled = stoker.compile(lstm)
    for lengths in LENGTHS:
        x = torch.randn(3, 5, 3)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x, torch.tensor(lengths)), lstm(x, torch.tensor(lengths)))


def test_sizes_that_vary() -> None:
    log.clear()
    compiled = stoker.compile(lstm)
    for lengths in ([2, 3], [3, 1, 4], [5, 2, 7, 1], [4, 4]):
        x = torch.randn(len(lengths), max(lengths), 3)
        torch.testing.assert_close(compiled(x, torch.tensor(lengths)), lstm(x, torch.tensor(lengths)))
    assert not log.events("break")


def test_a_packed_sequence_from_outside() -> None:
    def program(packed):
        output, (h, _) = LSTM(packed)
        return pad_packed_sequence(output, batch_first=True)[0], h, packed.data * 2

    compiled = stoker.compile(program)
    for lengths in LENGTHS:
        packed = pack_padded_sequence(torch.randn(3, 5, 3), torch.tensor(lengths), True, enforce_sorted=False)
        torch.testing.assert_close(compiled(packed), program(packed))


def test_gradients_of_gradients() -> None:
    def program(x, lengths):
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(packed, batch_first=True)[0].pow(3).sum()

    found = []
    for function in (program, stoker.compile(program)):
        x = torch.linspace(0, 1, 45).reshape(3, 5, 3).requires_grad_()
        (first,) = torch.autograd.grad(function(x, torch.tensor([2, 5, 1])), x, create_graph=True)
        found.append((first, torch.autograd.grad(first.sum(), x)))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("wrong", [[2, 5, 1], [5, 4, 0], [5, 4], [[5, 4, 2]]], ids=str)
def test_what_eager_refuses(wrong: Any) -> None:
    def program(x, lengths):
        return pack_padded_sequence(x, lengths, batch_first=True).data + 1

    compiled = stoker.compile(program)
    x = torch.randn(3, 5, 3)
    compiled(x, torch.tensor([5, 4, 2]))
    errors = []
    for function in (program, compiled):
        with pytest.raises(RuntimeError) as raised:
            function(x, torch.tensor(wrong))
        errors.append(str(raised.value))
    assert errors[0] == errors[1]


def test_lengths_that_are_too_large() -> None:
    """Eager takes them for the largest there can be, where it takes elements, and counts steps that have none."""

    def program(x, y, lengths):
        packed = [pack_padded_sequence(t, lengths, batch_first=True) for t in (x, y)]
        return [(p.data + 1, p.batch_sizes) for p in packed]

    compiled = stoker.compile(program)
    x, y = torch.randn(3, 5, 3), torch.randn(3, 9, 3)
    for lengths in ([5, 4, 2], [9, 4, 2], [7, 6, 6]):
        torch.testing.assert_close(compiled(x, y, torch.tensor(lengths)), program(x, y, torch.tensor(lengths)))
