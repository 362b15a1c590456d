"""Replacement bytecode: load the inputs, call the compiled graph, replay effects, rebuild what is still visible.

In:  a machine after evaluation, and what is to be left: a return value, or a stack and locals at a break.
Out: instructions. Values that existed before the call are loaded from arguments or from slots that the guard program
fetched; values made by the captured code are rebuilt, once each, shared as they were shared.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from torch.fx import Node

from stoker import torch_private
from stoker.bytecode import Code, Instruction, build
from stoker.capture.machine import Machine
from stoker.capture.static import part_of
from stoker.capture.values.constant import Constant, is_plain
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Lazy, MadePart, Null, Value, asked_once
from stoker.errors import Break, StepBreak
from stoker.guard.source import Fixed, Local, Source, root_of


class Emitter:
    """Writes the part of the replacement code that follows the graph call, and collects what it needs from before."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.code: Code = []
        self.names: dict[int, str] = {}
        self.kept: list[Value] = []
        self.building: list[int] = []
        self.met_within: set[int] = set()
        self.slots: dict[Source, str] = {}
        self.outputs: dict[int, tuple[str, Node]] = {}

    # What values ask for.

    def load(self, value: Value) -> None:
        """Push a value: by the name it already has, from its source, or by building it."""
        if isinstance(value, Null):
            self.code += [Instruction("PUSH_NULL")]
            return
        name = self.names.get(id(value))
        if name is not None:
            self.code += build.load_fast(name)
        elif value.source is not None and self.made_part_above(value.source) is not None:
            self._load_made(value, value.source)
        elif value.source is not None:
            self.load_source(value.source)
        elif value.root_name is not None:
            self.code += build.load_closure(value.root_name)
        else:
            self._build(value)
            if value.has_identity and id(value) not in self.names:
                self.name_top(value)

    def _load_made(self, value: Value, source: Source) -> None:
        """Push what is reached from a class made while capturing: what the class itself holds, or plain data."""
        match value:
            case Lazy(real=real) | Constant(value=real):
                pass
            case _:
                real = next((real for known, real in self.m.wrap.known.values() if known is value), value)
        if is_plain(real) or id(real) in self.m.made_parts:
            self.const(real)
        else:
            self.load_source(source)

    def _build(self, value: Value) -> None:
        """Push a value made anew. What cannot be named before its parts are there (a function, a tuple) is built twice where a part
        leads back to it; all then hold the one that was built within."""
        is_within = id(value) in self.building
        self.building.append(id(value))
        value.emit(self)
        self.building.pop()
        if is_within:
            self.met_within.add(id(value))
        elif id(value) in self.met_within and id(value) in self.names:
            self.pop()
            self.code += build.load_fast(self.names[id(value)])

    def load_last(self, value: Value) -> None:
        """Push a value that nothing after it will load again."""
        if isinstance(value, TupleValue) and value.source is None and id(value) not in self.names:
            self._build(value)
        else:
            self.load(value)

    def load_source(self, source: Source) -> None:
        match source:
            case Local(name=name):
                self.code += build.load_fast(name)
            case Fixed(value=value):
                self.const(value)
            case _:
                self.code += build.load_fast(self.slot(source))

    def made_part_above(self, source: Source) -> MadePart | None:
        """What a class made while capturing holds, where a source starts from that."""
        root = root_of(source)
        return self.m.made_parts.get(id(root.value)) if isinstance(root, Fixed) else None

    def slot(self, source: Source) -> str:
        """The parameter that receives what the guard program fetches from a source."""
        part = self.made_part_above(source)
        if part is not None:
            self.refuse_made_class(part.cls.constant())
        return self.slots.setdefault(source, f"__slot_{len(self.slots)}")

    def const(self, value: Any) -> None:
        """Push an object that is there already. Classes made while capturing, and what they hold, are made anew by each call."""
        part = self.m.made_parts.get(id(value))
        if part is None:
            self.refuse_made_within(value)
            self.code += build.load_const(value)
        elif part.path:
            cls = self.detached(part.cls)
            self.code += build.call(build.load_const(part_of), cls, build.load_const(part.path))
        else:
            self.load(part.cls)

    def build(self, opcode: str, count: int) -> None:
        self.code.append(Instruction(opcode, count))

    def pop(self) -> None:
        self.code += build.pop_top()

    def name_top(self, value: Value) -> None:
        """Give the object on top of the stack a name, so that later loads share it. If a part of it was built with another one inside,
        that is the one."""
        if id(value) in self.names:
            self.pop()
            self.code += build.load_fast(self.names[id(value)])
            return
        name = self.m.fresh("v")
        self.names[id(value)] = name
        self.kept.append(value)
        self.code += build.copy(1) + build.store_fast(name)

    def forget_names(self) -> None:
        """Hold nothing by a name of ours any more."""
        for value in self.kept:
            self.code += build.load_const(None) + build.store_fast(self.names[id(value)])

    def build_then_fill(self, value: Value, opcode: str, parts: list[Value], fill: Callable[[], None]) -> None:
        """Make an empty container, name it, then fill it: cycles find the name."""
        for part in parts:
            self.load(part)
        self.build(opcode, len(parts))
        self.name_top(value)
        fill()

    def call_function(
        self, function: Callable[..., Any], args: list[Value], kwargs: Mapping[str, Value] | None = None
    ) -> None:
        """Push `function(*args, **kwargs)`."""
        self.code += build.call(
            self.detached(Constant(function)),
            *(self.detached(a) for a in args),
            kwargs={name: self.detached(v) for name, v in (kwargs or {}).items()} or None,
        )

    def detached(self, value: Value) -> Code:
        """The code that loads a value, taken out of line; names it gives stay known."""
        outer, self.code = self.code, []
        self.load(value)
        inner, self.code = self.code, outer
        return inner

    def method_call(self, receiver: Value, function: Callable[..., Any], args: list[Value]) -> None:
        """Run `function(receiver, *args)` for its effect."""
        self.call_function(function, [receiver, *args])
        self.pop()

    def call_method_on_top(self, name: str, args: list[Value]) -> None:
        """Call a method of the object on top for its effect, leaving the object."""
        self.code += build.copy(1) + build.load_attr(name)
        for argument in args:
            self.load(argument)
        self.code += build.call_stacked(len(args)) + build.pop_top()

    def attribute_of_top(self, name: str) -> None:
        self.code += build.load_attr(name)

    def store_attribute(self, receiver: Value, name: str, value: Value) -> None:
        self.load(value)
        self.load(receiver)
        self.code += build.store_attr(name)

    def delete_attribute(self, receiver: Value, name: str) -> None:
        self.load(receiver)
        self.code += build.delete_attr(name)

    def store_free(self, name: str, value: Value | None) -> None:
        if value is None:
            self.code += build.delete_deref(name)
        else:
            self.load(value)
            self.code += build.store_deref(name)

    def load_output(self, node: Node) -> None:
        self.code += build.load_fast(self.output(node))

    def output(self, node: Node) -> str:
        found = self.outputs.get(id(node))
        if found is None:
            found = self.outputs[id(node)] = (f"__out_{len(self.outputs)}", node)
        return found[0]

    def refuse_made_class(self, cls: type) -> None:
        """What cannot be made anew by each call must not outlive the captured code: break before the instruction that made the class."""
        for base in cls.__mro__:
            if base in self.m.made_classes:
                words = f"the class {base.__qualname__} outlives the captured code"
                reason = Break("a class definition", words, "define the class at module level")
                self.m.blame(reason)
                raise StepBreak(self.m.made_classes[base].step, reason)

    def refuse_made_within(self, value: Any) -> None:
        """An object that holds a class made while capturing is not made anew."""
        match value:
            case type():
                self.refuse_made_class(value)
            case tuple() | frozenset():
                for part in value:
                    self.refuse_made_within(part)
            case types.UnionType() | types.GenericAlias():
                self.refuse_made_within(value.__args__)

    def refuse_asking_again(self, stand_ins: Iterable[Any]) -> None:
        """Filling a dictionary or a set asks its keys for their hashes: where that would be noticed, CPython does it in the first place."""
        step = min(asked_once(stand_ins), default=None)
        if step is not None:
            words = "it changes something, or looks at what this frame has changed, and the container outlives the captured code"
            reason = Break("a user-written __hash__ or __eq__ of a key", words)
            self.m.blame(reason)
            raise StepBreak(step, reason)

    # The whole.

    def effects(self) -> None:
        """Write back what changed, then make the deferred calls in order."""
        for value in sorted(self.m.effects.mutated.values(), key=lambda value: value.written_last):
            value.write_back(self)
        for function, args, kwargs in self.m.effects.deferred:
            self.code += build.call(
                self.detached(function),
                *(self.detached(a) for a in args),
                kwargs={k: self.detached(v) for k, v in kwargs.items()} or None,
            )
            self.pop()
        for mode in self.m.overrides.modes:
            self.call_function(torch_private.push_function_mode, [mode])
            self.pop()
