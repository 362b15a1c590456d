"""What a device can do and where its thresholds lie: the value that lowering, fusion, kernel building and memory planning are given.

A number that decides something and holds for one device only is a field here, never a module constant. Code generators make the
targets: `stoker.codegen.cpp.target` and `stoker.codegen.triton.target`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from stoker.loop.index import Dimensions
from stoker.loop.instruction import LoopInstruction
from stoker.shape.expr import Expr

LOOP_DTYPES = frozenset(
    {
        torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16,
        torch.float32, torch.float64,
    }
)  # fmt: skip
"""Types that loops compute with; operators on others are library calls."""

Private = Callable[[Dimensions, Dimensions, Sequence[LoopInstruction], int], bool]
"""(outer loops, inner loops, instructions inside them, bytes of an inner point): can what one outer point makes and uses stay in
the fastest memory?"""

Split = Callable[[Dimensions, Dimensions, Sequence[LoopInstruction]], int]


@dataclass(frozen=True, slots=True)
class Target:
    """One device."""

    device: str
    """The type of torch's device."""
    architecture: str
    processors: int
    """Cores, or multiprocessors."""
    private: Private
    inline_cost: int
    """Computing this many additions twice is cheaper than storing and loading an element."""
    inline_reads: int
    """A value that several read is computed again only if it is made of at most so many buffers."""
    largest_cost: int
    largest_reads: int
    """A body beyond these is stored."""
    one_pass_bytes: int
    """A row along memory of at least this is walked once for mean and variance."""
    one_pass_rows: int
    """With at least this many rows above one another, columns are walked once."""
    largest_body: int
    """Instructions of a kernel beyond which nothing is fused into it."""
    most_buffers: int
    """Buffers a kernel reads beyond which nothing is fused into it."""
    alignment_bytes: int
    """Where buffers in an arena begin."""
    rounds_products: bool = False
    """Does eager round a product in half precision before it adds it to something? torch's code without vectors does."""
    largest_in_arena: int | None = None
    """Bytes of a temporary that has a place in the arena, which is held for a whole call; a larger one is allocated and freed. None:
    all have."""
    stores_numbers: bool = False
    """Is a costly number, of which many elements are computed, stored first? Where kernels are walked by many programs, each would
    compute it again."""
    batches: bool = False
    """Are kernels that differ in their sizes alone launched together? To start one takes longer than to run it, or it fills the device
    badly at its end."""
    side_by_side: int = 0
    """Elements of a kernel up to which it is joined with others of the same loops that it has nothing to do with: to start it takes
    longer than to run it."""
    inverts_numbers: bool = False
    """Does eager multiply with the inverse where it divides by a number that is no tensor of the device? torch's CUDA kernels do."""
    rows_in_loops: bool = False
    """Is a matrix product of one row a loop over its weight, rather than a library call?"""
    longest_scan: int | None = None
    """Elements of a row that running reductions can walk; None if there is no limit."""
    combines: frozenset[str] = frozenset({"add", "mul", "max", "min"})
    """How a store may combine with what is in memory."""
    combined_dtypes: frozenset[torch.dtype] = LOOP_DTYPES
    """Types of memory that may be combined with."""
    stored_dtypes: frozenset[torch.dtype] = frozenset()
    """Types beside those of loops that kernels can read and write, and convert to and from float32; nothing else is computed with them."""
    wide_losses: bool = False
    """Are losses of half precision summed in float32, as eager sums them there?"""
    wide_scans: bool = True
    """Are running sums kept in a wider type, as eager keeps them?"""
    joins_columns: bool = False
    """Is what columns are reduced of computed by the kernel that reduces them, which walks memory in another order than whoever only
    computes it?"""
    split: Split | None = None
    """(outer loops, inner loops, body): the number of pieces in which a reduction is made, whose results are then reduced. 1: in one
    step. None: never in pieces."""
    matmul_alignment_bytes: int = 1
    """Rows of a product begin at multiples of this, if nobody outside sees it; others are slow."""
    image_dtypes: frozenset[torch.dtype] = frozenset({torch.float32})
    """Types of images that convolutions want with channels fastest."""
    image_ranks: frozenset[int] = frozenset({4})
    """Dimensions of images, batch and channels among them, that they want so."""
    orders_weights: bool = False
    """Does the library bring weights of images into that order at each call, by a kernel of its own?"""
    adds_bias_apart: bool = False
    """Does the library add a convolution's bias after it, by a kernel of its own?"""
    group_dtypes: frozenset[torch.dtype] = frozenset()
    """Types in which convolutions in large groups are faster by kernels of ours than by the library's."""
    least_in_group: int = 0
    """Channels, read and made, of a group that is large."""
    drawing_threads: Callable[[], int] = lambda: 0
    """The most threads that eager deals random numbers to as `stoker.loop.philox` says; 0 where it does otherwise, and the library
    draws them."""

    def convolves(self, dtype: torch.dtype, weight: Sequence[Expr], groups: object) -> bool:
        """Is it a convolution that kernels of ours are faster at?"""
        if dtype not in self.group_dtypes or not isinstance(groups, int) or groups <= 1:
            return False
        made, channels, *_ = (size.value or 0 for size in weight)
        return min(channels, made // groups) >= self.least_in_group


Targets = Mapping[str, Target]
"""By the type of torch's device."""
