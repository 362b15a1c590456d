"""Built-in functions over values, iterators, itertools, math, copy."""

from __future__ import annotations

import collections
import copy
import itertools
import math

import torch
from harness import BREAK, program


class Node:
    def __init__(self, t, children=()):
        self.t, self.children = t, list(children)


class CopyHook:
    def __init__(self, v):
        self.v = v

    def __copy__(self):
        return CopyHook(self.v + 1)

    def __deepcopy__(self, memo):
        return CopyHook(self.v + 2)


@program("map, filter, zip, enumerate, reversed")
def test_basic_iterators(x):
    xs = [1, 2, 3]
    return (
        x * sum(map(lambda v: v + 1, xs)), list(map(max, xs, [0, 5, 1])), list(filter(None, [0, 1, 2])),
        list(filter(lambda v: v > 1, xs)), list(zip(xs, "ab")), list(enumerate("ab", start=3)), list(reversed(xs)),
        list(reversed("abc")), list(reversed(range(3))),
    )  # fmt: skip


@program("zip(strict=True)")
def test_zip_strict(x):
    try:
        list(zip([1, 2], [1], strict=True))
    except ValueError as error:
        return x, str(error), list(zip([1], [2], strict=True))


@program("iter, next with default, iter with sentinel")
def test_iter_next(x):
    it = iter([1, 2])
    a, b, c = next(it), next(it), next(it, "end")
    state = [0]

    def step():
        state[0] += 1
        return state[0]

    return x * a, b, c, list(iter(step, 4))


@program("iterators sharing a list: grouper idiom")
def test_shared_iterator(x):
    it = iter(range(6))
    return x, list(zip(it, it)), [list(g) for g in zip(*[iter("abcd")] * 2)]


@program("iterator sees later changes of its list")
def test_list_changes(x):
    xs = [1, 2]
    out = []
    for v in xs:
        out.append(v)
        if len(xs) < 4:
            xs.append(v + 10)
    return x, out, xs


@program("changing a dict while iterating raises")
def test_dict_changes(x):
    y = x + 1
    d = {"a": 1}
    for k in d:
        d[k + "x"] = 2
    return y


@program("loop else, break, continue")
def test_loop_control(x):
    for i in range(5):
        if i == 1:
            continue
        if i == 3:
            break
        x = x + i
    else:
        x = x * 100
    while True:
        x = x - 1
        break
    for _ in ():
        pass
    else:
        x = x * 2
    return x, i


@program("sorted with key and reverse, min, max with key and default")
def test_sorting(x):
    words = ["bb", "a", "ccc"]
    return (
        x, sorted(words), sorted(words, key=len, reverse=True), min(words, key=len), max(3, 1, 2), max([], default=0),
        min({"a": 2, "b": 1}.items(), key=lambda p: p[1]), sorted([(2, "b"), (1, "z"), (2, "a")]),
    )  # fmt: skip


@program("sorting tensors by a constant key")
def test_sort_tensors(x):
    pairs = [(2, x), (1, x + 1)]
    pairs.sort(key=lambda p: p[0])
    return pairs


@program("sum, any, all")
def test_sums(x):
    return sum([x, x], start=x), sum([[1], [2]], []), any([0, 1]), all([]), any(t.ndim == 2 for t in [x]), all([1, 0])


@program("round, divmod, abs, pow")
def test_numbers(x):
    return x * round(2.567, 1), round(2.5), divmod(7, 2), abs(-3), pow(2, 3), pow(2, 3, 5), pow(x, 2), round(7)


@program("abs, round, pow, divmod of tensors")
def test_tensor_numbers(x):
    return abs(x), pow(x, 2), x**2, 2**x


@program("int, float, bool, complex, str constructors")
def test_constructors(x):
    return (
        x,
        int("12"),
        int("ff", 16),
        int(3.9),
        float("1.5"),
        bool([]),
        complex("1+2j"),
        str(1.5),
        str(None),
        int(True),
    )


@program("chr, ord, hex, bin, oct, ascii, format, repr")
def test_text_functions(x):
    return (
        x,
        chr(97),
        ord("b"),
        hex(255),
        bin(5),
        oct(8),
        ascii("é"),
        format(3.14159, ".3f"),
        repr("a"),
        repr([1, {"k": (2,)}]),
    )


@program("callable, type, id comparison, len")
def test_object_functions(x):
    xs = []
    return callable(len), callable(3), type(x) is torch.Tensor, type(3), id(xs) == id(xs), len("abc"), type(xs) == list  # noqa: E721


@program("id of an argument", inputs=lambda: (torch.ones(2), [1]))
def test_id(x, xs):
    return x * (id(xs) == id(xs)), id(x) == id(x)


@program("ValueError from int() is caught")
def test_int_error(x):
    try:
        n = int("zz")
    except ValueError as error:
        n = len(str(error))
    return x * n


@program("input-like external call", BREAK)
def test_external(x):
    import os

    return x * len(os.getcwd()) * 0


@program("itertools: chain, islice, product, permutations, combinations")
def test_itertools_1(x):
    return (
        x, list(itertools.chain([1], (2, 3))), list(itertools.chain.from_iterable(["ab", "c"])),
        list(itertools.islice(range(10), 2, 8, 3)), list(itertools.islice("abc", 2)), list(itertools.product([1, 2], "ab")),
        list(itertools.product([0, 1], repeat=2)), list(itertools.permutations([1, 2, 3], 2)),
        list(itertools.combinations("abc", 2)), list(itertools.combinations_with_replacement("ab", 2)),
    )  # fmt: skip


@program("itertools: count, cycle, repeat, takewhile, dropwhile, starmap")
def test_itertools_2(x):
    return (
        x, list(itertools.islice(itertools.count(5, 2), 3)), list(itertools.islice(itertools.cycle("ab"), 5)),
        list(itertools.repeat(x, 2)), list(itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1])), list(itertools.starmap(pow, [(2, 3), (3, 2)])),
    )  # fmt: skip


@program("itertools: accumulate, groupby, zip_longest, tee, pairwise, compress, filterfalse")
def test_itertools_3(x):
    a, b = itertools.tee([1, 2, 3])
    return (
        list(itertools.accumulate([1, 2, 3])), list(itertools.accumulate([x, x], initial=x)),
        list(itertools.accumulate([1, 2, 3], lambda p, q: p * q)),
        [(k, list(g)) for k, g in itertools.groupby("aabc")], [(k, len(list(g))) for k, g in itertools.groupby([1, 3, 2], lambda v: v % 2)],
        list(itertools.zip_longest([1, 2], "a", fillvalue="-")), list(a), next(b), list(b), list(itertools.pairwise("abc")),
        list(itertools.compress("abc", [1, 0, 1])), list(itertools.filterfalse(None, [0, 1])),
    )  # fmt: skip


@program("returning itertools iterators")
def test_return_itertools(x):
    c = itertools.count(3)
    next(c)
    return x + 1, c, itertools.chain([1], [2]), itertools.repeat(1, 3)


@program("returning built-in iterators in the middle")
def test_return_iterators(x):
    a, b, c = iter([x, x + 1, 3]), enumerate("abc"), zip([1, 2], [3, 4])
    next(a), next(b), next(c)
    return a, b, c, iter({"k": 1}), map(str, [1, 2]), reversed([1, 2])


@program("math functions")
def test_math(x):
    return (
        x * math.sqrt(2.0), math.pi, math.floor(2.7), math.ceil(2.1), math.log(10), math.log2(8), math.prod([1, 2, 3]), math.inf,
        math.isnan(float("nan")), math.gcd(12, 18), math.exp(1), math.factorial(5), math.comb(5, 2), math.fsum([0.1] * 3),
        math.hypot(3, 4), math.isclose(0.1 + 0.2, 0.3), math.trunc(-1.5), math.copysign(1, -2), math.dist([0, 0], [3, 4]),
    )  # fmt: skip


@program("math on sizes")
def test_math_sizes(x):
    return x / math.sqrt(x.size(-1)), math.prod(x.shape), math.ceil(x.shape[0] / 2)


@program("math domain error")
def test_math_error(x):
    y = x + 1
    return y * math.sqrt(-1)


@program("copy.copy and copy.deepcopy of containers")
def test_copy(x):
    inner = [1, 2]
    outer = {"a": inner, "b": inner, "t": (inner, 3)}
    shallow, deep = copy.copy(outer), copy.deepcopy(outer)
    inner.append(3)
    return x, shallow, deep, deep["a"] is deep["b"], copy.copy([1, [2]]), copy.deepcopy((1, "a"))


@program("copy of instances, __copy__ and __deepcopy__")
def test_copy_instances(x):
    n = Node(x, [Node(1)])
    m = copy.copy(n)
    d = copy.deepcopy(Node(2, [Node(3)]))
    return m.t is x, m.children is n.children, d.children[0].t, copy.copy(CopyHook(1)).v, copy.deepcopy(CopyHook(1)).v


@program("copy.deepcopy of a tensor")
def test_deepcopy_tensor(x):
    y = copy.deepcopy(x)
    y.add_(1)
    return x, y


@program("collections.abc checks and abstract methods")
def test_abc(x):
    return (
        x,
        isinstance({}, collections.abc.MutableMapping),
        isinstance("s", collections.abc.Hashable),
        issubclass(list, collections.abc.Iterable),
    )


@program("nested loops over tensors")
def test_nested_loops(x):
    total = x.new_zeros(())
    for row in x:
        for value in row:
            total = total + value
    return total


@program("unpacking a tensor")
def test_unpack_tensor(x):
    a, b, c = x
    first, *rest = x.unbind(1)
    return a + b + c, first, len(rest)


@program("zip and enumerate over tensors")
def test_zip_tensors(x, y):
    return [a * b for a, b in zip(x, y)], [i * t for i, t in enumerate(x)], list(map(torch.sum, x))


@program("iterator argument", inputs=lambda: (iter([1, 2, 3]), torch.ones(2)))
def test_iterator_argument(it, x):
    y = x + 1
    for v in it:
        y = y * v
    return y


@program("generator argument", inputs=lambda: ((i for i in (1, 2, 3)), torch.ones(2)))
def test_generator_argument(it, x):
    y = x + 1
    a = next(it)
    return y * a + sum(it)


@program("range argument and range over sizes", inputs=lambda: (range(3), torch.ones(2, 3)))
def test_range_argument(r, x):
    for i in r:
        x = x + i
    for j in range(x.shape[1]):
        x = x * (j + 1)
    return x


class Shrinking:
    def __init__(self, xs):
        self.xs = xs

    def __len__(self):
        return len(self.xs) + 2

    def __getitem__(self, position):
        return self.xs[position - 2] if position >= 2 else self.xs[7]


@program("reversed() of objects with len and getitem, and of module lists")
def test_reversed_objects(x):
    layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Tanh()])
    for layer in reversed(layers):
        x = layer(x)
    rest = reversed(Shrinking([x, 2, 3]))
    return x, next(rest), list(rest), type(reversed(layers)).__name__
