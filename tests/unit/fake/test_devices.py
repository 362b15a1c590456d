"""Tensors of two devices in one call: refused where eager refuses them, on fake tensors that report a GPU."""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker import torch_private
from stoker.fake import FakeMode
from stoker.fake.devices import Company, company_of
from stoker.fake.meta import meta_of
from stoker.fake.rule import overloads
from stoker.fake.tensor import FakeStorage, FakeTensor, make_fake

CPU, GPU = torch.device("cpu"), torch.device("cuda:0")
FLOATS, ROWS, TRUTH = torch.float32, torch.int64, torch.bool

Operand = tuple[torch.dtype, tuple[int, ...]]
SQUARE: Operand = (FLOATS, (4, 4))
VECTOR: Operand = (FLOATS, (4,))
LINE: Operand = (ROWS, (4,))
GRID: Operand = (ROWS, (4, 4))
IMAGE: Operand = (FLOATS, (2, 4, 8, 8))
NUMBER: Operand = (FLOATS, ())

ALONE: dict[str, tuple[Callable[..., Any], list[Operand]]] = {
    "gather": (lambda x, i: x.gather(0, i), [SQUARE, GRID]),
    "scatter": (lambda x, i, s: x.scatter(0, i, s), [SQUARE, GRID, SQUARE]),
    "scatter a number": (lambda x, i: x.scatter(0, i, 1.0), [SQUARE, GRID]),
    "scatter_": (lambda x, i, s: x.scatter_(0, i, s), [SQUARE, GRID, SQUARE]),
    "scatter_add": (lambda x, i, s: x.scatter_add(0, i, s), [SQUARE, GRID, SQUARE]),
    "scatter_reduce": (lambda x, i, s: x.scatter_reduce(0, i, s, "amax"), [SQUARE, GRID, SQUARE]),
    "index_select": (lambda x, i: x.index_select(0, i), [SQUARE, LINE]),
    "index_select by a number": (lambda x, i: x.index_select(0, i), [SQUARE, (ROWS, ())]),
    "index_add": (lambda x, i, s: x.index_add(0, i, s), [SQUARE, LINE, SQUARE]),
    "index_copy": (lambda x, i, s: x.index_copy(0, i, s), [SQUARE, LINE, SQUARE]),
    "index_fill": (lambda x, i: x.index_fill(0, i, 1.0), [SQUARE, LINE]),
    "index_reduce": (lambda x, i, s: x.index_reduce(0, i, s, "amax"), [SQUARE, LINE, SQUARE]),
    "take": (lambda x, i: x.take(i), [SQUARE, LINE]),
    "take_along_dim": (lambda x, i: x.take_along_dim(i, 0), [SQUARE, GRID]),
    "put_": (lambda x, i, s: x.put_(i, s), [SQUARE, LINE, VECTOR]),
    "embedding": (lambda w, i: F.embedding(i, w), [SQUARE, LINE]),
    "nll_loss": (F.nll_loss, [SQUARE, LINE]),
    "cross_entropy": (F.cross_entropy, [SQUARE, LINE]),
    "weighted cross_entropy": (F.cross_entropy, [SQUARE, LINE, VECTOR]),
    "binary_cross_entropy": (F.binary_cross_entropy, [SQUARE, SQUARE]),
    "mse_loss": (F.mse_loss, [SQUARE, SQUARE]),
    "where": (torch.where, [(TRUTH, (4, 4)), SQUARE, SQUARE]),
    "masked_fill": (lambda x, m: x.masked_fill(m, 0.0), [SQUARE, (TRUTH, (4, 4))]),
    "masked_fill_": (lambda x, m: x.masked_fill_(m, 0.0), [SQUARE, (TRUTH, (4, 4))]),
    "masked_scatter": (lambda x, m, s: x.masked_scatter(m, s), [SQUARE, (TRUTH, (4, 4)), SQUARE]),
    "cat": (lambda x, y: torch.cat([x, y]), [SQUARE, SQUARE]),
    "stack": (lambda x, y: torch.stack([x, y]), [SQUARE, SQUARE]),
    "stack of numbers": (lambda x, y: torch.stack([x, y]), [NUMBER, NUMBER]),
    "matmul": (torch.matmul, [SQUARE, SQUARE]),
    "mv": (torch.mv, [SQUARE, VECTOR]),
    "dot": (torch.dot, [VECTOR, VECTOR]),
    "outer": (torch.outer, [VECTOR, VECTOR]),
    "bmm": (torch.bmm, [(FLOATS, (2, 4, 4)), (FLOATS, (2, 4, 4))]),
    "addmm": (torch.addmm, [VECTOR, SQUARE, SQUARE]),
    "baddbmm": (torch.baddbmm, [VECTOR, (FLOATS, (2, 4, 4)), (FLOATS, (2, 4, 4))]),
    "einsum": (lambda x, y: torch.einsum("ij,jk->ki", x, y), [SQUARE, SQUARE]),
    "linear": (F.linear, [SQUARE, SQUARE]),
    "linear with a bias": (F.linear, [SQUARE, SQUARE, VECTOR]),
    "bilinear": (F.bilinear, [SQUARE, SQUARE, (FLOATS, (3, 4, 4))]),
    "conv2d": (F.conv2d, [IMAGE, (FLOATS, (4, 4, 3, 3)), VECTOR]),
    "conv_transpose2d": (F.conv_transpose2d, [IMAGE, (FLOATS, (4, 4, 3, 3)), VECTOR]),
    "batch_norm": (F.batch_norm, [IMAGE, VECTOR, VECTOR]),
    "layer_norm": (lambda x, w: F.layer_norm(x, (4,), w), [SQUARE, VECTOR]),
    "group_norm": (lambda x, w: F.group_norm(x, 2, w), [IMAGE, VECTOR]),
    "prelu": (F.prelu, [IMAGE, VECTOR]),
    "grid_sample": (lambda x, g: F.grid_sample(x, g, align_corners=False), [IMAGE, (FLOATS, (2, 3, 3, 2))]),
    "attention": (F.scaled_dot_product_attention, [IMAGE, IMAGE, IMAGE]),
    "addcmul": (torch.addcmul, [SQUARE, SQUARE, SQUARE]),
    "lerp": (torch.lerp, [SQUARE, SQUARE, SQUARE]),
    "clamp": (torch.clamp, [SQUARE, SQUARE]),
    "clamp to a number": (torch.clamp, [SQUARE, NUMBER]),
    "add": (torch.add, [SQUARE, SQUARE]),
    "add into": (lambda x, y: torch.add(x, 1, out=y), [SQUARE, SQUARE]),
    "add_": (lambda x, y: x.add_(y), [SQUARE, SQUARE]),
    "isin": (torch.isin, [LINE, LINE]),
    "searchsorted": (torch.searchsorted, [VECTOR, VECTOR]),
    "bucketize": (torch.bucketize, [VECTOR, VECTOR]),
    "bincount": (torch.bincount, [LINE, VECTOR]),
    "masked_select": (torch.masked_select, [SQUARE, (TRUTH, (4, 4))]),
    "cdist": (torch.cdist, [SQUARE, SQUARE]),
    "cross": (lambda x, y: torch.linalg.cross(x, y), [(FLOATS, (4, 3)), (FLOATS, (4, 3))]),
    "repeat_interleave": (lambda x, n: torch.repeat_interleave(x, n, output_size=8), [VECTOR, LINE]),
}
TOGETHER: dict[str, tuple[Callable[..., Any], list[Operand], int]] = {
    "x[i]": (lambda x, i: torch.ops.aten.index.Tensor(x, [i]), [SQUARE, LINE], 1),
    "x[i] = y": (lambda x, i, y: x.index_put_((i,), y), [SQUARE, LINE, SQUARE], 1),
    "add a number": (torch.add, [SQUARE, NUMBER], 1),
    "a number on the left": (torch.mul, [NUMBER, SQUARE], 0),
    "where with a number": (torch.where, [(TRUTH, (4, 4)), SQUARE, NUMBER], 2),
    "addcmul of a number": (torch.addcmul, [SQUARE, SQUARE, NUMBER], 2),
    "fill with a number": (lambda x, y: x.fill_(y), [SQUARE, NUMBER], 1),
    "masked_fill with a number": (lambda x, m, y: x.masked_fill(m, y), [SQUARE, (TRUTH, (4, 4)), NUMBER], 2),
    "copy": (torch.ops.aten.copy.default, [SQUARE, SQUARE], 1),
    "slice_scatter": (lambda x, y: x.slice_scatter(y), [SQUARE, SQUARE], 1),
    "to": (lambda x, y: x.to(y.device) + y, [SQUARE, SQUARE], 1),
}


def run(program: Callable[..., Any], operands: list[Operand], devices: tuple[torch.device, ...]) -> Any:
    mode = FakeMode()
    fakes: list[FakeTensor] = [
        make_fake(meta_of(dtype, sizes, None, device), FakeStorage(mode))
        for (dtype, sizes), device in zip(operands, devices)
    ]
    with mode:
        return program(*fakes)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ALONE)
def test_refused(name: str) -> None:
    program, operands = ALONE[name]
    for devices in itertools.product((CPU, GPU), repeat=len(operands)):
        if len(set(devices)) == 2:
            with pytest.raises(RuntimeError, match="same device|should be the same|Expected tensor to have"):
                run(program, operands, devices)


@pytest.mark.parametrize("name", TOGETHER)
def test_taken(name: str) -> None:
    program, operands, on_the_processor = TOGETHER[name]
    places = tuple(CPU if place == on_the_processor else GPU for place in range(len(operands)))
    assert isinstance(run(program, operands, places), FakeTensor)


def test_a_number_of_the_processor_is_not_written_to_by_others() -> None:
    with pytest.raises(RuntimeError, match="on the same device"):
        run(lambda x, y: x.add_(y), [NUMBER, NUMBER], (CPU, GPU))


LOOSER = """
gelu_backward logit_backward native_dropout_backward sigmoid_backward silu_backward tanh_backward threshold_backward _ctc_loss
quantize_per_tensor _fused_adam_ _fused_adamw_ _fused_sgd_ _fused_adagrad_
"""
"""Operators that eager checks and we do not: autograd calls the first with what the forward made, and the others look for themselves."""
UNSEEN = ("_nested_", "copy_sparse_", "_validate_compressed_sparse", "miopen_", "_use_miopen_")
"""Operators of tensors and devices that no graph has."""


def test_torch_declares_the_same() -> None:
    """`device_check` in the list of operators that torch is generated from."""
    yaml, generator = pytest.importorskip("yaml"), importlib.import_module("torchgen")
    listed = Path(str(generator.__file__)).parent / "packaged/ATen/native/native_functions.yaml"
    differing = []
    for entry in yaml.safe_load(listed.read_text()):
        name, _, overload = entry["func"].split("(")[0].partition(".")
        for op in overloads(name):
            schema = torch_private.schema_of(op)
            several = sum("Tensor" in str(a.type) for a in schema.arguments) > 1
            if torch_private.overload_name(op) != (overload or "default") or not several or schema.arguments[-1].is_out:
                continue
            unchecked = entry.get("device_check") == "NoCheck"
            keys = [key for several_keys in entry.get("dispatch", {}) for key in several_keys.split(", ")]
            own = "CUDA" in keys or "structured_delegate" in entry
            alone = company_of(op) is Company.ALONE
            if (alone and unchecked) or (own and not unchecked and not alone and name not in LOOSER.split()):
                differing.append(entry["func"])
    assert not [text for text in differing if not text.startswith(UNSEEN)]
