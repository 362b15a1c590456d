"""One operator on fake tensors: from arguments' metadata to results' metadata.

In:  an operator overload and its arguments, fake tensors among them.
Out: its results as fake tensors; views share memory with their base, in-place operators return their argument.

The order of knowledge: the memo; our rules; the functional form of an in-place or out= operator; a fake kernel
registered through torch.library; the operator's own decomposition; torch's meta kernel. Requirements, held by
tests/unit/fake:
  1. Metadata equals eager's on the reported device (test_exact.py, over OpInfo).
  2. A memo hit gives what a miss gives (test_propagate.py), aliasing included.
  3. Common operators load neither Dynamo, Inductor nor SymPy (test_no_load.py).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.devices import require_one_device
from stoker.fake.foreign import REFUSE_NUMBERS, ask_others, eager_complains, refuse_numbers
from stoker.fake.meet import eager_refuses, write_meets
from stoker.fake.meta import Meta, product
from stoker.fake.rule import IMPURE, RULES, Decline, ViewOf
from stoker.fake.tensor import FakeStorage, FakeTensor, make_fake
from stoker.fake.write import functional_form, is_out_form, write_in_place, write_out, written_by
from stoker.nest import leaves, map_leaves

STATIC_MEMO: dict[Any, Any] = {}
"""Results that mention no symbol: true in every mode of this process."""

_default_dtype = torch.get_default_dtype
_CONSTANT_TYPES = frozenset({type(None), str, torch.dtype, torch.device, torch.layout, torch.memory_format})


class _Unkeyed(Exception):
    """An argument that no memo key can describe (a generator, a storage)."""


def propagate(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The results of `func`, as fake tensors of `mode`."""
    mode.drawn += _is_seeded(func)
    if (impure := IMPURE.get(func)) is not None:
        require_one_device(func, args, kwargs)
        found = impure(mode, func, *args, **kwargs)
        if found is not NotImplemented:
            return found
    tensors: list[FakeTensor] = []
    key: list[Any] = [func, _default_dtype()]
    try:
        symbolic = _describe(mode, args, key, tensors)
        if kwargs:
            for name, value in kwargs.items():
                key.append(name)
                symbolic |= _describe(mode, (value,), key, tensors)
    except _Unkeyed:
        tensors = _fakes(mode, args, kwargs)
        return _made(mode, func, args, kwargs, tensors)(mode, func, tensors)
    memo = mode.memo if symbolic else STATIC_MEMO
    frozen = tuple(key)
    recipe = memo.get(frozen)
    if recipe is None:
        if is_out_form(func):
            IMPURE[func] = _write_out
            return _write_out(mode, func, *args, **kwargs)
        known = _symbols_made(mode)
        recipe = _made(mode, func, args, kwargs, tensors)
        if _symbols_made(mode) == known:
            memo[frozen] = recipe
    if type(recipe) is _Writing and write_meets(tensors, recipe.written):
        eager_refuses(func, *_only_fakes(mode, args, kwargs))
    made = recipe(mode, func, tensors)
    if mode.shape_env is not None and _is_function(func):
        _number_contents(mode, recipe, tensors, made)
        if type(made) is FakeTensor and not any(t.memory.constant is None for t in tensors):
            _compute_number(func, args, kwargs, made)
    return made


@functools.cache
def _is_seeded(func: Any) -> bool:
    """Does it draw from a generator?"""
    return torch.Tag.nondeterministic_seeded in func.tags


@functools.cache
def _is_function(func: Any) -> bool:
    """Does it compute the same of the same? Of a library of the user's nothing is known."""
    schema = torch_private.schema_of(func)
    return func.namespace == "aten" and not _is_seeded(func) and not schema.is_mutable and "empty" not in schema.name


def _number_contents(mode: Any, recipe: Recipe, tensors: list[FakeTensor], made: Any) -> None:
    """Say what new memory holds: what the same call made of the same contents before. (A call has one recipe in the memo.)"""
    contents = [t.memory.content for t in tensors]
    for place, result in enumerate(made if isinstance(made, (list, tuple)) else (made,)):
        if type(result) is FakeTensor and result.memory.content not in contents:
            memory = result.memory
            memory.content = mode.contents.setdefault((recipe, place, *contents), memory.content)


def _compute_number(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], made: FakeTensor) -> None:
    """A result of one element, all of whose operands are known, is known: `torch.div(12, 5) + 1`."""
    meta, memory = made.meta, made.memory
    if meta.symbolic or product(meta.sizes) != 1 or meta.device.type != "cpu" or memory.constant is not None:
        return
    try:
        known_args, known_kwargs = map_leaves(_known, [args, kwargs])
    except _Unknown:
        return
    with torch_private.dispatch_modes_off(), torch.no_grad():
        memory.constant = _in_memory(func(*known_args, **known_kwargs))


def _in_memory(value: torch.Tensor) -> torch.Tensor:
    """Zeros that autograd makes have no memory. What lays them out stands above our dispatch: kernels called from here would read it."""
    return torch.zeros(value.shape, dtype=value.dtype) if torch_private.is_zero_tensor(value) else value


class _Unknown(Exception):
    """An argument is not known."""


def _known(leaf: Any) -> Any:
    """An argument with its content."""
    if isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise _Unknown
    if not isinstance(leaf, FakeTensor):
        return leaf
    constant = leaf.memory.constant
    if constant is None or constant.dtype is not leaf.meta.dtype or leaf.meta.symbolic:
        raise _Unknown
    return constant.reshape(leaf.meta.sizes)


def _symbols_made(mode: Any) -> int:
    """A result with sizes that only data tells is another at the next call."""
    env = mode.shape_env
    return 0 if env is None else len(env.symbols) + len(env.float_origins) + mode.told_by_data


def _describe(mode: Any, values: Any, key: list[Any], tensors: list[FakeTensor]) -> bool:
    """Append what the result may depend on to `key`, and each tensor to `tensors`. True if a symbol is among it."""
    symbolic = False
    for value in values:
        kind = type(value)
        if kind is FakeTensor:
            key.append(value.meta)
            tensors.append(value)
            symbolic |= value.meta.symbolic
        elif kind is int:
            key.append(value)
        elif kind is bool or kind is float or kind is complex:  # True, 1, 1.0 and 1 + 0j are equal
            key.append(kind)
            key.append(value)
        elif kind is list or kind is tuple:
            key.append(len(value))
            key.append(kind)
            symbolic |= _describe(mode, value, key, tensors)
        elif kind in _CONSTANT_TYPES:
            key.append(value)
        elif isinstance(value, torch.Tensor):
            fake = mode.as_fake(value)
            if not fake.meta.sizes and fake.meta.device.type == "cpu":  # a number that C++ made a tensor of
                fake.memory.constant = _in_memory(value)
            key.append(fake.meta)
            tensors.append(fake)
            symbolic |= fake.meta.symbolic
        elif isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            key.append(kind)
            key.append(value.node.expr)
            symbolic = True
        else:
            raise _Unkeyed
    return symbolic


def _fakes(mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[FakeTensor]:
    return [mode.as_fake(leaf) for leaf in leaves([args, kwargs]) if isinstance(leaf, torch.Tensor)]


Recipe = Callable[[Any, Any, list[FakeTensor]], Any]


def _fresh(meta: Meta) -> Recipe:
    return lambda mode, func, tensors: make_fake(meta, FakeStorage(mode))


def _view(meta: Meta, index: int) -> Recipe:
    return lambda mode, func, tensors: make_fake(meta, tensors[index].memory)


def _itself(index: int) -> Recipe:
    return lambda mode, func, tensors: tensors[index]


@dataclass(frozen=True, slots=True)
class _Writing:
    """The recipe of an operator that writes to some of the tensors."""

    recipe: Recipe
    written: tuple[int, ...]

    def __call__(self, mode: Any, func: Any, tensors: list[FakeTensor]) -> Any:
        for index in self.written:
            tensors[index].memory.forget()
        return self.recipe(mode, func, tensors)


def _several(parts: list[Recipe], kind: type) -> Recipe:
    return lambda mode, func, tensors: kind([part(mode, func, tensors) for part in parts])


def _recipe(result: Any, tensors: list[FakeTensor]) -> Recipe:
    """How to make a result again from tensors of the same metadata."""
    match result:
        case Meta():
            return _fresh(result)
        case ViewOf(meta, base):
            return _view(meta, _position(base, tensors))
        case FakeTensor():
            return _itself(_position(result, tensors))
        case list() | tuple():
            return _several([_recipe(r, tensors) for r in result], type(result) if type(result) is list else tuple)
        case _:
            return lambda mode, func, tensors: result


def _made(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[FakeTensor]) -> Recipe:
    """The recipe of a call."""
    recipe = _recipe(_results(mode, func, args, kwargs), tensors)
    if not torch_private.schema_of(func).is_mutable:
        return recipe
    found = {id(mode.as_fake(t)) for t in written_by(func, args, kwargs)}
    return _Writing(recipe, tuple(i for i, t in enumerate(tensors) if id(t) in found))


def _position(tensor: FakeTensor, tensors: list[FakeTensor]) -> int:
    return next(i for i, t in enumerate(tensors) if t is tensor)


def _results(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What a rule would answer, from the best source there is."""
    args, kwargs = _only_fakes(mode, args, kwargs)
    require_one_device(func, args, kwargs)
    if torch_private.schema_of(func).name in REFUSE_NUMBERS:
        refuse_numbers(func, args, kwargs)
    found = RULES.get(func)
    if found is not None:
        try:
            return found(*args, **kwargs)
        except Decline:
            eager_complains(func, args, kwargs)
    elif torch_private.schema_of(func).is_mutable and (functional := functional_form(func)) in RULES:
        return write_in_place(func, functional, functools.partial(_results, mode), args, kwargs)
    return ask_others(mode, func, args, kwargs)


def _write_out(mode: Any, func: Any, *args: Any, **kwargs: Any) -> Any:
    """An operator with out=: it may resize its results, so it runs each time."""
    require_one_device(func, args, kwargs)
    args, kwargs = _only_fakes(mode, args, kwargs)
    tensors = _fakes(mode, args, kwargs)
    targets = leaves([kwargs[a.name] for a in torch_private.schema_of(func).arguments if a.is_out])
    if write_meets(tensors, range(len(tensors) - len(targets), len(tensors))):
        eager_refuses(func, args, kwargs)
    functional = functional_form(func)
    if functional is None:
        return _recipe(ask_others(mode, func, args, kwargs), tensors)(mode, func, tensors)
    return write_out(func, functional, functools.partial(_results, mode), args, kwargs)


def _only_fakes(mode: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return _all_fake(mode, args), {k: _all_fake(mode, (v,))[0] for k, v in kwargs.items()}


def _all_fake(mode: Any, values: Any) -> tuple[Any, ...]:
    return tuple(
        mode.as_fake(v)
        if isinstance(v, torch.Tensor)
        else (type(v)(_all_fake(mode, v)) if type(v) in (list, tuple) else v)
        for v in values
    )
