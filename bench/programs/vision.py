"""Images: diffusion U-Nets, autoencoders, residual networks."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from bench.programs import Compile, program


def time_embedding(t: torch.Tensor, width: int) -> torch.Tensor:
    frequencies = torch.exp(-math.log(10000) * torch.arange(width // 2) / (width // 2))
    angle = t[:, None].float() * frequencies[None]
    return torch.cat([angle.sin(), angle.cos()], -1)


class Residual(nn.Module):
    def __init__(self, inside: int, outside: int, width: int = 16) -> None:
        super().__init__()
        self.norm, self.conv = nn.GroupNorm(4, inside), nn.Conv2d(inside, outside, 3, padding=1)
        self.time, self.again = nn.Linear(width, outside), nn.Conv2d(outside, outside, 3, padding=1)
        self.skip = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        h = self.conv(F.silu(self.norm(x))) + self.time(F.silu(t))[:, :, None, None]
        return self.again(F.silu(h)) + self.skip(x)


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.down = nn.ModuleList([Residual(8, 16), Residual(16, 32)])
        self.middle = Residual(32, 32)
        self.up = nn.ModuleList([Residual(64, 16), Residual(32, 8)])
        self.last = nn.Conv2d(8, 3, 1)

    def forward(self, x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        t = time_embedding(t, 16)
        h, kept = self.first(x), []
        for block in self.down:
            h = block(h, t)
            kept.append(h)
            h = F.avg_pool2d(h, 2)
        h = self.middle(h, t)
        for block in self.up:
            h = F.interpolate(h, scale_factor=2, mode="nearest")
            h = block(torch.cat([h, kept.pop()], 1), t)
        return self.last(h)


@program("images")
def diffusion_unet(compile: Compile) -> Any:
    """Diffusion U-Net, sizes that change."""
    model = compile(UNet().eval())
    with torch.no_grad():
        return [model(torch.randn(2, 3, n, n), torch.tensor([3, 7])) for n in (8, 16, 12)]


@program("images")
def diffusion_sampling(compile: Compile) -> Any:
    """Denoising by a schedule, one compiled step."""
    model = UNet().eval()
    betas = torch.linspace(1e-4, 0.02, 6)
    kept = torch.cumprod(1 - betas, 0)

    @compile
    @torch.no_grad()
    def step(x: torch.Tensor, t: int) -> torch.Tensor:
        noise = model(x, torch.full((x.shape[0],), t))
        mean = (x - betas[t] / (1 - kept[t]).sqrt() * noise) / (1 - betas[t]).sqrt()
        return mean + betas[t].sqrt() * torch.randn_like(x) if t > 0 else mean

    x = torch.randn(2, 3, 8, 8)
    for t in reversed(range(6)):
        x = step(x, t)
    return x


@program("images")
def diffusion_training(compile: Compile) -> Any:
    """Diffusion loss with its gradients."""
    model, kept = UNet(), torch.cumprod(1 - torch.linspace(1e-4, 0.02, 10), 0)

    @compile
    def loss(x: torch.Tensor, t: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        scale = kept[t][:, None, None, None]
        return F.mse_loss(model(scale.sqrt() * x + (1 - scale).sqrt() * noise, t), noise)

    value = loss(torch.randn(2, 3, 8, 8), torch.tensor([1, 6]), torch.randn(2, 3, 8, 8))
    value.backward()
    return value, [p.grad for p in model.parameters()]


@program("images")
def variational_autoencoder(compile: Compile) -> Any:
    """Variational autoencoder: loss and gradients, batches that change."""

    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encode = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 8))
            self.decode = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 64), nn.Unflatten(1, (1, 8, 8)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            mean, log_variance = self.encode(x).chunk(2, dim=1)
            z = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
            likelihood = F.binary_cross_entropy_with_logits(self.decode(z), x, reduction="sum")
            return likelihood - 0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()

    model, found = Autoencoder(), []
    compiled = compile(model)
    for n in (4, 6, 5):
        loss = compiled(torch.rand(n, 1, 8, 8))
        loss.backward()
        found.append(loss)
    return found, [p.grad for p in model.parameters()]


@program("images")
def residual_network(compile: Compile) -> Any:
    """Residual network with batch norm: training, then evaluation."""

    class Block(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.body = nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width),
            )  # fmt: skip

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.relu(x + self.body(x), inplace=True)

    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1), Block(8), Block(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
    )
    compiled = compile(model)
    trained = compiled(torch.randn(4, 3, 16, 16))
    trained.square().mean().backward()
    model.eval()
    return trained, compiled(torch.randn(2, 3, 16, 16)), dict(model.named_buffers())


@program("images")
def style_loss(compile: Compile) -> Any:
    """Neural style: Gram matrices and total variation, gradients for the image."""
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 8, 3)).requires_grad_(False)

    def gram(features: torch.Tensor) -> torch.Tensor:
        b, c, h, w = features.shape
        flat = features.view(b, c, h * w)
        return flat @ flat.mT / (c * h * w)

    @compile
    def loss(image: torch.Tensor, style: torch.Tensor) -> torch.Tensor:
        variation = (image[..., 1:] - image[..., :-1]).abs().mean() + (
            image[..., 1:, :] - image[..., :-1, :]
        ).abs().mean()
        return F.mse_loss(gram(net(image)), gram(net(style))) + 1e-2 * variation

    image = torch.rand(1, 3, 12, 12, requires_grad=True)
    value = loss(image, torch.rand(1, 3, 12, 12))
    value.backward()
    return value, image.grad


@program("images")
def augmentation(compile: Compile) -> Any:
    """Augmentation on tensors: flips by data, noise, normalization."""
    mean, deviation = torch.tensor([0.5, 0.4, 0.3]).view(3, 1, 1), torch.tensor([0.2, 0.2, 0.1]).view(3, 1, 1)

    @compile
    def augment(images: torch.Tensor) -> torch.Tensor:
        flip = torch.rand(images.shape[0]) < 0.5
        images = torch.where(flip[:, None, None, None], images.flip(-1), images)
        brightness = 1 + 0.2 * (torch.rand(images.shape[0], 1, 1, 1) - 0.5)
        return ((images * brightness).clamp(0, 1) - mean) / deviation

    return [augment(torch.rand(n, 3, 8, 8)) for n in (3, 5)]


@program("images")
def spatial_transformer(compile: Compile) -> Any:
    """Spatial transformer: affine grid and sampling, with gradients."""
    locate = nn.Sequential(nn.Flatten(), nn.Linear(64, 6))

    @compile
    def warp(x: torch.Tensor) -> torch.Tensor:
        theta = locate(x).view(-1, 2, 3)
        return F.grid_sample(x, F.affine_grid(theta, list(x.shape), align_corners=False), align_corners=False)

    found = warp(torch.randn(2, 1, 8, 8))
    found.square().sum().backward()
    return found, locate[1].weight.grad
