"""Functions of the standard library over text and plain data that capture knows: run for real."""

from __future__ import annotations

import binascii
import json
import os
import re
import struct
import types
import unicodedata
import zlib
from typing import Any

from stoker.capture.handlers import describe, handles, on_object, pure
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import InstanceValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.value import Value
from stoker.errors import Break

RUN = (
    re.match,
    re.search,
    re.fullmatch,
    re.sub,
    re.subn,
    re.split,
    re.findall,
    re.compile,
    re.escape,
    json.dumps,
    json.loads,
)
METHODS = {
    re.Pattern: "match search fullmatch sub subn split findall",
    re.Match: "group groups groupdict start end span expand __getitem__",
}


pure(struct.pack, struct.unpack, struct.calcsize, zlib.crc32)
for _module in (binascii, unicodedata):
    pure(*(function for function in vars(_module).values() if isinstance(function, types.BuiltinFunctionType)))


@handles(os.fspath)
def fspath(m: Machine, path: Value) -> Value:
    if issubclass(path.python_type(), (str, bytes)):
        return path
    found = m.attributes.special_method(path, "__fspath__")
    return found.call(m, [], {}) if found is not None else m.wrap.constant(m.concrete.run(os.fspath, path.constant()))


def _known(m: Machine, value: Value, what: str) -> Any:
    """The real data behind a value: nothing but what is plain all the way down, and objects of `re`."""
    value = m.wrap.force(value)
    match value:
        case ListValue() | TupleValue() if value.python_type() in (list, tuple):
            return value.python_type()(_known(m, part, what) for part in value.items_list(m))
        case DictValue() if value.python_type() is dict:
            return {_known(m, k, what): _known(m, v, what) for k, v in value.pairs(m)}
        case Constant() | SymbolicValue():
            return m.concrete.constant(value, what)
    real = getattr(value, "real", None)
    if isinstance(value, InstanceValue) and isinstance(value.storage, Constant) and isinstance(real, str):
        return real  # functions in C take the text that it holds
    if isinstance(real, (re.Pattern, re.Match)):
        m.guards.identity(value)
        return real
    raise Break(what, f"{value.describe()} is more than plain data")


def _run(m: Machine, function: Any, args: tuple[Value, ...], kwargs: dict[str, Value]) -> Value:
    what = f"a call of {describe(function)}"
    given = [_known(m, value, what) for value in args]
    named = {name: _known(m, value, what) for name, value in kwargs.items()}
    found = m.concrete.run(lambda: function(*given, **named))
    return m.wrap.object(found) if isinstance(found, (re.Pattern, re.Match)) else m.wrap.constant(found)


def _register(function: Any) -> None:
    def run(m: Machine, *args: Value, **kwargs: Value) -> Value:
        return _run(m, function, args, kwargs)

    handles(function)(run)
    on_object(function)(run)


for _function in RUN:
    _register(_function)
for _cls, _names in METHODS.items():
    for _name in _names.split():
        _register(vars(_cls)[_name])
