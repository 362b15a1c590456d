"""The mode under which programs run on metadata.

In:  real tensors (`from_real`), and a program run inside `with mode:`.
Out: fake tensors; a memo of what operators did to symbolic metadata; a shape environment that learned what was asked.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from stoker import torch_private
from stoker.fake.matmul import NEEDED, SymbolicMatmul
from stoker.fake.meta import Size, meta_of
from stoker.fake.propagate import propagate
from stoker.fake.tensor import FakeStorage, FakeTensor, make_fake, restride


class FakeMode(torch_private.TorchDispatchMode):
    """Inside it, operators take and give fake tensors; factories (torch.zeros, arange, tensor) give fakes too."""

    def __init__(self, shape_env: Any = None) -> None:
        super().__init__()
        self.shape_env = shape_env
        self.memo: dict[Any, Any] = {}
        self.contents: dict[Any, int] = {}
        """The number of what an operator makes of contents (`FakeStorage.content`)."""
        self.batches: dict[int, Any] = {}
        """Of packed sequences, how many there are, by the content that tells how many there are at each step (`stoker.fake.packed`)."""
        self.scope: Any = None
        """Sizes that only data tells are the same only within one scope: what holds of them in a branch need not hold outside."""
        self.told_by_data = 0
        """How many sizes and numbers operators were given that only data tells."""
        self.is_capturing = False
        """Does the program itself run, not a captured one?"""
        self.drawn = 0
        """How many operators drew random numbers."""
        self._matmuls: list[SymbolicMatmul | None] = []
        self._fakes: dict[int, tuple[weakref.ref[torch.Tensor], FakeTensor]] = {}
        self._memories: dict[int, tuple[weakref.ref[torch.Tensor], FakeStorage]] = {}

    def __enter__(self) -> FakeMode:
        symbolic = NEEDED and self.shape_env is not None and bool(self.shape_env.symbols)
        self._matmuls.append(SymbolicMatmul() if symbolic else None)
        if symbolic:
            self._matmuls[-1].__enter__()  # type: ignore[union-attr]  # one was made just above
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        taken_apart = self._matmuls.pop()
        if taken_apart is not None:
            taken_apart.__exit__(*error)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """See `torch_private.SKIP_DYNAMO_HOOK`."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if self._matmuls and self._matmuls[-1] is not None:
            with torch_private.DisableTorchFunction():
                return propagate(self, func, args, kwargs or {})
        return propagate(self, func, args, kwargs or {})

    def propagate(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operator on metadata, whether or not the mode is active."""
        return propagate(self, func, args, kwargs)

    def from_real(
        self,
        tensor: torch.Tensor,
        *,
        sizes: Sequence[Size] | None = None,
        strides: Sequence[Size] | None = None,
        storage_offset: Size | None = None,
    ) -> FakeTensor:
        """A fake with a real tensor's metadata; sizes may be given symbolic, and strides then follow the real order.

        The same tensor asked for again without sizes gives the same fake. Tensors that share memory give fakes that do.
        """
        if isinstance(tensor, FakeTensor):
            return tensor
        given = sizes is not None or strides is not None or storage_offset is not None
        known = self._fakes.get(id(tensor))
        if known is not None and known[0]() is tensor and not given:
            return known[1]
        if sizes is not None and strides is None:
            strides = _follow(tensor, sizes)
        meta = meta_of(
            tensor.dtype,
            tensor.shape if sizes is None else sizes,
            tensor.stride() if strides is None else strides,
            tensor.device,
            tensor.storage_offset() if storage_offset is None else storage_offset,
        )
        memory = self._memory(tensor)
        memory.lazy |= tensor.is_conj() or tensor.is_neg()
        memory.inference = tensor.is_inference()
        fake = make_fake(meta, memory, tensor.requires_grad)
        if tensor.requires_grad and not torch_private.is_leaf_so_far(tensor):
            fake = self._not_a_leaf(fake)
        if isinstance(tensor, torch.nn.Parameter):
            torch_private.mark_as_parameter(fake)
        self._fakes[id(tensor)] = (weakref.ref(tensor), fake)
        return fake

    def close(self) -> None:
        """Forget the real tensors it met: their fakes are the program's from here on. A weak reference to a parameter keeps
        users from swapping it."""
        self._fakes.clear()
        self._memories.clear()

    @contextlib.contextmanager
    def capturing(self) -> Iterator[None]:
        """The mode, for the program itself: a captured one is traced in surroundings that need not be its own."""
        self.is_capturing, before = True, self.is_capturing
        try:
            with self:
                yield
        finally:
            self.is_capturing = before

    def written_late(self) -> None:
        """Memory of inference mode is written outside of it."""

    def as_fake(self, tensor: torch.Tensor) -> FakeTensor:
        """A tensor met inside the program: itself if fake, else its fake, with its content kept if it is one number."""
        if isinstance(tensor, FakeTensor):
            return tensor
        return self.from_real(tensor)

    def _memory(self, tensor: torch.Tensor) -> FakeStorage:
        try:
            key = torch_private.storage_identity(tensor)
        except NotImplementedError:  # a sparse tensor has no storage of its own
            return FakeStorage(self)
        known = self._memories.get(key)
        if known is not None and known[0]() is not None:
            return known[1]
        memory = FakeStorage(self)
        self._memories[key] = (weakref.ref(tensor), memory)
        return memory

    def _not_a_leaf(self, fake: FakeTensor) -> FakeTensor:
        meta, memory = fake.meta, fake.memory
        with self, torch.enable_grad():
            return restride(self.as_fake(fake.clone()), meta, memory)


def _follow(tensor: torch.Tensor, sizes: Sequence[Size]) -> tuple[Size, ...]:
    """Strides for symbolic sizes that mean what the real strides mean: dense stays dense, in the same order.

    A stride that is not the product of faster sizes stays a number.
    """
    real_sizes, real_strides = tuple(tensor.shape), tensor.stride()
    strides: list[Size] = list(real_strides)
    order = sorted(range(len(real_sizes)), key=lambda i: (real_strides[i], real_sizes[i] != 1, -i))
    expected, symbolic = 1, 1
    for i in order:
        if real_strides[i] == 0:
            continue
        if real_strides[i] == expected:
            strides[i] = symbolic
        else:
            expected, symbolic = real_strides[i], real_strides[i]
        expected, symbolic = expected * real_sizes[i], symbolic * sizes[i]
    return tuple(strides)
