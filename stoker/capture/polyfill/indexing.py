"""Indexing a tensor by what only data tells, and torch functions that read such numbers inside; as written here, each is an
operator of the graph."""

from __future__ import annotations

from typing import Any

import torch

WHOLE = 9223372036854775807


def check(condition, error, template, *numbers):
    """Raise, with the numbers filled in, unless the condition holds. Captured code checks it when the numbers are known."""
    raise NotImplementedError


def _taken(part):
    """How many dimensions a part of an index stands for."""
    if part is None or part is Ellipsis or isinstance(part, bool):
        return 0
    if isinstance(part, torch.Tensor) and part.dtype in (torch.bool, torch.uint8):
        return part.dim()
    return 1


def _split(tensor, key):
    """A view of the tensor, and the index of it, that mean `tensor[key]`: integers are selected, masks without a dimension get
    one."""
    view, dim, seen = tensor, 0, 0
    rest: list[Any] = []
    for position, part in enumerate(key):
        if part is Ellipsis:
            passed = tensor.dim() - seen - sum([_taken(later) for later in key[position + 1 :]])
            dim, seen = dim + passed, seen + passed
            rest.append(part)
        elif isinstance(part, int) and not isinstance(part, bool):
            view = view.select(dim, _inside(part, view.shape[dim], seen))
            seen += 1
        elif isinstance(part, torch.Tensor) and part.dim() == 0 and part.dtype in (torch.bool, torch.uint8):
            view = view.unsqueeze(dim)
            rest.append(part.reshape(1))
            dim += 1
        else:
            rest.append(part)
            dim, seen = dim + _taken(part), seen + _taken(part)
    return view, tuple(rest)


def _inside(index, size, dim):
    """The index, counted from the front."""
    place = index + size * (index < 0)
    outside = "index {} is out of bounds for dimension {} with size {}"
    check(place >= 0, "IndexError", outside, index, dim, size)
    check(place < size, "IndexError", outside, index, dim, size)
    return place


def getitem(tensor, key):
    view, rest = _split(tensor, key)
    return view[rest] if rest else view


def setitem(tensor, key, value):
    view, rest = _split(tensor, key)
    view[rest if rest else ...] = value


def set_range(tensor, key, value):
    """The range itself says how long it is, which is checked against the value."""
    view = tensor[key]
    view[...] = value


def one_hot(tensor):
    """With as many classes as the largest number asks for."""
    check(tensor.min().item() >= 0, "RuntimeError", "Class values must be non-negative.")
    largest = tensor.max().item()
    check(largest >= 0, "RuntimeError", "Class values must be non-negative.")
    classes = torch.ops.aten.arange.start_step(0, largest + 1, 1, dtype=tensor.dtype, device=tensor.device)
    return (tensor.unsqueeze(-1) == classes).to(torch.int64)


def one_hot_of(tensor, num_classes):
    """A number that is no class is an index out of range."""
    nothing = torch.zeros((*tensor.shape, num_classes), dtype=torch.int64, device=tensor.device)
    return nothing.scatter(-1, tensor.unsqueeze(-1), 1)


def arange(start, end, step, options):
    ordered = start <= end if step > 0 else start >= end
    check(ordered, "RuntimeError", "upper bound and lower bound inconsistent with step sign")
    return torch.ops.aten.arange.start_step(start, end, step, **options)


def masked_select(input: Any, mask: Any) -> Any:
    if input.shape != mask.shape:
        input, mask = torch.broadcast_tensors(input, mask)
    return input[mask]


def within(number, lowest, highest, words):
    check(number >= lowest, "RuntimeError", words)
    check(number <= highest, "RuntimeError", words)


def sizes_fit(count, sizes, open_place):
    """Is there a size for the open place, so that there are `count` elements? What eager says otherwise."""
    shown = "[" + ", ".join(["{}"] * len(sizes)) + "]"
    known = 1
    for place, size in enumerate(sizes):
        if place != open_place:
            check(size != -1, "RuntimeError", "only one dimension can be inferred")
            negative = "invalid shape dimension {} at index " + str(place) + " of shape " + shown
            check(size >= 0, "RuntimeError", negative, size, *sizes)
            known = known * size
    invalid = "shape '" + shown + "' is invalid for input of size {}"
    check(known > 0, "RuntimeError", invalid, *sizes, count)
    check(count % known == 0, "RuntimeError", invalid, *sizes, count)


def narrow(input, dim, start, length):
    size = input.shape[dim]
    first = start + size * (start < 0)
    outside = "start out of range (expected to be in range of [{}, {}], but got {})"
    check(first >= 0, "IndexError", outside, -size, size, start)
    check(first <= size, "IndexError", outside, -size, size, start)
    check(length >= 0, "RuntimeError", "narrow(): length must be non-negative.")
    beyond = "start ({}) + length ({}) exceeds dimension size ({})."
    check(first + length <= size, "RuntimeError", beyond, first, length, size)
    return torch.ops.aten.slice(input, dim, first, first + length)


def split_with_sizes(input, sizes, dim):
    shown = "split_sizes=[" + ", ".join(["{}"] * len(sizes)) + "]"
    for size in sizes:
        negative = "split_with_sizes expects split_sizes have only non-negative entries, but got "
        check(size >= 0, "RuntimeError", negative + shown, *sizes)
    whole = input.shape[dim]
    uneven = "split_with_sizes expects split_sizes to sum exactly to {} (input tensor's size at dimension {}), but got "
    check(sum(sizes) == whole, "RuntimeError", uneven + shown, whole, dim, *sizes)
    return tuple(torch.ops.aten.split_with_sizes(input, sizes, dim))


def tensor_split(input, indices, dim):
    """At places that a tensor holds."""
    ends = [*indices.tolist(), WHOLE]
    starts = [0, *ends[:-1]]
    return tuple([torch.ops.aten.slice(input, dim, start, end) for start, end in zip(starts, ends)])


def combinations(input, r, with_replacement):
    """The places of all combinations, found once, and what is there."""
    grids = torch.meshgrid([torch.arange(input.shape[0], device=input.device)] * r, indexing="ij")
    wanted = torch.ones_like(grids[0], dtype=torch.bool)
    for first, second in zip(grids, grids[1:]):
        wanted = wanted & (first <= second if with_replacement else first < second)
    return input[wanted.nonzero()].contiguous()


def each_scaled(operation, tensors, firsts, seconds, scalars):
    """`operation`, addcmul or addcdiv, of each of several tensors with a number of its own."""
    given = zip(tensors, firsts, seconds, scalars.unbind())
    return tuple([getattr(tensor, operation)(first, second, value=value) for tensor, first, second, value in given])


def scaled_size(input, scales):
    """What interpolation by scale factors makes of the sizes behind the first two."""
    return [int(size * scale) for size, scale in zip(input.shape[2:], scales)]


def linspace(start, end, steps, options):
    """From both ends to the middle, as eager does it; of one step the start is left."""
    places = torch.arange(steps, **{"dtype": torch.get_default_dtype(), **options})
    step = (end - start) / torch.sym_max(steps - 1, 1)
    return torch.where(places < torch.sym_max(steps // 2, 1), start + step * places, end - step * (steps - 1 - places))


def as_it_lies(input):
    return input.view(input.shape)


def as_strided(input, size, stride):
    """As windows of windows of the memory, whose gradients take sizes that vary; those of `as_strided` take numbers."""
    reach = [
        1 + sum([(n - 1) * step for n, step in zip(size[dim + 1 :], stride[dim + 1 :])]) for dim in range(len(size))
    ]
    seen = input.view(-1)
    for dim in range(len(size)):
        seen = seen.unfold(dim, reach[dim], stride[dim]).narrow(dim, 0, size[dim])
    return seen.select(-1, 0)
