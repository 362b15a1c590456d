"""Where captured code is, in the user's terms.

In:  a frame about to run, or one that runs.
Out: the function's name and place. Calling a module is a call of its class's `forward`, and lines inside torch are named by
     their function: nobody looks for their model there.
"""

from __future__ import annotations

import sys
import types
from dataclasses import dataclass
from typing import Any

import torch

from stoker.capture.policy import GENERATED, TORCH, Policy
from stoker.capture.static import static_lookup
from stoker.twin import stands_for

MODULE_CALLS = torch.nn.modules.module.__file__


@dataclass(frozen=True)
class Place:
    """A function: what events call it, where it is defined, and whether its user wrote it."""

    subject: str
    location: str
    is_users: bool

    @property
    def text(self) -> str:
        return self.location if self.location.endswith(self.subject) else f"{self.location} in {self.subject}"


def place_of(code: types.CodeType, function: types.FunctionType, bound: list[Any]) -> Place:
    if code.co_filename == MODULE_CALLS and bound and issubclass(type(bound[0]), torch.nn.Module):
        cls = stands_for(type(bound[0]))
        forward = static_lookup(cls, "forward")
        subject, module = f"{cls.__qualname__}.forward", cls.__module__
        code = forward.__code__ if isinstance(forward, types.FunctionType) else code
    else:
        subject, module = code.co_qualname, function.__module__
    if code.co_filename.startswith((TORCH, GENERATED)):
        return Place(subject, f"{module}.{subject}", False)
    is_users = not Policy().is_library(code.co_filename)
    return Place(subject, f"{code.co_filename}:{code.co_firstlineno}", is_users)


def calling_line(policy: Policy) -> tuple[types.CodeType, int] | None:
    """The line of the user's that runs at this moment, outside of what is captured."""
    frame: types.FrameType | None = sys._getframe()
    while frame is not None and policy.is_library(frame.f_code.co_filename):
        frame = frame.f_back
    return (frame.f_code, frame.f_lineno) if frame is not None else None
