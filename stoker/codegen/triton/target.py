"""A CUDA device as a target."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from stoker.codegen.triton.tiling import persistent, pieces
from stoker.loop.target import Target

LEAST_IN_GROUP = 17
"""On an H200, half precision, 32 images, kernels of 3 x 3, ours against cuDNN's: groups of 4 channels 287 us against 44, of 8 57 against 27, of 16
17 against 13; of 24 23 against 106, of 32 7 against 10, of 48 30 against 100, of 128 30 against 36. With 48 channels and a kernel of 128 points
(wav2vec 2) 82 us against 31 ms."""
FLOAT8 = frozenset({torch.float8_e4m3fn, torch.float8_e5m2})


def cuda_target(
    architecture: int, processors: int, device: str = "cuda", drawing_threads: Callable[[], int] = lambda: 0
) -> Target:
    """The target of compute capability `architecture` (90 for 9.0)."""
    return Target(
        device=device,
        architecture=f"sm_{architecture}",
        processors=processors,
        private=lambda outer, inner, across, item_bytes: persistent(outer, inner, across),
        inline_cost=40,
        inline_reads=1,
        largest_cost=600,
        largest_reads=24,
        one_pass_bytes=0,
        one_pass_rows=0,
        largest_body=500,
        most_buffers=40,
        alignment_bytes=128,
        largest_in_arena=1 << 22,
        stores_numbers=True,
        batches=True,
        side_by_side=1 << 14,
        inverts_numbers=True,
        rows_in_loops=True,
        longest_scan=4096,
        combines=frozenset({"add"}),
        combined_dtypes=frozenset({torch.int32, torch.int64, torch.float32, torch.float64}),
        stored_dtypes=FLOAT8,
        wide_losses=True,
        wide_scans=False,
        joins_columns=True,
        split=functools.partial(pieces, processors=processors),
        matmul_alignment_bytes=16,
        image_dtypes=frozenset({torch.float16, torch.bfloat16, torch.float32}),
        image_ranks=frozenset({3, 4}),
        orders_weights=True,
        adds_bias_apart=True,
        group_dtypes=frozenset({torch.float16, torch.bfloat16}),
        least_in_group=LEAST_IN_GROUP,
        drawing_threads=drawing_threads,
    )
