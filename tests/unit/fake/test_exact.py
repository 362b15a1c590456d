"""Fake tensors against eager, over the sample inputs of OpInfo: metadata, aliasing, gradients."""

from __future__ import annotations

import importlib
import itertools
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from stoker import torch_private
from stoker.fake import DataDependent, FakeMode, FakeTensor, NoMetaRule

pytest.importorskip("expecttest")  # which OpInfo's module imports
op_db = importlib.import_module("torch.testing._internal.common_methods_invocations").op_db

KNOWN = tomllib.loads((Path(__file__).parents[2] / "known_failures" / "fake.toml").read_text())
SAMPLES = 4


def map_tensors(function: Any, value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return function(value)
    if isinstance(value, (list, tuple)):
        made = [map_tensors(function, v) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    if isinstance(value, dict):
        return {k: map_tensors(function, v) for k, v in value.items()}
    return value


def tensors_in(value: Any) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    map_tensors(found.append, value)
    return found


def non_contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """The same content in every second element of a larger memory."""
    if tensor.layout is not torch.strided or tensor.dim() == 0:
        return tensor
    wide = torch.stack([tensor.detach(), tensor.detach()], -1)[..., 0]
    return wide.requires_grad_(tensor.requires_grad)


def transposed(tensor: torch.Tensor) -> torch.Tensor:
    """The same content with dimensions stored in the opposite order."""
    if tensor.layout is not torch.strided or tensor.dim() < 2:
        return tensor
    order = list(range(tensor.dim()))[::-1]
    stored = tensor.detach().permute(order).contiguous().permute(order)
    return stored.requires_grad_(tensor.requires_grad)


def thin(tensor: torch.Tensor) -> torch.Tensor:
    """One row of it, and that stored by columns: a dimension of one element with a stride that nobody would compute."""
    if tensor.layout is not torch.strided or tensor.dim() < 2 or not tensor.numel():
        return tensor
    return transposed(tensor.detach()[:1]).detach().requires_grad_(tensor.requires_grad)


def thin_inside(tensor: torch.Tensor) -> torch.Tensor:
    """The same of its last dimension, in larger memory."""
    if tensor.layout is not torch.strided or tensor.dim() < 2 or not tensor.numel():
        return tensor
    return transposed(tensor.detach())[..., :1].detach().requires_grad_(tensor.requires_grad)


def describe(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return ("sparse",)
    strides = None
    if tensor.numel() > 0:
        strides = tuple(tensor.stride())
    return (tensor.dtype, tuple(tensor.shape), strides, tensor.device.type, tensor.requires_grad)


def memory(tensor: torch.Tensor) -> Any:
    if isinstance(tensor, FakeTensor):
        return id(tensor.memory)
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return None
    return tensor.untyped_storage()._cdata


def aliases(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[list[int]]:
    return [[i for i, x in enumerate(inputs) if memory(out) == memory(x)] for out in outputs]


def check(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """None, or how fake and eager differ."""
    if any(t.layout is not torch.strided for t in tensors_in([args, kwargs])):
        return None
    mode = FakeMode()
    fakes: dict[int, torch.Tensor] = {}

    def fake(tensor: torch.Tensor) -> torch.Tensor:
        fakes.setdefault(id(tensor), mode.from_real(tensor))
        return fakes[id(tensor)]

    fake_args, fake_kwargs = map_tensors(fake, args), map_tensors(fake, kwargs)
    inputs, fake_inputs = tensors_in([args, kwargs]), tensors_in([fake_args, fake_kwargs])
    try:
        real = function(*args, **kwargs)
    except Exception as error:
        real = error
    try:
        with mode:
            ours = function(*fake_args, **fake_kwargs)
    except (DataDependent, NoMetaRule) as error:
        return None if isinstance(error, DataDependent) else str(error)
    except Exception as error:
        if isinstance(real, Exception):
            return None
        return f"raises {type(error).__name__}: {error}"
    if isinstance(real, Exception):
        return None
    real_out, our_out = tensors_in(real), tensors_in(ours)
    if [describe(t) for t in real_out] != [describe(t) for t in our_out]:
        return f"eager {[describe(t) for t in real_out]}, fake {[describe(t) for t in our_out]}"
    if not any(memory(t) is None for t in (*real_out, *inputs)) and aliases(real_out, inputs) != aliases(
        our_out, fake_inputs
    ):
        return f"aliases: eager {aliases(real_out, inputs)}, fake {aliases(our_out, fake_inputs)}"
    if [describe(t) for t in inputs] != [describe(t) for t in fake_inputs]:
        return "an input's metadata changed in one but not in the other"
    return None


def gradients(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Metadata of the gradients that autograd gives for ones."""
    result = function(*args, **kwargs)
    outputs = tuple(t for t in tensors_in(result) if t.requires_grad and not t.is_complex())
    leaves = tuple(t for t in tensors_in([args, kwargs]) if t.requires_grad and t.is_leaf)
    if not outputs or not leaves:
        return []
    ones = tuple(torch.ones_like(t) for t in outputs)
    found = torch_private.run_backward(outputs, ones, leaves)
    return [None if t is None else describe(t) for t in found]


def check_gradients(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """None, or how the gradients of fake and eager differ."""
    if any(t.layout is not torch.strided for t in tensors_in([args, kwargs])):
        return None
    try:
        real = gradients(function, args, kwargs)
    except Exception:
        return None
    mode = FakeMode()
    try:
        with mode:
            ours = gradients(function, map_tensors(mode.from_real, args), map_tensors(mode.from_real, kwargs))
    except DataDependent:
        return None
    except Exception as error:
        return f"raises {type(error).__name__}: {error}"
    return None if real == ours else f"eager {real}, fake {ours}"


LAYOUTS = (lambda t: t, non_contiguous, transposed, thin, thin_inside)


@pytest.mark.parametrize(
    "op", op_db, ids=lambda op: op.name + ("." + op.variant_test_name if op.variant_test_name else "")
)
@pytest.mark.parametrize("compare", [check, check_gradients])
def test_like_eager(op: Any, compare: Any) -> None:
    name = op.name + ("." + op.variant_test_name if op.variant_test_name else "")
    if compare is check_gradients:
        if not op.supports_autograd:
            pytest.skip("no gradient")
        name = f"{name} backward"
    if torch.float32 not in op.supported_dtypes("cpu"):
        pytest.skip("no float32")
    problems = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        grad = op.supports_autograd
        for sample in itertools.islice(op.sample_inputs("cpu", torch.float32, requires_grad=grad), SAMPLES):
            for change in LAYOUTS:
                args = map_tensors(change, (sample.input, *sample.args))
                problem = compare(op.op, args, map_tensors(change, sample.kwargs))
                if problem is not None:
                    problems.append(problem)
    if name in KNOWN:
        if problems:
            pytest.xfail(KNOWN[name])
        return
    assert not problems, "\n".join(problems[:3])


def test_operands_of_other_types_are_converted_first() -> None:
    """On a processor the iterator sees what the conversion made: an expanded operand is dense then."""
    mode, plain, turned = FakeMode(), torch.randn(4, 6), torch.randn(6, 4).t()
    narrow = plain.to(torch.bfloat16)
    for a in (narrow[:1].expand(4, 6), narrow, narrow[:, :1].expand(4, 6), narrow[:, ::2].repeat(1, 2)):
        for b in (turned, plain, turned[:, :1].expand(4, 6)):
            for operation in (torch.add, torch.mul, torch.lt, torch.maximum):
                for x, y in ((a, b), (b, a)):
                    with mode:
                        made = operation(mode.from_real(x), mode.from_real(y))
                    assert tuple(made.stride()) == operation(x, y).stride(), (operation, x.stride(), y.stride())
