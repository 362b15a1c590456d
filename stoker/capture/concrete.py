"""The Python objects behind values: for what runs for real while capturing.

In:  Values whose objects the evaluator knows, wholly or by their metadata.
Out: the objects. Symbolic numbers become the ones seen, under a guard; what is not known is a break.
"""

from __future__ import annotations

import collections
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from stoker.capture.machine import Machine
from stoker.capture.text import Shown, is_shown_by_class
from stoker.capture.values.constant import Constant, is_numpy_scalar
from stoker.capture.values.deque import DequeValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.proxy import ProxyValue
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.sets import SetValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.slices import SliceValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.text import TextValue
from stoker.capture.values.value import NotConstant, Value
from stoker.errors import Break, Raised
from stoker.shape import DataDependent

FIELDS: dict[type[Exception], tuple[str, ...]] = {
    NameError: ("name",),
    ImportError: ("name", "path"),
    OSError: ("filename", "filename2"),
}
"""Fields of exceptions that their arguments do not fill."""


CONVERSIONS = (
    "__float__",
    "__index__",
    "__int__",
    "__complex__",
    "__floor__",
    "__ceil__",
    "__trunc__",
    "__round__",
    "__bytes__",
)
DATA = -1
"""Among the containers that a value is in: it is not to be shown, but computed with."""


class Concrete:
    """From values to objects."""

    def __init__(self, m: Machine) -> None:
        self.m = m

    def run(self, function: Callable[..., Any], *args: Any) -> Any:
        """Run Python's own function on known objects; what it raises, the program raises."""
        try:
            return function(*args)
        except (Raised, Break, NotConstant):
            raise
        except DataDependent as asked:
            raise Break(
                f"a decision on `{asked.operator}`",
                asked.words,
                f"if it always holds, say so: torch._check({asked.operator})",
            ) from asked
        except Exception as error:
            raise Raised(self.raised(error)) from error

    def raised(self, error: Exception) -> ExceptionValue:
        """The value of an error that a function of C raised: its arguments, and what the function wrote to it besides."""
        found = ExceptionValue(type(error), [self.m.wrap.constant(a) for a in error.args])
        for cls, names in FIELDS.items():
            if isinstance(error, cls):
                filled = {name: getattr(error, name) for name in names}
                found.fields |= {name: self.m.wrap.constant(f) for name, f in filled.items() if f is not None}
        for name, held in vars(error).items():
            found.set_attribute(self.m, name, self.m.wrap.constant(held))
        return found

    def constant(self, value: Value, what: str) -> Any:
        """The known object behind a value; symbolic numbers, and text of them, are specialised under guards."""
        if isinstance(value, (SymbolicValue, TextValue)):
            return value.specialize(self.m)
        if isinstance(value, TupleValue):
            value.elements(self.m)
        try:
            return value.constant()
        except NotConstant:
            value.unsupported(what)

    def annotation(self, value: Value, what: str) -> Any:
        """What a type is given in brackets: classes, variables and other types, lists and tuples of them."""
        value = self.m.wrap.force(value)
        if isinstance(value, (TupleValue, ListValue)) and value.python_type() in (tuple, list):
            return value.python_type()(self.annotation(part, what) for part in value.elements(self.m))
        real = getattr(value, "real", None)
        if type(real).__module__ == "typing":
            self.m.guards.identity(value)
            return real
        return self.constant(value, what)

    def index(self, key: Value) -> Any:
        """An int or a slice of ints, for indexing a Python sequence."""
        if isinstance(key, InstanceValue) and isinstance(key.storage, Constant) and isinstance(key.storage.value, int):
            return key.storage.value  # as CPython: an int is an index, whatever its class says
        if isinstance(key, InstanceValue):
            found = key.special(self.m, "__index__")
            return self.constant(found, "indexing") if found is not None else key.unsupported("indexing")
        if isinstance(key, TensorValue):
            if (content := key.fake.memory.constant) is not None:  # type: ignore[attr-defined]  # a FakeTensor
                return self.run(operator.index, content)
            raise Break("indexing by a tensor", f"{key.describe()} as an index of a Python sequence depends on data")
        if isinstance(key, SliceValue):
            return key.specialized(self.m)
        found = self.constant(key, "indexing")
        return operator.index(found) if is_numpy_scalar(found) and hasattr(found, "__index__") else found

    def integer(self, value: Value) -> int:
        found = self.index(value)
        if not isinstance(found, int):
            self.m.exceptions.raise_(TypeError, f"'{type(found).__name__}' object cannot be interpreted as an integer")
        return found

    def bound(self, value: Value) -> int:
        """A bound of `index(x, start, stop)`."""
        found = self.index(value)
        if not isinstance(found, int):
            self.m.exceptions.raise_(TypeError, "slice indices must be integers or have an __index__ method")
        return found

    def number(self, value: Value) -> Any:
        """The Python or symbolic number behind a value, None if it is not a number."""
        if isinstance(value, SymbolicValue):
            return value.as_number()
        if isinstance(value, Constant) and isinstance(value.value, (int, float, complex)):
            return value.value
        return None

    def data(self, value: Value, what: str) -> Any:
        """A real object for a function of C that computes with it: instances of the program's classes have to be plain data inside."""
        return self.plain(value, what, {DATA: None})

    def plain(self, value: Value, what: str, above: dict[int, Any] | None = None) -> Any:
        """A real object that prints as the value prints. `above`: the containers that it is in, one of which it may hold again."""
        if isinstance(value, (SymbolicValue, TextValue)):
            return value.specialize(self.m)
        above = above or {}
        if id(value) in above:
            return above[id(value)]
        match value:
            case DequeValue():
                turned: collections.deque = collections.deque(maxlen=value.maxlen)
                above = above | {id(value): turned}
                turned.extend(self.plain(element, what, above) for element in value.elements(self.m))
                return turned
            case ListValue():
                elements: list[Any] = []
                above = above | {id(value): elements}
                elements.extend(self.plain(element, what, above) for element in value.elements(self.m))
                return elements
            case DictValue():
                return self._plain_dictionary(value, what, above)
            case TupleValue() if value.cls in (tuple, torch.Size):
                return value.cls(tuple(self.plain(element, what, above) for element in value.elements(self.m)))
            case SetValue() if value.shown() is not None:
                return value.shown()
            case SetValue():
                return value.cls(self.plain(element, what, above) for element in value.elements(self.m))
            case InstanceValue() if DATA in above:
                return self._held(value, what)
            case InstanceValue():
                return Shown(self.m, value)
        try:
            return value.constant()
        except NotConstant:
            return Shown(self.m, value) if is_shown_by_class(value) and DATA not in above else value.unsupported(what)

    def _held(self, value: InstanceValue, what: str) -> Any:
        """The number or text inside an instance, which functions of C look at, unless its class says how to convert it."""
        own = [self.m.attributes.class_lookup(value.cls, name) for name in CONVERSIONS]
        if not isinstance(value.storage, Constant) or any(isinstance(method, types.FunctionType) for method in own):
            value.unsupported(what)
        return value.storage.value

    def _plain_dictionary(self, value: DictValue, what: str, above: dict[int, Any]) -> Any:
        if isinstance(value, ProxyValue):
            return types.MappingProxyType(self._plain_dictionary(value.behind, what, above))
        made: Any = value.python_type()
        factory = [] if value.default_factory is None else [self.plain(value.default_factory, what, above)]
        pairs = made(*factory)
        above = above | {id(value): pairs}
        for key, element in value.pairs(self.m):
            pairs[self.plain(key, what, above)] = self.plain(element, what, above)
        return pairs
