"""Replacement bytecode: load the inputs, call the compiled graph, replay effects, rebuild what is still visible.

In:  a machine after evaluation, and what is to be left: a return value, or a stack and locals at a break.
Out: instructions. Values that existed before the call are loaded from arguments or from slots that the guard program
fetched; values made by the captured code are rebuilt, once each, shared as they were shared.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stoker import torch_private
from stoker.bytecode import Instruction, build
from stoker.capture.suspend import emit_generator
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import CellValue, FunctionValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue
from stoker.capture.values.iterator import GeneratorValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Null, Value
from stoker.errors import Break, StepBreak
from stoker.guard.source import Fixed, Local, Source

if TYPE_CHECKING:
    from stoker.capture.machine import Machine

Code = list[Instruction]
HEAP_TYPE = 1 << 9


class Emitter:
    """Writes the part of the replacement code that follows the graph call, and collects what it needs from before."""

    def __init__(self, m: Machine) -> None:
        self.m = m
        self.code: Code = []
        self.names: dict[int, str] = {}
        self.kept: list[Value] = []
        self.slots: dict[Source, str] = {}
        self.outputs: dict[int, tuple[str, Any]] = {}

    # What values ask for.

    def load(self, value: Value) -> None:
        """Push a value: by the name it already has, from its source, or by building it."""
        if isinstance(value, Null):
            self.code += [Instruction("PUSH_NULL")]
            return
        name = self.names.get(id(value))
        if name is not None:
            self.code += build.load_fast(name)
        elif value.source is not None:
            self.load_source(value.source)
        elif isinstance(value, CellValue) and value.root_name is not None:
            self.code += build.load_closure(value.root_name)
        else:
            value.emit(self)
            if value.has_identity and id(value) not in self.names:
                self.name_top(value)

    def load_last(self, value: Value) -> None:
        """Push a value that nothing after it will load again."""
        if isinstance(value, TupleValue) and value.source is None and id(value) not in self.names:
            value.emit(self)
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

    def slot(self, source: Source) -> str:
        """The parameter that receives what the guard program fetches from a source."""
        return self.slots.setdefault(source, f"__slot_{len(self.slots)}")

    def const(self, value: Any) -> None:
        self.code += build.load_const(value)

    def build(self, opcode: str, count: int) -> None:
        self.code.append(Instruction(opcode, count))

    def pop(self) -> None:
        self.code += build.pop_top()

    def name_top(self, value: Value) -> None:
        """Give the object on top of the stack a name, so that later loads share it."""
        name = self.m.fresh("v")
        self.names[id(value)] = name
        self.kept.append(value)
        self.code += build.copy(1) + build.store_fast(name)

    def build_then_fill(self, value: Value, opcode: str, parts: list[Value], fill: Callable[[], None]) -> None:
        """Make an empty container, name it, then fill it: cycles find the name."""
        for part in parts:
            self.load(part)
        self.build(opcode, len(parts))
        self.name_top(value)
        fill()

    def call_function(self, function: Any, args: list[Value], kwargs: Mapping[str, Value] | None = None) -> None:
        """Push `function(*args, **kwargs)`."""
        self.code += build.call(
            build.load_const(function),
            *(self.detached(a) for a in args),
            kwargs={name: self.detached(v) for name, v in (kwargs or {}).items()} or None,
        )

    def detached(self, value: Value) -> Code:
        """The code that loads a value, taken out of line; names it gives stay known."""
        outer, self.code = self.code, []
        self.load(value)
        inner, self.code = self.code, outer
        return inner

    def method_call(self, receiver: Value, function: Any, args: list[Value]) -> None:
        """Run `function(receiver, *args)` for its effect."""
        self.call_function(function, [receiver, *args])
        self.pop()

    def method_call_result(self, receiver: Value, function: Any, args: list[Value]) -> None:
        self.call_function(function, [receiver, *args])

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

    def load_tensor(self, value: TensorValue) -> None:
        """A tensor made by the graph: one of its outputs."""
        self.load_output(value.node)
        if value.extra:
            self.name_top(value)
            for name, attribute in value.extra.items():
                self.store_attribute(value, name, attribute)

    def load_output(self, node: Any) -> None:
        self.code += build.load_fast(self.output(node))

    def output(self, node: Any) -> str:
        found = self.outputs.get(id(node))
        if found is None:
            found = self.outputs[id(node)] = (f"__out_{len(self.outputs)}", node)
        return found[0]

    def load_symbol(self, value: SymbolicValue) -> None:
        node = self.m.sizes.node_for(self.m, value.symbol)
        if isinstance(node, (int, float, bool)):
            self.const(node)
        else:
            self.code += build.load_fast(self.output(node))

    def new_instance(self, value: InstanceValue) -> None:
        """An object of a Python class, made without running its constructor: the constructor was captured."""
        cls = Constant(value.cls)
        self.refuse_made_class(value.cls)
        if isinstance(value, ExceptionValue):
            self.call_function(value.cls.__new__, [cls, *value.storage.raw_elements()])  # type: ignore[union-attr]
            self.init_exception(value)
        elif value.storage is None:
            self.call_function(object.__new__, [cls])
        else:
            self.new_with_storage(value, cls)
        self.name_top(value)
        self.fill_instance(value)

    def refuse_made_class(self, cls: type) -> None:
        """A class made while capturing must not outlive the captured code: break before the instruction that made it."""
        for base in cls.__mro__:
            if base in self.m.made_classes:
                words = f"the class {base.__qualname__} outlives the captured code"
                reason = Break("a class definition", words, "define the class at module level")
                self.m.blame(reason)
                raise StepBreak(self.m.made_classes[base], reason)

    def init_exception(self, value: ExceptionValue) -> None:
        """With the exception on the stack: exceptions written in C take fields from their arguments in `__init__`."""
        base = next(cls for cls in value.cls.__mro__ if not cls.__flags__ & HEAP_TYPE)
        if base.__init__ is BaseException.__init__ or value.storage is None:
            return
        self.name_top(value)
        self.method_call(value, base.__init__, value.storage.raw_elements())  # type: ignore[attr-defined]

    def new_with_storage(self, value: InstanceValue, cls: Value) -> None:
        storage = value.storage
        assert storage is not None
        kind = storage.python_type()
        if isinstance(storage, (Constant, TupleValue)) or kind is frozenset:
            self.call_function(kind.__new__, [cls, storage])
        else:
            self.call_function(kind.__new__, [cls])

    def fill_instance(self, value: InstanceValue) -> None:
        """Contents of the built-in base, instance dictionary, slots, exception links."""
        if value.storage is not None and hasattr(value.storage, "fill"):
            self.names[id(value.storage)] = self.names[id(value)]
            value.storage.fill(self)
        attributes = value._attributes
        if attributes is not None and attributes._entries:
            if all(isinstance(k.constant(), str) for k, _ in attributes._entries.values()):
                self.load(value)
                self.code += build.load_attr("__dict__")
                self.name_top(attributes)
                self.pop()
                attributes.fill(self)
        for descriptor, slot in value.slots.items():
            if slot is not None:
                self.call_function(type(descriptor).__set__, [Constant(descriptor), value, slot])
                self.pop()
        if isinstance(value, ExceptionValue):
            for name, link in value.links.items():
                self.store_attribute(value, name, link)

    def new_function(self, value: FunctionValue) -> None:
        """A function that the captured code defined, with its cells."""
        closure = TupleValue(list(value._closure)) if value.code.co_freevars else Constant(None)
        self.call_function(
            types.FunctionType,
            [
                Constant(value.code),
                Constant(value.globals.real),
                Constant(value.name),
                TupleValue(list(value._defaults)) if value._defaults else Constant(None),
                closure,
            ],
        )
        self.name_top(value)
        if value._keyword_defaults:
            table = DictValue({k: (Constant(k), v) for k, v in value._keyword_defaults.items()})
            self.store_attribute(value, "__kwdefaults__", table)
        if value.annotations is not None:
            table = value.annotations_dict(self.m)
            if table._entries:
                self.store_attribute(value, "__annotations__", table)
        attributes = value._attributes
        if attributes is not None:
            for key, attribute in attributes._entries.values():
                self.store_attribute(value, key.constant(), attribute)

    def new_generator(self, value: GeneratorValue) -> None:
        emit_generator(self, value)

    # The whole.

    def effects(self) -> None:
        """Write back what changed, then make the deferred calls in order."""
        for value in self.m.mutated.values():
            value.write_back(self)  # type: ignore[attr-defined]
        for function, args, kwargs in self.m.deferred:
            self.code += build.call(
                self.detached(function),
                *(self.detached(a) for a in args),
                kwargs={k: self.detached(v) for k, v in kwargs.items()} or None,
            )
            self.pop()
        for mode in self.m.modes:
            self.call_function(torch_private.push_function_mode, [mode])
            self.pop()
