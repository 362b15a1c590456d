"""One handler per opcode, bearing its name: `handler(machine, frame, instruction)`.

A handler returns None to go on, or the frame's result. `HANDLERS` has every opcode that `decode` yields on any supported
CPython (tests/tables/test_opcodes.py); those that are refused say why.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from stoker.capture.opcodes import arith, call, container, exception, generator, jump, name, refused, stack

Handler = Callable[..., Any]
MODULES = (stack, name, arith, call, jump, container, exception, generator, refused)

HANDLERS: dict[str, Handler] = {
    attribute: function
    for module in MODULES
    for attribute, function in vars(module).items()
    if attribute.isupper() and isinstance(function, types.FunctionType)
}
