"""itertools: iterators whose arguments were already turned into iterators; and reversed()."""

from __future__ import annotations

from typing import Any


def chain(iterables: Any) -> Any:
    for iterable in iterables:
        yield from iterable


def islice(iterator: Any, start: int, stop: int | None, step: int) -> Any:
    position = 0
    wanted = start
    while stop is None or position < stop:
        if stop is not None and wanted >= stop:
            for _ in range(stop - position):
                try:
                    next(iterator)
                except StopIteration:
                    return
            return
        try:
            element = next(iterator)
        except StopIteration:
            return
        if position == wanted:
            yield element
            wanted += step
        position += 1


def backwards(sequence: Any, length: int) -> Any:
    for position in range(length - 1, -1, -1):
        try:
            yield sequence[position]
        except (IndexError, StopIteration):
            return


def cycle(iterator: Any) -> Any:
    saved = []
    for element in iterator:
        saved.append(element)
        yield element
    while saved:
        yield from saved


def takewhile(predicate: Any, iterator: Any) -> Any:
    for element in iterator:
        if not predicate(element):
            return
        yield element


def dropwhile(predicate: Any, iterator: Any) -> Any:
    for element in iterator:
        if not predicate(element):
            yield element
            break
    yield from iterator


def starmap(function: Any, iterator: Any) -> Any:
    for arguments in iterator:
        yield function(*arguments)


def accumulate(iterator: Any, function: Any, initial: Any) -> Any:
    total = initial
    if initial is None:
        try:
            total = next(iterator)
        except StopIteration:
            return
    yield total
    for element in iterator:
        total = total + element if function is None else function(total, element)
        yield total


def groupby(iterator: Any, key: Any) -> Any:
    ended = False
    try:
        value = next(iterator)
    except StopIteration:
        return
    label = value if key is None else key(value)

    def group(target: Any) -> Any:
        nonlocal ended, value, label
        yield value
        while True:
            try:
                value = next(iterator)
            except StopIteration:
                ended = True
                return
            label = value if key is None else key(value)
            if label != target:
                return
            yield value

    while not ended:
        target = label
        members = group(target)
        yield target, members
        for _ in members:
            pass


def zip_longest(iterators: list, fill: Any) -> Any:
    active = len(iterators)
    ended = [False] * active
    while active:
        row = []
        for index, iterator in enumerate(iterators):
            element = fill
            if not ended[index]:
                try:
                    element = next(iterator)
                except StopIteration:
                    ended[index] = True
                    active -= 1
                    if not active:
                        return
            row.append(element)
        yield tuple(row)


def tee(iterator: Any, shared: list) -> Any:
    position = 0
    while True:
        if position == len(shared):
            try:
                shared.append(next(iterator))
            except StopIteration:
                return
        yield shared[position]
        position += 1


def pairwise(iterator: Any) -> Any:
    try:
        first = next(iterator)
    except StopIteration:
        return
    for second in iterator:
        yield first, second
        first = second


def compress(iterator: Any, selectors: Any) -> Any:
    for element, selected in zip(iterator, selectors):
        if selected:
            yield element


def filterfalse(predicate: Any, iterator: Any) -> Any:
    for element in iterator:
        if not (element if predicate is None else predicate(element)):
            yield element


def batched(iterator: Any, count: int) -> Any:
    while True:
        batch = []
        for _ in range(count):
            try:
                batch.append(next(iterator))
            except StopIteration:
                break
        if not batch:
            return
        yield tuple(batch)
