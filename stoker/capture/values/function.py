"""Functions, closures' cells, methods, built-in callables and partials."""

from __future__ import annotations

import functools
import types
from typing import TYPE_CHECKING, Any

from stoker.capture.machine import Emitting, Machine
from stoker.capture.values.constant import Constant
from stoker.capture.values.instance import ObjectValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.sequence import TupleValue
from stoker.capture.values.value import Arguments, IdentityKey, Keywords, Lazy, Value
from stoker.errors import Break
from stoker.guard.source import (
    Attribute,
    CellContents,
    FunctionCell,
    FunctionDefaults,
    FunctionKeywordDefaults,
    Source,
)

if TYPE_CHECKING:
    from stoker.capture.frame import Frame


class EmptyCell(Value):
    """What a cell from outside holds before its variable is assigned."""

    def python_type(self) -> type:
        return type(None)


EMPTY = EmptyCell()


class CellValue(Value):
    """A closure cell. `root_name` names it when it is a free variable of the captured frame itself."""

    def __init__(self, contents: Value | None, source: Source | None = None, root_name: str | None = None) -> None:
        self.contents, self.source, self.root_name = contents, source, root_name
        self.was_empty = contents is EMPTY

    def python_type(self) -> type:
        return types.CellType

    def get(self, m: Machine) -> Value | None:
        if type(self.contents) is Lazy:
            self.contents = m.wrap.force(self.contents)
        if self.contents is EMPTY:
            raise Break("an empty closure cell", "the variable has no value yet")
        return self.contents

    def set(self, m: Machine, value: Value | None) -> None:
        m.effects.will_mutate(self)
        self.contents = value

    def attribute(self, m: Machine, name: str) -> Value:
        if name != "cell_contents":
            self.unsupported(f"attribute {name!r}")
        found = self.get(m)
        if found is None:
            m.exceptions.raise_(ValueError, "Cell is empty")
        return found

    def emit(self, e: Emitting) -> None:
        e.call_function(types.CellType, [])
        e.name_top(self)
        if self.contents is not None:
            e.store_attribute(self, "cell_contents", self.contents)

    def write_back(self, e: Emitting) -> None:
        if self.contents is None and self.was_empty:
            return
        if self.root_name is not None:
            e.store_free(self.root_name, self.contents)
        elif self.contents is None:
            e.delete_attribute(self, "cell_contents")
        else:
            e.store_attribute(self, "cell_contents", self.contents)


def cell_contents(cell: types.CellType, name: str, free: bool) -> Any:
    """What LOAD_DEREF gives, or raises."""
    try:
        return cell.cell_contents
    except ValueError:
        pass
    raise unbound_cell(name, free)


def empty_cell(cell: types.CellType, name: str, free: bool) -> None:
    """What DELETE_DEREF does, or raises."""
    cell_contents(cell, name, free)
    del cell.cell_contents


def unbound_cell(name: str, free: bool) -> NameError:
    """CPython's error for a variable in a cell that holds nothing."""
    kind, where = (NameError, " in enclosing scope") if free else (UnboundLocalError, "")
    words = "free" if free else "local"
    return kind(f"cannot access {words} variable '{name}' where it is not associated with a value{where}")


def cell_of(frame: Frame, name: str) -> Value:
    """The cell of a variable of a frame; a fresh one where the frame has not made it."""
    return frame.cells.get(name) or CellValue(None)


def wrap_cell(m: Machine, real: types.CellType, source: Source, root_name: str | None = None) -> CellValue:
    known = m.wrap.known.get(id(real))
    if known is not None:
        if isinstance(source, FunctionCell) and isinstance(known[0].source, FunctionCell):
            m.wrap.reached_again(known[0], real, source)
        assert isinstance(known[0], CellValue)
        return known[0]
    place = CellContents(source) if root_name is None else source
    try:
        contents: Value | None = Lazy(real.cell_contents, place)
    except ValueError:
        contents = EMPTY
    value = CellValue(contents, source if root_name is None else None, root_name)
    m.wrap.known[id(real)] = (value, real)
    return value


class FunctionValue(ObjectValue):
    """A Python function: one that existed (`real`), or one that the captured code made."""

    def __init__(
        self,
        code: types.CodeType,
        globals_: DictValue,
        *,
        real: types.FunctionType | None = None,
        source: Source | None = None,
        name: str | None = None,
        defaults: list[Value] | None = None,
        keyword_defaults: dict[str, Value] | None = None,
        closure: list[CellValue] | None = None,
        annotations: Value | None = None,
    ) -> None:
        super().__init__(types.FunctionType, real, source)
        self.code, self.globals = code, globals_
        self.name = name or code.co_name
        self._defaults = defaults or []
        self.keyword_table: Value | None = None  # `__kwdefaults__`, once somebody looked at it or set it
        if real is None and keyword_defaults:
            self.keyword_table = DictValue({k: (Constant(k), v) for k, v in keyword_defaults.items()})
        self.fields_set: set[str] = set()  # of those that a call reads, on a function from outside
        self._closure = closure or []
        self.annotations = annotations

    def describe(self) -> str:
        return f"function `{self.code.co_qualname}`"

    def defaults(self, m: Machine) -> list[Value]:
        if self.real is not None and self.real.__defaults__ is not None and not self._defaults and not self.fields_set:
            assert self.source is not None
            wrapped = m.wrap.at(self.real.__defaults__, FunctionDefaults(self.source))
            self._defaults = wrapped.raw_elements() if isinstance(wrapped, TupleValue) else wrapped.items_list(m)
        return self._defaults

    def keyword_default(self, m: Machine, name: str) -> Value | None:
        table = self.keyword_defaults(m)
        return table.lookup(m, Constant(name)) if isinstance(table, DictValue) else None

    def keyword_defaults(self, m: Machine) -> Value:
        if self.keyword_table is None and self.real is not None and self.real.__kwdefaults__:
            assert self.source is not None
            self.keyword_table = m.wrap.force(m.wrap.at(self.real.__kwdefaults__, FunctionKeywordDefaults(self.source)))
        return self.keyword_table or Constant(None)

    def set_field(self, m: Machine, name: str, new: Value) -> None:
        """`__defaults__` or `__kwdefaults__`, from here on."""
        new = m.wrap.force(new)
        kind, base = (TupleValue, tuple) if name == "__defaults__" else (DictValue, dict)
        is_none = isinstance(new, Constant) and new.value is None
        if not is_none and not issubclass(new.python_type(), base):
            m.exceptions.raise_(TypeError, f"{name} must be set to a {base.__name__} object")
        if not is_none and not isinstance(new, kind):
            self.unsupported(f"assignment of a {new.python_type().__name__} to {name}")
        self.defaults(m), self.keyword_defaults(m)
        m.effects.will_mutate(self)
        self.fields_set.add(name)
        if name == "__defaults__":
            self._defaults = [] if is_none else new.items_list(m)
        else:
            self.keyword_table = new

    def write_back(self, e: Emitting) -> None:
        super().write_back(e)
        for name in sorted(self.fields_set):
            e.store_attribute(self, name, self._defaults_tuple() if name == "__defaults__" else self._table())

    def _defaults_tuple(self) -> Value:
        return TupleValue(list(self._defaults)) if self._defaults else Constant(None)

    def _table(self) -> Value:
        assert self.keyword_table is not None
        return self.keyword_table

    def closure(self, m: Machine) -> list[CellValue]:
        if self.real is not None and self.real.__closure__ and not self._closure:
            assert self.source is not None
            for index, cell in enumerate(self.real.__closure__):
                place = FunctionCell(self.source, index)
                self._closure.append(wrap_cell(m, cell, place))
        return self._closure

    def own_attribute(self, m: Machine, name: str) -> Value | None:
        if self._attributes is not None and name in self._attributes._entries:
            return self._attributes.lookup(m, Constant(name))
        match name:
            case "__dict__":
                return self.attributes(m)
            case "__annotations__" if self.real is None:
                return self.annotations_dict(m)
            case "__kwdefaults__":
                return self.keyword_defaults(m)
            case "__module__" if self.real is None:
                return self.globals.lookup(m, Constant("__name__"))
            case "__type_params__" if self.real is None:
                return TupleValue([])
            case "__name__" | "__qualname__" | "__module__" | "__doc__" if self.real is not None:
                assert self.source is not None
                return m.wrap.at(getattr(self.real, name), Attribute(self.source, name))
            case "__name__":
                return Constant(self.name.rpartition(".")[2])
            case "__qualname__":
                return Constant(self.code.co_qualname)
            case "__code__":
                return Constant(self.code)
            case "__doc__":
                return Constant(_docstring(self.code))
            case "__defaults__":
                found = self.defaults(m)
                return TupleValue(list(found)) if found else Constant(None)
            case "__closure__":
                cells = self.closure(m)
                return TupleValue(list(cells)) if cells else Constant(None)
            case "__globals__":
                return self.globals
            case "__annotations__" if self.real is not None:
                return m.wrap.object(self.real.__annotations__)
        return super().own_attribute(m, name)

    def annotations_dict(self, m: Machine) -> DictValue:
        """CPython keeps annotations as a tuple of names and values until someone asks for the dictionary."""
        if not isinstance(self.annotations, DictValue):
            parts = self.annotations.items_list(m) if self.annotations is not None else []
            pairs = zip(parts[::2], parts[1::2])
            self.annotations = DictValue({name.constant(): (name, value) for name, value in pairs})
        return self.annotations

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        return m.calls.function(self, args, kwargs)

    def emit(self, e: Emitting) -> None:
        """A function that the captured code defined, with its cells."""
        if self.globals.source is None:
            e.load(self.globals)
            e.pop()
            if id(self) in e.names:  # it is one of its own globals
                e.load(self)
                return
        closure = TupleValue(list(self._closure)) if self.code.co_freevars else Constant(None)
        e.call_function(
            types.FunctionType,
            [
                Constant(self.code),
                self.globals,
                Constant(self.name),
                self._defaults_tuple(),
                closure,
            ],
        )
        e.name_top(self)
        if self.keyword_table is not None:
            e.store_attribute(self, "__kwdefaults__", self.keyword_table)
        if self.annotations is not None:
            table = self.annotations_dict(e.m)
            if table._entries:
                e.store_attribute(self, "__annotations__", table)
        attributes = self._attributes
        if attributes is not None:
            for key, attribute in attributes._entries.values():
                e.store_attribute(self, key.constant(), attribute)
        for descriptor, field in self.slots.items():
            if field is not None:
                e.store_attribute(self, descriptor.__name__, field)


def _docstring(code: types.CodeType) -> str | None:
    """What a function made of this code has for a docstring: where it lies differs between versions."""
    cells = tuple(types.CellType() for _ in code.co_freevars)
    return types.FunctionType(code, {}, closure=cells or None).__doc__


class MethodValue(Value):
    """A bound method."""

    def __init__(self, receiver: Value, function: Value, source: Source | None = None) -> None:
        self.receiver, self.function, self.source = receiver, function, source

    def python_type(self) -> type:
        return types.MethodType

    def describe(self) -> str:
        return f"method of {self.receiver.describe()}: {self.function.describe()}"

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        return self.function.call(m, [self.receiver, *args], kwargs)

    def attribute(self, m: Machine, name: str) -> Value:
        if name == "__self__":
            return self.receiver
        if name == "__func__":
            return self.function
        if name == "__class__":
            return m.wrap.object(types.MethodType)
        if name != "__doc__" and (name in vars(types.MethodType) or name in vars(object)):
            return m.attributes.bound_builtin(self, name)
        return m.attributes.read(self.function, name)

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        if operator not in ("==", "!=") or not isinstance(other, MethodValue):
            return None
        same = self.receiver is other.receiver and self.function is other.function
        return Constant(same == (operator == "=="))

    def hash_key(self, m: Machine) -> Any:
        return (IdentityKey(self.receiver), IdentityKey(self.function))

    def emit(self, e: Emitting) -> None:
        e.call_function(types.MethodType, [self.function, self.receiver])


class BuiltinMethod(Value):
    """A method of a built-in type, bound to a value: `xs.append`."""

    def __init__(self, receiver: Value, name: str, descriptor: Any = None) -> None:
        self.receiver, self.name, self.descriptor = receiver, name, descriptor

    def python_type(self) -> type:
        return types.BuiltinMethodType

    def describe(self) -> str:
        return f"{self.receiver.describe()}.{self.name}"

    def attribute(self, m: Machine, name: str) -> Value:
        if name == "__self__":
            return self.receiver
        if name == "__name__":
            return Constant(self.name)
        return super().attribute(m, name)

    def constant(self) -> Any:
        """A method of a known callable object, as the real bound method: `torch.Tensor.shape.__get__`."""
        return getattr(self.receiver.real, self.name) if isinstance(self.receiver, BuiltinValue) else super().constant()

    def hash_key(self, m: Machine) -> Any:
        return self.constant() if isinstance(self.receiver, BuiltinValue) else super().hash_key(m)

    def compare(self, m: Machine, operator: str, other: Value) -> Value | None:
        if operator not in ("==", "!=") or not isinstance(other, BuiltinMethod):
            return None
        same = m.operators.identical(self.receiver, other.receiver) and self.name == other.name
        return Constant(same == (operator == "=="))

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        return m.calls.builtin_method(self.receiver, self.name, args, kwargs, self.descriptor)

    def emit(self, e: Emitting) -> None:
        if self.descriptor is not None:
            e.call_function(type(self.descriptor).__get__, [Constant(self.descriptor), self.receiver])
            return
        e.load(self.receiver)
        e.attribute_of_top(self.name)


class PartialValue(ObjectValue):
    """functools.partial."""

    def __init__(
        self, function: Value, args: Arguments, kwargs: Keywords, real: Any = None, source: Source | None = None
    ) -> None:
        super().__init__(functools.partial, real, source)
        self.function, self.args, self.kwargs = function, args, kwargs

    def own_attribute(self, m: Machine, name: str) -> Value | None:
        match name:
            case "func":
                return self.function
            case "args":
                return TupleValue(list(self.args))
            case "keywords":
                return DictValue({key: (Constant(key), value) for key, value in self.kwargs.items()})
        return super().own_attribute(m, name)

    def attribute(self, m: Machine, name: str) -> Value:
        return self.own_attribute(m, name) or super().attribute(m, name)

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        return self.function.call(m, [*self.args, *args], {**self.kwargs, **kwargs})

    def emit(self, e: Emitting) -> None:
        e.call_function(functools.partial, [self.function, *self.args], self.kwargs)


class BuiltinValue(ObjectValue):
    """A callable written in C, or a Python callable that the evaluator treats as a unit."""

    has_identity = False

    def __init__(self, real: Any, source: Source | None = None) -> None:
        super().__init__(type(real), real, source)

    def describe(self) -> str:
        module = getattr(self.real, "__module__", None)
        name = getattr(self.real, "__qualname__", None) or repr(self.real)
        return f"`{module}.{name}`" if module and module != "builtins" else f"`{name}`"

    def constant(self) -> Any:
        return self.real

    def call(self, m: Machine, args: Arguments, kwargs: Keywords) -> Value:
        return m.calls.builtin(self.real, args, kwargs)

    def attribute(self, m: Machine, name: str) -> Value:
        return m.wrap.constant(m.concrete.run(getattr, self.real, name))

    def hash_key(self, m: Machine) -> Any:
        return self.real

    def emit(self, e: Emitting) -> None:
        e.const(self.real)
