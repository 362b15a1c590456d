"""A captured graph, run by eager operator by operator, so that an error in it can be taken back.

In:  a graph as it was captured.
Out: a callable. An error of it finds inputs, modes and generators as they were before the call, and bears the mark of
     csrc/dispatch.h (`UNTOUCHED`): CPython then runs the frame from its start, does what the program does before the error, and raises eager's own.

Inputs that the graph writes are copied before a call in which an operator may raise by its data, or autograd may refuse a write. Where what was written has a
history in autograd, which a copy does not bring back, the error stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import GraphModule

from stoker import torch_private
from stoker.fake.history import may_refuse_write
from stoker.graph.modes import FoundModes, changes_modes
from stoker.graph.raising import raises_by_data

UNEXPECTED = "a branch that raises is taken"
"""The words of a check that capture put into a graph (`stoker.capture.raising`)."""

SPAN = "span"
"""Of an input that stands for several in one memory (`stoker.autograd.overlap`)."""


def mark_untouched(error: Exception) -> None:
    """Say that the program can be run again. Not of an error that an earlier call left (`LATE` in csrc/dispatch.h), nor of one of a plan
    that has written to an input."""
    if can_run_again(error):
        error._stoker_untouched = True  # type: ignore[attr-defined]  # a mark of ours


def is_untouched(error: Exception) -> bool:
    return hasattr(error, "_stoker_untouched")


def unmark(error: Exception) -> None:
    """Let it be raised as it is: that the program can be run again is of no use."""
    del error._stoker_untouched  # type: ignore[attr-defined]  # a mark of ours


def can_run_again(error: Exception) -> bool:
    """Is it an error of this call, and was nothing written?"""
    return not hasattr(error, "_stoker_late") and not has_written(error)


def mark_written(error: Exception) -> None:
    """Say that the program must not be run again (`WRITTEN` in csrc/dispatch.h): it would write to its inputs twice."""
    error._stoker_written = True  # type: ignore[attr-defined]  # a mark of ours


def has_written(error: Exception) -> bool:
    """Was an input written before the error?"""
    return hasattr(error, "_stoker_written")


class Undoable:
    """A captured program whose errors are taken back. It calls the graph's `forward`: a graph's own call prints what it raises.

    Around what a user's own back end compiled, errors stay the user's but for those of branches that capture did not expect.
    """

    def __init__(self, graph_module: GraphModule, compiled: Callable[..., Any] | None = None) -> None:
        self.graph_module = graph_module
        self.forward = compiled or graph_module.forward
        self.takes_back_all = compiled is None
        self.written = _marked(graph_module, "written")
        self.followed = _marked(graph_module, "followed")
        self.changes_modes = changes_modes(graph_module.graph)
        self.raises = any(map(raises_by_data, graph_module.graph.nodes))

    def __repr__(self) -> str:
        return f"<captured graph of {len(self.graph_module.graph.nodes)} nodes>"

    def __call__(self, *inputs: Any) -> Any:
        drawn = _states(inputs)
        found = FoundModes.now() if self.changes_modes else None
        written = [inputs[index] for index in self.written]
        versions = list(map(_version, written))
        raises = self.raises or any(may_refuse_write(inputs[index]) for index in self.followed)
        copies = [_Copy.of(tensor) for tensor in written if _can_return(tensor)] if raises else []
        try:
            with _hooks_called_once():
                return self.forward(*inputs)
        except Exception as error:
            if not self.takes_back_all and UNEXPECTED not in str(error):
                raise
            if found is not None:
                found.put_back()
            for copy in copies:
                copy.restore()
            if versions == list(map(_version, written)):
                _put_back(drawn)
                mark_untouched(error)
            raise


def _hooks_called_once() -> contextlib.AbstractContextManager[Any]:
    """What the program's own hook on saved tensors raises, such as the one that ends a checkpoint's recomputation, stays raised: the
    hook has run, and must not run again."""
    hooks = torch_private.top_saved_tensors_hooks(False)
    if hooks is None:
        return contextlib.nullcontext()
    pack, unpack = hooks

    def pack_once(tensor: torch.Tensor) -> Any:
        try:
            return pack(tensor)
        except Exception as error:
            mark_written(error)
            raise

    return saved_tensors_hooks(pack_once, unpack)


def drawing_once(forward: Callable[..., Any], devices: Sequence[torch.device]) -> Callable[..., Any]:
    """A graph that writes to nothing but draws: where it raises, generators are as before. Errors on a device come late, so its
    generators are let alone."""
    if not any(device.type == "cpu" for device in devices):
        return forward

    def call(*inputs: Any) -> Any:
        drawn = _states(inputs)
        try:
            return forward(*inputs)
        except Exception:  # whatever it was: it is raised again, as if nothing had been drawn
            _put_back(drawn)
            raise

    return call


def _states(inputs: Sequence[Any]) -> list[tuple[torch.Generator, torch.Tensor]]:
    """The processor's generator, and those among the inputs, with their states."""
    generators = (torch.default_generator, *(x for x in inputs if isinstance(x, torch.Generator)))
    return [(generator, generator.get_state()) for generator in generators]


def _put_back(states: list[tuple[torch.Generator, torch.Tensor]]) -> None:
    for generator, state in states:
        generator.set_state(state)


@dataclass(frozen=True, slots=True)
class _Copy:
    """An input as it was: its content, how it lay in its memory, and how often it was written."""

    tensor: torch.Tensor
    content: torch.Tensor
    storage: torch.UntypedStorage
    offset: int
    version: int | None

    @staticmethod
    def of(tensor: torch.Tensor) -> _Copy:
        content = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device)
        with torch.no_grad():
            content.copy_(tensor)
        return _Copy(tensor, content, tensor.untyped_storage(), int(tensor.storage_offset()), _version(tensor))

    def restore(self) -> None:
        """Whatever its version says: an operator that raised in the middle has written, and not counted it."""
        with torch.no_grad():
            data = self.tensor.data
            data.set_(self.storage, self.offset, self.content.shape, self.content.stride())
            data.copy_(self.content)
            if self.tensor.shape != data.shape or self.tensor.stride() != data.stride():
                self.tensor.data = data
        if self.version is not None:
            torch_private.set_version(self.tensor, self.version)


def _can_return(tensor: torch.Tensor) -> bool:
    """Does a copy say all? Not of one with a history, nor of elements that lie in one place."""
    return not tensor.requires_grad and all(stride for size, stride in zip(tensor.shape, tensor.stride()) if size > 1)


def _version(tensor: torch.Tensor) -> int | None:
    """How often it was written; inference tensors do not count."""
    return None if tensor.is_inference() else tensor._version


def _marked(graph_module: GraphModule, mark: str) -> tuple[int, ...]:
    """The positions of tensors whose memory capture found to be written so. One that stands for several inputs stands for a written one."""
    placeholders = [n for n in graph_module.graph.nodes if n.op == "placeholder"]
    return tuple(
        index
        for index, node in enumerate(placeholders)
        if node.meta.get(SPAN) or getattr(getattr(node.meta.get("example_value"), "memory", None), mark, False)
    )
