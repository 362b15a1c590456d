"""`torch.gru_cell` and its kin by their formulas, for batches of any size.

In:  a call of one of them, on fake tensors.
Out: `formula(function, args, kwargs)`: a function to call in its place; None where the call must go its own way.

Eager's functions are composite, and their C++ asks how large a batch is as a plain number: they would be compiled for each. On the CPU they
are these formulas, operator by operator (tests/differential/test_recurrent.py). Operands that do not fit are left to eager, for its words.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn.functional import linear

from stoker.fake.meta import same
from stoker.fake.tensor import FakeTensor

Cell = Callable[..., Any]


def _gru(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    reset_x, update_x, new_x = linear(x, w_x, b_x).chunk(3, 1)
    reset_h, update_h, new_h = linear(h, w_h, b_h).chunk(3, 1)
    reset, update = (reset_h + reset_x).sigmoid(), (update_h + update_x).sigmoid()
    new = (new_x + new_h * reset).tanh()
    return (h - new) * update + new


def _lstm(x: Any, states: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    h, c = states
    enter, forget, cell, leave = (linear(h, w_h, b_h) + linear(x, w_x, b_x)).chunk(4, 1)
    kept = forget.sigmoid() * c + enter.sigmoid() * cell.tanh()
    return leave.sigmoid() * kept.tanh(), kept


def _tanh(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    return (linear(h, w_h, b_h) + linear(x, w_x, b_x)).tanh()


def _relu(x: Any, h: Any, w_x: Any, w_h: Any, b_x: Any = None, b_h: Any = None) -> Any:
    return (linear(h, w_h, b_h) + linear(x, w_x, b_x)).relu()


CELLS: dict[Any, Cell] = {
    torch.gru_cell: _gru,
    torch.lstm_cell: _lstm,
    torch.rnn_tanh_cell: _tanh,
    torch.rnn_relu_cell: _relu,
}
GATES = {torch.gru_cell: 3, torch.lstm_cell: 4, torch.rnn_tanh_cell: 1, torch.rnn_relu_cell: 1}
_BUILTIN = type(torch.gru_cell)


def formula(function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Cell | None:
    """What to call in place of `function(*args, **kwargs)`, with the same arguments and results."""
    cell = CELLS.get(function) if isinstance(function, _BUILTIN) else None
    if cell is None or kwargs or not 4 <= len(args) <= 6:
        return None
    x, states, *weights = args
    flat = list(states) if isinstance(states, (list, tuple)) else [states]
    if len(flat) != (2 if cell is _lstm else 1):
        return None
    return cell if _fit(x, flat, [w for w in weights if w is not None], GATES[function]) else None


def _fit(x: Any, states: list[Any], weights: list[Any], gates: int) -> bool:
    """Are they matrices on the CPU whose sizes fit, of a batch whose size varies?"""
    tensors = [x, *states, *weights]
    if not all(isinstance(t, FakeTensor) and t.meta.device.type == "cpu" for t in tensors):
        return False
    if torch.is_autocast_enabled("cpu") or len({t.meta.dtype for t in tensors}) != 1:
        return False
    if any(t.dim() != 2 for t in (x, *states, *weights[:2])) or not isinstance(x.meta.sizes[0], torch.SymInt):
        return False
    w_x, w_h, *biases = (w.meta.sizes for w in weights)
    hidden = w_h[1]
    sizes: list[tuple[Any, tuple[Any, ...]]] = [
        (w_x, (gates * hidden, x.meta.sizes[1])),
        (w_h, (gates * hidden, hidden)),
    ]
    sizes += [(b, (gates * hidden,)) for b in biases] + [(h.meta.sizes, (x.meta.sizes[0], hidden)) for h in states]
    return all(same(found, wanted) for found, wanted in sizes)
