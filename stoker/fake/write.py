"""Operators that write: in place (`add_`) and into given results (`add.out`), reduced to their functional form.

In:  a writing overload, and the rule of the overload that computes the same values into fresh tensors.
Out: the written argument itself. A result given by out= that has the wrong size is resized, as eager does.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.foreign import eager_complains
from stoker.fake.meta import Meta, meta_of, same
from stoker.fake.rule import overloads
from stoker.fake.tensor import restride
from stoker.nest import leaves

Results = Callable[..., Any]


@functools.cache
def functional_form(func: Any) -> Any:
    """The overload that computes what `func` writes, or None: `add_.Tensor` and `add.out` both give `add.Tensor`."""
    name = torch_private.schema_of(func).name.removeprefix("aten::")
    wanted = [a.name for a in torch_private.schema_of(func).arguments if not a.is_out]
    kinds = [str(a.type) for a in torch_private.schema_of(func).arguments if not a.is_out]
    if not is_out_form(func):
        name = name.removesuffix("_")
    for candidate in overloads(name):
        schema = torch_private.schema_of(candidate)
        if candidate is func or schema.is_mutable:
            continue
        if [a.name for a in schema.arguments] == wanted and [str(a.type) for a in schema.arguments] == kinds:
            return candidate
    return None


@functools.cache
def is_out_form(func: Any) -> bool:
    """Does this overload take its results as arguments?"""
    return any(a.is_out for a in torch_private.schema_of(func).arguments)


def written_by(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    """The tensors among its arguments that an operator writes to."""
    schema = torch_private.schema_of(func)
    if not schema.is_mutable:
        return []
    written = [
        args[position] if position < len(args) else kwargs.get(argument.name)
        for position, argument in enumerate(schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return [leaf for leaf in leaves(written) if isinstance(leaf, torch.Tensor)]


def write_in_place(func: Any, functional: Any, results: Results, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`results` of the functional form, then the first argument itself if they fit into it."""
    outcome = results(functional, args, kwargs)
    target = args[0]
    meta = outcome if isinstance(outcome, Meta) else getattr(outcome, "meta", None)
    fits = meta is None or (same(meta.sizes, target.meta.sizes) and torch.can_cast(meta.dtype, target.meta.dtype))
    if not fits:
        eager_complains(func, args, kwargs)
    return target


def write_out(func: Any, functional: Any, results: Results, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """`results` of the functional form, written into the tensors given by out=."""
    names = [a.name for a in torch_private.schema_of(func).arguments]
    given = dict(zip(names, args)) | kwargs
    targets = leaves([given.pop(a.name) for a in torch_private.schema_of(func).arguments if a.is_out])
    order = [a for a in torch_private.schema_of(functional).arguments if a.name in given]
    positional = tuple(given[a.name] for a in order if not a.kwarg_only)
    outcome = results(functional, positional, {a.name: given[a.name] for a in order if a.kwarg_only})
    metas = [_meta(r) for r in (outcome if isinstance(outcome, (list, tuple)) else [outcome])]
    in_a_list = not torch_private.schema_of(func).returns
    if in_a_list and [t.meta.sizes for t in targets] != [meta.sizes for meta in metas]:  # some operators resize them
        eager_complains(func, args, kwargs)
    for target, meta in zip(targets, metas):
        if not torch.can_cast(meta.dtype, target.meta.dtype):
            eager_complains(func, args, kwargs)
        if not same(target.meta.sizes, meta.sizes):
            restride(target, meta_of(target.meta.dtype, meta.sizes, meta.strides, target.meta.device))
        target.memory.forget()
    if in_a_list:
        return None
    return targets[0] if len(targets) == 1 else tuple(targets)


def _meta(result: Any) -> Meta:
    return result if isinstance(result, Meta) else result.meta
