"""What others know of an operator: a registered fake kernel, a decomposition, torch's meta kernel, eager's errors.

In:  an operator and arguments with fake tensors.
Out: the answer a rule of ours would give (see `stoker.fake.rule`).

Some of torch's meta kernels are Python and import Dynamo on their first call; so this is for operators without a rule.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.meta import Meta, Size, alike, is_contiguous, meta_of, product
from stoker.fake.rule import NoMetaRule, ViewOf
from stoker.fake.tensor import FakeTensor, data_dependent, make_fake
from stoker.nest import leaves, map_leaves
from stoker.shape.env import LARGEST_SIZE, DataDependent
from stoker.shape.symnode import symint

_LARGEST_TRIAL_ELEMENTS = 1 << 20
_COMPOSITE = torch_private.DispatchKey.CompositeImplicitAutograd


def map_tensors(function: Callable[[Any], Any], value: Any) -> Any:
    """`value` with `function` applied to each tensor in it."""
    return map_leaves(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, value)


def tensors_in(value: Any) -> list[FakeTensor]:
    """The fake tensors in nested arguments, in order."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, torch.Tensor)]  # type: ignore[misc]  # all are fakes here


def eager_complains(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run eager on small stand-ins so that it raises its own error; return if it finds none.

    Large arguments become one element seen many times: the shape checks come before any work. Symbolic sizes are what they are in
    this call; where only data tells them, eager is not asked.
    """

    def stand_in(leaf: Any) -> Any:
        if isinstance(leaf, torch.SymInt):
            return size_now(leaf)
        if not isinstance(leaf, torch.Tensor):
            return leaf
        sizes = [size_now(s) for s in leaf.meta.sizes]  # type: ignore[attr-defined]  # all are fakes here
        real = torch.zeros(sizes if product(sizes) <= _LARGEST_TRIAL_ELEMENTS else (), dtype=leaf.dtype)
        return real.expand(sizes)

    try:
        trial_args, trial_kwargs = map_leaves(stand_in, [args, kwargs])
    except Untold:
        return
    devices = {t.meta.device for t in tensors_in([args, kwargs]) if t.meta.sizes}
    if len(devices) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted(map(str, devices), reverse=True)[:2])}!"
        )
    trial_kwargs = {k: torch.device("cpu") if isinstance(v, torch.device) else v for k, v in trial_kwargs.items()}
    with torch_private.dispatch_modes_off(), torch.random.fork_rng(devices=[]), torch.no_grad():
        func(*trial_args, **trial_kwargs)


_REFUSE_NUMBERS = """
cauchy cauchy_ exponential exponential_ geometric geometric_ log_normal log_normal_ normal normal_ normal_functional uniform uniform_
random random_ bernoulli bernoulli_ huber_loss smooth_l1_loss softshrink hardshrink gelu rrelu native_dropout masked_fill masked_fill_ fill fill_
"""
REFUSE_NUMBERS = frozenset(f"aten::{name}" for name in _REFUSE_NUMBERS.split())
"""Operators that refuse some numbers, whatever their tensors are."""


def refuse_numbers(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Run eager on tensors of one element, with the numbers of this call, so that it raises its own error."""
    if any(isinstance(leaf, (torch.SymInt, torch.SymFloat)) for leaf in leaves([args, kwargs])):
        return
    one = lambda fake: torch.zeros([1] * len(fake.meta.sizes), dtype=fake.meta.dtype)  # noqa: E731
    given = {name: value for name, value in kwargs.items() if name != "generator"}
    given = {k: torch.device("cpu") if isinstance(v, torch.device) else v for k, v in given.items()}
    with torch_private.dispatch_modes_off(), torch.random.fork_rng(devices=[]), torch.no_grad():
        func(*map_tensors(one, args), **map_tensors(one, given))


class Untold(Exception):
    """A size that only data tells."""


def size_now(size: Size) -> int:
    """What a size is in this call. No guard: for answers that hold whatever it is."""
    if not isinstance(size, torch.SymInt):
        return int(size)
    if not size.node.has_hint():
        raise Untold
    return int(size.node.require_hint())


def ask_others(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The best answer that is not one of our rules. A meta kernel in Python that fails on symbols is run on fakes, whose factories are
    ours, and so is a kernel that is written with other operators. Who cannot count with symbols is asked again with the numbers they are now, which become guards."""
    if not any(t.meta.symbolic for t in tensors_in([args, kwargs])):
        return _ask(mode, func, args, kwargs)
    asked = [functools.partial(_ask, mode, func)]
    kernels = (torch_private.python_meta_kernel(func), torch_private.composite_kernel(func))
    asked += [functools.partial(_under_mode, mode, kernel) for kernel in kernels if kernel is not None]
    for answer in asked:
        try:
            return answer(args, kwargs)
        except (DataDependent, NoMetaRule):
            raise
        except (RuntimeError, AttributeError, TypeError, AssertionError):
            pass  # a complaint of eager's own comes again, about the numbers
    known: dict[int, tuple[FakeTensor, FakeTensor]] = {}
    answer = _ask(mode, func, _with_numbers(args, known), _with_numbers(kwargs, known))
    return _about(answer, {id(concrete): fake for fake, concrete in known.values()})


def _with_numbers(value: Any, known: dict[int, tuple[FakeTensor, FakeTensor]]) -> Any:
    """Arguments with each symbolic size replaced by its number. `known`: fakes, and what stands for them."""
    if isinstance(value, FakeTensor):
        if value.meta.symbolic and id(value) not in known:
            m = value.meta
            numbers = meta_of(m.dtype, [int(s) for s in m.sizes], [int(s) for s in m.strides], m.device, int(m.offset))
            known[id(value)] = (value, make_fake(numbers, value.memory))
        return known[id(value)][1] if value.meta.symbolic else value
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}[type(value)](value)
    if type(value) in (list, tuple):
        return type(value)(_with_numbers(v, known) for v in value)
    if type(value) is dict:
        return {k: _with_numbers(v, known) for k, v in value.items()}
    return value


def _about(answer: Any, originals: dict[int, FakeTensor]) -> Any:
    """An answer about stand-ins, said of the tensors they stood for."""
    match answer:
        case FakeTensor():
            return originals.get(id(answer), answer)
        case ViewOf(meta, base):
            return ViewOf(meta, originals.get(id(base), base))
        case list() | tuple():
            return type(answer)(_about(a, originals) for a in answer)
    return answer


def _ask(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if (kernel := _registered_fake(func)) is not None:
        return _under_mode(mode, kernel, args, kwargs)
    if func.has_kernel_for_dispatch_key(_COMPOSITE):
        return _under_mode(mode, func.decompose, args, kwargs)
    return _meta_kernel(mode, func, args, kwargs)


@functools.cache
def _registered_fake(func: Any) -> Any:
    """The function given to torch.library.register_fake for this operator, or None."""
    return torch_private.registered_fake_kernel(torch_private.schema_of(func).name)


def _under_mode(mode: Any, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a Python function that is written in terms of other operators."""
    with mode, torch_private.fake_kernel_context(lambda: _FakeKernelContext(mode)):
        result = function(*args, **kwargs)
    if result is NotImplemented:
        raise NoMetaRule(function)
    inputs = tensors_in([args, kwargs])
    return map_tensors(lambda fake: _as_answer(mode.as_fake(fake), inputs), result)


class _FakeKernelContext:
    """What torch.library.get_ctx() gives inside a registered fake kernel."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        env = self.mode.shape_env
        if env is None:
            raise data_dependent("torch.library.get_ctx().new_dynamic_size")
        return symint(env, env.new_unbacked(minimum=min, maximum=LARGEST_SIZE if max is None else max))

    create_unbacked_symint = new_dynamic_size


def _as_answer(fake: FakeTensor, inputs: list[FakeTensor]) -> Any:
    for candidate in inputs:
        if fake is candidate:
            return fake
    for candidate in inputs:
        if fake.memory is candidate.memory:
            return ViewOf(fake.meta, candidate)
    return fake.meta


def _by_schema(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the schema alone says: an operator that only writes gives nothing, and its functional form, which torch generates, gives
    what it would have written, in tensors like those."""
    schema = torch_private.schema_of(func)
    if not schema.returns:
        return None if schema.is_mutable else NotImplemented
    given = dict(zip((a.name for a in schema.arguments), args)) | kwargs
    written = [r.name.removesuffix("_out") if r.name else "" for r in schema.returns]
    if torch.Tag.generated not in func.tags or not given.keys() >= set(written):
        return NotImplemented
    return tuple(map_tensors(_like, given[name]) for name in written)


def _like(fake: FakeTensor) -> Meta:
    return alike(fake.meta)


def _meta_kernel(mode: Any, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run torch's meta kernel on tensors of device "meta", and give its results the device eager would."""
    stand_ins: dict[int, tuple[torch.Tensor, FakeTensor]] = {}

    def stand_in(fake: FakeTensor) -> torch.Tensor:
        if id(fake) not in stand_ins:
            stand_ins[id(fake)] = (_meta_tensor(fake.meta), fake)
        return stand_ins[id(fake)][0]

    device = _result_device(args, kwargs)
    meta_kwargs = {k: torch.device("meta") if isinstance(v, torch.device) else v for k, v in kwargs.items()}
    if not tensors_in([args, kwargs]) and any(a.name == "device" for a in torch_private.schema_of(func).arguments):
        meta_kwargs["device"] = torch.device("meta")
    try:
        with torch_private.dispatch_modes_off():
            result = func(*map_tensors(stand_in, args), **map_tensors(stand_in, meta_kwargs))
    except NotImplementedError as error:
        if _reads_data(func):
            raise data_dependent(str(func)) from error
        if (said := _by_schema(func, args, kwargs)) is not NotImplemented:
            return said
        raise NoMetaRule(func) from error
    except RuntimeError as error:
        if "meta tensors" in str(error) and not isinstance(error, DataDependent):
            raise data_dependent(str(func)) from error
        raise
    origin = {torch_private.storage_identity(real): fake for real, fake in stand_ins.values()}

    def answer(real: torch.Tensor) -> Any:
        for known, fake in stand_ins.values():
            if known is real:
                return fake
        meta = meta_of(real.dtype, real.shape, real.stride(), device, real.storage_offset())
        base = origin.get(torch_private.storage_identity(real))
        return meta if base is None else ViewOf(meta, base)

    return map_tensors(answer, result)


_DATA_TAG = torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape


def _reads_data(func: Any) -> bool:
    return any(tag in func.tags for tag in _DATA_TAG)


def _meta_tensor(meta: Meta) -> torch.Tensor:
    if is_contiguous(meta.sizes, meta.strides) and not isinstance(meta.offset, torch.SymInt) and meta.offset == 0:
        return torch.empty_strided(meta.sizes, meta.strides, dtype=meta.dtype, device="meta")
    reach = meta.offset + 1 + sum((s - 1) * t for s, t in zip(meta.sizes, meta.strides))
    flat = torch.empty(torch.sym_max(reach, 0), dtype=meta.dtype, device="meta")
    return torch.as_strided(flat, meta.sizes, meta.strides, meta.offset)


def _result_device(args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.device:
    if isinstance(kwargs.get("device"), torch.device):
        return kwargs["device"]
    fakes = tensors_in([args, kwargs])
    for fake in fakes:
        if fake.meta.sizes or fake.meta.device.type != "cpu":
            return fake.meta.device
    return fakes[0].meta.device if fakes else torch.device("cpu")
