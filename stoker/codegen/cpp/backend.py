"""C++ kernels for the processor."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence

from stoker.codegen.backend import Building, Built, Native, Site
from stoker.codegen.cpp.choose import can_choose, fastest
from stoker.codegen.cpp.target import CPU
from stoker.codegen.cpp.tiles import OTHERS, USUAL, Tiles
from stoker.codegen.cpp.unit import Units, kernel_name, units_of
from stoker.codegen.host import native_kernel
from stoker.loop.layout import Layout
from stoker.loop.target import Target
from stoker.runtime.build import begin_loading, compiler, cores
from stoker.schedule.epilogue import Candidate
from stoker.schedule.kernel import Kernel


class CppBackend:
    """One translation unit for a few kernels, built with g++ or clang."""

    @property
    def target(self) -> Target:
        return CPU

    def start(self) -> None:
        compiler()

    def choose_product(self, candidate: Candidate, layouts: Mapping[str, Layout]) -> bool:
        return False  # the libraries' products are out of reach

    def build(self, kernels: Sequence[Kernel], sites: Sequence[Site], *, tune: bool) -> list[Built]:
        made = self.begin(kernels, sites).wait()
        if tune and kernels and can_choose(sites):
            builds = [made, *(_begun(kernels, sites, tiles).wait() for tiles in OTHERS)]
            chosen = fastest(sites, [[_address(b) for b in build] for build in builds])
            made = [builds[build][number] for number, build in enumerate(chosen)]
        return made

    def begin(self, kernels: Sequence[Kernel], sites: Sequence[Site]) -> Building:
        return _begun(kernels, sites, USUAL)


def _begun(kernels: Sequence[Kernel], sites: Sequence[Site], tiles: Tiles) -> Building:
    names = [site.origins for site in sites]
    units = units_of(kernels, cores(), tiles)
    words = [_words(names, [n for n, holder in enumerate(units.holder) if holder == u], units) for u in units.numbers]
    libraries = begin_loading(units.sources, words)

    def wait() -> list[Built]:
        made, loaded = [], libraries()
        for number, unit in enumerate(units.holder):
            address = ctypes.cast(getattr(loaded[unit], kernel_name(number)), ctypes.c_void_p).value or 0
            made.append(Built(Native(address), native_kernel(address), units.sources[unit]))
        return made

    return Building(wait, libraries.built_by)


def _words(names: Sequence[tuple[str, ...]], held: Sequence[int], units: Units) -> str:
    """What is in a unit, for the report of what took long."""
    longest = max(held, key=lambda n: units.lengths[n])
    share = units.lengths[longest] / sum(units.lengths[n] for n in held)
    return f"{len(held)} kernels; {share:.0%} of their text: {', '.join(names[longest])}"


def _address(built: Built) -> int:
    assert isinstance(built.launchable, Native)
    return built.launchable.address
