"""Operators that stay library calls, and why: the words that `stoker.explain` and the coverage page show.

`LIBRARY` holds those that could be taken apart, where the library's kernel is better. `reason` answers for every other operator
without a lowering: by its tags (it draws random numbers, the size of its result depends on data), else by `_REASONS`.
"""

from __future__ import annotations

import functools
from fnmatch import fnmatch
from typing import Any

import torch

from stoker import torch_private
from stoker.lower.registry import find

LIBRARY = frozenset({find("embedding_dense_backward.default")}) - {None}

EXACT = frozenset(
    operator
    for kind in ("flash", "efficient", "cudnn")
    for suffix in ("", "_backward")
    if (operator := find(f"_scaled_dot_product_{kind}_attention{suffix}.default")) is not None
) | {find("_scaled_mm.default")}
"""Operators that are given eager's own strides, in inference too: their kernels refuse others when they run."""

BIAS = 3
"""The position of what is added to scores, among the arguments of attention."""
BIASED = frozenset(find(f"_scaled_dot_product_{kind}_attention.default") for kind in ("efficient", "cudnn")) - {None}
"""Kernels that read a bias which all of a batch, or all heads, share, once."""

UNKNOWN = "it has no lowering"

_REASONS: dict[str, str] = {
    "a matrix product": "bmm baddbmm addbmm addmv mv dot vdot _trilinear _weight_int8pack_mm _int_mm _scaled_mm _addmm_activation",
    "a convolution": "convolution convolution_backward",
    "an attention kernel": "_scaled_dot_product_* _flash_attention* _efficient_attention*",
    "linear algebra": """
        linalg_* _linalg_* cholesky cholesky_* lu_unpack ormqr triangular_solve geqrf _lu_with_info
        """,
    "a Fourier transform": "_fft_*",
    "a sort, or a choice by rank": "sort topk kthvalue median nanmedian mode",
    "complex numbers": "view_as_real view_as_complex complex polar _conj_physical angle sgn real imag resolve_conj _conj",
    "a special function": """
        special_* digamma polygamma erfinv i0 igamma igammac mvlgamma hypot nextafter frexp ldexp gcd lcm round
        """,
    "each window writes to one place, which ATen's kernel does with less work than asking each element": """
        max_pool*_backward adaptive_max_pool*_backward fractional_max_pool* max_unpool*
        """,
    "the gradient of an interpolation writes to few places": "upsample_*_backward _upsample_nearest_exact*_backward",
    "windows whose sizes depend on the ratio": "_upsample_*_aa _upsample_*_aa_backward",
    "a line is interpolated as fast by ATen": "upsample_linear1d",
    "places computed from data, which ATen's kernel reads in vectors": "grid_sampler_*",
    "bags whose lengths depend on data": "_embedding_bag* segment_reduce _segment_reduce_backward",
    "rows that meet are added by the library's kernel": "embedding_dense_backward",
    "a recurrence": "recurrent* _ctc_loss _ctc_loss_backward lstm* gru* rnn* _thnn_* mkldnn_rnn_layer*",
    "distances of all pairs": "_cdist_* _pdist_*",
    "elements at the border collect sums of different lengths": "reflection_pad*_backward replication_pad*_backward",
    "it counts into places that data chooses": "histc bincount histogram* _histogramdd* nonzero_static",
    "it is a batch norm of the library's own": "batch_norm_backward _batch_norm_with_update*",
    "its chunks are a library's": "_linear_cross_entropy_batch_chunked*",
    "whole numbers, or nothing to sum": "addr logsumexp",
    "few programs use it": """
        _chunk_cat _unsafe_masked_index* block_diag dist hash_tensor index_reduce isin masked_scatter masked_scatter_backward
        multi_margin_loss* multilabel_margin_loss* put renorm rrelu_with_noise_backward logspace linspace tril_indices
        triu_indices native_channel_shuffle
        """,
}


@functools.cache
def reason(operator: Any) -> str:
    """Why an operator without a lowering is a library call."""
    if not isinstance(operator, torch_private.OpOverload):
        return "it writes to its arguments, and has no form that does not"
    tags = operator.tags
    if torch.Tag.nondeterministic_seeded in tags:
        return "it draws random numbers in eager's order"
    if torch.Tag.dynamic_output_shape in tags:
        return "the size of its result depends on data"
    name = str(operator.overloadpacket).rpartition(".")[2]
    for words, patterns in _REASONS.items():
        if any(fnmatch(name, pattern) for pattern in patterns.split()):
            return words
    return UNKNOWN
