"""What comes behind a detector: boxes, overlaps, suppression."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

from bench.programs import Compile, program


def boxes(count: int) -> torch.Tensor:
    corner = torch.rand(count, 2) * 10
    return torch.cat([corner, corner + 1 + torch.rand(count, 2) * 5], -1)


def overlap(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    top_left = torch.maximum(a[:, None, :2], b[None, :, :2])
    bottom_right = torch.minimum(a[:, None, 2:], b[None, :, 2:])
    shared = (bottom_right - top_left).clamp(min=0).prod(-1)
    area_a, area_b = ((x[:, 2:] - x[:, :2]).prod(-1) for x in (a, b))
    return shared / (area_a[:, None] + area_b[None] - shared)


@program("detection")
def suppression_loop(compile: Compile) -> Any:
    """Non-maximum suppression as a loop over boxes, best first."""

    @compile
    def suppress(found: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        order = scores.argsort(descending=True)
        too_close = overlap(found[order], found[order]) > 0.5
        keep = torch.ones(len(found), dtype=torch.bool)
        for i in range(len(found)):
            keep = keep & ~(too_close[i] & keep[i] & (torch.arange(len(found)) > i))
        return order[keep]

    return [suppress(boxes(8), torch.rand(8)) for _ in range(3)]


@program("detection")
def suppression_in_numbers(compile: Compile) -> Any:
    """Non-maximum suppression with `while` and `.item()`, as in tutorials."""

    @compile
    def suppress(found: torch.Tensor, scores: torch.Tensor) -> list[int]:
        order = scores.argsort(descending=True)
        kept: list[int] = []
        while order.numel() > 0:
            best = order[0]
            kept.append(best.item())
            rest = order[1:]
            order = rest[overlap(found[best][None], found[rest])[0] <= 0.5]
        return kept

    return [suppress(boxes(5), torch.rand(5)) for _ in range(2)]


@program("detection")
def confident_boxes(compile: Compile) -> Any:
    """Boxes above a threshold, clipped to the image."""

    @compile
    def choose(logits: torch.Tensor, found: torch.Tensor) -> Any:
        scores, labels = logits.softmax(-1)[:, :-1].max(-1)
        keep = scores > 0.4
        return found[keep].clamp(0, 12), scores[keep], labels[keep]

    return [choose(torch.randn(n, 4), boxes(n)) for n in (9, 14, 11)]


@program("detection")
def anchors(compile: Compile) -> Any:
    """Anchors of a feature pyramid and decoded offsets."""

    @compile
    def decode(features: list[torch.Tensor], offsets: torch.Tensor) -> torch.Tensor:
        found = []
        for level, feature in enumerate(features):
            stride = 4 * 2**level
            y, x = torch.meshgrid(torch.arange(feature.shape[-2]), torch.arange(feature.shape[-1]), indexing="ij")
            centre = (torch.stack([x, y], -1).reshape(-1, 2) + 0.5) * stride
            found.append(torch.cat([centre - 2 * stride, centre + 2 * stride], -1))
        anchor = torch.cat(found).float()
        size = anchor[:, 2:] - anchor[:, :2]
        centre = (anchor[:, :2] + anchor[:, 2:]) / 2 + offsets[:, :2] * size
        half = size * offsets[:, 2:].clamp(max=4).exp() / 2
        return torch.cat([centre - half, centre + half], -1)

    made = []
    for n in (4, 6, 8):
        features = [torch.randn(1, 2, n, n), torch.randn(1, 2, n // 2, n // 2)]
        made.append(decode(features, torch.randn(n * n + (n // 2) ** 2, 4)))
    return made


@program("detection")
def box_losses(compile: Compile) -> Any:
    """Generalized overlap loss with gradients."""

    @compile
    def loss(predicted: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        shared = overlap(predicted, wanted).diagonal()
        outer = torch.maximum(predicted[:, 2:], wanted[:, 2:]) - torch.minimum(predicted[:, :2], wanted[:, :2])
        area = (predicted[:, 2:] - predicted[:, :2]).prod(-1)
        return (1 - shared + (outer.prod(-1) - area) / outer.prod(-1)).mean() + F.l1_loss(predicted, wanted)

    predicted = boxes(6).requires_grad_()
    value = loss(predicted, boxes(6))
    value.backward()
    return value, predicted.grad


@program("detection")
def matching(compile: Compile) -> Any:
    """Targets matched to anchors by overlap."""

    @compile
    def match(anchor: torch.Tensor, wanted: torch.Tensor, labels: torch.Tensor) -> Any:
        best, index = overlap(anchor, wanted).max(1)
        matched = labels[index].masked_fill(best < 0.3, 0)
        positive = (best >= 0.5).nonzero().squeeze(-1)
        return matched, anchor[positive], positive.shape[0]

    return [match(boxes(12), boxes(n), torch.arange(1, n + 1)) for n in (3, 5)]


@program("detection")
def heatmap_peaks(compile: Compile) -> Any:
    """Peaks of a heat map by pooling and top-k."""

    @compile
    def peaks(heat: torch.Tensor) -> Any:
        heat = heat.sigmoid()
        heat = heat * (F.max_pool2d(heat, 3, 1, 1) == heat)
        scores, index = heat.flatten(1).topk(4)
        return scores, index // heat.shape[-1] % heat.shape[-2], index % heat.shape[-1]

    return [peaks(torch.randn(2, 3, n, n + 1)) for n in (6, 9, 7)]
