"""Python's built-in functions about objects: types, attributes, length, identity, text."""

from __future__ import annotations

import _thread
import collections
import functools
import operator
import types
from typing import Any

import numpy
import torch

from stoker.capture.builtins.definition import made_by_type
from stoker.capture.handlers import handles, on_object, pure, special, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.python_operators import BINARY, COMPARE, SPECIAL_BINARY, SPECIAL_COMPARE, UNARY
from stoker.capture.static import MISSING
from stoker.capture.values.array import ArrayValue
from stoker.capture.values.classes import ClassValue
from stoker.capture.values.constant import Constant
from stoker.capture.values.function import EMPTY, BuiltinMethod, BuiltinValue, FunctionValue, MethodValue, PartialValue
from stoker.capture.values.instance import ExceptionValue, InstanceValue, ObjectValue
from stoker.capture.values.mapping import DictValue
from stoker.capture.values.proxy import ProxyValue
from stoker.capture.values.reference import IdentityValue, ThreadIdentity
from stoker.capture.values.sequence import ListValue, TupleValue, sort_values
from stoker.capture.values.sets import in_any_order
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.capture.values.varying import symbolic
from stoker.errors import Break, Raised
from stoker.shape.recipe import float_max, float_min

TRUE, FALSE, NONE = Constant(True), Constant(False), Constant(None)

pure(hex, oct, bin, ord, chr)


@handles(format)
def format_(m: Machine, value: Value, specification: Value = Constant("")) -> Value:  # noqa: B008
    return m.text.format(value, 0, specification)


@handles(ascii)
def ascii_(m: Machine, value: Value) -> Value:
    return m.text.convert(value, 3)


@handles(len)
def len_(m: Machine, value: Value) -> Value:
    return value.length(m)


@handles(type)
def type_(m: Machine, value: Value, *rest: Value) -> Value:
    if len(rest) == 2:
        return made_by_type(m, value, *rest)
    return m.wrap.object(value.python_type())


@handles(callable)
def callable_(m: Machine, value: Value) -> Value:
    return Constant(
        isinstance(value, (FunctionValue, MethodValue, BuiltinMethod, BuiltinValue, ClassValue, PartialValue))
        or m.attributes.class_lookup(value.python_type(), "__call__") is not MISSING
    )


def attribute_name(m: Machine, name: Value) -> str:
    found = m.concrete.constant(name, "an attribute name")
    if not isinstance(found, str):
        m.exceptions.raise_(TypeError, f"attribute name must be string, not '{type(found).__name__}'")
    return found


@handles(getattr)
def getattr_(m: Machine, value: Value, name: Value, *default: Value) -> Value:
    try:
        return m.attributes.read(value, attribute_name(m, name))
    except Raised as raised:
        if default and issubclass(raised.value.python_type(), AttributeError):
            return default[0]
        raise


@handles(hasattr)
def hasattr_(m: Machine, value: Value, name: Value) -> Value:
    return Constant(m.operators.has_attribute(value, attribute_name(m, name)))


@handles(setattr)
def setattr_(m: Machine, value: Value, name: Value, new: Value) -> Value:
    value.set_attribute(m, attribute_name(m, name), new)
    return NONE


@tensor_special("__setattr__")
def tensor_setattr(m: Machine, value: Value, name: Value, new: Value) -> Value:
    return setattr_(m, value, name, new)


@tensor_special("__delattr__")
def tensor_delattr(m: Machine, value: Value, name: Value) -> Value:
    return delattr_(m, value, name)


@tensor_special("__getattribute__")
def tensor_getattribute(m: Machine, value: Value, name: Value) -> Value:
    return value.attribute(m, attribute_name(m, name))


@handles(delattr)
def delattr_(m: Machine, value: Value, name: Value) -> Value:
    value.delete_attribute(m, attribute_name(m, name))
    return NONE


@on_object(object.__setattr__)
def object_setattr(m: Machine, value: Value, name: Value, new: Value) -> Value:
    m.attributes.set_generic(value, value.python_type(), attribute_name(m, name), new)
    return NONE


@on_object(object.__delattr__)
def object_delattr(m: Machine, value: Value, name: Value) -> Value:
    m.attributes.delete_generic(value, value.python_type(), attribute_name(m, name))
    return NONE


@on_object(object.__getattribute__)
def object_getattribute(m: Machine, value: Value, name: Value) -> Value:
    text = attribute_name(m, name)
    try:
        return m.attributes.generic(value, value.python_type(), text, fallback=False)
    except Raised as raised:
        if isinstance(raised.value, ExceptionValue) and issubclass(raised.value.cls, AttributeError):
            raised.value.was_looked_for(text, value)
        raise


@on_object(object.__init__)
def object_init(m: Machine, value: Value, *args: Value, **kwargs: Value) -> Value:
    if args or kwargs:
        cls = value.python_type()
        words = "__init__() takes exactly one argument (the instance to initialize)"
        if m.attributes.class_lookup(cls, "__init__") is not object.__init__:
            m.exceptions.raise_(TypeError, f"object.{words}")
        if m.attributes.class_lookup(cls, "__new__") is object.__new__:
            m.exceptions.raise_(TypeError, f"{cls.__name__}.{words}")
    return NONE


@on_object(object.__init_subclass__)
def object_init_subclass(m: Machine, value: Value, **kwargs: Value) -> Value:
    return NONE


@on_object(object.__eq__)
def object_eq(m: Machine, value: Value, other: Value) -> Value:
    return Constant(True) if value is other else Constant(NotImplemented)


@on_object(object.__ne__)
def object_ne(m: Machine, value: Value, other: Value) -> Value:
    found = m.operators.operate(value, "__eq__", other, lambda: value.compare(m, "==", other))
    return Constant(NotImplemented) if found is None else m.operators.not_(found)


@on_object(object.__repr__)
def object_repr(m: Machine, value: Value) -> Value:
    if not isinstance(value, ObjectValue):
        value.unsupported("repr()")
    return Constant(m.guards.ask_the_same(value, value.real, object.__repr__, "repr()"))


WITHIN: dict[type, str] = {list: "[...]", tuple: "(...)", dict: "{...}", set: "{name}(...)", frozenset: "{name}(...)"}
"""How objects that hold what a built-in base holds show themselves inside of it."""


def _shows_base(base: type) -> None:
    def handler(m: Machine, value: Value) -> Value:
        held, name = value.stored(), value.python_type().__name__
        if held is value:
            return m.text.convert(value, 2)
        if value in m.text.showing:
            return Constant(WITHIN[base].replace("{name}", name))
        m.text.showing.append(value)
        try:
            text = m.concrete.constant(m.text.convert(held, 2), "repr()")
        finally:
            m.text.showing.pop()
        if base in (set, frozenset):  # which say the name of their class, and that of a base is another
            text = f"{name}({text[text.find('{') : text.rfind('}') + 1]})"
        return Constant(text)

    on_object(base.__repr__)(handler)


for _base in (*WITHIN, int, float, complex, str, bytes):
    _shows_base(_base)


@on_object(object.__str__)
def object_str(m: Machine, value: Value) -> Value:
    return m.wrap.object(repr).call(m, [value], {})


@on_object(object.__format__)
def object_format(m: Machine, value: Value, specification: Value) -> Value:
    if m.concrete.constant(specification, "a format specification"):
        words = f"unsupported format string passed to {value.python_type().__name__}.__format__"
        m.exceptions.raise_(TypeError, words)
    return m.wrap.object(str).call(m, [value], {})


@handles(types.MappingProxyType)
def mapping_proxy(m: Machine, mapping: Value) -> Value:
    if not isinstance(mapping, DictValue):
        raise Break("types.MappingProxyType()", "it is a view of a mapping that is no dictionary")
    return ProxyValue(mapping)


@handles(super)
def super_(m: Machine, *args: Value) -> Value:
    if len(args) == 1:
        raise Break("super() of one argument", "an unbound super object is not captured")
    if len(args) > 2:
        m.exceptions.raise_(TypeError, f"super expected at most 2 arguments, got {len(args)}")
    if args:
        return m.operators.super_of(args[0], args[1])
    frame = m.current
    if "__class__" not in frame.cells or not frame.code.co_argcount:
        raise Break("super()", "it is called outside a method")
    first = frame.code.co_varnames[0]
    cell, held = frame.cells.get(first), frame.locals.get(first)
    receiver = cell.get(m) if cell is not None else m.wrap.force(held) if held is not None else None
    if receiver is None:
        m.exceptions.raise_(RuntimeError, "super(): arg[0] deleted")
    after = frame.cells["__class__"].get(m)
    if after is None:
        m.exceptions.raise_(RuntimeError, "super(): empty __class__ cell")
    return m.operators.super_of(after, receiver)


@handles(id)
def id_(m: Machine, value: Value) -> Value:
    return IdentityValue(value)


@handles(_thread.get_ident)
def get_ident(m: Machine) -> Value:
    return ThreadIdentity(Constant("thread"))


@handles(hash)
def hash_(m: Machine, value: Value) -> Value:
    hasher = m.attributes.class_lookup(value.python_type(), "__hash__")
    if hasher is None:
        m.exceptions.raise_(TypeError, f"unhashable type: '{value.python_type().__name__}'")
    if isinstance(value, InstanceValue) and isinstance(hasher, types.FunctionType):
        return Constant(m.operators.hash_of(value))
    if isinstance(value, ObjectValue) and hasher is object.__hash__ and value.real is not None:
        return Constant(m.guards.ask_the_same(value, value.real, object.__hash__, "hash()"))
    return Constant(m.concrete.run(hash, m.concrete.constant(value, "hash()")))


@handles(round)
def round_(m: Machine, number: Value, ndigits: Value = NONE) -> Value:
    if isinstance(number, TensorValue):
        if m.attributes.class_lookup(number.cls, "__round__") is MISSING:
            m.exceptions.raise_(TypeError, f"type {number.cls.__name__} doesn't define __round__ method")
        number.unsupported("round()")
    if isinstance(number, InstanceValue):
        given = [] if isinstance(ndigits, Constant) and ndigits.value is None else [ndigits]
        found = value_or_none(number.special(m, "__round__", *given))
        if found is not None:
            return found
    number = symbolic(number)
    if isinstance(number, SymbolicValue) and (number.untold or number.python_type() is float):
        digits = m.concrete.constant(ndigits, "round()")
        symbol = number.symbol
        return m.wrap.number(m.concrete.run(lambda: round(symbol) if digits is None else round(symbol, digits)))
    return Constant(
        m.concrete.run(round, m.concrete.constant(number, "round()"), m.concrete.constant(ndigits, "round()"))
    )


def value_or_none(found: Value | None) -> Value | None:
    return None if found is None or (isinstance(found, Constant) and found.value is NotImplemented) else found


@handles(divmod)
def divmod_(m: Machine, left: Value, right: Value) -> Value:
    for value, other, name in ((left, right, "__divmod__"), (right, left, "__rdivmod__")):
        if isinstance(value, InstanceValue):
            found = value_or_none(value.special(m, name, other))
            if found is not None:
                return found
    if isinstance(left, TensorValue) or isinstance(right, TensorValue):
        raise Break("divmod() of a tensor", "eager raises TypeError")
    return TupleValue([m.operators.binary("//", left, right), m.operators.binary("%", left, right)])


@handles(pow)
def pow_(m: Machine, base: Value, exp: Value, mod: Value = NONE) -> Value:
    if isinstance(mod, Constant) and mod.value is None:
        return m.operators.binary("**", base, exp)
    return Constant(m.concrete.run(pow, *(m.concrete.constant(v, "pow()") for v in (base, exp, mod))))


@handles(abs, operator.abs)
def abs_(m: Machine, value: Value) -> Value:
    if isinstance(value, TensorValue):
        found = value.overridden(m, "__abs__")
        return found if found is not None else m.record.call(torch.abs, [value], {})
    if isinstance(value, ArrayValue):
        return m.arrays.ufunc(numpy.absolute, [value])
    value = symbolic(value)
    if isinstance(value, SymbolicValue):
        return m.wrap.number(m.concrete.run(abs, value.symbol))
    if isinstance(value, InstanceValue):
        found = value.special(m, "__abs__")
        if found is not None:
            return found
    return Constant(m.concrete.run(abs, m.concrete.constant(value, "abs()")))


@handles(repr)
def repr_(m: Machine, value: Value) -> Value:
    if isinstance(value, InstanceValue):
        found = value.special(m, "__repr__")
        if found is not None:
            return found
    return m.text.convert(value, 2)


@handles(globals)
def globals_(m: Machine) -> Value:
    return m.current.globals


@handles(vars)
def vars_(m: Machine, *args: Value) -> Value:
    return args[0].attribute(m, "__dict__") if args else locals_(m)


@handles(locals)
def locals_(m: Machine) -> Value:
    frame = m.current
    code = frame.program.origin.code
    found = {name: m.wrap.force(frame.locals[name]) for name in code.co_varnames if name in frame.locals}
    for name in (*code.co_cellvars, *code.co_freevars):
        contents = frame.cells[name].contents if name in frame.cells else None
        if contents is not None and contents is not EMPTY:
            found[name] = frame.cells[name].get(m)
    return DictValue({name: (Constant(name), value) for name, value in found.items()})


@handles(dir)
def dir_(m: Machine, *args: Value) -> Value:
    if not args:
        return ListValue([Constant(name) for name in sorted(key.constant() for key in vars_(m).items_list(m))])
    value = args[0]
    own = m.attributes.class_lookup(value.python_type(), "__dir__")
    if isinstance(own, types.FunctionType) and not m.policy.is_library(own.__code__.co_filename):
        return sorted_(m, m.attributes.bind(own, value, value.python_type()).call(m, [], {}))
    if isinstance(value, ObjectValue) and value.real is not None and value.source is not None:
        if not value.has_changed(m):
            return m.wrap.constant(m.guards.ask(value.source, value.real, dir, "has the same attributes"))
    if isinstance(value, InstanceValue) and value.real is None:
        attributes = value.attributes(m)
        names = [key.constant() for key in attributes.keys(m)] if attributes is not None else []
        return ListValue([Constant(name) for name in sorted({*dir(value.cls), *names})])
    value.unsupported("dir()")
    return None


@handles(functools.partial)
def partial_(m: Machine, function: Value, *args: Value, **kwargs: Value) -> Value:
    if isinstance(function, PartialValue):
        return PartialValue(function.function, [*function.args, *args], {**function.kwargs, **kwargs})
    return PartialValue(function, list(args), dict(kwargs))


@handles(min)
def min_(m: Machine, *args: Value, **kwargs: Value) -> Value:
    return _extreme(m, "<", "min", list(args), kwargs)


@handles(max)
def max_(m: Machine, *args: Value, **kwargs: Value) -> Value:
    return _extreme(m, ">", "max", list(args), kwargs)


def _extreme(m: Machine, text: str, name: str, args: list[Value], kwargs: dict[str, Value]) -> Value:
    if not args:
        m.concrete.run(min if name == "min" else max)
    values = args if len(args) > 1 else args[0].items_list(m) if "key" in kwargs else in_any_order(m, args[0])
    if not values:
        if "default" in kwargs:
            return kwargs["default"]
        m.concrete.run(min if name == "min" else max, ())
    key = kwargs.get("key")
    by_key = key is not None and not (isinstance(key, Constant) and key.value is None)
    symbols = None if by_key else _as_symbols(values)
    if symbols is not None:
        found = symbols[0]
        for symbol in symbols[1:]:
            found = m.concrete.run(EXTREMES[name, values[0].python_type()], found, symbol)
        return m.wrap.number(found)
    best, best_key = values[0], key.call(m, [values[0]], {}) if by_key and key is not None else values[0]
    for value in values[1:]:
        its_key = key.call(m, [value], {}) if by_key and key is not None else value
        if m.operators.compare(text, its_key, best_key).truth(m):
            best, best_key = value, its_key
    return best


EXTREMES = {
    ("min", int): torch.sym_min,
    ("max", int): torch.sym_max,
    ("min", float): float_min,
    ("max", float): float_max,
}


def _as_symbols(values: list[Value]) -> list[Any] | None:
    """Numbers of one type, some of them symbolic, as torch has them; None if they are not such."""
    known = [symbolic(v) for v in values]
    kinds = {v.python_type() for v in known if isinstance(v, (SymbolicValue, Constant))}
    if not any(isinstance(v, SymbolicValue) for v in known) or kinds not in ({int}, {float}):
        return None
    if not all(isinstance(v, (SymbolicValue, Constant)) for v in known):
        return None
    return [v.symbol if isinstance(v, SymbolicValue) else v.constant() for v in known]


@handles(sorted)
def sorted_(m: Machine, items: Value, key: Value | None = None, reverse: Value = FALSE) -> Value:
    return ListValue(sort_values(m, in_any_order(m, items) if key is None else items.items_list(m), key, reverse))


@handles(sum)
def sum_(m: Machine, items: Value, start: Value = Constant(0)) -> Value:  # noqa: B008
    total = start
    for item in items.items_list(m):
        total = m.operators.binary("+", total, item)
    return total


@handles(any)
def any_(m: Machine, items: Value) -> Value:
    return _first_truth(m, items, True)


@handles(all)
def all_(m: Machine, items: Value) -> Value:
    return _first_truth(m, items, False)


def _first_truth(m: Machine, items: Value, wanted: bool) -> Value:
    from stoker.capture.values.value import Exhausted

    iterator = m.operators.iterate(items)
    while True:
        try:
            item = iterator.next(m)
        except Exhausted:
            return Constant(not wanted)
        if item.truth(m) == wanted:
            return Constant(wanted)


@special("__len__")
def special_len(m: Machine, value: Value) -> Value:
    return value.length(m)


@special("__getitem__")
def special_getitem(m: Machine, value: Value, key: Value) -> Value:
    return m.operators.item(value, key)


@on_object(dict.__getitem__, collections.OrderedDict.__getitem__, collections.defaultdict.__getitem__)
def dict_getitem(m: Machine, value: Value, key: Value) -> Value:
    storage = value.stored()
    assert isinstance(storage, DictValue)
    found = storage.lookup(m, key)
    missing = (
        m.attributes.special_method(value, "__missing__")
        if found is None and isinstance(value, InstanceValue)
        else None
    )
    if missing is not None:
        return missing.call(m, [key], {})
    return found if found is not None else storage.item(m, key)


@special("__setitem__")
def special_setitem(m: Machine, value: Value, key: Value, new: Value) -> Value:
    value.set_item(m, key, new)
    return NONE


@special("__delitem__")
def special_delitem(m: Machine, value: Value, key: Value) -> Value:
    value.delete_item(m, key)
    return NONE


@special("__contains__")
def special_contains(m: Machine, value: Value, item: Value) -> Value:
    return value.contains(m, item)


@special("__iter__")
def special_iter(m: Machine, value: Value) -> Value:
    return value.iterator(m)


@special("__next__")
def special_next(m: Machine, value: Value) -> Value:
    return m.operators.next(value)


def _refuses(function: Any, left: Any, right: Any) -> bool:
    try:
        function(left, right)
    except TypeError:
        return True
    except Exception:  # noqa: BLE001 (asked of plain numbers and text alone; who is not refused runs it, and the program sees it)
        return False
    return False


def _operator_method(text: str, reflected: bool):
    def method(m: Machine, value: Value, other: Value) -> Value:
        other = other.stored() if isinstance(other.stored(), Constant) else other  # C looks into a subclass
        if text == "%" and not reflected and isinstance(value, Constant) and isinstance(value.value, (str, bytes)):
            return m.operators.binary(text, value, other)  # of a subclass of str
        pair = (other, value) if reflected else (value, other)
        if all(type(part) is Constant for part in pair) and _refuses(BINARY[text], *(part.constant() for part in pair)):
            return Constant(NotImplemented)  # the words name the classes themselves
        folded = m.operators.fold(BINARY[text], *pair)
        found = folded if folded is not None else value.binary(m, text, other, reflected)
        return Constant(NotImplemented) if found is None else found

    return method


def _compare_method(text: str):
    def method(m: Machine, value: Value, other: Value) -> Value:
        other = other.stored()
        if isinstance(value, Constant) and isinstance(other, Constant):
            return Constant(m.concrete.run(getattr(value.value, SPECIAL_COMPARE[text]), other.value))
        found = value.compare(m, text, other)
        return Constant(NotImplemented) if found is None else found

    return method


def _register_operators() -> None:

    for text, name in SPECIAL_BINARY.items():
        special(f"__{name}__")(_operator_method(text, False))
        special(f"__r{name}__")(_operator_method(text, True))
        special(f"__i{name}__")(_operator_method(text + "=", False))
    for text, name in SPECIAL_COMPARE.items():
        special(name)(_compare_method(text))


_register_operators()


def _register_operator_module() -> None:
    """The functions of `operator` mean the operators."""
    for text, function in BINARY.items():
        handles(function)(lambda m, a, b, text=text: m.operators.binary(text, a, b))
    for text, function in COMPARE.items():
        handles(function)(lambda m, a, b, text=text: m.operators.compare(text, a, b))
    for text, unary in UNARY.items():
        handles(unary)(lambda m, a, text=text: m.operators.unary(text, a))
    handles(operator.getitem)(lambda m, a, b: m.operators.item(a, b))
    handles(operator.not_)(lambda m, a: m.operators.not_(a))
    handles(operator.truth)(lambda m, a: Constant(a.truth(m)))
    handles(operator.is_)(lambda m, a, b: Constant(m.operators.is_(a, b)))
    handles(operator.is_not)(lambda m, a, b: Constant(not m.operators.is_(a, b)))
    handles(operator.contains)(lambda m, a, b: m.operators.contains(a, b))
    handles(operator.index)(lambda m, a: a if isinstance(a, SymbolicValue) else Constant(m.concrete.integer(a)))


_register_operator_module()
