"""One recording of a plan: captured, its inputs' words found, ready to be replayed.

In:  a plan, inputs, and which of them stay where they are.
Out: a `PlanRecording`, whose `replay` (csrc/replay.cpp) is a function of the plan's inputs.

Inputs that may move are read from places of the recording's own, which nothing else uses: a replay copies them there, or changes the
words that hold their address. What the plan writes to such an input is copied back.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any

import torch

from stoker import _C
from stoker.cudagraph.driver import CannotRecord, Driver, GraphNode, Instantiated
from stoker.cudagraph.words import FoundWords, Region, Word, find_words

Run = Callable[..., tuple[Any, ...]]
Held = tuple[int, int, int]
"""An input, a dimension (as `stoker.codegen.executor` writes it) and the number that was found there."""


@dataclass(frozen=True, slots=True)
class Changing:
    """An input that may move, as the replay reads it."""

    input: int
    place: torch.Tensor
    words: tuple[Word, ...]
    patches: bool
    written: bool


ResultKind = IntEnum("ResultKind", "ITSELF INPUT HOME LASTING OBJECT SAME", start=0)
"""As csrc/replay.cpp lists them: an input itself, a view of one, memory of the recording, memory that no replay writes,
an object, an earlier result once more (one that is kept for a gradient is such, so that a write to it is noticed)."""


@dataclass(frozen=True, slots=True)
class ReplayResult:
    """What a replay gives back. `value` is the object, or the number of an input, of a piece of memory, or of another result."""

    kind: ResultKind
    value: Any
    dtype: torch.dtype | None = None
    sizes: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Description:
    """What `_C.Replay` reads, field by field."""

    launch: Callable[[], object] | None
    owner: object
    executable: int
    stream: int
    device: int
    input_count: int
    nodes: tuple[GraphNode, ...]
    fixed: tuple[tuple[int, int], ...]
    changing: tuple[Changing, ...]
    homes: tuple[torch.Tensor, ...]
    lasting: tuple[torch.Tensor, ...]
    results: tuple[ReplayResult, ...]
    held: tuple[Held, ...]
    aligned: tuple[int, ...]


@dataclass(slots=True)
class PlanRecording:
    """A graph that can be replayed, and what is known of it."""

    replay: Any
    patchable: tuple[int, ...]
    """Inputs that can be followed by changing parameters."""
    refused: Mapping[int, str]
    """Inputs that must be copied, and why."""
    kernels: int
    places: Mapping[int, torch.Tensor]
    """Where it reads inputs that may move, if they are copied."""


@dataclass(frozen=True, slots=True)
class World:
    """What all recordings of a plan share."""

    run: Run
    recorded: Callable[[list[Any]], Run]
    """The plan as it is recorded: its temporaries lie in memory that stays, and that is added to the list."""
    driver: Driver
    device: int
    constants: tuple[torch.Tensor, ...] = ()
    written: frozenset[int] = frozenset()
    """Inputs that the plan writes."""
    aligned: tuple[int, ...] = ()
    """Inputs that the plan is for only where they are aligned."""


def record(world: World, inputs: Sequence[Any], fixed: frozenset[int], held: tuple[Held, ...]) -> PlanRecording:
    """Record a plan on inputs, of which those in `fixed` are expected to stay where they are. Inputs that it writes are changed."""
    moving = [i for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and v.numel() and i not in fixed]
    places = {i: place_of(inputs[i]) for i in moving}
    keeps: list[Any] = []
    run = world.recorded(keeps)
    with world.driver.random_state_kept():
        run(*inputs)  # libraries and memory are ready after it
    captured, results = world.driver.capture(lambda: run(*placed(inputs, places)))
    found = _find(world.driver, run, inputs, places, captured) if moving else FoundWords({}, {})
    used = {word.node: None for words in found.words.values() for word in words}
    numbers = {position: number for number, position in enumerate(used)}
    changing = tuple(
        Changing(i, places[i], _renumbered(found.words.get(i, ()), numbers), i not in found.refused, i in world.written)
        for i in moving
    )
    homes, lasting, described = _results(world, results, inputs, places)
    nodes = tuple(captured.nodes[position] for position in used)
    staying = tuple((i, inputs[i].data_ptr()) for i in sorted(fixed))
    description = Description(
        captured.launch, (captured.owner, keeps), captured.executable, world.driver.stream(), world.device, len(inputs),
        nodes, staying, changing, tuple(homes), tuple(lasting), described, held, world.aligned,
    )  # fmt: skip
    made = _C.Replay(description)
    kernels = sum(node.kind == "kernel" for node in captured.nodes)
    return PlanRecording(made, tuple(i for i in moving if i not in found.refused), found.refused, kernels, places)


def place_of(tensor: torch.Tensor) -> torch.Tensor:
    """Memory for the bytes that a tensor spans, with its content."""
    return _alone(bytes_of(tensor))


def _alone(content: torch.Tensor) -> torch.Tensor:
    """A copy of bytes that no other memory begins behind: an address of their end is of nothing else."""
    return content.new_empty(content.numel() + 1)[:-1].copy_(content)


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """The bytes that a tensor spans, gaps and all."""
    reach = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.detach().as_strided((reach,), (1,)).view(torch.uint8)


def placed(inputs: Sequence[Any], places: Mapping[int, torch.Tensor]) -> list[Any]:
    """The inputs, those that may move at their places."""
    given = list(inputs)
    for number, place in places.items():
        tensor = inputs[number]
        given[number] = place.view(tensor.dtype).as_strided(tensor.shape, tensor.stride(), 0)
    return given


def _find(
    driver: Driver, run: Run, inputs: Sequence[Any], places: Mapping[int, torch.Tensor], first: Instantiated
) -> FoundWords:
    others = {i: _alone(place) for i, place in places.items()}
    second, _ = driver.capture(lambda: run(*placed(inputs, others)))
    regions = {i: Region(p.data_ptr(), others[i].data_ptr(), p.numel()) for i, p in places.items()}
    return find_words(first.nodes, second.nodes, regions)


def _renumbered(words: Sequence[Word], numbers: Mapping[int, int]) -> tuple[Word, ...]:
    return tuple(replace(word, node=numbers[word.node]) for word in words)


def _results(
    world: World, values: Sequence[Any], inputs: Sequence[Any], places: Mapping[int, torch.Tensor]
) -> tuple[list[torch.Tensor], list[torch.Tensor], tuple[ReplayResult, ...]]:
    """Memory of the results, one tensor for each storage: that which replays write, and that which none does."""
    tensors = [(i, v) for i, v in enumerate(inputs) if isinstance(v, torch.Tensor) and v.numel()]
    owners = {storage_start(places.get(i, v)): i for i, v in tensors}
    constants = {storage_start(c) for c in world.constants}
    homes: dict[int, torch.Tensor] = {}
    lasting: dict[int, torch.Tensor] = {}
    described: list[ReplayResult] = []
    for number, value in enumerate(values):
        first = next(n for n, other in enumerate(values) if other is value)
        if not isinstance(value, torch.Tensor):
            described.append(ReplayResult(ResultKind.OBJECT, value))
            continue
        if first < number:
            described.append(ReplayResult(ResultKind.SAME, first))
            continue
        storage = storage_start(value)
        if storage in owners and value.numel():
            owner = owners[storage]
            described.append(_of_input(value, owner, inputs[owner], owner in places))
            continue
        kind, memory = (ResultKind.LASTING, lasting) if storage in constants else (ResultKind.HOME, homes)
        if storage not in memory:
            memory[storage] = value
        described.append(_seen(kind, list(memory).index(storage), value, int(value.storage_offset())))
    return list(homes.values()), list(lasting.values()), tuple(described)


def _of_input(value: torch.Tensor, number: int, given: torch.Tensor, placed: bool) -> ReplayResult:
    """A result that is an input, or lies in its memory."""
    offset = int(value.storage_offset()) - (0 if placed else int(given.storage_offset()))
    if value.dtype != given.dtype:
        raise CannotRecord("a result is an input's memory seen with another dtype")
    if value.shape == given.shape and value.stride() == given.stride() and offset == 0:
        return ReplayResult(ResultKind.ITSELF, number)
    return _seen(ResultKind.INPUT, number, value, offset)


def _seen(kind: ResultKind, number: int, value: torch.Tensor, offset: int) -> ReplayResult:
    return ReplayResult(kind, number, value.dtype, tuple(value.shape), tuple(value.stride()), offset)


def storage_start(tensor: torch.Tensor) -> int:
    """Where a tensor's storage begins. (To ask for the storage itself would count as a use of it from then on.)"""
    return tensor.data_ptr() - int(tensor.storage_offset()) * tensor.element_size()
