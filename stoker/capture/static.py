"""Attributes of classes, found without running any code of theirs."""

from __future__ import annotations

import types
from typing import Any

from stoker import _C

MISSING = _C.MISSING


def static_lookup(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in base.__dict__:
            return base.__dict__[name]
    return MISSING


def is_data_descriptor(raw: Any) -> bool:
    if isinstance(raw, types.FunctionType):
        return False
    kind = type(raw)
    return static_lookup(kind, "__set__") is not MISSING or static_lookup(kind, "__delete__") is not MISSING
