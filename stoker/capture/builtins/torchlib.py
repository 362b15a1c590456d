"""torch functions that are not operators: modes, queries about types and modes, scripting and tracing marks.

Mode setters run for real while capturing (so that fake runs see them; they are put back afterwards) and are nodes of the
graph. Queries are answered at once.
"""

from __future__ import annotations

import math
import typing
from collections.abc import Callable
from typing import Any

import torch
from torch.distributions import constraints

from stoker import torch_private
from stoker.capture.handlers import handles, pure, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.policy import TORCH
from stoker.capture.polyfill import asserting, statistics
from stoker.capture.raising import assume, can_assume
from stoker.capture.values.constant import Constant
from stoker.capture.values.module import ModuleValue
from stoker.capture.values.rounds import rows_of
from stoker.capture.values.sequence import ListValue, TupleValue
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import NotConstant, Value
from stoker.errors import Break
from stoker.guard.guard import Holds
from stoker.guard.source import Fixed
from stoker.marks import is_compiling

TRUE, FALSE, NONE = Constant(True), Constant(False), Constant(None)

# What captured code sees when it asks who runs it.
ANSWERS: dict[Any, Any] = {
    is_compiling: True,
    **torch_private.UNOBSERVED,
    torch_private.is_scripting: False,
    torch_private.is_tracing: False,
}
if hasattr(torch.compiler, "is_exporting"):
    ANSWERS[torch.compiler.is_exporting] = False


def _answer(value: Any) -> Callable[..., Value]:
    return lambda m, *args, **kwargs: Constant(value)


for _function, _value in ANSWERS.items():
    handles(_function)(_answer(_value))

_ENCODER = torch.nn.TransformerEncoder.forward.__code__
COMPILED_WAYS = {
    "the same by operators that can be captured": (
        f"{TORCH}/nn/attention/",
        f"{TORCH}/nn/modules/transformer.py",
        f"{TORCH}/optim/optimizer.py",
        f"{TORCH}/optim/sgd.py",
    ),
    "they know what wraps what": (f"{TORCH}/nn/parallel/", f"{TORCH}/distributed/", f"{TORCH}/_higher_order_ops/"),
}
"""Files of torch that may know that they are captured, and why what they do then is what eager does. Others leave out checks, hooks and
warnings for compilers, or have some of their own: they hear what they hear in eager."""
_TOLD = tuple(place for places in COMPILED_WAYS.values() for place in places)


@handles(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch_private.is_compiling)
def compiling(m: Machine) -> Value:
    """True to the user's code and its libraries. Torch's encoder asks in order to leave rows of padding as they come, which eager makes
    zeros where the mask's data let it drop them."""
    if m.current.code is _ENCODER and _drops_padding(m.current.locals):
        raise Break(
            "a padding mask in nn.TransformerEncoder",
            "eager drops padded rows where the mask hides the ends of rows alone, which its data tell",
            "make the encoder with enable_nested_tensor=False",
        )
    place = m.current.code.co_filename
    if m.sizes.history.hears_eager or place.startswith(f"{TORCH}/") and not place.startswith(_TOLD):
        return FALSE
    m.modes.told_compiling = True
    return TRUE


def _drops_padding(names: dict[str, Value]) -> bool:
    """Might eager, if the mask's data let it? Not for a layer that is differentiated, nor with a second mask."""
    layer, second = names["first_layer"], names["mask"]
    if torch.is_grad_enabled() and isinstance(layer, ModuleValue) and layer.real is not None:
        if any(p.requires_grad for p in layer.real.parameters()):
            return False
    return isinstance(second, Constant) and second.value is None


# Read from the real modes: the entry's guard on torch's state makes the answers hold.
QUERIES = (
    torch.is_grad_enabled,
    torch.is_inference_mode_enabled,
    torch.get_default_dtype,
    torch.is_autocast_enabled,
    torch.get_autocast_dtype,
    torch.get_autocast_gpu_dtype,
    torch.get_autocast_cpu_dtype,
    torch.is_autocast_cpu_enabled,
    torch.is_autocast_cache_enabled,
    torch.backends.mkldnn.is_available,
    torch.amp.is_autocast_available,
    torch.amp.autocast_mode.is_autocast_available,
    torch.finfo,
    torch.iinfo,
    torch.promote_types,
    torch.can_cast,
    torch.device,
    torch.distributed.is_available,
)
pure(*QUERIES)
# Settings of the process: asked again before each run.
ASKED = (
    *torch_private.mode_queries,
    torch.get_num_threads,
    torch.get_num_interop_threads,
    torch.get_default_device,
    torch.cuda.is_available,
    torch.cuda.device_count,
    torch.accelerator.current_accelerator,
    torch.accelerator.is_available,
    torch.accelerator.device_count,
    torch.get_float32_matmul_precision,
    torch.is_warn_always_enabled,
    torch.is_anomaly_enabled,
)


def _asked(function: Callable[..., Any]) -> Callable[..., Value]:
    name = function.__name__

    def handler(m: Machine, *args: Value, **kwargs: Value) -> Value:
        given = [m.concrete.constant(a, name) for a in args]
        named = {key: m.concrete.constant(a, name) for key, a in kwargs.items()}
        words = f"answers as before for {[*given, *named.values()]}"
        return m.wrap.constant(
            m.guards.ask(Fixed(function, f"{name}()"), function, lambda f: f(*given, **named), words)
        )

    return handler


for _function in ASKED:
    handles(_function)(_asked(_function))


def _info(function: Any) -> Callable[..., Value]:
    def handler(m: Machine, *args: Value) -> Value:
        found = m.concrete.run(function, *(m.concrete.constant(a, function.__name__) for a in args))
        return InfoValue(found)

    return handler


class InfoValue(Constant):
    """torch.finfo or torch.iinfo of a dtype: immutable, all attributes are numbers or strings."""

    def emit(self, e: Any) -> None:
        kind = torch.finfo if isinstance(self.value, torch.finfo) else torch.iinfo
        e.call_function(kind, [Constant(getattr(torch, self.value.dtype))])


handles(torch.finfo)(_info(torch.finfo))
handles(torch.iinfo)(_info(torch.iinfo))

SETTERS = (
    torch_private.set_grad_enabled,
    torch.set_default_dtype,
    torch.set_autocast_enabled,
    torch.set_autocast_cpu_enabled,
    torch.set_autocast_dtype,
    torch.set_autocast_cpu_dtype,
    torch.set_autocast_gpu_dtype,
    torch.set_autocast_cache_enabled,
    torch.autocast_increment_nesting,
    torch.autocast_decrement_nesting,
    torch.clear_autocast_cache,
)


NESTING = {torch.autocast_increment_nesting: 1, torch.autocast_decrement_nesting: -1}


def _setter(function: Callable[..., Any]) -> Callable[..., Value]:
    def handler(m: Machine, *args: Value) -> Value:
        found = m.concrete.run(function, *(m.concrete.constant(a, function.__name__) for a in args))
        node = m.record.graph.create_node("call_function", function, tuple(m.record.to_node(a) for a in args), {})
        node.meta["location"] = m.location()
        m.modes.changes += 1
        m.modes.autocast_nesting += NESTING.get(function, 0)
        return Constant(found)

    return handler


for _function in SETTERS:
    handles(_function)(_setter(_function))


@handles(torch.is_tensor)
def is_tensor(m: Machine, value: Value) -> Value:
    return Constant(isinstance(value, TensorValue))


@handles(torch.is_floating_point)
def is_floating_point(m: Machine, input: Value) -> Value:
    return m.record.method(input, "is_floating_point", [], {})


@handles(torch.is_complex)
def is_complex(m: Machine, input: Value) -> Value:
    return m.record.method(input, "is_complex", [], {})


@handles(torch.numel)
def numel(m: Machine, input: Value) -> Value:
    return m.record.method(input, "numel", [], {})


UNSAID = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please report an enhancement "
    "request to PyTorch.)"
)
"""What `torch._check` says where nothing else was given."""


@handles(torch_private.check_is_size)
def check_is_size(m: Machine, i: Value, message: Value = NONE, *, max: Value = NONE) -> Value:
    check(m, m.operators.compare(">=", i, Constant(0)), message)
    if not (isinstance(max, Constant) and max.value is None):
        check(m, m.operators.compare("<=", i, max), message)
    return NONE


@handles(torch_private.check)
def check(m: Machine, condition: Value, message: Value = NONE) -> Value:
    """A promise about what only data tells is checked by the graph, and taken to hold behind it."""
    if isinstance(condition, SymbolicValue) and isinstance(condition.symbol, torch.SymBool):
        if condition.symbol.node.is_unknown():
            words = Constant(UNSAID) if _is_none(message) else message.call(m, [], {})
            if not isinstance(words, Constant) and can_assume(m):  # CPython says it, with the numbers that it has there
                return _assumed(m, condition)
            m.sizes.condition_node(m, condition.symbol)
            return m.record.call(torch.ops.aten._assert_scalar.default, [condition, words], {}, keep=True)
    if not condition.truth(m):
        m.exceptions.raise_(RuntimeError, UNSAID if _is_none(message) else message.call(m, [], {}))
    return NONE


def _assumed(m: Machine, condition: Value) -> Value:
    assume(m, condition)
    return NONE


def _is_none(value: Value) -> bool:
    return isinstance(value, Constant) and value.value is None


@handles(torch_private.assert_)
def assert_(m: Machine, condition: Value, message: Value) -> Value:
    """A statement of Python's: where only data tell the condition, the graph checks it."""
    return m.wrap.object(asserting.assert_).call(m, [condition, message], {})


@handles(typing.cast)
def cast(m: Machine, kind: Value, value: Value) -> Value:
    return value


@handles(torch_private.script_annotate)
def annotate(m: Machine, kind: Value, value: Value) -> Value:
    return value


@handles(torch.sym_max)
def sym_max(m: Machine, a: Value, b: Value) -> Value:
    return m.wrap.number(m.concrete.run(torch.sym_max, m.concrete.number(a), m.concrete.number(b)))


@handles(torch.sym_min)
def sym_min(m: Machine, a: Value, b: Value) -> Value:
    return m.wrap.number(m.concrete.run(torch.sym_min, m.concrete.number(a), m.concrete.number(b)))


@handles(torch.sym_int)
def sym_int(m: Machine, a: Value) -> Value:
    return m.wrap.number(m.concrete.run(torch.sym_int, m.concrete.number(a)))


@handles(torch.sym_float)
def sym_float(m: Machine, a: Value) -> Value:
    return m.wrap.number(m.concrete.run(torch.sym_float, m.concrete.number(a)))


@tensor_special(
    "__str__",
    "__repr__",
    "__format__",
    "__reduce__",
    "__reduce_ex__",
    "__complex__",
)
def reads_data(m: Machine, value: TensorValue, *args: Value, **kwargs: Value) -> Value:
    raise Break(
        "reading a tensor's data",
        f"the elements of {value.describe()} become Python objects",
        "keep the computation on tensors, or accept the break",
    )


@tensor_special("item")
def item(m: Machine, value: TensorValue) -> Value:
    """The number in a tensor, which only running the program tells."""
    if value.fake.dtype.is_complex:
        return reads_data(m, value)
    if value.fake.dtype is torch.bool:
        number = m.record.method(m.record.method(value, "long", [], {}), "item", [], {})
        return m.operators.compare("==", number, Constant(1))
    return m.record.method(value, "item", [], {})


@tensor_special("__index__")
def as_index(m: Machine, value: TensorValue) -> Value:
    dtype = value.fake.dtype
    if dtype.is_floating_point or dtype.is_complex or value.fake.numel() != 1:
        words = "only integer tensors of a single element can be converted to an index"
        m.exceptions.raise_(TypeError, words)
    return to_int(m, value)


LONGEST_LIST = 32
"""Elements of a tensor that become numbers of the graph one by one."""


@tensor_special("tolist")
def to_list(m: Machine, value: TensorValue) -> Value:
    """The numbers in a small tensor of a shape that is known, or was never seen to be another, each told by running the program."""
    if any(m.sizes.has_varied(size) for size in value.fake.shape):
        return reads_data(m, value)
    hints = [size if isinstance(size, int) else size.node.hint for size in value.fake.shape]
    if math.prod(hints) > LONGEST_LIST:
        return reads_data(m, value)
    shape = [m.concrete.run(int, size) for size in value.fake.shape]
    if not shape:
        return item(m, value)
    parts = m.record.method(value, "unbind", [], {}).items_list(m)
    return ListValue([to_list(m, part) for part in parts])  # type: ignore[arg-type]  # tensors


@tensor_special("__int__")
def to_int(m: Machine, value: TensorValue) -> Value:
    return sym_int(m, item(m, value))


@tensor_special("__float__")
def to_float(m: Machine, value: TensorValue) -> Value:
    found = item(m, value)
    return sym_float(m, found) if found.python_type() is not float else found


@tensor_special("__bool__")
def truth(m: Machine, value: TensorValue) -> Value:
    """`bool(tensor)` as an object: a condition that only running the program tells. A branch on it is `TensorValue.truth`."""
    if value.fake.memory.bounds is not None or value.fake.numel() != 1:  # type: ignore[attr-defined]  # a FakeTensor
        return Constant(value.truth(m))
    is_true = value if value.fake.dtype is torch.bool else m.record.compare("!=", value, Constant(0))
    return item(m, is_true)  # type: ignore[arg-type]  # a tensor


@tensor_special("__len__")
def length(m: Machine, value: TensorValue) -> Value:
    return value.length(m)


@tensor_special("__iter__")
def iterate(m: Machine, value: TensorValue) -> Value:
    return value.iterator(m)


@handles(torch.unbind)
@tensor_special("unbind")
def unbind(m: Machine, input: Value, dim: Value = Constant(0)) -> Value:  # noqa: A002, B008
    return rows_of(m, input, dim) or m.record.call(torch.unbind, [input, dim], {})


@tensor_special("__getitem__")
def getitem(m: Machine, value: TensorValue, key: Value) -> Value:
    return value.item(m, key)


@tensor_special("__setitem__")
def setitem(m: Machine, value: TensorValue, key: Value, new: Value) -> Value:
    value.set_item(m, key, new)
    return NONE


@tensor_special("__hash__")
def hash_of(m: Machine, value: TensorValue) -> Value:
    raise Break("hash() of a tensor", "it is its identity")


@tensor_special("size")
def size(m: Machine, value: TensorValue, dim: Value | None = None) -> Value:
    shape = value.attribute(m, "shape")
    return shape if dim is None or (isinstance(dim, Constant) and dim.value is None) else shape.item(m, dim)


@tensor_special("stride")
def stride(m: Machine, value: TensorValue, dim: Value | None = None) -> Value:
    strides = TupleValue([m.wrap.number(s) for s in value.fake.stride()])
    return strides if dim is None or (isinstance(dim, Constant) and dim.value is None) else strides.item(m, dim)


@tensor_special("dim", "ndimension")
def dim(m: Machine, value: TensorValue) -> Value:
    return Constant(value.fake.dim())


@tensor_special("data_ptr", "storage", "untyped_storage", "storage_offset", "_version")
def touches_runtime(m: Machine, value: TensorValue, *args: Value, **kwargs: Value) -> Value:
    raise Break(
        "a tensor's storage or autograd history",
        f"{value.describe()} is asked for something that exists only at run time",
    )


@tensor_special("_is_view")
def is_view(m: Machine, value: TensorValue) -> Value:
    """Of what comes from outside, the tensor itself knows."""
    if value.source is None or value.real is None:
        return Constant(torch_private.is_view(value.fake))
    found = torch_private.is_view(value.real)
    m.guards.add(
        value.source, Holds(lambda now: torch_private.is_view(now) == found, "is a view" if found else "is no view")
    )
    return Constant(found)


@tensor_special("is_pinned")
def is_pinned(m: Machine, value: TensorValue, device: Value = NONE) -> Value:
    """The memory of what comes from outside knows; that of others does not exist yet."""
    if value.source is None or value.real is None:
        return touches_runtime(m, value)
    kind = m.concrete.constant(device, "Tensor.is_pinned()")

    def asked(tensor: torch.Tensor) -> bool:
        with torch_private.dispatch_modes_off():
            return tensor.is_pinned() if kind is None else tensor.is_pinned(device=kind)

    found = m.concrete.run(asked, value.real)
    m.guards.add(value.source, Holds(lambda now: asked(now) == found, "is pinned" if found else "is not pinned"))
    return Constant(found)


@tensor_special("type")
def type_(m: Machine, value: TensorValue, *args: Value, **kwargs: Value) -> Value:
    if not args and not kwargs:
        return Constant(value.fake.type() if value.real is None else value.real.type())
    return m.record.method(value, "type", list(args), kwargs)


@tensor_special("numel", "nelement")
def count(m: Machine, value: TensorValue) -> Value:
    return m.wrap.number(value.fake.numel())


def is_constant(value: Value) -> bool:
    try:
        value.constant()
    except NotConstant:
        return False
    return True


@handles(torch.broadcast_shapes)
def broadcast_shapes(m: Machine, *shapes: Value) -> Value:
    return m.wrap.object(statistics.broadcast_shapes).call(m, list(shapes), {})


@handles(torch.cov)
@tensor_special("cov")
def cov(m: Machine, input: Value, *, correction: Value = Constant(1), **weights: Value) -> Value:  # noqa: B008
    """Without weights, the only number that torch looks at is known: how many degrees of freedom there are."""
    given = {name: value for name, value in weights.items() if not m.operators.identical(value, NONE)}
    known = isinstance(input, TensorValue) and 0 < input.fake.dim() <= 2
    if known and given and all(_is_weight_of(m, input, name, value) for name, value in given.items()):
        weighing = [given.get(name, NONE) for name in WEIGHT_DTYPES]
        return m.wrap.object(statistics.weighted_cov).call(m, [input, correction, *weighing], {})
    if not known or given or not _is_positive(m, input, correction):
        return m.record.call(torch.cov, [input], {"correction": correction, **weights})
    return m.wrap.object(statistics.cov).call(m, [input, correction], {})


WEIGHT_DTYPES = {"fweights": (torch.int32, torch.int64), "aweights": (torch.float32, torch.float64)}


def _is_weight_of(m: Machine, input: Value, name: str, weight: Value) -> bool:
    """Is it a tensor of one number for each column?"""
    assert isinstance(input, TensorValue)
    if not isinstance(weight, TensorValue) or weight.fake.dim() != 1 or weight.fake.dtype not in WEIGHT_DTYPES[name]:
        return False
    counts = [m.wrap.number(value.fake.shape[-1]) for value in (input, weight)]
    return _is_positive(m, input, Constant(0)) and m.operators.compare("==", *counts).truth(m)


@handles(torch.corrcoef)
@tensor_special("corrcoef")
def corrcoef(m: Machine, input: Value) -> Value:
    known = isinstance(input, TensorValue) and 0 < input.fake.dim() <= 2 and not input.fake.dtype.is_complex
    if not known or not _is_positive(m, input, Constant(1)):
        return m.record.call(torch.corrcoef, [input], {})
    return m.wrap.object(statistics.corrcoef).call(m, [input], {})


def _is_positive(m: Machine, input: Value, correction: Value) -> bool:
    assert isinstance(input, TensorValue)
    return m.operators.compare(">", m.wrap.number(input.fake.shape[-1]), correction).truth(m)


@tensor_special("is_inference")
def is_inference(m: Machine, value: TensorValue) -> Value:
    """The dispatch keys of an argument, which are guarded, tell."""
    return Constant(value.real.is_inference()) if value.real is not None else touches_runtime(m, value)


@handles(type(constraints.positive_definite).check)
def is_positive_definite(m: Machine, constraint: Value, value: Value) -> Value:
    return m.wrap.object(statistics.is_positive_definite).call(m, [constraint, value], {})


@handles(type(constraints.positive_semidefinite).check)
def is_positive_semidefinite(m: Machine, constraint: Value, value: Value) -> Value:
    return m.wrap.object(statistics.is_positive_semidefinite).call(m, [constraint, value], {})
