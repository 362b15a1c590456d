"""Memory for temporaries of recordings: one block for each device and stream, shared by all that are replayed there.

Temporaries are dead between replays, and replays on a stream follow each other, so that recordings of all sizes and functions may
use the same memory. A block that is too small makes room for a larger one; recordings made before keep theirs.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

_blocks: dict[tuple[int, int], torch.Tensor] = {}


def source(stream: int, used: list[torch.Tensor], kind: str = "cuda") -> Callable[[int, int], torch.Tensor]:
    """What gives arenas to a plan, of a device and bytes. Each that it gives is added to `used`, whose holder keeps it."""

    def give(device: int, size: int) -> torch.Tensor:
        found = _blocks.get((device, stream))
        if found is None or found.numel() < size:
            found = _blocks[device, stream] = torch.empty(size, dtype=torch.uint8, device=torch.device(kind, device))
        used.append(found)
        return found

    return give


def release() -> None:
    """Let go of blocks that no recording uses."""
    _blocks.clear()
