"""Autograd ahead of time: one functional program for a captured graph and its gradient, cut in two.

    captured graph -> trace on fakes (forward, then the engine's backward) -> joint graph, functional
                   -> choose what to keep -> forward graph, backward graph -> two compilers -> one autograd node

>>> import torch
>>> from stoker.autograd import aot_eager
>>> captured = torch.fx.symbolic_trace(lambda x: (torch.sin(x) * 2,))
>>> x = torch.zeros(3, requires_grad=True)
>>> call = aot_eager(captured, [x])
>>> call(x)[0].sum().backward()
>>> x.grad
tensor([2., 2., 2.])

Reading order: `trace` (operators become nodes), `alias` and `inverse` (who holds what after a write), `functional`
(writes become values), `sizes`, `inputs`, `interpret`, `places`, `joint`, `outcome`, `standing`, `refusal`; then `order`, `mincut`,
`segment`, `keep`, `partition`; then `double_backward`, `histories`, `beneath`, `partial`, `runtime`, `relayout`; `meeting`, `overlap` and
`variants` (inputs in one memory); `begun`; `compile` is the road through them.
"""

from stoker.autograd.compile import aot, aot_eager, aot_inside, run_eagerly
from stoker.autograd.joint import Joint
from stoker.autograd.keep import min_cut
from stoker.autograd.partition import keep_all
from stoker.autograd.refusal import CannotTrace

__all__ = ["CannotTrace", "Joint", "aot", "aot_eager", "aot_inside", "keep_all", "min_cut", "run_eagerly"]
