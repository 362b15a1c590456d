"""Functions of torch that ask for plain floats: for a float that varies from call to call they are made of other operators."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from stoker.capture.handlers import TENSOR_METHODS, handler_for, handles, tensor_special
from stoker.capture.machine import Machine
from stoker.capture.polyfill import floats
from stoker.capture.raising import assume, can_assume
from stoker.capture.values.constant import Constant
from stoker.capture.values.size import SymbolicValue
from stoker.capture.values.tensor import TensorValue
from stoker.capture.values.value import Value
from stoker.capture.values.varying import VaryingFloat, VaryingInteger


def varies(value: Value | None) -> bool:
    if isinstance(value, VaryingInteger):
        return False
    return isinstance(value, VaryingFloat) or isinstance(value, SymbolicValue) and value.python_type() is float


def _vary(args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    return any(map(varies, (*args, *kwargs.values())))


@handles(floats.seldom)
def seldom(m: Machine, condition: Value) -> Value:
    if not isinstance(condition, SymbolicValue) or not condition.untold or not can_assume(m):
        return condition
    assume(m, m.operators.not_(condition))
    return Constant(False)


def _is_none(value: Value | None) -> bool:
    return value is None or isinstance(value, Constant) and value.value is None


def _are_none(kwargs: dict[str, Value], *names: str) -> bool:
    return all(_is_none(kwargs.get(name)) for name in names)


def _plain_targets(args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Classes by number, all of one weight."""
    target = args[1] if len(args) > 1 else kwargs.get("target")
    by_number = isinstance(target, TensorValue) and not target.fake.dtype.is_floating_point
    return by_number and _is_none(args[2] if len(args) > 2 else kwargs.get("weight"))


def _always(args: list[Value], kwargs: dict[str, Value]) -> bool:
    return True


def _without_out(args: list[Value], kwargs: dict[str, Value]) -> bool:
    return "out" not in kwargs


def _one_tensor(args: list[Value], kwargs: dict[str, Value]) -> bool:
    """The form with tolerances by name."""
    return len(args) == 1 and not kwargs.keys() & {"out", "tol", "rcond"}


def _dims(value: Value) -> int:
    return value.fake.dim() if isinstance(value, TensorValue) else -1


def _is_false(value: Value | None) -> bool:
    return value is None or isinstance(value, Constant) and value.value is False


def _of_its_input_alone(args: list[Value], kwargs: dict[str, Value]) -> bool:
    """An instance norm without running statistics."""
    mean = args[1] if len(args) > 1 else kwargs.get("running_mean")
    by_input = args[5] if len(args) > 5 else kwargs.get("use_input_stats", Constant(True))
    return _is_none(mean) and isinstance(by_input, Constant) and by_input.value is True


def _draws_like_a_tensor(args: list[Value], kwargs: dict[str, Value]) -> bool:
    """`torch.normal` of a tensor that no gradient is asked for, or of numbers."""
    tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, TensorValue)]
    if not tensors:
        return "out" not in kwargs and _are_none(kwargs, "generator")
    plain = kwargs.keys() <= {"mean", "std"}
    return plain and len(tensors) == 1 and not tensors[0].fake.requires_grad and tensors[0].fake.is_contiguous()


def of_floats(args: list[Value], kwargs: dict[str, Value]) -> bool:
    """Are its tensors floats, and is the number that varies the exponent?"""
    tensors = [v for v in (*args, *kwargs.values()) if isinstance(v, TensorValue)]
    return all(value.fake.dtype in (torch.float32, torch.float64) for value in tensors)


def _makes_floats(args: list[Value], kwargs: dict[str, Value]) -> bool:
    dtype = kwargs.get("dtype", Constant(None))
    floating = isinstance(dtype, Constant) and (dtype.value is None or dtype.value.is_floating_point)
    return floating and "out" not in kwargs and not any(isinstance(v, TensorValue) for v in (*args, *kwargs.values()))


def _pads_by_a_number(args: list[Value], kwargs: dict[str, Value]) -> bool:
    mode = args[2] if len(args) > 2 else kwargs.get("mode", Constant("constant"))
    return isinstance(mode, Constant) and mode.value == "constant"


def follows_plain(args: Sequence[Value]) -> bool:
    """Does autograd follow a tensor of a type that eager computes in?"""
    follows = any(isinstance(value, TensorValue) and value.fake.requires_grad for value in args)
    return follows and torch.is_grad_enabled() and of_floats(list(args), {})


def _follows_plain_here(args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    return "out" not in kwargs and _are_none(kwargs, "dtype") and follows_plain([*args, *kwargs.values()])


def _of_floats_here(args: Sequence[Value], kwargs: dict[str, Value]) -> bool:
    return "out" not in kwargs and of_floats(list(args), kwargs)


FUNCTIONS: dict[Any, tuple[Any, Any]] = {
    F.layer_norm: (floats.layer_norm, _always),
    F.rms_norm: (floats.rms_norm, _always),
    F.group_norm: (floats.group_norm, _always),
    F.scaled_dot_product_attention: (floats.scaled_dot_product_attention, _always),
    F.dropout: (floats.dropout, _always),
    F.huber_loss: (floats.huber_loss, lambda args, kwargs: len(args) < 5 and "weight" not in kwargs),
    F.smooth_l1_loss: (floats.smooth_l1_loss, _always),
    F.margin_ranking_loss: (floats.margin_ranking_loss, _always),
    F.cross_entropy: (floats.cross_entropy, _plain_targets),
    F.pad: (floats.pad, _pads_by_a_number),
    F.dropout1d: (floats.feature_dropout, lambda args, kwargs: bool(args) and _dims(args[0]) == 3),
    F.dropout2d: (floats.feature_dropout, lambda args, kwargs: bool(args) and _dims(args[0]) in (3, 4)),
    F.dropout3d: (floats.feature_dropout, lambda args, kwargs: bool(args) and _dims(args[0]) == 5),
    F.rrelu: (floats.rrelu, lambda args, kwargs: len(args) < 4 and _is_false(kwargs.get("training"))),
    torch.bernoulli: (floats.bernoulli, lambda args, kwargs: "out" not in kwargs and _are_none(kwargs, "generator")),
    torch.nan_to_num: (floats.nan_to_num, lambda args, kwargs: "out" not in kwargs and of_floats(args, kwargs)),
    torch.normal: (floats.normal, _draws_like_a_tensor),
    torch.isclose: (floats.isclose, _always),
    torch.quantile: (floats.quantile, _without_out),
    torch.nanquantile: (floats.nanquantile, _without_out),
    torch.logit: (floats.logit, _without_out),
    torch.special.logit: (floats.logit, _without_out),
    torch.trapezoid: (floats.trapezoid, _always),
    torch.trapz: (floats.trapezoid, _always),
    torch.cumulative_trapezoid: (floats.cumulative_trapezoid, _always),
    torch.linalg.matrix_rank: (floats.matrix_rank, _one_tensor),
    torch.linalg.pinv: (floats.pinv, _one_tensor),
    torch.pairwise_distance: (floats.pairwise_distance, _always),
    torch.logspace: (floats.logspace, _makes_floats),
    torch.embedding_renorm_: (floats.embedding_renorm_, _always),
    F.embedding: (floats.embedding, _always),
    F.embedding_bag: (floats.embedding_bag, _always),
    torch.pow: (floats.pow, lambda args, kwargs: not kwargs and follows_plain(args)),
    torch.linalg.vector_norm: (floats.vector_norm, _follows_plain_here),
    torch.norm: (floats.norm, _follows_plain_here),
    F.celu: (floats.celu, lambda args, kwargs: len(args) < 3 and "inplace" not in kwargs and follows_plain(args)),
}
GRADIENTS_BY_TENSORS = (torch.lerp, torch.dist, torch.special.zeta)
"""Functions whose gradients take numbers apart, but not tensors."""
BY_TENSORS = (torch.xlogy, torch.special.xlog1py, torch.float_power)
FUNCTIONS |= {
    f: (getattr(floats, f.__name__.removeprefix("special_")), _follows_plain_here) for f in GRADIENTS_BY_TENSORS
}
FUNCTIONS |= {f: (getattr(floats, f.__name__.removeprefix("special_")), _of_floats_here) for f in BY_TENSORS}
FUNCTIONS[torch.special.xlogy] = FUNCTIONS[torch.xlogy]
POWERS = (F.normalize, F.lp_pool1d, F.lp_pool2d, F.lp_pool3d)
FUNCTIONS |= {function: (getattr(floats, function.__name__), _follows_plain_here) for function in POWERS}
NAMED_ALIKE = """
alpha_dropout cosine_embedding_loss cosine_similarity feature_alpha_dropout hinge_embedding_loss poisson_nll_loss triplet_margin_loss
"""
FUNCTIONS |= {getattr(F, name): (getattr(floats, name), _always) for name in NAMED_ALIKE.split()}
METHOD_NAMES = (
    "bernoulli_ cauchy_ exponential_ geometric_ isclose log_normal_ logit nanquantile normal_ quantile uniform_"
)
METHODS: dict[str, Any] = {name: getattr(floats, name) for name in METHOD_NAMES.split()}


def _register(function: Any, written: Any, fits: Any) -> None:
    @handles(function)
    def with_floats(m: Machine, *args: Value, **kwargs: Value) -> Value:
        if _vary(args, kwargs) and fits(args, kwargs):
            return m.wrap.object(written).call(m, list(args), kwargs)
        return m.record.call(function, list(args), kwargs)


def _register_method(name: str, written: Any) -> None:
    def with_floats(m: Machine, receiver: Any, *args: Value, **kwargs: Value) -> Value:
        if _vary(args, kwargs) and "from" not in kwargs and _is_none(kwargs.get("generator")):
            return m.wrap.object(written).call(m, [receiver, *args], kwargs)
        return m.record.method(receiver, name, list(args), kwargs)

    TENSOR_METHODS[name] = with_floats


@tensor_special("lerp_")
def lerp_in_place(m: Machine, receiver: Any, end: Value, weight: Value) -> Value:
    if varies(weight) and follows_plain([receiver, end]):
        return m.wrap.object(floats.lerp_).call(m, [receiver, end, weight], {})
    return m.record.method(receiver, "lerp_", [end, weight], {})


NORM = ("input", "running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")
"""What `batch_norm` and `instance_norm` take; the latter calls `training` by another name."""


def _register_norm(function: Any, written: Any, that_remembers: Any, fits: Any) -> None:
    @handles(function)
    def norm(m: Machine, *args: Value, **kwargs: Value) -> Value:
        given = dict(zip(NORM, args)) | kwargs
        if varies(given.get("eps")) and fits(list(args), kwargs):
            return m.wrap.object(written).call(m, list(args), kwargs)
        if varies(given.get("momentum")):
            return m.wrap.object(that_remembers).call(m, list(args), kwargs)
        return m.record.call(function, list(args), kwargs)


def _register_channels(function: Any, of_one: int) -> None:
    """Channels are dropped of a batch, or of one of `of_one` dimensions."""
    in_batch = handler_for(function)
    assert in_batch is not None

    @handles(function)
    def with_floats(m: Machine, *args: Value, **kwargs: Value) -> Value:
        plain = len(args) in (1, 2, 3) and _is_false(kwargs.get("inplace")) and _dims(args[0]) == of_one
        if plain and _vary(args, kwargs):
            named = {name: value for name, value in kwargs.items() if name != "inplace"}
            return m.wrap.object(floats.feature_dropout_of_one).call(m, list(args), named)
        return in_batch(m, list(args), kwargs)


for _function, (_written, _fits) in FUNCTIONS.items():
    _register(_function, _written, _fits)
_register_norm(F.batch_norm, floats.batch_norm, floats.batch_norm_that_remembers, _always)
_register_norm(F.instance_norm, floats.instance_norm, floats.instance_norm_that_remembers, _of_its_input_alone)
_register_channels(F.dropout1d, 2)
_register_channels(F.dropout3d, 4)
for _name in ("nan_to_num", "norm", "lerp", "dist", "xlogy", "float_power", "pow"):
    _register_method(_name, getattr(torch, _name))
TENSOR_METHODS["__pow__"] = TENSOR_METHODS["pow"]
for _name, _written in METHODS.items():
    _register_method(_name, _written)
