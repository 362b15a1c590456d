"""What the standard library's `traceback` asks of C code and of files, when captured code shows an exception.

Lines of source are read while capturing: a program that changes its own source while it runs is not noticed.
"""

from __future__ import annotations

import linecache
import traceback
import types

from stoker.capture.handlers import handles, on_object
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.value import Value

PARSES = vars(traceback)["_extract_caret_anchors_from_line_segment"]


@handles(PARSES)
def anchors(m: Machine, segment: Value) -> Value:
    """Where in a line the operator or the brackets are that raised: it parses the text."""
    found = PARSES(m.concrete.constant(segment, "a line"))
    return Constant(None) if found is None else m.wrap.object(type(found)).call(m, [*map(Constant, found)], {})


@on_object(types.CodeType.co_positions)
def co_positions(m: Machine, code: Value) -> Value:
    found = m.concrete.constant(code, "co_positions()")
    return m.wrap.constant(tuple(found.co_positions())).iterator(m)


@handles(linecache.checkcache)
def checkcache(m: Machine, filename: Value = Constant(None)) -> Value:  # noqa: B008
    linecache.checkcache(m.concrete.constant(filename, "checkcache()"))
    return Constant(None)


@handles(linecache.lazycache)
def lazycache(m: Machine, filename: Value, namespace: Value) -> Value:
    """Whether a loader can be asked for the lines later on: those of files are read at once."""
    return Constant(m.concrete.constant(filename, "lazycache()") in linecache.cache)


@handles(linecache.getline)
def getline(m: Machine, filename: Value, line: Value, namespace: Value = Constant(None)) -> Value:  # noqa: B008
    return Constant(linecache.getline(*(m.concrete.constant(given, "getline()") for given in (filename, line))))
