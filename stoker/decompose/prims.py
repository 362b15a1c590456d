"""What remains when everything has been decomposed: the operators a back end must know, by family."""

from __future__ import annotations

from typing import Any

from stoker.decompose.registry import find

FAMILIES: dict[str, str] = {
    "arithmetic": """
        add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar
        div.Tensor_mode div.Scalar_mode remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar neg abs
        reciprocal sqrt rsqrt pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar floor ceil round trunc sign
        maximum minimum clamp clamp.Tensor _conj_physical
    """,
    "elementary functions": """
        exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan atan2 sinh cosh tanh asinh acosh atanh
        erf erfc erfinv lgamma digamma sigmoid relu
    """,
    "comparison and logic": """
        eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar
        ge.Tensor ge.Scalar logical_not logical_and logical_or logical_xor bitwise_not bitwise_and.Tensor
        bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor bitwise_xor.Scalar
        where.self isnan isinf
    """,
    "making": """
        full full_like arange.start_step arange arange.start empty.memory_format empty_like empty_strided
        new_empty new_empty_strided clone _to_copy
    """,
    "views": """
        view _unsafe_view permute t transpose.int expand slice.Tensor select.int unsqueeze squeeze squeeze.dim
        squeeze.dims split.Tensor split_with_sizes unbind.int diagonal as_strided alias detach view.dtype
        view_as_real view_as_complex unfold
    """,
    "moving": """
        cat constant_pad_nd flip repeat index.Tensor index_put gather scatter.src scatter.value scatter_add
        select_scatter slice_scatter diagonal_scatter tril triu
    """,
    "reductions": """
        sum sum.dim_IntList prod prod.dim_int amax amin max max.dim min min.dim argmax argmin any any.dim all
        all.dim cumsum cumprod sort sort.stable topk
    """,
    "matrices, convolutions and attention": """
        mm bmm addmm baddbmm convolution convolution_backward _scaled_dot_product_flash_attention_for_cpu
        _scaled_dot_product_flash_attention_for_cpu_backward _scaled_dot_product_flash_attention
        _scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention
        _scaled_dot_product_efficient_attention_backward _scaled_dot_product_cudnn_attention
        _scaled_dot_product_cudnn_attention_backward
    """,
    "windows": """
        max_pool2d_with_indices max_pool2d_with_indices_backward avg_pool2d avg_pool2d_backward
        _adaptive_avg_pool2d _adaptive_avg_pool2d_backward upsample_nearest2d.vec upsample_bilinear2d.vec
    """,
    "random": """
        bernoulli bernoulli.p rand randn rand_like randn_like randint.low randint randperm uniform
        native_dropout
    """,
}


PRIMS: frozenset[Any] = frozenset(
    found for names in FAMILIES.values() for name in names.split() if (found := find(name)) is not None
)
"""The prims that this version of torch has."""
