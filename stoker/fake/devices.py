"""Tensors of several devices in one call: which operators take them, and eager's error for the others.

In:  an operator and its arguments.
Out: nothing, or eager's error. A kernel of ours reads whatever memory it is given, so a graph would give a result where eager
     raises.

Eager has three kinds of operators, told apart by how their kernels begin (`device_check` in torch's list of operators):
    alone   all tensors are on one device; most are
    joined  a 0-d tensor of the processor may join tensors of another device: element-wise ones
    mixed   the kernel looks for itself, and so do our rules: `x[i]` with indices of the processor, copies

A tensor of device "meta" is nobody's memory, and eager's kernels for it look at less: they are asked (`stoker.fake.foreign`).
"""

from __future__ import annotations

import functools
from enum import Enum, auto
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.write import functional_form, written_by
from stoker.nest import leaves


class Company(Enum):
    """Which devices the tensors of a call may be on."""

    ALONE = auto()
    JOINED = auto()
    MIXED = auto()


_ALONE = """
clamp clamp_max clamp_min gcd lcm igamma igammac logaddexp logaddexp2 nextafter equal _fused_rms_norm
"""
_JOINED = """
floor_divide rsub masked_fill mse_loss smooth_l1_loss binary_cross_entropy binary_cross_entropy_with_logits complex polar ldexp dist
index_fill allclose smooth_l1_loss_backward huber_loss_backward soft_margin_loss soft_margin_loss_backward
binomial __irshift__
"""
_MIXED = """
index _unsafe_index index_put _unsafe_index_put _index_put_impl _unsafe_masked_index _unsafe_masked_index_put_accumulate
copy fill set resize_as is_same_size is_set_to slice_inverse slice_scatter select_scatter diagonal_scatter as_strided_scatter
_pack_padded_sequence linspace logspace randint_like bernoulli quantize_per_tensor _ctc_loss _cudnn_ctc_loss _use_cudnn_ctc_loss _cudnn_rnn
_scaled_dot_product_efficient_attention_backward _scaled_dot_product_flash_attention_backward
_scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_fused_attention_overrideable_backward
_efficient_attention_backward _flash_attention_backward
"""
COMPANY = {
    f"aten::{name}": company
    for company, names in ((Company.ALONE, _ALONE), (Company.JOINED, _JOINED), (Company.MIXED, _MIXED))
    for name in names.split()
}
"""Operators of which their tags do not tell."""


@functools.cache
def company_of(func: Any) -> Company:
    """What an operator takes. Composite ones are others in disguise, and of a library of the user's nothing is known."""
    functional = functional_form(func) or func
    name = torch_private.schema_of(functional).name
    keys = torch_private.DispatchKey
    if (told := COMPANY.get(name if name.endswith("__") else name.removesuffix("_"))) is not None:
        return told
    if name.startswith(("aten::_foreach_", "aten::_fused_adam", "aten::_fused_sgd", "aten::_fused_adagrad")):
        return Company.MIXED
    is_composite = func.has_kernel_for_dispatch_key(keys.CompositeImplicitAutograd)
    if func.namespace != "aten" or (is_composite and not func.has_kernel_for_dispatch_key(keys.CPU)):
        return Company.MIXED
    return Company.JOINED if torch.Tag.pointwise in functional.tags else Company.ALONE


def require_one_device(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise where eager does."""
    tensors = [leaf for leaf in leaves([args, kwargs]) if isinstance(leaf, torch.Tensor)]
    if len({t.device for t in tensors}) < 2 or any(t.device.type == "meta" for t in tensors):
        return
    company = company_of(func)
    if company is Company.MIXED:
        return
    stay = tensors if company is Company.ALONE else [t for t in tensors if t.dim() or t.device.type != "cpu"]
    devices = {t.device for t in (*stay, *written_by(func, args, kwargs))}
    if len(devices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted(map(str, devices), reverse=True)[:2])}!"
        )
