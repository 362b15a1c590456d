"""Decoders: caches that are fixed, caches that grow, and `generate()`."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.programs import Compile, program

WORDS, WIDTH, HEADS = 60, 32, 4


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)

    def split(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(self.heads(part) for part in self.qkv(x).chunk(3, -1))

    def join(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(x.transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.embed, self.place = nn.Embedding(WORDS, WIDTH), nn.Embedding(64, WIDTH)
        self.layers = nn.ModuleList([Attention() for _ in range(layers)])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens) + self.place(torch.arange(tokens.shape[1]))
        for layer in self.layers:
            q, k, v = layer.split(x)
            x = x + layer.join(F.scaled_dot_product_attention(q, k, v, is_causal=True))
        return self.head(x)


@program("decoders")
def whole_prefix(compile: Compile) -> Any:
    """Greedy decoding that reads the whole prefix each time."""
    model = compile(Decoder().eval())
    tokens = torch.randint(0, WORDS, (2, 4))
    with torch.no_grad():
        for _ in range(6):
            tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(-1, keepdim=True)], 1)
    return tokens


@program("decoders")
def sliding_window(compile: Compile) -> Any:
    """Decoding with a window on the last tokens, as in minimal GPTs."""
    model = compile(Decoder().eval())
    tokens = torch.randint(0, WORDS, (1, 5))
    with torch.no_grad():
        for _ in range(8):
            logits = model(tokens[:, -8:])[:, -1] / 0.8
            best, _ = logits.topk(5)
            logits[logits < best[:, [-1]]] = -torch.inf
            tokens = torch.cat([tokens, torch.multinomial(logits.softmax(-1), 1)], 1)
    return tokens


class Growing(Decoder):
    def forward(self, tokens: torch.Tensor, past: list[Any] | None = None) -> Any:  # type: ignore[override]
        seen = past[0][0].shape[2] if past is not None else 0
        x = self.embed(tokens) + self.place(torch.arange(seen, seen + tokens.shape[1]))
        present = []
        for number, layer in enumerate(self.layers):
            q, k, v = layer.split(x)
            if past is not None:
                k, v = torch.cat([past[number][0], k], 2), torch.cat([past[number][1], v], 2)
            present.append((k, v))
            x = x + layer.join(F.scaled_dot_product_attention(q, k, v, is_causal=past is None))
        return self.head(x[:, -1]), present


@program("decoders")
def growing_cache(compile: Compile) -> Any:
    """Decoding with a cache that grows."""
    model = compile(Growing().eval())
    with torch.no_grad():
        logits, past = model(torch.randint(0, WORDS, (2, 4)))
        chosen = []
        for _ in range(7):
            chosen.append(logits.argmax(-1, keepdim=True))
            logits, past = model(chosen[-1], past)
    return torch.cat(chosen, 1), past


class Fixed(Decoder):
    def __init__(self) -> None:
        super().__init__()
        for number in range(2):
            self.register_buffer(f"keys_{number}", torch.zeros(2, HEADS, 24, WIDTH // HEADS))
            self.register_buffer(f"values_{number}", torch.zeros(2, HEADS, 24, WIDTH // HEADS))

    def forward(self, tokens: torch.Tensor, places: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        x = self.embed(tokens) + self.place(places)
        mask = torch.arange(24)[None] <= places[:, None]
        for number, layer in enumerate(self.layers):
            q, k, v = layer.split(x)
            keys, values = getattr(self, f"keys_{number}"), getattr(self, f"values_{number}")
            keys[:, :, places] = k
            values[:, :, places] = v
            x = x + layer.join(F.scaled_dot_product_attention(q, keys, values, attn_mask=mask))
        return self.head(x[:, -1])


@program("decoders")
def fixed_cache(compile: Compile) -> Any:
    """Decoding with a cache of fixed size, written in place."""
    model = Fixed().eval()
    compiled = compile(model)
    with torch.no_grad():
        tokens = torch.randint(0, WORDS, (2, 4))
        logits, chosen = compiled(tokens, torch.arange(4)), []
        for i in range(4, 10):
            chosen.append(logits.argmax(-1, keepdim=True))
            logits = compiled(chosen[-1], torch.tensor([i]))
    return torch.cat(chosen, 1), model.keys_0


def language_model() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM  # noqa: PLC0415

    config = LlamaConfig(
        vocab_size=WORDS, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=1, eos_token_id=None, pad_token_id=0,
    )  # fmt: skip
    return LlamaForCausalLM(config).eval()


def generated(compile: Compile, **how: Any) -> Any:
    model = language_model()
    model.forward = compile(model.forward)
    return model.generate(torch.randint(3, WORDS, (2, 6)), max_new_tokens=8, **how)


@program("decoders")
def generate_greedily(compile: Compile) -> Any:
    """`generate()` of transformers, greedy."""
    return generated(compile, do_sample=False)


@program("decoders")
def generate_by_sampling(compile: Compile) -> Any:
    """`generate()` of transformers, sampled."""
    return generated(compile, do_sample=True, top_k=10, temperature=0.9)


@program("decoders")
def generate_by_beams(compile: Compile) -> Any:
    """`generate()` of transformers, beams."""
    return generated(compile, do_sample=False, num_beams=3)


@program("decoders")
def speculative(compile: Compile) -> Any:
    """Tokens of a draft model accepted as far as both agree."""
    draft, target = Decoder(1).eval(), Decoder().eval()

    @compile
    @torch.no_grad()
    def accept(tokens: torch.Tensor, proposed: torch.Tensor) -> Any:
        wanted = target(torch.cat([tokens, proposed], 1))[:, tokens.shape[1] - 1 : -1].argmax(-1)
        agreed = (wanted == proposed).int().cumprod(1).sum()
        return proposed[:, :agreed], wanted, agreed.item()

    with torch.no_grad():
        found = []
        for n in (4, 6, 5):
            tokens = torch.randint(0, WORDS, (1, n))
            proposed = draft(tokens)[:, -3:].argmax(-1)
            found.append(accept(tokens, proposed))
    return found
