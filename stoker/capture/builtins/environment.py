"""Questions about the installation, which does not change while a program runs."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys

from stoker.capture.handlers import handles, pure
from stoker.capture.machine import Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.value import Value
from stoker.guard.source import Fixed

pure(sys.getrecursionlimit, sys.intern, str.maketrans, bytes.maketrans)


def _facts() -> None:
    for function in (importlib.metadata.version, platform.system, platform.machine, platform.python_version):
        handles(function)(
            lambda m, *args, function=function: m.wrap.constant(
                m.concrete.run(function, *(m.concrete.constant(a, function.__name__) for a in args))
            )
        )


_facts()


@handles(importlib.util.find_spec)
def find_spec(m: Machine, name: Value, package: Value | None = None) -> Value:
    found = m.concrete.run(importlib.util.find_spec, m.concrete.constant(name, "find_spec()"))
    return Constant(None) if found is None else m.wrap.at(found, Fixed(found, "module spec", snapshot=True))
