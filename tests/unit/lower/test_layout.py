"""Free layouts of inference: images stay channels-last between convolutions, and what leaves has eager's strides."""

from __future__ import annotations

import torch
import torch.nn.functional as F

from stoker.loop.layout import has_longer_rows
from stoker.pipeline import compile_captured
from stoker.shape.expr import constant, symbol


def test_convolutions_keep_channels_last() -> None:
    def net(x, a, b, scale):  # type: ignore[no-untyped-def]
        h = torch.relu(F.conv2d(x, a, padding=1) * scale.view(1, -1, 1, 1))
        h = F.max_pool2d(F.conv2d(h, b, padding=1) + h, 2)
        return h, h.flatten(1), h.mean((2, 3))

    torch.manual_seed(0)
    inputs = [torch.randn(*s) for s in ((2, 3, 8, 8), (16, 3, 3, 3), (16, 16, 3, 3), (16,))]
    with torch.no_grad():
        found = compile_captured(torch.fx.symbolic_trace(net), inputs)(*inputs)
        for mine, eager in zip(found, net(*inputs)):
            torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-5)
            assert mine.stride() == eager.stride()


def test_equal_results_are_different_tensors() -> None:
    def twice(x):  # type: ignore[no-untyped-def]
        return x.exp() + 1, x.exp() + 1, x.clone(), x.t()

    x = torch.randn(3, 4)
    a, b, c, d = compile_captured(torch.fx.symbolic_trace(twice), [x])(x)
    assert len({a.data_ptr(), b.data_ptr(), c.data_ptr(), x.data_ptr()}) == 4
    assert d.data_ptr() == x.data_ptr()


def test_zeros_without_memory_get_some() -> None:
    """The gradient of `sgn` is a tensor that eager gives no memory."""
    for dtype in (torch.float32, torch.complex64):
        x = torch.ones(5, dtype=dtype, requires_grad=True)
        (result,) = compile_captured(torch.fx.symbolic_trace(lambda x: (torch.sgn(x),)), [x])(x)
        (gradient,) = torch.autograd.grad(result, x, torch.ones_like(result))
        assert gradient.tolist() == [0] * 5


def test_rows_with_gaps() -> None:
    def holds(sizes: tuple[int, ...], strides: tuple[int, ...]) -> bool:
        return has_longer_rows([constant(s) for s in sizes], [constant(s) for s in strides])

    assert holds((6, 3, 49, 49), (9408, 3136, 64, 1))
    assert holds((5, 7), (16, 1)) and holds((4, 1, 1, 33), (48, 0, 0, 1)) and holds((4, 1, 5, 33), (240, 240, 48, 1))
    assert not holds((5, 8), (8, 1)), "dense"
    assert not holds((5, 8), (100, 1)), "most of it is a gap"
    assert not holds((6, 5, 8), (50, 16, 1)), "a gap elsewhere"
    assert not holds((5, 8), (16, 2)) and not holds((8,), (1,)) and not holds((5, 8), (0, 1))
    keys, heads = symbol("keys"), symbol("heads")
    row, one = (keys + 7) // 8 * 8, constant(1)
    assert has_longer_rows((heads, one, keys, keys), (keys * row, keys * row, row, one)), "sizes that vary"
    assert not has_longer_rows((heads, one, keys, keys), (keys * keys, keys * keys, keys, one)), "dense"
    assert not has_longer_rows((heads, keys), (heads, one)), "rows may overlap"
