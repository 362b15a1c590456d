"""The extension: frame hook, entries, guards. What each name means is told in csrc/*.h; import torch first."""

from collections.abc import Callable, Sequence
from types import CellType, CodeType, FunctionType
from typing import Any, TypeAlias, final

import torch

Action: TypeAlias = int
RUN_ONCE: Action  # run the original this time
SKIP: Action  # run the original from now on; its callees stay hooked
SKIP_DEEP: Action  # the same, with the hook off for everything below
FREEZE: Action  # keep trying the entries there are, ask no more

SOURCE_STAMP: str  # of csrc/, when this was built
BUILT_FOR_TORCH: str

ACCESSORS: dict[str, int]
CHECKS: dict[str, int]
SHAPE_OPS: dict[str, int]
MISSING: object

Check: TypeAlias = tuple[int, Any, int]  # kind, argument, guard index
Node: TypeAlias = tuple[int, Any, Sequence[Check], Sequence["Node"], int]  # accessor, argument, checks, children, slot
Binding: TypeAlias = tuple[int, int | None]  # slot and: dim (its size), ~dim (its stride), None (the integer itself)
Condition: TypeAlias = Sequence[tuple[int, int | None]]  # reverse Polish: op, argument
Shapes: TypeAlias = tuple[Sequence[Binding], Sequence[Condition], Sequence[int]]

@final
class GuardProgram:
    slot_count: int
    size: int
    followed: int
    state: TorchState | None
    def __new__(
        cls,
        roots: Sequence[Node],
        slot_count: int,
        shapes: Shapes | None = None,
        state: tuple[TorchState, int] | None = None,
    ) -> GuardProgram: ...
    def check(self, bound: Sequence[Any], function: FunctionType) -> tuple[Any, ...] | int: ...

@final
class Entry:
    code: CodeType
    guards: GuardProgram
    tag: Any
    hits: int
    def __new__(cls, code: CodeType, guards: GuardProgram, keeps_hook: bool = False, tag: Any = None) -> Entry: ...

OnMiss: TypeAlias = Callable[[CodeType, FunctionType, list[Any], list[tuple[Entry, int]]], Entry | Action]

class Compiler:
    on_miss: OnMiss
    def __init__(self, on_miss: OnMiss) -> None: ...
    def codes(self) -> list[CodeType]: ...
    def entries(self, code: CodeType) -> list[Entry]: ...
    def add(self, code: CodeType, entry: Entry) -> None: ...
    def state(self, code: CodeType) -> Action | None: ...
    def set_state(self, code: CodeType, action: Action) -> None: ...
    def forget(self) -> None: ...

@final
class Compiled:
    __wrapped__: Callable[..., Any]
    compiler: Compiler
    def __new__(cls, function: Callable[..., Any], compiler: Compiler, said: Any = ...) -> Compiled: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Any]: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

@final
class Disabled:
    __wrapped__: Callable[..., Any]
    def __new__(cls, callable: Callable[..., Any]) -> Disabled: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: Any = None) -> Callable[..., Any]: ...
    def __getattr__(self, name: str) -> Any: ...
    def __setattr__(self, name: str, value: Any) -> None: ...

@final
class TailCall:
    function: FunctionType
    arguments: tuple[Any, ...]

@final
class Resume:
    function: FunctionType
    name: Any
    def __new__(cls, function: FunctionType, name: Any = None) -> Resume: ...
    def __call__(self, *args: Any) -> TailCall: ...
    def bind(self, closure: tuple[CellType, ...]) -> Resume: ...

@final
class TensorSpec:
    def facts(
        self,
    ) -> tuple[
        type, torch.dtype, torch.device, torch.layout, bool, int, tuple[int, ...], tuple[int, ...] | None, str
    ]: ...

@final
class TorchState:
    def holds(self) -> bool: ...

def tensor_spec(
    tensor: torch.Tensor, sizes: Sequence[int] | None = None, strides: Sequence[int] | None = None
) -> TensorSpec: ...
def torch_state() -> TorchState: ...
def stance() -> int: ...
def set_stance(number: int) -> int: ...
def active_compiler() -> Compiler | None: ...
def shares_storage(inputs: tuple[Any, ...], written: tuple[int, ...]) -> bool: ...
def remembered(entry: Any) -> Any: ...
def call_answered(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    code: CodeType,
    answer: Any,
    raises: bool,
) -> Any: ...
def release_arenas() -> None: ...
def load_kernel(device: int, binary: bytes, name: str, shared_bytes: int) -> int: ...
def launch_kernel(device: int, function: int, threads: int, shared_bytes: int, programs: int, words: bytes) -> None: ...
def set_stream_source(function: Callable[[int], int]) -> None: ...

@final
class TrainingCall:
    def __new__(
        cls,
        *,
        forward: Callable[..., Any],
        backward: tuple[Callable[..., Any], bool, tuple[int, ...]],
        captured: Callable[..., Any],
        again: Callable[..., Any],
        random_state: Callable[[], Any] | None,
        results: int,
        partial: Callable[[tuple[bool, ...]], Any] | None,
        kept: tuple[int, ...],
        readers: tuple[tuple[int, ...], ...],
        histories: tuple[tuple[int, ...], ...],
        beneath: tuple[tuple[int, ...], ...],
        apart: Callable[..., Any],
        tangents: tuple[tuple[int, bool, tuple[Any, ...] | None], ...],
        gradients: tuple[tuple[int, tuple[int, ...]], ...],
        inputs: str,
        as_given: bool,
    ) -> TrainingCall: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...

class Plan:
    def __new__(
        cls, plain: object, objects: tuple[object, ...], otherwise: Callable[..., object] | None = None
    ) -> Plan: ...
    def __call__(self, *args: Any) -> tuple[Any, ...]: ...
    def run_in(self, arena_source: Callable[[int, int], torch.Tensor], *inputs: Any) -> tuple[Any, ...]: ...

class Replay:
    reason: int
    copied_bytes: int
    patched_nodes: int
    replays: int
    def __new__(cls, description: object) -> Replay: ...
    def __call__(self, *inputs: Any) -> Any: ...  # a tuple, or NotImplemented
    def patch(self, inputs: Sequence[int]) -> None: ...

class Branch:
    def __new__(cls, first: Callable[..., Any], second: Callable[..., Any]) -> Branch: ...
    def __call__(self, predicate: Any, *inputs: Any) -> tuple[Any, ...]: ...

class Loop:
    def __new__(cls, condition: Callable[..., Any], body: Callable[..., Any], carried: int) -> Loop: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...

class Scan:
    def __new__(cls, step: Callable[..., Any], carried: int, sequences: int, backwards: bool) -> Scan: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...

class FrozenCall:
    def __new__(
        cls,
        call: Callable[..., Any],
        prepare: Callable[..., tuple[Any, ...]],
        watched: tuple[int, ...],
        without: Callable[[], Callable[..., Any]],
    ) -> FrozenCall: ...
    def __call__(self, *inputs: Any) -> tuple[Any, ...]: ...
