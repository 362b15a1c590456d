"""What belongs to the thread or the context: threading.local and contextvars."""

from __future__ import annotations

import contextvars
import threading

import torch
from harness import BREAK, program

import stoker
from stoker import log

LOCAL = threading.local()
LOCAL.scale = 3


class Counted(threading.local):
    limit = 9

    def __init__(self):
        self.count = 0

    def more(self):
        self.count += 1
        return self.count


SCALE = contextvars.ContextVar("scale", default=2)
UNSET = contextvars.ContextVar("unset")


@program("threading.local: read, written, deleted", default=True)
def test_local(x):
    LOCAL.rows = x.shape[0]
    y = x * LOCAL.scale + LOCAL.rows
    del LOCAL.rows
    return y, hasattr(LOCAL, "rows"), getattr(LOCAL, "other", 5), sorted(vars(LOCAL))


@program("a subclass of threading.local", inputs=lambda: (torch.ones(2), Counted()))
def test_local_class(x, counted):
    return x * counted.more() + counted.more(), counted.count, counted.limit


@program("a threading.local that holds a tensor", inputs=lambda: (torch.ones(2), Counted()))
def test_local_tensor(x, held):
    held.last = x * 2
    return held.last + 1


@program("a threading.local changed before a break", BREAK, inputs=lambda: (torch.ones(2), Counted()))
def test_local_break(x, counted):
    y = x * counted.more()
    print(y)
    return y * counted.more(), counted.count


@program("a threading.local made inside")
def test_local_made(x):
    made = threading.local()
    made.a = x * 2
    return made.a + 1, hasattr(made, "b"), vars(made).keys()


class Started(threading.local):
    def __init__(self, start, *, step=1):
        self.count, self.step = start, step


def test_made_inside_and_used_in_another_thread() -> None:
    def make(x):
        made = Started(x.shape[0], step=3)
        made.count += made.step
        return made, x * made.count

    seen = []
    for call in (make, stoker.compile(make, backend="eager", fullgraph=True)):
        made, y = call(torch.ones(2))
        found = [(made.count, made.step, y.tolist())]
        thread = threading.Thread(target=lambda made=made, found=found: found.append((made.count, made.step)))
        thread.start()
        thread.join()
        seen.append(found)
    assert seen[0] == seen[1]


def test_each_thread_has_its_own() -> None:
    held = threading.local()

    def scaled(x):
        return x * held.scale

    compiled, x, found = stoker.compile(scaled, backend="eager", fullgraph=True), torch.ones(2), {}

    def run(scale: float) -> None:
        held.scale = scale
        found[scale] = compiled(x)

    for scale in (2.0, 3.0, 4.0):
        thread = threading.Thread(target=run, args=(scale,))
        thread.start()
        thread.join()
    assert {scale: value.tolist() for scale, value in found.items()} == {s: [s, s] for s in (2.0, 3.0, 4.0)}


@program("ContextVar.get, its default, and its name", default=True)
def test_get(x):
    return x * SCALE.get(), SCALE.get(7), UNSET.get(5), SCALE.name


@program("ContextVar.get without a value")
def test_get_nothing(x):
    try:
        UNSET.get()
    except LookupError as error:
        return x * 2, error.args[0] is UNSET


@program("set and reset")
def test_set(x):
    token = SCALE.set(7)
    inner = SCALE.set(8)
    y = x * SCALE.get()
    SCALE.reset(inner)
    y = y + SCALE.get()
    SCALE.reset(token)
    return y, SCALE.get(), token.old_value is contextvars.Token.MISSING, inner.old_value, token.var is SCALE


@program("a variable that holds a tensor for a while")
def test_set_tensor(x):
    token = UNSET.set(x * 2)
    try:
        return UNSET.get() + 1
    finally:
        UNSET.reset(token)


@program("a break while a variable is set", BREAK)
def test_break(x):
    token = SCALE.set(5)
    y = x * SCALE.get()
    print(y)
    SCALE.reset(token)
    return y * SCALE.get()


@program("a token that is returned", BREAK)
def test_token(x):
    token = SCALE.set(5)
    y = x * SCALE.get()
    found = y, type(token).__name__
    kept = [token]
    SCALE.reset(kept.pop())
    print(token is None, y)
    return found


@program("contexts")
def test_contexts(x):
    context = contextvars.copy_context()

    def scaled():
        SCALE.set(9)
        return x * SCALE.get()

    return context.run(scaled), SCALE.get(), context[SCALE]


def _said(call):
    try:
        return call()
    except TypeError as error:
        return str(error)


@program("a context in another, and what each has set")
def test_contexts_inside(x):
    def deep():
        UNSET.set(x * 3)
        return SCALE.get()

    def inner():
        SCALE.set(SCALE.get(1) + 1)
        within = contextvars.copy_context()
        return within.run(deep), SCALE.get(), within

    context = contextvars.copy_context()
    first, second = context.run(inner), context.run(inner)
    token = SCALE.set(4)
    found = first[:2], second[:2], context[SCALE], UNSET in context, first[2][UNSET], first[2].get(SCALE), SCALE.get()
    SCALE.reset(token)
    return found


@program("a context that is left by an error")
def test_context_error(x):
    def fails():
        SCALE.set(9)
        raise ValueError("no")

    context = contextvars.copy_context()
    try:
        context.run(fails)
    except ValueError as error:
        return x * 2, SCALE.get(), context[SCALE], str(error)


@program("an empty context")
def test_empty_context(x):
    token = SCALE.set(7)
    context = contextvars.Context()
    inside = context.run(SCALE.get, "none"), SCALE in context, context.get(SCALE)
    SCALE.reset(token)
    return x * 2, inside, _said(lambda: context["SCALE"])


@program("a context that is alive at a break", BREAK)
def test_context_break(x):
    context = contextvars.copy_context()
    context.run(SCALE.set, 8)
    if x.sum() > 0:
        return x * context.run(SCALE.get), SCALE.get()
    return x - context.run(SCALE.get), SCALE.get()


def test_what_is_set_stays_set() -> None:
    """And another value outside is another number, not another graph each time."""
    variable = contextvars.ContextVar("variable", default=1)

    def more(x):
        variable.set(variable.get() + 1)
        return x * variable.get()

    compiled, x = stoker.compile(more, backend="eager", fullgraph=True), torch.ones(2)
    log.clear()
    found = [compiled(x)[0].item() for _ in range(6)]
    assert found == [2, 3, 4, 5, 6, 7] and variable.get() == 7
    assert len(log.events("captured")) <= 3
