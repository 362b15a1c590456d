"""What remains when everything has been decomposed: the operators a back end must know, by family."""

from __future__ import annotations

from typing import Any

from stoker.decompose.registry import find

FAMILIES: dict[str, str] = {
    "arithmetic": """
        add.Tensor add.Scalar sub.Tensor sub.Scalar mul.Tensor mul.Scalar div.Tensor div.Scalar div.Tensor_mode
        div.Scalar_mode remainder.Tensor remainder.Scalar fmod.Tensor fmod.Scalar neg.default abs.default
        reciprocal.default sqrt.default rsqrt.default pow.Tensor_Tensor pow.Tensor_Scalar pow.Scalar floor.default
        ceil.default round.default trunc.default sign.default maximum.default minimum.default clamp.default
        clamp.Tensor _conj_physical.default
    """,
    "elementary functions": """
        exp.default exp2.default expm1.default log.default log2.default log10.default log1p.default sin.default
        cos.default tan.default asin.default acos.default atan.default atan2.default sinh.default cosh.default
        tanh.default asinh.default acosh.default atanh.default erf.default erfc.default erfinv.default lgamma.default
        digamma.default sigmoid.default relu.default
    """,
    "comparison and logic": """
        eq.Tensor eq.Scalar ne.Tensor ne.Scalar lt.Tensor lt.Scalar le.Tensor le.Scalar gt.Tensor gt.Scalar ge.Tensor
        ge.Scalar logical_not.default logical_and.default logical_or.default logical_xor.default bitwise_not.default
        bitwise_and.Tensor bitwise_and.Scalar bitwise_or.Tensor bitwise_or.Scalar bitwise_xor.Tensor bitwise_xor.Scalar
        where.self isnan.default isinf.default
    """,
    "making": """
        full.default full_like.default arange.start_step arange.default arange.start empty.memory_format
        empty_like.default empty_strided.default new_empty.default new_empty_strided.default clone.default
        _to_copy.default
    """,
    "views": """
        view.default _unsafe_view.default permute.default t.default transpose.int expand.default slice.Tensor select.int
        unsqueeze.default squeeze.default squeeze.dim squeeze.dims split.Tensor split_with_sizes.default unbind.int
        diagonal.default as_strided.default alias.default detach.default view.dtype view_as_real.default
        view_as_complex.default unfold.default
    """,
    "moving": """
        cat.default constant_pad_nd.default flip.default repeat.default index.Tensor index_put.default gather.default
        scatter.src scatter.value scatter_add.default select_scatter.default slice_scatter.default
        diagonal_scatter.default tril.default triu.default
    """,
    "reductions": """
        sum.default sum.dim_IntList prod.default prod.dim_int amax.default amin.default max.default max.dim min.default
        min.dim argmax.default argmin.default any.default any.dim all.default all.dim cumsum.default cumprod.default
        sort.default sort.stable topk.default
    """,
    "matrices, convolutions and attention": """
        mm.default bmm.default addmm.default baddbmm.default convolution.default convolution_backward.default
        _scaled_dot_product_flash_attention_for_cpu.default _scaled_dot_product_flash_attention_for_cpu_backward.default
        _scaled_dot_product_flash_attention.default _scaled_dot_product_flash_attention_backward.default
        _scaled_dot_product_efficient_attention.default _scaled_dot_product_efficient_attention_backward.default
        _scaled_dot_product_cudnn_attention.default _scaled_dot_product_cudnn_attention_backward.default
    """,
    "windows": """
        max_pool2d_with_indices.default max_pool2d_with_indices_backward.default avg_pool2d.default
        avg_pool2d_backward.default _adaptive_avg_pool2d.default _adaptive_avg_pool2d_backward.default
        upsample_nearest2d.vec upsample_bilinear2d.vec
    """,
    "random": """
        bernoulli.default bernoulli.p rand.default randn.default rand_like.default randn_like.default randint.low
        randint.default randperm.default uniform.default native_dropout.default
    """,
}


PRIMS: frozenset[Any] = frozenset(
    found for names in FAMILIES.values() for name in names.split() if (found := find(name)) is not None
)
"""The prims that this version of torch has."""
