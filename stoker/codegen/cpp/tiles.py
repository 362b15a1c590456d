"""The sizes that generated loops are cut by. Autotuning tries others than the usual ones."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tiles:
    strip: int = 128
    """Outer points in a strip of the columns shape."""
    chunk: int = 256
    """Elements of an inner loop that one thread reduces together before they join the rest."""
    vector_bits: int = 512
    """The widest vectors the compiler should use, where the machine has them."""


USUAL = Tiles()
OTHERS = (Tiles(vector_bits=256), Tiles(strip=64, chunk=128), Tiles(strip=512, chunk=1024))
