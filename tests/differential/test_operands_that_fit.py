"""Operands that eager refuses by their sizes and types are refused, and results have eager's types, whatever a kernel could compute."""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F

import stoker

FLOATS, WHOLE, TRUTHS, DOUBLES = torch.ones(3), torch.arange(3), torch.ones(3, dtype=torch.bool), torch.ones(3).double()
SQUARE, LABELS, IMAGE = torch.arange(12.0).view(3, 4), torch.tensor([0, 1, 1]), torch.randn(2, 3, 4, 4)
PIXELS = torch.zeros(2, 4, 4, dtype=torch.long)

OPERANDS = {
    "subtract": (operator.sub, [
        (FLOATS, TRUTHS), (TRUTHS, FLOATS), (TRUTHS, TRUTHS), (TRUTHS, 1), (1, TRUTHS), (FLOATS, True), (True, FLOATS),
        (WHOLE, True), (TRUTHS[0], FLOATS), (FLOATS[0], TRUTHS[0]), (FLOATS, WHOLE), (FLOATS, 2), (2, WHOLE),
    ]),
    "isub": (lambda x, y: operator.isub(x.clone(), y), [(FLOATS, TRUTHS), (TRUTHS, 1), (WHOLE, WHOLE), (FLOATS, WHOLE)]),
    "rsub": (torch.rsub, [(FLOATS, TRUTHS), (TRUTHS, FLOATS), (TRUTHS, 1), (FLOATS, True), (FLOATS, WHOLE), (FLOATS, 3)]),
    "slice_scatter": (lambda x, s: torch.slice_scatter(x, s, 0, 1, 3), [(SQUARE, torch.ones(n)) for n in ((2, 4), (4,), (1, 4), (3, 4), (2, 1), ())]),
    "select_scatter": (lambda x, s: torch.select_scatter(x, s, 0, 1), [(SQUARE, torch.ones(n)) for n in ((4,), (3,), (1,), (1, 4), ())]),
    "diagonal_scatter": (torch.diagonal_scatter, [(SQUARE, torch.ones(n)) for n in ((3,), (4,), (1,), (9,), ())]),
    "lerp": (torch.lerp, [(FLOATS, FLOATS, w) for w in (FLOATS, WHOLE, DOUBLES, 0.5)] + [(FLOATS, DOUBLES, 0.5)]),
    "cross": (torch.linalg.cross, [(FLOATS, FLOATS), (FLOATS, DOUBLES), (FLOATS, WHOLE), (WHOLE, WHOLE)]),
    "deg2rad": (torch.deg2rad, [(FLOATS,), (WHOLE,), (FLOATS + 1j,)]),
    "rad2deg": (torch.rad2deg, [(FLOATS,), (WHOLE,), (FLOATS + 1j,)]),
    "nll_loss": (F.nll_loss, [
        (SQUARE, LABELS), (SQUARE, LABELS, torch.ones(4)), (SQUARE, LABELS, torch.ones(3)), (SQUARE, LABELS, torch.ones(4).double()),
        (SQUARE, LABELS[:2]), (SQUARE[0], LABELS[0]), (SQUARE[0], LABELS[:1]), (SQUARE[0], LABELS), (SQUARE, FLOATS),
    ]),
    "cross_entropy": (F.cross_entropy, [(SQUARE, LABELS, w) for w in (None, torch.ones(4), torch.ones(3), torch.ones(4).double())]),
    "nll_loss of pixels": (F.nll_loss, [
        (IMAGE, PIXELS), (IMAGE, PIXELS, torch.ones(3)), (IMAGE, PIXELS, torch.ones(4)), (IMAGE, PIXELS, torch.ones(3).double()),
        (IMAGE, PIXELS[:1]),
    ]),
    "heaviside": (torch.heaviside, [(FLOATS, FLOATS), (FLOATS, DOUBLES), (DOUBLES[0], FLOATS[0]), (WHOLE, WHOLE), (FLOATS + 1j, FLOATS + 1j)]),
    "abs_": (lambda x: x.clone().abs_(), [(FLOATS,), (WHOLE,), (FLOATS + 1j,)]),
    "cumsum_": (lambda x, t: x.clone().cumsum_(0, dtype=t), [(FLOATS, None), (FLOATS, torch.float32), (FLOATS, torch.float64), (WHOLE, torch.int32)]),
    "fill_": (lambda x, v: x.clone().fill_(v), [(FLOATS, 2), (FLOATS, 1j), (WHOLE, 2.5), (WHOLE, 1e30), (FLOATS + 1j, 1j), (TRUTHS, 3)]),
    "huber_loss": (F.huber_loss, [(FLOATS, FLOATS + 1), (FLOATS, DOUBLES + 3), (DOUBLES, FLOATS), (FLOATS, WHOLE)]),
    "huber_loss of each": (lambda x, y: F.huber_loss(x, y, reduction="none"), [(FLOATS, DOUBLES + 3), (DOUBLES, FLOATS + 1)]),
}  # fmt: skip
CASES = [(name, n) for name, (_, operands) in OPERANDS.items() for n in range(len(operands))]


def outcome(f, args):
    try:
        return f(*args)
    except (RuntimeError, ValueError, IndexError, TypeError) as error:
        return type(error)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "number"), CASES)
def test_operands(name, number):
    f, operands = OPERANDS[name]
    args = operands[number]
    expected = outcome(f, args)
    found = outcome(stoker.compile(lambda *given: f(*given), backend="aot_eager"), args)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)  # types, too
    else:
        assert found is expected


@pytest.mark.parametrize("sizes", [(3, 4), (3,), (4,), (1,), (3, 1), (1, 4), (), (3, 4, 1)], ids=str)
@pytest.mark.parametrize("full", [False, True])
def test_masks(sizes, full):
    def set_by(x, mask):
        x[mask] = 3.0
        return x + 1

    def set_columns(x, mask):
        x[:, mask] = 2.0
        return x + 1

    for f in (set_by, set_columns):
        args = SQUARE.clone(), torch.full(sizes, full)
        expected = outcome(f, args)
        found = outcome(stoker.compile(f, backend="aot_eager"), (SQUARE.clone(), args[1]))
        assert found is expected if isinstance(expected, type) else torch.equal(found, expected)


def test_tensors_of_inference_mode():
    """What may be done with them where gradients are computed, eager says."""
    with torch.inference_mode():
        given = torch.arange(3.0)

    def copied(v, y):
        return v.clone() * y

    def saved(v, y):
        return v * y

    for backend in ("aot_eager", "stoker"):
        for f in (copied, saved):
            y = torch.ones(3, requires_grad=True)
            compiled = stoker.compile(f, backend=backend)
            for v in (given, given.clone(), given):
                expected, found = outcome(f, (v, y)), outcome(compiled, (v, y))
                if isinstance(expected, type):
                    assert found is expected
                else:
                    torch.testing.assert_close(
                        torch.autograd.grad(found.sum(), y), torch.autograd.grad(expected.sum(), y)
                    )
