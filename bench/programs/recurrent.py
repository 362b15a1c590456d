"""Recurrent networks at lengths that change."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pad_sequence

from bench.programs import Compile, program

LENGTHS = (5, 9, 12, 7)
WORDS = 50


def sentences(length: int, batch: int = 3) -> torch.Tensor:
    return torch.randint(0, WORDS, (batch, length))


class LanguageModel(nn.Module):
    def __init__(self, kind: type[nn.RNNBase], layers: int = 1, **options: Any) -> None:
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.rnn = kind(16, 24, layers, batch_first=True, **options)  # type: ignore[call-arg]
        self.head = nn.Linear(48 if options.get("bidirectional") else 24, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden, _ = self.rnn(self.embed(tokens))
        return self.head(hidden)


@program("recurrent")
def lstm_model(compile: Compile) -> Any:
    """LSTM language model, four lengths."""
    model = compile(LanguageModel(nn.LSTM))
    return [model(sentences(n)) for n in LENGTHS]


@program("recurrent")
def gru_model(compile: Compile) -> Any:
    """GRU language model of two layers, four lengths."""
    model = compile(LanguageModel(nn.GRU, 2))
    return [model(sentences(n)) for n in LENGTHS]


@program("recurrent")
def bidirectional_tagger(compile: Compile) -> Any:
    """Bidirectional LSTM tagger with a loss, four lengths."""
    model = LanguageModel(nn.LSTM, bidirectional=True)

    def loss(tokens: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(tokens).flatten(0, 1), tags.flatten())

    compiled, found = compile(loss), []
    for n in LENGTHS:
        value = compiled(sentences(n), sentences(n))
        value.backward()
        found.append(value)
    return found, [p.grad for p in model.parameters()]


@program("recurrent")
def cell_by_cell(compile: Compile) -> Any:
    """LSTMCell in a Python loop over time."""
    cell, head = nn.LSTMCell(8, 16), nn.Linear(16, 4)

    def run(x: torch.Tensor) -> torch.Tensor:
        h = c = x.new_zeros(x.shape[1], 16)
        outputs = []
        for step in x:
            h, c = cell(step, (h, c))
            outputs.append(head(h))
        return torch.stack(outputs)

    return [compile(run)(torch.randn(6, 3, 8)) for _ in range(2)]


@program("recurrent")
def masked_mean(compile: Compile) -> Any:
    """GRU sentence encoder: padding, mask, mean of what is not padded."""
    embed, rnn = nn.Embedding(WORDS, 12, padding_idx=0), nn.GRU(12, 20, batch_first=True)

    @compile
    def encode(tokens: torch.Tensor) -> torch.Tensor:
        mask = (tokens != 0).unsqueeze(-1)
        hidden, _ = rnn(embed(tokens))
        return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1)

    batches = [pad_sequence([torch.randint(1, WORDS, (n,)) for n in ns], True) for ns in ((3, 5), (7, 2), (4, 9))]
    return [encode(batch) for batch in batches]


@program("recurrent")
def sequence_to_sequence(compile: Compile) -> Any:
    """Sequence to sequence with attention and teacher forcing."""
    source, target = nn.Embedding(WORDS, 16), nn.Embedding(WORDS, 16)
    encoder, decoder = nn.GRU(16, 24, batch_first=True), nn.GRUCell(16 + 24, 24)
    head = nn.Linear(48, WORDS)

    @compile
    def translate(words: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        memory, last = encoder(source(words))
        state, losses = last[0], []
        for step in range(wanted.shape[1] - 1):
            scores = torch.softmax((memory @ state.unsqueeze(-1)).squeeze(-1), -1)
            context = (scores.unsqueeze(-1) * memory).sum(1)
            state = decoder(torch.cat([target(wanted[:, step]), context], -1), state)
            logits = head(torch.cat([state, context], -1))
            losses.append(F.cross_entropy(logits, wanted[:, step + 1]))
        return torch.stack(losses).mean()

    return [translate(sentences(n), sentences(6)) for n in (5, 8, 11)]


@program("recurrent")
def character_sampling(compile: Compile) -> Any:
    """Sampling characters from a GRU, one step compiled."""
    embed, cell, head = nn.Embedding(WORDS, 16), nn.GRUCell(16, 24), nn.Linear(24, WORDS)

    @compile
    @torch.no_grad()
    def step(token: torch.Tensor, state: torch.Tensor, temperature: float) -> Any:
        state = cell(embed(token), state)
        choice = torch.multinomial(torch.softmax(head(state) / temperature, -1), 1).squeeze(-1)
        return choice, state

    token, state, chosen = torch.zeros(2, dtype=torch.long), torch.zeros(2, 24), []
    for i in range(6):
        token, state = step(token, state, 1.0 - 0.1 * i)
        chosen.append(token)
    return chosen
