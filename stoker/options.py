"""Every knob, once.

`Options` is what `stoker.compile(options=...)` takes; a `mode` is a named set of them. `pipeline` and `frame` read it and
pass narrowed values on; nothing else does.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from typing import Any

from stoker.errors import BadArgument, UnknownMode, UnknownOption
from stoker.strict import strict


def _patience() -> float:
    """What nobody asked for otherwise. Strictly, nothing depends on how fast a machine is."""
    return float(os.environ.get("STOKER_PATIENCE") or (math.inf if strict() else 3.0))


@dataclass(frozen=True, slots=True)
class Options:
    """Settings of one compilation."""

    version_limit: int = 8
    """Compiled versions of one function, for each module it runs on, before it is left to CPython (with a warning)."""

    decompositions: bool = True
    """`aot_eager`: break operators into simpler ones, as the default back end does."""

    memory_budget: float = 1.0
    """The peak of a training step, between the lowest found (0) and that of computing nothing expensive twice (1)."""

    precision: str = "eager"
    """Half precision. `eager` rounds where eager rounds; `fused` keeps float32 between the operators of a loop."""

    freezing: bool = False
    """Inference: compute what weights alone determine once, fold BatchNorm into convolutions (which rounds differently), and do
    so again when a weight changes."""

    packing: bool = True
    """Inference: keep weights a second time, in the order that libraries want, where that is faster."""

    cudagraphs: bool = False
    """On a GPU, record graphs and replay them where that measures faster. On the CPU it changes nothing."""

    autotune: bool = False
    """Measure alternatives and keep the fastest: libraries for linear layers, tile and vector sizes of kernels."""

    patience: float = field(default_factory=_patience)
    """Seconds after the beginning of a compilation, of a graph on the CPU. If its kernels are not built then, it runs operator by operator, and
    they take over in a later call. `math.inf` waits for them. The default is what the environment variable STOKER_PATIENCE says, or 3."""

    def __post_init__(self) -> None:
        if not (isinstance(self.patience, (int, float)) and self.patience >= 0):
            raise BadArgument(f"patience is a number of seconds, or math.inf, not {self.patience!r}.")
        if self.precision not in PRECISIONS:
            raise BadArgument(f"precision is one of {', '.join(PRECISIONS)}, not {self.precision!r}.")


PRECISIONS = ("eager", "fused")
MODES: dict[str, dict[str, Any]] = {
    "default": {},
    "reduce-overhead": {"cudagraphs": True},
    "max-autotune": {"cudagraphs": True, "autotune": True},
    "max-autotune-no-cudagraphs": {"autotune": True},
}


# torch.compile's options by name, and ours for each value.
SAME_AS: dict[str, Callable[[Any], dict[str, Any]]] = {
    "max_autotune": lambda value: {"autotune": value},
    "max_autotune_gemm": lambda value: {"autotune": value},
    "max_autotune_pointwise": lambda value: {"autotune": value},
    "coordinate_descent_tuning": lambda value: {"autotune": value},
    "triton.cudagraphs": lambda value: {"cudagraphs": value},
    "emulate_precision_casts": lambda value: {"precision": "eager" if value else "fused"},
    "activation_memory_budget": lambda value: {"memory_budget": value},
    "recompile_limit": lambda value: {"version_limit": value},
}
# torch.compile's options without a counterpart, and what to use instead.
INSTEAD: dict[str, str] = {
    "epilogue_fusion": "it is always on: leave it out",
    "fallback_random": "random numbers are always eager's: leave it out",
    "shape_padding": "the option autotune measures what pays: use that",
    "trace.enabled": "print stoker.explain(f, *args)",
    "trace.graph_diagram": "print stoker.explain(f, *args)",
    "guard_filter_fn": "what is read is guarded: use stoker.mark_dynamic for sizes that change",
    "cpp.threads": "call torch.set_num_threads",
    "force_disable_caches": "name an empty directory in the environment variable STOKER_CACHE",
    "size_asserts": "guards check sizes: leave it out",
}


def resolve(mode: str | None, options: Options | dict[str, Any] | None) -> Options:
    """The options of a call of `stoker.compile`."""
    if mode is not None and mode not in MODES:
        raise UnknownMode(str(mode), list(MODES))
    settings = Options(**MODES[mode or "default"])
    if options is None:
        return settings
    if isinstance(options, Options):
        return options
    if not isinstance(options, dict):
        raise BadArgument(f"options is a dict or a stoker.Options, not {type(options).__name__}.")
    return replace(settings, **_ours(options))


def _ours(options: dict[str, Any]) -> dict[str, Any]:
    known = [field.name for field in fields(Options)]
    found: dict[str, Any] = {}
    for given, value in options.items():
        name = str(given).replace("-", "_")
        if name not in known and name not in SAME_AS:
            raise UnknownOption(name, known, INSTEAD.get(name))
        found |= {name: value} if name in known else SAME_AS[name](value)
    return found
