"""Tracebacks: as values, as text, and of errors that leave, with and without a break on the way."""

from __future__ import annotations

import contextlib
import sys
import traceback

import torch
from harness import BREAK, ONE, program


def refuse(x):
    y = x * 2
    raise ValueError(f"refused {y.shape[0]}")


def through(x):
    return refuse(x + 1)


def places(trace):
    found = []
    while trace is not None:
        found.append((trace.tb_frame.f_code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    return found


@program("the lines of a traceback", default=True)
def test_lines(x):
    try:
        through(x)
    except ValueError as error:
        return x * 2, places(error.__traceback__), error.__traceback__ is error.__traceback__


@program("traceback.format_exc")
def test_format_exc(x):
    try:
        through(x)
    except ValueError:
        return x * 2, traceback.format_exc()


@program("traceback.extract_tb and format_exception")
def test_extract(x):
    try:
        through(x)
    except ValueError as error:
        frames = [(frame.name, frame.lineno, frame.line) for frame in traceback.extract_tb(error.__traceback__)]
        return x * 2, frames, traceback.format_exception(error)


@program("traceback.print_exc, to a stream")
def test_print_exc(x):
    try:
        through(x)
    except ValueError:
        traceback.print_exc(file=sys.stdout)
    return x * 2


@program("errors of C code, chained errors, notes and groups as text")
def test_texts(x):
    told = []
    for fails in (
        lambda: {"a": 1}["missing"],
        lambda: (1 + 1) / (x.dim() - x.dim()),
        lambda: x.nowhere,
        lambda: not_defined,  # noqa: F821
        lambda: "abc".index("d"),
    ):
        try:
            try:
                fails()
            except KeyError as error:
                raise RuntimeError("first\nsecond") from error
        except Exception as error:
            error.add_note("a note")
            told += traceback.format_exception(error)
            told += traceback.format_exception_only(error)
    try:
        raise ExceptionGroup("group", [ValueError(1), KeyError(2)])
    except ExceptionGroup:
        told.append(traceback.format_exc())
    return x * 2, told


@program("the frames of a traceback, as the library shows them")
def test_frames(x):
    try:
        through(x)
    except ValueError as error:
        summary = traceback.extract_tb(error.__traceback__)
        kept = [(f.filename == __file__, f.name, f.lineno, f.line, f.end_lineno, f.colno) for f in summary]
        whole = traceback.TracebackException.from_exception(error)
        shown = [*whole.format()], traceback.format_list(summary), traceback.format_tb(error.__traceback__)
        walked = [(frame.f_code.co_name, line) for frame, line in traceback.walk_tb(error.__traceback__)]
        return x * 2, kept, shown, walked, str(whole)


@program("sys.exc_info and its traceback")
def test_exc_info(x):
    try:
        through(x)
    except ValueError:
        kind, value, trace = sys.exc_info()
        return x * 2, kind is type(value), trace is value.__traceback__, places(trace)


@program("the traceback of an error that was not raised")
def test_not_raised(x):
    error = ValueError("new")
    return x * 2, error.__traceback__, error.with_traceback(None) is error


@program("with_traceback")
def test_with_traceback(x):
    try:
        through(x)
    except ValueError as error:
        raise KeyError("other").with_traceback(error.__traceback__) from None


@program("a traceback is taken away")
def test_cleared(x):
    try:
        through(x)
    except ValueError as error:
        error.__traceback__ = None
        raise


@program("an error caught and raised again")
def test_raised_again(x):
    try:
        through(x)
    except ValueError:
        x.add_(1)
        raise


@program("an error raised again by name has both lines")
def test_raised_by_name(x):
    try:
        try:
            through(x)
        except ValueError as error:
            raise error
    except ValueError as error:
        return x, places(error.__traceback__)


@program("an error kept and raised later")
def test_raised_later(x):
    kept = None
    try:
        through(x)
    except ValueError as error:
        kept = error
    y = x * 2
    if y.shape[0] == 3:
        raise kept


@program("an error that is returned has its traceback", default=True)
def test_returned(x):
    try:
        through(x)
    except ValueError as error:
        kept = error
    return x * 2, kept, places(kept.__traceback__)


@program("finally and with on the way")
def test_cleanup(x):
    told = []
    try:
        with contextlib.ExitStack() as stack:
            stack.callback(told.append, "closed")
            try:
                through(x)
            finally:
                told.append("finally")
    except ValueError as error:
        lines = [place for place in places(error.__traceback__) if place[0] != "__exit__"]
        return x, told, lines


@program("the errors of a chain have tracebacks of their own")
def test_chain(x):
    try:
        try:
            through(x)
        except ValueError as error:
            raise RuntimeError("second") from error
    except RuntimeError as error:
        return (
            x,
            places(error.__traceback__),
            places(error.__cause__.__traceback__),
            error.__context__ is error.__cause__,
        )


def numbers(x):
    yield x
    try:
        yield x + 1
    finally:
        refuse(x)


@program("an error inside a generator")
def test_generator(x):
    try:
        return [value for value in numbers(x)]
    except ValueError as error:
        return x, [name for name, _ in places(error.__traceback__) if name != "<listcomp>"]


@program("an error of C code, as a value")
def test_of_c(x):
    def look(table):
        return table["missing"]

    try:
        look({})
    except KeyError as error:
        return x * 2, places(error.__traceback__), error.args


@program("an error leaves after a break in its handler", BREAK)
def test_break_in_handler(x):
    try:
        through(x)
    except ValueError:
        print(x.sum() > 1000)
        raise


@program("another error leaves after a break in a handler", BREAK)
def test_other_after_break(x):
    try:
        through(x)
    except ValueError as error:
        print(x.sum() > 1000)
        raise RuntimeError("second") from error


@program("a traceback is read after a break in the handler", BREAK)
def test_read_after_break(x):
    try:
        through(x)
    except ValueError as error:
        print(x.sum() > 1000)
        return x * 2, places(error.__traceback__)


@program("an error leaves two handlers, with a break in each", BREAK)
def test_two_handlers(x):
    try:
        try:
            through(x)
        except ValueError:
            print(x.sum() > 1000)
            raise
        finally:
            print(x.sum() > 2000)
    except ValueError as error:
        print(traceback.format_exc())
        raise error


@program("an error from outside is raised", BREAK, inputs=lambda: (torch.ones(2), ValueError("outside")))
def test_from_outside(x, error):
    y = x * 2
    raise error


@program("an error from outside is raised and caught", ONE, inputs=lambda: (torch.ones(2), ValueError("outside")))
def test_from_outside_caught(x, error):
    try:
        raise error
    except ValueError as caught:
        return x * 2, caught is error, [name for name, _ in places(caught.__traceback__)]


@program("variables of the frames of a traceback", "unsupported")
def test_variables(x):
    try:
        raise ValueError
    except ValueError as error:
        return x * 2, sorted(error.__traceback__.tb_frame.f_locals)


@program("sys.exception, and no error at all")
def test_none(x):
    return x * 2, sys.exc_info()


def stops():
    yield 1
    raise StopIteration(5)


@contextlib.contextmanager
def around(told):
    try:
        yield
    finally:
        told.append("left")


@program("StopIteration inside a generator, and through a context manager")
def test_stop_iteration(x):
    told = []
    try:
        list(stops())
    except RuntimeError as error:
        told += [repr(error.__cause__), error.__context__ is error.__cause__, error.__suppress_context__]
    try:
        with around(told):
            next(iter([]))
    except StopIteration as error:
        told.append(repr(error))
    return x * 2, told
