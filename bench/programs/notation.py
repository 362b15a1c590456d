"""Models written with einops and einsum."""

from __future__ import annotations

from typing import Any

import torch
from einops import rearrange, reduce, repeat
from torch import einsum, nn

from bench.programs import Compile, program


@program("einops and einsum")
def patches_to_tokens(compile: Compile) -> Any:
    """Vision transformer in einops."""

    class Attention(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads, self.scale = heads, (width // heads) ** -0.5
            self.to_qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (rearrange(t, "b n (h d) -> b h n d", h=self.heads) for t in self.to_qkv(x).chunk(3, dim=-1))
            attention = (einsum("b h i d, b h j d -> b h i j", q, k) * self.scale).softmax(dim=-1)
            return self.out(rearrange(einsum("b h i j, b h j d -> b h i d", attention, v), "b h n d -> b n (h d)"))

    class Transformer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.token = nn.Linear(3 * 16, 32), nn.Parameter(torch.randn(1, 1, 32))
            self.blocks = nn.ModuleList([Attention(32, 4) for _ in range(2)])
            self.head = nn.Linear(32, 10)

        def forward(self, image: torch.Tensor) -> torch.Tensor:
            x = self.embed(rearrange(image, "b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4))
            x = torch.cat((repeat(self.token, "1 1 d -> b 1 d", b=image.shape[0]), x), dim=1)
            for block in self.blocks:
                x = x + block(x)
            return self.head(reduce(x, "b n d -> b d", "mean"))

    model = compile(Transformer())
    return [model(torch.randn(n, 3, 16, 16)) for n in (2, 3, 5)]


@program("einops and einsum")
def mixer(compile: Compile) -> Any:
    """MLP-Mixer in einops layers."""
    from einops.layers.torch import Rearrange, Reduce  # noqa: PLC0415

    def mlp(width: int) -> nn.Module:
        return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    model = nn.Sequential(
        Rearrange("b c (h p) (w q) -> b (h w) (p q c)", p=4, q=4), nn.Linear(48, 24), nn.LayerNorm(24),
        Rearrange("b n d -> b d n"), mlp(16), Rearrange("b d n -> b n d"), mlp(24), Reduce("b n d -> b d", "mean"),
        nn.Linear(24, 5),
    )  # fmt: skip
    compiled = compile(model)
    return [compiled(torch.randn(n, 3, 16, 16)) for n in (2, 4)]


@program("einops and einsum")
def bilinear(compile: Compile) -> Any:
    """Bilinear pooling by einsum with an ellipsis."""
    weight = torch.randn(4, 6, 5)
    function = compile(lambda x, y: torch.einsum("...i,oij,...j->...o", x, weight, y))
    return [function(torch.randn(*shape, 6), torch.randn(*shape, 5)) for shape in ((3,), (2, 3), (7,))]


@program("einops and einsum")
def linear_attention(compile: Compile) -> Any:
    """Linear attention by einsum, lengths that change."""

    @compile
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = nn.functional.elu(q) + 1, nn.functional.elu(k) + 1
        memory = torch.einsum("bhnd,bhne->bhde", k, v)
        norm = 1 / (torch.einsum("bhnd,bhd->bhn", q, k.sum(2)) + 1e-6)
        return torch.einsum("bhnd,bhde,bhn->bhne", q, memory, norm)

    return [attend(*(torch.randn(2, 2, n, 8) for _ in range(3))) for n in (5, 9, 13)]


@program("einops and einsum")
def tensor_train(compile: Compile) -> Any:
    """Tensor-train layer: a chain of einsums."""
    cores = [torch.randn(1, 4, 3), torch.randn(3, 4, 3), torch.randn(3, 4, 1)]

    @compile
    def contract(x: torch.Tensor) -> torch.Tensor:
        x = rearrange(x, "b (i j k) -> b i j k", i=4, j=4)
        return torch.einsum("bijk,aip,pjq,qkc->bac", x, *cores).flatten(1)

    return [contract(torch.randn(n, 64)) for n in (2, 3)]


@program("einops and einsum")
def space_to_depth(compile: Compile) -> Any:
    """Pixel shuffling and pooling by rearrange."""

    @compile
    def shuffle(x: torch.Tensor) -> Any:
        deep = rearrange(x, "b c (h s) (w t) -> b (c s t) h w", s=2, t=2)
        return deep, reduce(x, "b c (h s) (w t) -> b c h w", "max", s=2, t=2), repeat(x, "b c h w -> b c (h 2) (w 2)")

    return [shuffle(torch.randn(2, 3, n, n)) for n in (4, 8, 12)]


@program("einops and einsum")
def rotary(compile: Compile) -> Any:
    """Rotary embeddings and causal attention by einsum, lengths that change."""

    @compile
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        n, d = q.shape[-2:]
        angle = torch.outer(torch.arange(n), 10000 ** (-torch.arange(0, d, 2) / d))
        cos, sin = repeat(angle.cos(), "n d -> n (d 2)"), repeat(angle.sin(), "n d -> n (d 2)")

        def turn(x: torch.Tensor) -> torch.Tensor:
            a, b = rearrange(x, "... (d r) -> ... d r", r=2).unbind(-1)
            return x * cos + rearrange(torch.stack((-b, a), -1), "... d r -> ... (d r)") * sin

        scores = einsum("b h i d, b h j d -> b h i j", turn(q), turn(k)) * d**-0.5
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        return einsum("b h i j, b h j d -> b h i d", scores.masked_fill(mask, -torch.inf).softmax(-1), v)

    return [attend(*(torch.randn(1, 2, n, 8) for _ in range(3))) for n in (4, 7, 10)]
