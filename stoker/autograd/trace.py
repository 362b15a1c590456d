"""Run a program on fake tensors, and write down every ATen operator it reaches as a node of a functional graph.

In:  a fake mode, decompositions, and a program run inside `with trace:` on inputs that `trace.input` made.
Out: `trace.graph`: ATen operators only, none of which writes to an argument; `trace.read(tensor)` is the node that
     holds a tensor's content.

The trace sits below autograd, as a dispatch mode: composite operators have taken themselves apart before, and the
engine's backward formulas arrive as operators too. Each node has in its meta: "val", a fake tensor with the metadata
of its result; "location", the user's line; "phase", forward or backward.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.fx import Graph, Node

from stoker import torch_private
from stoker.autograd import functional
from stoker.autograd.alias import AliasTable
from stoker.autograd.inverse import PHYSICAL, SAME_VALUE, View
from stoker.autograd.places import Places
from stoker.autograd.refusal import CannotTrace
from stoker.autograd.sizes import SizeNodes
from stoker.decompose.registry import find
from stoker.fake import DataDependent, FakeMode, FakeStorage, FakeTensor, NoMetaRule
from stoker.fake.tensor import make_fake
from stoker.graph import insert, nested
from stoker.nest import leaves, map_leaves

aten = torch.ops.aten
_COMPOSITE = torch_private.DispatchKey.CompositeImplicitAutograd
_SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool)

Decompositions = Mapping[Any, Callable[..., Any]]


class Trace(torch_private.TorchDispatchMode):
    """The recording mode. Active, it takes every operator; `emit` writes nodes by hand."""

    def __init__(self, mode: FakeMode, decompositions: Decompositions | None = None) -> None:
        super().__init__()
        self.mode = mode
        self.graph = Graph()
        self.decompositions = decompositions or {}
        self.aliases = AliasTable(self.emit)
        self.sizes = SizeNodes(self.graph, self.note)
        self.constants: dict[str, torch.Tensor] = {}
        self.from_numbers = False
        """Does the program make a tensor of plain numbers just now?"""
        self.known: list[torch.Tensor] | None = None
        """Real tensors that are the graph's own, or new, where it has functions of the user's that nobody looked into, or autograd
        functions: what these reach by themselves is read anew at each call, and nobody guards which tensor it is."""
        self.phase = "forward"
        self.differentiates = False
        """May something in the program require a gradient?"""
        self.places = Places()
        self.objects: dict[int, Node] = {}
        """Inputs that are neither tensors nor numbers, such as generators; `inputs` of the joint keep them alive."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """See `torch_private.SKIP_DYNAMO_HOOK`."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """One operator of the program: taken apart, made functional, or recorded as it is."""
        if func in _QUESTIONS:
            return self.mode.propagate(func, args, kwargs)
        if func in PHYSICAL and not isinstance(args[0], torch.Tensor):  # a number, of which a real tensor is made
            return self.knows(self.mode.propagate(func, args, kwargs))
        if func is aten.lift_fresh.default:
            self.knows(args[0])
        rewritten = self._taken_apart(func, args, kwargs)
        if rewritten is not NotImplemented:
            return rewritten
        if (rewrite := functional.REWRITES.get(func)) is not None:
            return rewrite(self, func, *args, **kwargs)
        if torch_private.schema_of(func).is_mutable:
            return functional.call(self, func, args, kwargs)
        return self.record(func, args, kwargs)

    def _taken_apart(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = self.decompositions.get(func)
        if function is None and _is_composite(func, _device_type(args)):
            function = func.decompose
        if function is None:
            return NotImplemented
        with self:
            made = function(*args, **kwargs)
        if made is NotImplemented and _is_composite(func, _device_type(args)):
            with self:
                return func.decompose(*args, **kwargs)
        return made

    def record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A node for an operator that writes nothing, and its results."""
        args, kwargs = self.to_fakes(args), self.to_fakes(kwargs)
        nodes, named = self.to_nodes(args), self.to_nodes(kwargs)
        if func in nested.OPERATORS:
            nodes = map_leaves(nested.kept_alive, nodes)
        try:
            result = self.mode.propagate(func, args, kwargs)
        except (DataDependent, NoMetaRule):
            raise
        except (RuntimeError, IndexError, ValueError) as complaint:
            raise CannotTrace(f"{func} raises {type(complaint).__name__}: {complaint}") from complaint
        if func in SAME_VALUE:
            node = nodes[0]
        elif func in PHYSICAL:
            node = self.emit(PHYSICAL[func], nodes[0])
        elif result is not None and not isinstance(result, (torch.Tensor, *_SYMBOLIC, list, tuple)):
            return result
        else:
            node = self.note(insert.call(self.graph, func, nodes, named), result)
        self._bind(result, node, func, args, kwargs)
        return result

    def emit(self, func: Any, *args: Any, **kwargs: Any) -> Node:
        """A node whose arguments are nodes; its metadata is worked out from theirs."""
        if func is operator.getitem:
            return self.note(insert.call(self.graph, func, args), args[0].meta["val"][args[1]])
        if func in self.decompositions:
            held = torch.fx.node.map_arg((args, kwargs), self._holding)
            return self.read(self.call(func, *_lists(held)))
        values = torch.fx.node.map_arg(args, lambda n: n.meta["val"])
        named = torch.fx.node.map_arg(kwargs, lambda n: n.meta["val"])
        result = self.mode.propagate(func, _lists(values), _lists(named))
        return self.note(insert.call(self.graph, func, self.to_nodes(args), self.to_nodes(kwargs)), result)

    def _holding(self, node: Node) -> Any:
        """A tensor in memory of its own that holds what the node computes."""
        value = node.meta["val"]
        if isinstance(value, FakeTensor):
            value = make_fake(value.meta, FakeStorage(self.mode))
            self.aliases.add_root(value, node)
        return value

    def note(self, node: Node, value: Any) -> Node:
        """Give a new node its metadata. Tensors are noted as they are at this moment: programs change theirs."""
        node.meta["val"] = map_leaves(lambda v: make_fake(v.meta, v.memory) if isinstance(v, FakeTensor) else v, value)
        node.meta["location"] = self.places.current(self.phase)
        node.meta["phase"] = self.phase
        if self.phase == "forward":
            node.meta |= self.places.recompute
        return node

    def input(self, name: str, value: Any, index: int | None = None) -> Node:
        """A placeholder. A fake tensor becomes the root of its memory."""
        node = self.note(self.graph.placeholder(name), value)
        if isinstance(value, FakeTensor):
            self.aliases.add_root(value, node, index)
            self.sizes.offer(value, node)
        elif isinstance(value, (torch.SymInt, torch.SymFloat)):
            self.sizes.know(value, node)
        elif not isinstance(value, (int, float, str, torch.Tensor, type(None), *_SYMBOLIC)):
            self.objects[_identity(value)] = node
        return node

    def read(self, tensor: torch.Tensor) -> Node:
        """The node that holds the tensor's present content."""
        fake = self.mode.as_fake(tensor)
        if not self.aliases.knows(fake):
            self._add_constant(fake, tensor)
        return self.aliases.read(fake)

    def knows(self, tensor: torch.Tensor) -> torch.Tensor:
        """A real tensor that may be a constant of the graph."""
        if self.known is not None:
            self.known.append(tensor)
        return tensor

    def _add_constant(self, fake: FakeTensor, tensor: torch.Tensor) -> None:
        """A real tensor that the program closed over."""
        if isinstance(tensor, FakeTensor):
            raise CannotTrace(f"a tensor of shape {tuple(tensor.shape)} came from outside the trace")
        if self.known is not None and not any(known is tensor for known in self.known):
            raise CannotTrace("a function of the user's, which is one node, reads a tensor that it is not given")
        name = f"constant_{len(self.constants)}"
        self.constants[name] = tensor
        self.aliases.add_root(fake, self.note(self.graph.create_node("get_attr", name), fake))

    def _bind(self, result: Any, node: Node, func: Any, args: Any, kwargs: Any) -> None:
        if isinstance(result, FakeTensor):
            self.bind_one(result, node, func, args, kwargs, None)
        elif isinstance(result, _SYMBOLIC):
            self.sizes.know(result, node)
        elif isinstance(result, (list, tuple)):
            for index, part in enumerate(result):
                if part is None:
                    continue
                piece = self.note(insert.call(self.graph, operator.getitem, (node, index)), part)
                if isinstance(part, FakeTensor):
                    self.bind_one(part, piece, func, args, kwargs, index)

    def bind_one(self, fake: FakeTensor, node: Node, func: Any, args: Any, kwargs: Any, index: int | None) -> None:
        """Say what memory a result lives in: its own, or an argument's."""
        base = args[0] if args else None
        if isinstance(base, FakeTensor) and base.memory is fake.memory:
            view = View(func, args[1:], kwargs, index, torch.is_grad_enabled())
            self.aliases.add_view(fake, self.aliases.alias(base), view, node)
        else:
            self.aliases.add_root(fake, node)
        if fake.meta.symbolic:
            self.sizes.offer(fake, node, without_hint=True)

    def to_fakes(self, value: Any) -> Any:
        """Arguments with every real tensor replaced by its fake, known to the trace."""
        return map_leaves(self._to_fake, value)

    def _to_fake(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        self.read(leaf)
        return self.mode.as_fake(leaf)

    def to_nodes(self, value: Any) -> Any:
        """Arguments as the graph holds them."""
        return map_leaves(self._to_node, value)

    def _to_node(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.read(leaf)
        if isinstance(leaf, _SYMBOLIC):
            return self.sizes.node(leaf)
        return self.objects.get(_identity(leaf), leaf) if self.objects else leaf


_ASKING = "is_same_size is_pinned sym_numel size stride sym_size sym_stride sym_storage_offset"
_QUESTIONS = frozenset({torch.ops.prim.device.default, *map(find, _ASKING.split())}) - {None}
"""Operators that ask about a tensor: answered, not recorded."""


@functools.cache
def _is_composite(func: Any, device_type: str) -> bool:
    """Does eager run this operator by running others? Some have a composite form and, on some devices, a kernel as
    well."""
    if not func.has_kernel_for_dispatch_key(_COMPOSITE):
        return False
    key = {"cpu": "CPU", "cuda": "CUDA"}.get(device_type)
    return key is None or not torch_private.has_kernel(func.name(), key)


def _device_type(args: Any) -> str:
    return next((leaf.device.type for leaf in leaves(args) if isinstance(leaf, torch.Tensor)), "")


def _identity(value: Any) -> int:
    """What tells an object from others. A generator comes back from C++ in another Python object."""
    return getattr(value, "_cdata", id(value))


def _lists(value: Any) -> Any:
    """fx keeps argument lists in types of its own; operators and rules expect plain ones."""
    if isinstance(value, dict):
        return {k: _lists(v) for k, v in value.items()}
    if isinstance(value, tuple):
        return tuple(_lists(v) for v in value)
    if isinstance(value, list):
        return [_lists(v) for v in value]
    return value
