"""heapq and bisect: the functions written in C, entered as those of `polyfill/ordering.py`."""

from __future__ import annotations

import _bisect
import _heapq
from typing import Any

from stoker.capture.handlers import handles
from stoker.capture.machine import Machine
from stoker.capture.polyfill import ordering
from stoker.capture.values.value import Value


def _entered(real: Any, polyfill: Any) -> None:
    def handler(m: Machine, *args: Value, **kwargs: Value) -> Value:
        return m.wrap.object(polyfill).call(m, list(args), kwargs)

    handles(real)(handler)


for _module in (_heapq, _bisect):
    for _name, _real in vars(_module).items():
        _polyfill = getattr(ordering, _name.removeprefix("_"), None)
        if callable(_real) and _polyfill is not None and not _name.startswith("__"):
            _entered(_real, _polyfill)
