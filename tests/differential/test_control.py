"""Exceptions, pattern matching, and context managers.

PYTEST_DONT_REWRITE: the asserts of programs are what is tested.
"""

from __future__ import annotations

import collections
import contextlib
import zlib

import torch
from harness import BREAK, program

import stoker


class Custom(Exception):
    def __init__(self, code, note="n"):
        super().__init__(f"code {code}")
        self.code, self.note = code, note


class Quiet(ValueError):
    def __str__(self):
        return "quiet!"


def fails(n):
    if n > 1:
        raise ValueError(f"bad {n}")
    return n


def cleans(log, n):
    try:
        log.append("try")
        return fails(n)
    finally:
        log.append("finally")


def translates(n):
    try:
        return fails(n)
    except ValueError as error:
        raise Custom(n) from error


class Manager:
    def __init__(self, log, swallow=False):
        self.log, self.swallow = log, swallow

    def __enter__(self):
        self.log.append("enter")
        return self

    def __exit__(self, kind, error, trace):
        self.log.append(("exit", kind.__name__ if kind else None, str(error)))
        return self.swallow


@contextlib.contextmanager
def scope(log, name="s"):
    log.append("+" + name)
    try:
        yield name * 2
    finally:
        log.append("-" + name)


@contextlib.contextmanager
def swallowing(*kinds):
    try:
        yield
    except kinds:
        pass


class Closable:
    closed = False

    def close(self):
        self.closed = True


class P:
    __match_args__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b


@program("try/except/else/finally without an exception")
def test_try_clean(x):
    log = []
    try:
        y = x + 1
    except ValueError:
        log.append("except")
    else:
        log.append("else")
    finally:
        log.append("finally")
    return y, log


@program("raise and catch")
def test_catch(x):
    try:
        fails(2)
    except (KeyError, ValueError) as error:
        return x, str(error), error.args, type(error).__name__
    return None


@program("exception of an inlined call, with finally")
def test_inlined_exception(x):
    log = []
    try:
        cleans(log, 5)
    except ValueError as error:
        log.append(str(error))
    return x * cleans(log, 1), log


@program("except clauses in order, hierarchy")
def test_clause_order(x):
    out = []
    for kind in (KeyError, IndexError, ValueError, ZeroDivisionError):
        try:
            raise kind("m")
        except LookupError as error:
            out.append(type(error).__name__)
        except ArithmeticError:
            out.append("arith")
        except Exception:
            out.append("other")
    return x, out


@program("nested try, re-raise, bare raise")
def test_nested_try(x):
    log = []
    try:
        try:
            raise ValueError("a")
        except ValueError:
            log.append("inner")
            raise
        finally:
            log.append("fin")
    except ValueError as error:
        log.append(str(error))
    return x, log


@program("raise from, __cause__, __context__")
def test_raise_from(x):
    try:
        translates(3)
    except Custom as error:
        return x, error.code, error.note, str(error), type(error.__cause__).__name__, error.__suppress_context__


@program("implicit __context__")
def test_context(x):
    try:
        try:
            raise KeyError("k")
        except KeyError:
            raise ValueError("v")  # noqa: B904
    except ValueError as error:
        return x, repr(error.__context__), error.__cause__


@program("custom exceptions and attributes")
def test_custom(x):
    try:
        raise Custom(7, note="hello")
    except Custom as error:
        error.extra = x + 1
        return error.extra, error.code, error.args, error.note, str(Quiet("zz"))


@program("returning an exception object")
def test_return_exception(x):
    try:
        raise Custom(1)
    except Custom as error:
        kept = error.code
    return x, kept, ValueError("v", 2), Custom(5)


@program("exception escapes: raise")
def test_escape(x):
    y = x + 1
    raise ValueError(f"shape {tuple(y.shape)}")


@program("exception escapes from an inlined call")
def test_escape_inlined(x):
    y = x + 1
    return y + fails(3)


@program("exception escapes with a cause")
def test_escape_cause(x):
    y = x + 1
    return y + translates(4)


@program("exception escapes after effects", inputs=lambda: ([1], torch.ones(2)))
def test_escape_effects(xs, x):
    xs.append(x + 1)
    try:
        xs.append(2)
        raise KeyError("k")
    finally:
        xs.append(3)


@program("return in finally and in except")
def test_return_in_finally(x):
    def f():
        try:
            return 1
        finally:
            return 2  # noqa: B012

    def g():
        for i in range(3):
            try:
                if i == 1:
                    continue
                if i == 2:
                    break
            finally:
                x.shape
        return i

    return x * f(), g()


@program("assert that holds")
def test_assert(x):
    assert x.ndim == 2, "two dimensions"
    return x + 1


@program("assert that fails, with a message")
def test_assert_fails(x):
    y = x + 1
    assert x.ndim == 3, f"got {x.ndim}"
    return y


@program("assert caught")
def test_assert_caught(x):
    try:
        assert x.ndim == 3, "no"
    except AssertionError as error:
        return x, str(error)


@program("ZeroDivisionError, KeyError, IndexError, AttributeError, TypeError from operations")
def test_builtin_errors(x):
    out = []
    for f in (
        lambda: 1 / 0,
        lambda: {}["k"],
        lambda: [][1],
        lambda: x.nope,
        lambda: None + 1,
        lambda: int("z"),
        lambda: "a" + 1,
    ):
        try:
            f()
        except Exception as error:
            out.append((type(error).__name__, str(error)))
    return x, out


@program("except with a tensor operation inside")
def test_except_tensor(x):
    try:
        raise ValueError
    except ValueError:
        y = x * 2
    return y


@program("tensor operation that raises is caught", BREAK)
def test_tensor_error(x):
    y = x + 1
    try:
        return y @ y
    except RuntimeError as error:
        return y, str(error)[:20]


@program("raising a class, an instance, a non-exception")
def test_raise_kinds(x):
    out = []
    for what in (ValueError, ValueError("i"), 3):
        try:
            raise what
        except (ValueError, TypeError) as error:
            out.append(repr(error))
    return x, out


@program("exception groups")
def test_exception_group(x):
    y = x + 1
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError as group:
        return_value = len(group.exceptions)
    except* KeyError:
        pass
    return y * return_value


@program("sys.exc_info")
def test_exc_info(x):
    import sys

    try:
        raise ValueError("v")
    except ValueError:
        kind = sys.exc_info()[0]
    return x, kind


@program("exception name is unbound after the clause")
def test_name_unbound(x):
    y = x + 1
    try:
        raise ValueError
    except ValueError as error:
        pass
    return y, error  # noqa: F821


@program("match: literals, or, wildcard, guards")
def test_match_literals(x):
    out = []
    for v in (1, 2, "a", None, 5, True):
        match v:
            case 1 | 2:
                out.append("small")
            case "a":
                out.append("text")
            case None:
                out.append("none")
            case int(n) if n > 3:
                out.append(f"big {n}")
            case _:
                out.append("other")
    return x, out


@program("match: sequences and stars")
def test_match_sequences(x):
    out = []
    for v in ([], [1], (1, 2), [1, 2, 3], "ab", [x, 1]):
        match v:
            case []:
                out.append("empty")
            case [a]:
                out.append(a)
            case [torch.Tensor() as t, b]:
                out.append(t + b)
            case (a, b):
                out.append(a + b)
            case [first, *rest]:
                out.append((first, rest))
            case _:
                out.append("no")
    return out


@program("match: mappings and classes")
def test_match_mappings(x):
    out = []
    for v in ({"k": 1, "z": 2}, {"t": x}, P(1, x), P(0, 0), {}, 3.5):
        match v:
            case {"k": n, **rest}:
                out.append((n, rest))
            case {"t": torch.Tensor() as t}:
                out.append(t * 2)
            case P(1, b=torch.Tensor() as t):
                out.append(t)
            case P(a, b):
                out.append((a, b))
            case {}:
                out.append("mapping")
            case float():
                out.append("float")
    return out


@program("match: values of names and captures")
def test_match_values(x):
    match x.shape:
        case (n, 4):
            y = x * n
        case _:
            y = x
    match x.dtype:
        case torch.float32:
            return y, "single"
        case torch.float64:
            return y, "double"


@program("user context manager")
def test_with(x):
    log = []
    with Manager(log) as m:
        y = x + 1
        log.append(m.swallow)
    return y, log


@program("context manager that swallows an exception")
def test_with_swallow(x):
    log = []
    with Manager(log, swallow=True):
        raise ValueError("in")
    return x, log


@program("context manager and an escaping exception")
def test_with_escape(x):
    y = x + 1
    log = []
    with Manager(log):
        raise ValueError("out")
    return y


@program("nested and parenthesised with, return inside")
def test_with_nested(x):
    log = []

    def f():
        with Manager(log), scope(log, "b") as b:
            return b

    return x, f(), log


@program("contextlib.contextmanager")
def test_contextmanager(x):
    log = []
    with scope(log) as name:
        y = x + 1
    try:
        with scope(log, "e"):
            raise ValueError("v")
    except ValueError as error:
        log.append(str(error))
    with swallowing(KeyError):
        {}["k"]
    return y, name, log


@program("contextlib.ExitStack")
def test_exit_stack(x):
    log = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager(log))
        name = stack.enter_context(scope(log, "q"))
        stack.callback(log.append, "cb")
        y = x * 2
    return y, name, log


@program("contextlib: nullcontext, suppress, closing")
def test_contextlib(x):
    c = Closable()
    with contextlib.nullcontext(5) as five, contextlib.closing(c):
        y = x * five
    with contextlib.suppress(ValueError):
        raise ValueError
    return y, c.closed


@program("contextmanager as a decorator")
def test_context_decorator(x):
    log = []

    @scope(log, "d")
    def f(v):
        return v + 1

    return f(x), log


@program("contextlib.redirect_stdout")
def test_redirect(x):
    import io

    buffer = io.StringIO()
    y = x + 1
    with contextlib.redirect_stdout(buffer):
        print("hidden")
    return y, buffer.getvalue()


@program("torch.no_grad and enable_grad", inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_no_grad(x):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
    return a, b, x * 4, torch.is_grad_enabled()


@program("set_grad_enabled as context and as function", inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_set_grad_enabled(x):
    with torch.set_grad_enabled(False):
        a = x * 2
    torch.set_grad_enabled(False)
    b = x * 3
    torch.set_grad_enabled(True)
    return a, b, x * 4


@program("no_grad as a decorator", inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_no_grad_decorator(x):
    return no_grad_function(x), no_grad_function.__name__


@torch.no_grad()
def no_grad_function(x):
    return x * 2


@program("exception inside no_grad")
def test_no_grad_exception(x):
    y = x + 1
    with torch.no_grad():
        raise ValueError("v")


@program("caught exception inside no_grad", inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_no_grad_caught(x):
    try:
        with torch.no_grad():
            raise ValueError("v")
    except ValueError:
        return x * 2, torch.is_grad_enabled()


@program("break inside no_grad", BREAK, inputs=lambda: (torch.randn(3, requires_grad=True),))
def test_no_grad_break(x):
    with torch.no_grad():
        y = x * 2
        print(zlib.adler32(b""))
        z = y + x
    return z, x * 3, torch.is_grad_enabled()


@program("inference_mode")
def test_inference_mode(x):
    with torch.inference_mode():
        y = x * 2
    return y.shape, torch.is_inference_mode_enabled()


@program("autocast", inputs=lambda: (torch.randn(4, 4), torch.randn(4, 4)))
def test_autocast(x, y):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ y
        with torch.autocast("cpu", enabled=False):
            b = x @ y
    return a, b, a.dtype, (x @ y).dtype


@program("autocast as a decorator", inputs=lambda: (torch.randn(4, 4), torch.randn(4, 4)))
def test_autocast_decorator(x, y):
    return autocast_matmul(x, y)


@torch.autocast("cpu", dtype=torch.bfloat16)
def autocast_matmul(x, y):
    return x @ y


@program("torch.device as a context")
def test_device_context(x):
    with torch.device("cpu"):
        y = torch.ones(3, 4)
    return x + y, y.device


@program("profiler.record_function")
def test_record_function(x):
    with torch.profiler.record_function("part"):
        y = x + 1
    return y


@program("sdpa_kernel", inputs=lambda: (torch.randn(1, 2, 4, 8),))
def test_sdpa_kernel(q):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    with sdpa_kernel(SDPBackend.MATH):
        return torch.nn.functional.scaled_dot_product_attention(q, q, q)


@program("context manager argument", inputs=lambda: (torch.no_grad(), torch.randn(3, requires_grad=True)))
def test_context_argument(context, x):
    with context:
        y = x * 2
    return y


@program("default dtype change")
def test_default_dtype(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(2)
    torch.set_default_dtype(torch.float32)
    return y, x + 1


@program("grad switched on inside no_grad, around a break", BREAK, inputs=lambda: (torch.ones(3, requires_grad=True),))
def test_grad_inside_no_grad(x):
    with torch.no_grad():
        y = x * 2
        print(zlib.adler32(b""))
        with torch.enable_grad():
            z = x * 3
        w = x * 4
    return y, z, w, x * 5, torch.is_grad_enabled()


@program("autocast around a break", BREAK)
def test_autocast_break(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.T
        print(y.dtype, zlib.adler32(b""))
        z = x @ x.T
    return y, z, x @ x.T, torch.is_autocast_enabled("cpu")


def test_modes_behind_a_graph() -> None:
    """Back ends that rewrite graphs lose mode changes at their end: the replacement code makes them."""

    def program(x):
        with torch.no_grad():
            y = x * 2
            print(y.sum().item() > 1e9)
            z = x * 3
            with torch.enable_grad():
                w = x * 4
        return y, z, w, x * 5

    x = torch.ones(3, requires_grad=True)
    found = stoker.compile(program)(x)
    assert [t.requires_grad for t in found] == [False, False, True, True]


@program("words of errors about elements and keywords")
def test_words_of_errors(x):
    told = []
    for attempt in (
        lambda: [1].index(x.dim()),
        lambda: (1,).index(7),
        lambda: collections.deque([1]).index("a"),
        lambda: dict(**{"a": 1}, **{"a": 2}),
        lambda: keyworded(**{"a": 1}, **{"a": 2}),
    ):
        try:
            attempt()
        except (ValueError, TypeError) as error:
            told.append(str(error))
    return x + len(told), told


def keyworded(**named):
    return named
