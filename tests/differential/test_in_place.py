"""What a program writes to its inputs is written there by its kernels, where that is safe; always as eager writes it."""

from __future__ import annotations

import copy
import re
from typing import Any

import pytest
import torch

import stoker
from stoker.log import collecting


def written_over(f, *args) -> tuple[int, Any]:
    """How many results kernels wrote to inputs, and what the call gave."""
    events: list[Any] = []
    with collecting(events):
        result = stoker.compile(f)(*args)
    texts = [text for e in events if e.kind == "compiled" for text in e.data.lines()]
    found = [re.search(r"(\d+) results written to inputs", text) for text in texts]
    return sum(int(match.group(1)) for match in found if match), result


def scaled(buffer, x):
    buffer.mul_(0.9).add_(x, alpha=0.1)
    return buffer * 2


def replaced(buffer, x):
    buffer.copy_(x.sin())


def shifted(buffer, x):
    """Reads other elements than it writes."""
    buffer.copy_(buffer.roll(1) + x)


def kept_too(buffer, x):
    old = buffer.clone()
    buffer.add_(x)
    return old, old + buffer


def read_late(buffer, x):
    """The old content is read by something that also needs the new one."""
    old = buffer.sum()
    buffer.add_(x)
    return (buffer * old).sum() + old


def swapped(buffer, x):
    a, b = buffer.clone(), x.clone()
    buffer.copy_(b)
    x.copy_(a)


def crosswise(buffer, x):
    buffer.add_(x)
    x.add_(buffer)


def by_slices(buffer, x):
    buffer[2:5] = x[2:5]
    buffer[0] += 1
    return buffer.sum()


def by_index(buffer, x):
    buffer.index_copy_(0, torch.tensor([1, 3]), x[:2])
    return buffer + 1


def by_mask(buffer, x):
    buffer[x > 0] = 0.0


def transposed(buffer, x):
    buffer.copy_((buffer.view(2, -1).t() + 1).reshape(-1)[: buffer.numel()] + x)


def in_double(buffer, x):
    buffer.copy_(buffer.double() + x.double())


def twice(buffer, x):
    buffer.add_(x)
    y = buffer.exp()
    buffer.mul_(y)
    return y


def filled(buffer, x):
    buffer.zero_()
    x.fill_(3.0)
    return buffer + x


def reduced(buffer, x):
    """Each element needs all of them."""
    buffer.sub_(buffer.mean()).div_(buffer.std())


def cumulated(buffer, x):
    buffer.copy_(buffer.cumsum(0) + x)


def sorted_in_place(buffer, x):
    buffer.copy_(buffer.sort().values)


def scattered(buffer, x):
    """What is written last is a copy of a temporary, which dies there."""
    index = torch.tensor([0, 1, 1])
    buffer.index_put_((index,), x[:3], accumulate=True)
    buffer.index_fill_(0, index[:1], -1.0)
    return buffer.scatter_reduce(0, index, x[:3], "amax", include_self=False)


def through_temporaries(buffer, x):
    y = (buffer.cumsum(0) * x).exp()
    buffer.copy_(y.sort().values)
    x.copy_(y.flip(0).cumsum(0))
    return y.sum()


PROGRAMS = [
    scaled, replaced, shifted, kept_too, read_late, swapped, crosswise, by_slices, by_index, by_mask, transposed, in_double, twice,
    filled, reduced, cumulated, sorted_in_place, scattered, through_temporaries,
]  # fmt: skip


def outcome(f, buffer, x):
    versions = buffer._version, x._version
    result = f(buffer, x)
    return result, buffer, x, buffer._version - versions[0], x._version - versions[1]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("how", ["plain", "offset", "strided", "expanded x"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(program, how, dynamic):
    def made():
        torch.manual_seed(0)
        base, x = torch.randn(41), torch.randn(20)
        if how == "expanded x" and program not in (swapped, crosswise, filled, through_temporaries):
            x = torch.randn(1).expand(20)
        return {"plain": base[:20].clone(), "offset": base[1:21], "strided": base[:40:2]}.get(how, base[:20].clone()), x

    compiled = stoker.compile(program, dynamic=dynamic)
    for _ in range(2):
        expected, found = outcome(program, *made()), outcome(compiled, *made())
        for a, b in zip(expected, found):
            torch.testing.assert_close(b, a, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("program", [scaled, replaced, twice, filled], ids=lambda p: p.__name__)
def test_kernels_write_there(program):
    buffer, x = torch.randn(20), torch.randn(20)
    address = buffer.data_ptr()
    count, _ = written_over(program, buffer, x)
    assert count >= 1 and buffer.data_ptr() == address


def test_views_of_the_buffer_see_it():
    buffer, x = torch.randn(20), torch.randn(20)
    view = buffer[3:7]
    stoker.compile(scaled)(buffer, x)
    assert torch.equal(view, buffer[3:7])


def added_then_read(buffer, other, index):
    buffer.add_(1)
    return buffer[index]


def read_then_added(buffer, other, index):
    y = buffer[index]
    buffer.add_(1)
    return y


def never_read(buffer, other, index):
    buffer[index] += 1
    torch.mul(torch.ones(4), 2.0, out=buffer)


def added_in_places(buffer, other, index):
    buffer[buffer < 0] = 3
    buffer[index] += 0.5


def set_in_places(buffer, other, index):
    other.mul_(2)
    buffer[index] = 7.0
    other.add_(buffer)


def set_before_another(buffer, other, index):
    buffer[index] += 3
    other[0] = 3


def set_after_another(buffer, other, index):
    other[1:] = 5
    buffer.index_fill_(0, index, 2.0)


def copied_in_places(buffer, other, index):
    buffer.index_copy_(0, index, other[:2])
    other.index_copy_(0, index - 1, buffer[:2])


def accumulated_in_places(buffer, other, index):
    buffer.index_add_(0, index, other[:2])
    other.index_put_((index,), buffer[:2], accumulate=True)


def scattered_in_places(buffer, other, index):
    buffer.scatter_(0, index, other)
    other.scatter_add_(0, index, buffer)


def set_in_computed_places(buffer, other, index):
    other.add_(1)
    buffer[index.cumsum(0) - index[0]] = 1.5
    return other.sum()


def set_in_part(buffer, other, index):
    """Eager sets some elements before it meets a place that is none."""
    new = buffer + 1
    buffer[index] = new[:2]
    other.index_copy_(0, index, new[:2] * 2)


def set_where_found(buffer, other, index):
    """What was set decides where the next is set."""
    buffer[index] = 1.0
    buffer[buffer.long() + index] = 2.0


def caught(buffer, other, index):
    try:
        buffer[index] += 3
        other.add_(1)
    except (IndexError, RuntimeError):
        other.sub_(1)
    return (buffer + other).sin()


FAILING = [
    added_then_read, read_then_added, never_read, added_in_places, set_in_places, set_before_another, set_after_another,
    copied_in_places, accumulated_in_places, scattered_in_places, set_in_computed_places, set_in_part, set_where_found, caught,
]  # fmt: skip


@pytest.mark.parametrize(
    ("backend", "dynamic"), [("eager", False), ("aot_eager", False), ("stoker", False), ("stoker", True)]
)
@pytest.mark.parametrize("program", FAILING, ids=lambda p: p.__name__)
def test_a_call_that_fails_leaves_inputs_as_eager_does(program, backend, dynamic):
    def tried(f, index):
        torch.manual_seed(0)
        buffer, other = torch.randn(4), torch.randn(4)
        try:
            result = f(buffer, other, torch.tensor(index))
        except (IndexError, RuntimeError) as error:
            result = type(error).__name__
        return result, buffer, other

    compiled = stoker.compile(program, backend=backend, dynamic=dynamic)
    for index in ([0, 2], [1, 99], [2, 1], [77, 0], [4, 4], [-9, 3], [3, 0]):
        expected, found = tried(program, index), tried(compiled, index)
        torch.testing.assert_close(found[1:], expected[1:], msg=lambda words: f"{index}: {words}")  # noqa: B023
        if isinstance(expected[0], torch.Tensor):
            torch.testing.assert_close(found[0], expected[0])
        else:
            assert found[0] == expected[0], index


def test_a_tensor_given_twice():
    eager, ours = torch.ones(8), torch.ones(8)
    crosswise(eager, eager)
    stoker.compile(crosswise)(ours, ours)
    assert torch.equal(eager, ours)


def test_a_cache_of_keys():
    def decode(cache, place, key):
        cache.index_copy_(1, place, key)
        return cache.sum(dim=1)

    eager = torch.zeros(2, 16, 4)
    ours = eager.clone()
    compiled = stoker.compile(decode)
    for number in range(5):
        key, place = torch.randn(2, 1, 4), torch.tensor([number])
        torch.testing.assert_close(compiled(ours, place, key), decode(eager, place, key))
        assert torch.equal(eager, ours)


def test_caches_and_a_layer():
    """Copies of caches, which nothing needs, are not made; a layer whose weights are packed cannot fail."""
    layer = torch.nn.Linear(4, 64, bias=False)

    def decode(keys, values, place, key):
        keys.index_copy_(1, place, key)
        values.index_copy_(1, place, 2 * key)
        return layer(torch.softmax(keys @ key.mT, 1).mT @ values)

    ours, eager = ([torch.zeros(2, 16, 4) for _ in range(2)] for _ in range(2))
    for number in range(3):
        key, place = torch.randn(2, 1, 4), torch.tensor([number])
        with torch.no_grad():
            written, found = written_over(decode, *ours, place, key)
            torch.testing.assert_close(found, decode(*eager, place, key))
        assert written == 2
        assert all(map(torch.equal, ours, eager))


def test_averages_of_weights():
    """Two modules' weights, one written with the other's."""
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 8)
    mean, other = copy.deepcopy(model), copy.deepcopy(model)

    def update(mean, model):
        with torch.no_grad():
            for a, b in zip(mean.parameters(), model.parameters()):
                a.lerp_(b, 0.1)

    with torch.no_grad():
        for p in model.parameters():
            p.add_(1.0)
    compiled = stoker.compile(update, fullgraph=True)
    for _ in range(3):
        update(mean, model)
        compiled(other, model)
    for a, b in zip(mean.parameters(), other.parameters()):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_running_statistics(momentum):
    """Buffers that a training step writes, with a backward behind it."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.BatchNorm2d(8, momentum=momentum), torch.nn.ReLU())
    other = copy.deepcopy(model)
    compiled = stoker.compile(other)
    for _ in range(4):
        x = torch.randn(2, 3, 8, 8)
        for m in (model, compiled):
            m.zero_grad()
            (m(x).square().mean() + m(x * 2).mean()).backward()
    for a, b in zip(model.state_dict().values(), other.state_dict().values()):
        torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    for a, b in zip(model.parameters(), other.parameters()):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=1e-5)
    assert [b._version for b in model.buffers()] == [b._version for b in other.buffers()]


def test_a_new_content_that_the_backward_needs():
    def f(x, scale):
        with torch.no_grad():
            scale.mul_(2)
        return (x * scale).sum()

    leaves = [torch.randn(4, requires_grad=True) for _ in range(2)]
    leaves[1].data.copy_(leaves[0].data)
    scales = [torch.ones(4), torch.ones(4)]
    for call, x, scale in zip((f, stoker.compile(f)), leaves, scales):
        call(x, scale).backward()
        call(x, scale).backward()
    torch.testing.assert_close(leaves[0].grad, leaves[1].grad)
    torch.testing.assert_close(*scales)


RESULTS_IN_LISTS = [
    lambda x, out: torch.unbind_copy(x, out=out),
    lambda x, out: torch.split_copy(x.flatten(), 3, out=out),
    lambda x, out: torch.split_with_sizes_copy(x.flatten(), [3, 3], out=out),
    lambda x, out: torch.unbind_copy(x, out=(out[1], out[0])),
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "stoker"])
@pytest.mark.parametrize("write", RESULTS_IN_LISTS)
def test_results_given_in_a_list(write, backend):
    def program(x, out):
        return write(x * 2, out), out[0] + out[1]

    compiled = stoker.compile(program, backend=backend, fullgraph=True)
    x, outs = torch.arange(6.0).view(2, 3), [[torch.zeros(3), torch.zeros(3)] for _ in range(2)]
    expected, found = program(x, outs[0]), compiled(x, outs[1])
    assert expected[0] is found[0] is None
    torch.testing.assert_close([found[1], outs[1]], [expected[1], outs[0]])


@pytest.mark.parametrize("backend", ["eager", "stoker"])
@pytest.mark.parametrize("write", RESULTS_IN_LISTS)
def test_results_of_other_sizes_given_in_a_list(write, backend):
    """Some operators resize them, others raise."""

    def told(function):
        out = [torch.zeros(0), torch.zeros(3)]
        try:
            return function(torch.arange(6.0).view(2, 3), out), [o.tolist() for o in out]
        except RuntimeError as error:
            return str(error)

    assert told(stoker.compile(write, backend=backend)) == told(write)


def test_too_few_results_given_in_a_list():
    for call in (torch.unbind_copy, stoker.compile(lambda x, out: torch.unbind_copy(x, out=out))):
        with pytest.raises(RuntimeError, match="out= argument of size 2"):
            call(torch.ones(2, 3), out=[torch.empty(3)])
