"""Torch functions that take numbers which only data tells. Their other calls are nodes as they stand."""

from __future__ import annotations

import builtins
from collections.abc import Sequence
from typing import Any

import torch

from stoker.capture.builtins.floats import follows_plain, varies
from stoker.capture.handlers import handles, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.polyfill import floats, indexing, untold
from stoker.capture.values.constant import Constant
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.rounds import rows_of
from stoker.capture.values.sequence import ListValue, SequenceValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value

NONE, ZERO, ONE, LAST = Constant(None), Constant(0), Constant(1), Constant(-1)
UNSELECTABLE = (torch.uint16, torch.uint32, torch.uint64)
"""Types of which eager selects nothing by a mask."""


@handles(indexing.check)
def check(m: Machine, condition: Value, error: Value, template: Value, *numbers: Value) -> Value:
    """What is known holds or raises; the rest the graph checks."""
    if isinstance(condition, SymbolicValue) and condition.symbol.node.is_unknown():
        words = [error, template, ListValue(list(numbers))]
        given = tuple(
            m.record.to_node(value) for value in (condition, *words)
        )  # as they are before the check is believed
        node = m.record.graph.call_function(torch.ops.stoker.check.default, given)
        node.meta["location"], node.meta["example_value"] = m.location(), None
        m.record.run_fake("call_function", node.target, [m.record.to_fake(v) for v in (condition, *words)], {})
        return NONE
    if not condition.truth(m):
        shown = [m.concrete.constant(number, "an error") for number in numbers]
        m.exceptions.raise_(getattr(builtins, error.constant()), template.constant().format(*shown))
    return NONE


def is_untold(value: Value) -> bool:
    """A number that only running the program tells, or a tensor in its place."""
    return isinstance(value, TensorValue) or isinstance(value, SymbolicValue) and value.untold


def number(m: Machine, value: Value) -> Value:
    """The number, where a tensor stands for it."""
    return m.calls.builtin_method(value, "item", [], {}) if isinstance(value, TensorValue) else value


def _is_positive(m: Machine, value: Value) -> bool:
    return m.operators.compare(">", value, ZERO).truth(m)


@handles(torch.nn.functional.one_hot)
def one_hot(m: Machine, input: Value, num_classes: Value = Constant(-1)) -> Value:  # noqa: B008
    whole = isinstance(input, TensorValue) and input.fake.dtype is torch.int64
    if whole and (is_untold(num_classes) or isinstance(num_classes, SymbolicValue) and _is_positive(m, num_classes)):
        return m.wrap.object(indexing.one_hot_of).call(m, [input, number(m, num_classes)], {})
    known = num_classes.value if isinstance(num_classes, Constant) else None
    if not isinstance(known, int) or not isinstance(input, TensorValue) or input.fake.dtype is not torch.int64:
        return m.record.call(torch.nn.functional.one_hot, [input, num_classes], {})
    if known > 0:
        return m.wrap.object(indexing.one_hot_of).call(m, [input, num_classes], {})
    if known != -1:
        return m.record.call(torch.nn.functional.one_hot, [input, num_classes], {})
    return m.wrap.object(indexing.one_hot).call(m, [input], {})


@handles(torch.equal)
@tensor_special("equal")
def equal(m: Machine, input: Value, other: Value) -> Value:
    if not isinstance(input, TensorValue) or not isinstance(other, TensorValue):
        return m.record.call(torch.equal, [input, other], {})
    shapes = [value.attribute(m, "shape") for value in (input, other)]
    if not m.operators.equal(*shapes):
        return Constant(False)
    return _whether_all(m, m.record.compare("==", input, other))


@handles(torch.allclose)
@tensor_special("allclose")
def allclose(m: Machine, *args: Value, **kwargs: Value) -> Value:
    return _whether_all(m, m.wrap.object(torch.isclose).call(m, list(args), kwargs))


def _whether_all(m: Machine, conditions: Value) -> Value:
    return number(m, m.record.method(conditions, "all", [], {}))


@handles(torch.combinations)
def combinations(m: Machine, input: Value, r: Value = Constant(2), with_replacement: Value = Constant(False)) -> Value:  # noqa: B008
    known = isinstance(input, TensorValue) and input.fake.dim() == 1 and input.fake.dtype not in UNSELECTABLE
    if not known or not isinstance(r, Constant) or r.value <= 0:
        return m.record.call(torch.combinations, [input, r, with_replacement], {})
    return m.wrap.object(indexing.combinations).call(m, [input, r, with_replacement], {})


@handles(torch.arange)
def arange(m: Machine, *bounds: Value, **options: Value) -> Value:
    bounds = (*bounds, *(options.pop(name) for name in ("start", "end", "step") if name in options))
    if any(varies(bound) for bound in bounds) and _makes_floats(options):
        start, end, step = {1: (ZERO, *bounds, ONE), 2: (*bounds, ONE), 3: bounds}[len(bounds)]
        return m.wrap.object(floats.arange).call(m, [start, end, step, _named(options)], {})
    if not any(is_untold(bound) for bound in bounds) or "out" in options:
        return m.record.call(torch.arange, list(bounds), options)
    numbers = [number(m, bound) for bound in bounds]
    if any(bound.python_type() is not int for bound in numbers) or len(numbers) == 3 and is_untold(numbers[2]):
        return m.record.call(torch.arange, list(bounds), options)
    start, end, step = {1: (ZERO, *numbers, ONE), 2: (*numbers, ONE), 3: tuple(numbers)}[len(numbers)]
    return m.wrap.object(indexing.arange).call(m, [start, end, step, _named(options)], {})


@handles(torch.linspace)
def linspace(m: Machine, start: Value, end: Value, steps: Value, **options: Value) -> Value:
    numbers = all(isinstance(bound, (Constant, SymbolicValue)) for bound in (start, end))
    varying = is_untold(steps) or isinstance(steps, SymbolicValue)
    if not varying or not numbers or not _makes_floats(options):
        return m.record.call(torch.linspace, [start, end, steps], options)
    return m.wrap.object(indexing.linspace).call(m, [start, end, number(m, steps), _named(options)], {})


def _named(options: dict[str, Value]) -> DictValue:
    return DictValue({name: (Constant(name), value) for name, value in options.items()})


def _makes_floats(options: dict[str, Value]) -> bool:
    """Nothing is asked of the tensor but that it holds floats, here or on a device."""
    dtype = options.get("dtype", NONE)
    is_float = isinstance(dtype, Constant) and (dtype.value is None or dtype.value.is_floating_point)
    return options.keys() <= {"dtype", "device"} and is_float


@handles(torch.masked_select)
@tensor_special("masked_select")
def masked_select(m: Machine, input: Value, mask: Value, **options: Value) -> Value:
    """Its gradient is written in terms of plain sizes; that of an index is not."""
    tensors = [value for value in (input, mask) if isinstance(value, TensorValue) and value.fake.dim()]
    symbolic = any(isinstance(size, torch.SymInt) for tensor in tensors for size in tensor.fake.shape)
    if options or len(tensors) != 2 or tensors[1].fake.dtype is not torch.bool or not symbolic:
        return m.record.call(torch.masked_select, [input, mask], options)
    return m.wrap.object(indexing.masked_select).call(m, [input, mask], {})


@handles(torch.narrow)
@tensor_special("narrow")
def narrow(m: Machine, input: Value, dim: Value, start: Value, length: Value) -> Value:
    arguments = [input, dim, start, length]
    if not any(is_untold(value) for value in (start, length)) or not isinstance(dim, Constant):
        return m.record.call(torch.narrow, arguments, {})
    return m.wrap.object(indexing.narrow).call(m, [input, dim, number(m, start), number(m, length)], {})


@handles(torch.topk)
@tensor_special("topk")
def topk(m: Machine, input: Value, k: Value, dim: Value = LAST, *rest: Value, **options: Value) -> Value:
    k = _within(m, input, k, dim, 0, "selected index k out of range")
    return m.record.call(torch.topk, [input, k, dim, *rest], options)


@handles(torch.kthvalue)
@tensor_special("kthvalue")
def kthvalue(m: Machine, input: Value, k: Value, dim: Value = LAST, *rest: Value, **options: Value) -> Value:
    k = _within(m, input, k, dim, 1, "kthvalue(): selected number k out of range for dimension {}")
    return m.record.call(torch.kthvalue, [input, k, dim, *rest], options)


def _within(m: Machine, input: Value, k: Value, dim: Value, lowest: int, words: str) -> Value:
    """A number of elements along a dimension. Where only data tells it, the graph checks that there are as many."""
    if not is_untold(k) or not isinstance(input, TensorValue) or not isinstance(dim, Constant):
        return k
    k, shape = number(m, k), input.fake.shape
    if type(dim.value) is int and -len(shape) <= dim.value < max(1, len(shape)):
        highest = m.wrap.number(shape[dim.value]) if shape else ONE
        place = dim.value % max(1, len(shape))
        m.wrap.object(indexing.within).call(m, [k, Constant(lowest), highest, Constant(words.format(place))], {})
    return k


@tensor_special("view")
def view(m: Machine, receiver: Value, *args: Value, **kwargs: Value) -> Value:
    _check_sizes(m, receiver, args)
    return m.record.method(receiver, "view", list(args), kwargs)


@tensor_special("reshape")
def reshape_method(m: Machine, receiver: Value, *args: Value, **kwargs: Value) -> Value:
    _check_sizes(m, receiver, args)
    return m.record.method(receiver, "reshape", list(args), kwargs)


@handles(torch.reshape)
def reshape(m: Machine, input: Value, shape: Value) -> Value:
    _check_sizes(m, input, (shape,))
    return m.record.call(torch.reshape, [input, shape], {})


def _check_sizes(m: Machine, input: Value, given: Sequence[Value]) -> None:
    """Of sizes that only data tells, beside one that is to follow from them, the graph checks that there is such a one."""
    sizes = given[0].items_list(m) if len(given) == 1 and isinstance(given[0], SequenceValue) else list(given)
    places = [i for i, size in enumerate(sizes) if isinstance(size, Constant) and size.value == -1]
    if len(places) != 1 or not any(is_untold(size) for size in sizes) or not isinstance(input, TensorValue):
        return
    count = m.wrap.number(input.fake.numel())
    if not is_untold(count) and _is_positive(m, count) and not any(isinstance(size, TensorValue) for size in sizes):
        m.wrap.object(indexing.sizes_fit).call(m, [count, ListValue(sizes), Constant(places[0])], {})


@handles(torch.split)
def split(m: Machine, tensor: Value, split_size_or_sections: Value, dim: Value = ZERO) -> Value:
    sizes = split_size_or_sections
    if isinstance(sizes, SequenceValue) and any(is_untold(size) for size in sizes.elements(m)):
        return split_with_sizes(m, tensor, sizes, dim)
    return rows_of(m, tensor, dim, sizes) or m.record.call(torch.split, [tensor, sizes, dim], {})


@tensor_special("split")
def split_method(m: Machine, tensor: Value, split_size: Value, dim: Value = ZERO) -> Value:
    return split(m, tensor, split_size, dim)


@handles(torch.split_with_sizes)
@tensor_special("split_with_sizes")
def split_with_sizes(m: Machine, input: Value, split_sizes: Value, dim: Value = ZERO) -> Value:
    sizes = split_sizes.items_list(m)
    if not any(is_untold(size) for size in sizes) or not isinstance(dim, Constant):
        return m.record.call(torch.split_with_sizes, [input, split_sizes, dim], {})
    numbers = ListValue([number(m, size) for size in sizes])
    return m.wrap.object(indexing.split_with_sizes).call(m, [input, numbers, dim], {})


@handles(torch.as_strided)
@tensor_special("as_strided")
def as_strided(m: Machine, input: Value, size: Value, stride: Value, storage_offset: Value = NONE) -> Value:
    arguments = [input, size, stride, storage_offset]
    sequences = all(isinstance(value, SequenceValue) for value in (size, stride))
    if not sequences or not isinstance(storage_offset, Constant) or storage_offset.value or not _is_followed(input):
        return m.record.call(torch.as_strided, arguments, {})
    sizes, strides = ([number(m, part) for part in value.items_list(m)] for value in (size, stride))
    if _is_as_it_lies(m, input, sizes, strides):
        return m.wrap.object(indexing.as_it_lies).call(m, [input], {})
    if _has_plain_windows(m, input, sizes, strides):
        return m.wrap.object(indexing.as_strided).call(m, [input, ListValue(sizes), ListValue(strides)], {})
    return m.record.call(torch.as_strided, arguments, {})


def _is_followed(input: Value) -> bool:
    """Is it a tensor of sizes that vary, at the beginning of its memory, that autograd follows?"""
    if not isinstance(input, TensorValue) or not input.fake.requires_grad or not torch.is_grad_enabled():
        return False
    offset = input.fake.storage_offset()
    return type(offset) is int and offset == 0 and any(isinstance(size, torch.SymInt) for size in input.fake.shape)


def _is_as_it_lies(m: Machine, input: Any, sizes: list[Value], strides: list[Value]) -> bool:
    """Are sizes and strides the tensor's own, but for strides of dimensions of size 1?"""
    own = [[m.wrap.number(n) for n in numbers] for numbers in (input.fake.shape, input.fake.stride())]
    if len(sizes) != len(own[0]) or len(strides) != len(sizes):
        return False
    return all(
        m.operators.equal(size, a) and (_is_one(size) or m.operators.equal(stride, b))
        for size, stride, a, b in zip(sizes, strides, *own)
    )


def _is_one(size: Value) -> bool:
    return isinstance(size, Constant) and size.value == 1


def _has_plain_windows(m: Machine, input: Any, sizes: list[Value], strides: list[Value]) -> bool:
    """Is a dense tensor, and no memory around it, read at distances that are known, and as often as a size says in its first dimension
    alone?"""
    known = [part.value if isinstance(part, Constant) else 0 for part in (*sizes[1:], *strides)]
    first = sizes[0] if sizes else None
    if not isinstance(first, SymbolicValue) or len(sizes) != len(strides) or min(known) <= 0:
        return False
    if not input.fake.is_contiguous():
        return False
    inner, (step, *steps) = known[: len(sizes) - 1], known[len(sizes) - 1 :]
    reach = 1 + sum((n - 1) * apart for n, apart in zip(inner, steps))
    return m.concrete.run(lambda: bool((first.symbol - 1) * step + reach <= input.fake.numel()))


@handles(torch.tensor_split)
@tensor_special("tensor_split")
def tensor_split(m: Machine, input: Value, indices_or_sections: Value, dim: Value = ZERO) -> Value:
    places = indices_or_sections
    if not isinstance(places, TensorValue) or places.fake.dim() != 1:
        return m.record.call(torch.tensor_split, [input, places, dim], {})
    return m.wrap.object(indexing.tensor_split).call(m, [input, places, dim], {})


def _register_sum(name: str) -> None:
    """A sum with a factor: its gradient asks whether the factor is 1."""
    function, written = getattr(torch, name), getattr(untold, name)

    def asks(args: tuple[Value, ...], kwargs: dict[str, Value]) -> bool:
        factor = kwargs.get("alpha")
        return (
            isinstance(factor, SymbolicValue) and factor.untold and kwargs.keys() == {"alpha"} and follows_plain(args)
        )

    @handles(function)
    def of_function(m: Machine, *args: Value, **kwargs: Value) -> Value:
        if asks(args, kwargs):
            return m.wrap.object(written).call(m, list(args), kwargs)
        return m.record.call(function, list(args), kwargs)

    if not hasattr(torch.Tensor, name):
        return

    @tensor_special(name)
    def of_method(m: Machine, receiver: Value, *args: Value, **kwargs: Value) -> Value:
        if asks((receiver, *args), kwargs):
            return m.wrap.object(written).call(m, [receiver, *args], kwargs)
        return m.record.method(receiver, name, list(args), kwargs)


for _name in ("add", "sub", "rsub"):
    _register_sum(_name)


def _scaled(function: str) -> None:
    """`_foreach_addcmul` and its kin with a tensor of numbers, which torch reads inside."""
    real = getattr(torch, f"_foreach_{function}")

    @handles(real)
    def scaled(
        m: Machine, tensors: Value, firsts: Value, seconds: Value, scalars: Value = ONE, **named: Value
    ) -> Value:
        scalars = named.get("value", named.get("scalars", scalars))
        lists = [tensors, firsts, seconds]
        if not isinstance(scalars, TensorValue) or not _fits(m, tensors, scalars):
            return m.record.call(real, [*lists, scalars], {}, keep=function.endswith("_"))
        made = m.wrap.object(indexing.each_scaled).call(m, [Constant(function), *lists, scalars], {})
        return NONE if function.endswith("_") else made


def _fits(m: Machine, tensors: Value, scalars: TensorValue) -> bool:
    shape = scalars.fake.shape
    return len(shape) == 1 and isinstance(shape[0], int) and shape[0] == len(tensors.items_list(m))


for _name in ("addcmul", "addcmul_", "addcdiv", "addcdiv_"):
    _scaled(_name)
