"""Context managers of torch that are written in C, or that mean nothing to a graph."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import torch

from stoker import torch_private
from stoker.capture.builtin import handles
from stoker.capture.values.constant import Constant
from stoker.capture.values.context import ScopeValue
from stoker.capture.values.value import Value

if TYPE_CHECKING:
    from stoker.capture.machine import Machine


@handles(torch.profiler.record_function)
def record_function(m: Machine, name: Value, args: Value = Constant(None)) -> Value:  # noqa: B008
    """A label for the profiler: the graph has its own."""
    return m.call(m.wrap_object(contextlib.nullcontext), [], {})


@handles(torch_private.InferenceMode)
def inference_mode(m: Machine, enabled: Value) -> Value:
    kind = torch_private.InferenceMode
    return ScopeValue(kind, kind, m.constant_of(enabled, "torch.inference_mode()"))
