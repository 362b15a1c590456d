"""Every non-public PyTorch name we use: one entry each, why, and the versions it was seen in.

Nothing else in the project spells a private torch name of this list. Each entry is looked up when this module loads,
so a version of torch that lost one fails here, with a line that says what it was for. A version is listed once our
tests ran on it.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
import linecache
import re
import types
import weakref
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.fx._lazy_graph_module
from torch.autograd import Variable
from torch.optim.optimizer import _get_value, _stack_if_compiling
from torch.utils._device import DeviceContext as _DeviceContext
from torch.utils._python_dispatch import TorchDispatchMode as _TorchDispatchMode

make_wrapper_subclass = torch.Tensor._make_wrapper_subclass
"""Makes a tensor of metadata alone that reports any device. 2.13."""

TorchDispatchMode = _TorchDispatchMode
"""Intercepts operators below autograd; the public name for it does not exist. 2.13."""

disabled_torch_dispatch = torch._C._disabled_torch_dispatch_impl
"""`__torch_dispatch__` of a subclass that has none. 2.13."""

disabled_torch_function = torch._C._disabled_torch_function_impl
"""Given as `__torch_function__` of a subclass: no Python detour above autograd. 2.13."""

SKIP_DYNAMO_HOOK = "_should_skip_dynamo"
"""A classmethod of TorchDispatchMode. True (the default) wraps `__torch_dispatch__` in a decorator that imports Dynamo
on the first call; our mode answers False. 2.13."""

DispatchKey = torch._C.DispatchKey
"""Names of the dispatcher's keys, for `OpOverload.py_kernels` and `has_kernel_for_dispatch_key`. 2.13."""


def dispatch_modes_off() -> AbstractContextManager[object]:
    """A context in which no dispatch mode is active. 2.13: `torch.utils._python_dispatch`."""
    return torch.utils._python_dispatch._disable_current_modes()


def run_backward(
    outputs: tuple[torch.Tensor, ...],
    gradients: tuple[torch.Tensor | None, ...],
    inputs: tuple[torch.Tensor, ...],
    *,
    keep_graph: bool = False,
    create_graph: bool = False,
    allow_unreachable: bool = True,
    accumulate: bool = False,
) -> tuple[torch.Tensor | None, ...]:
    """The autograd engine. `torch.autograd.grad` first checks shapes with a helper that imports SymPy. 2.13."""
    return Variable._execution_engine.run_backward(
        outputs,
        gradients,
        keep_graph,
        create_graph,
        inputs,
        allow_unreachable=allow_unreachable,
        accumulate_grad=accumulate,
    )


def _control_flow(name: str) -> Callable[..., Any]:
    found = getattr(torch._higher_order_ops, name)
    return getattr(found, name) if isinstance(found, types.ModuleType) else found


while_loop, scan, map_, associative_scan = map(_control_flow, ("while_loop", "scan", "map", "associative_scan"))
"""Control flow as functions, mostly without a public name; a function may hide behind the module of its name. 2.11, 2.13."""

call_of_region = importlib.import_module("torch._higher_order_ops.invoke_subgraph").invoke_subgraph_placeholder
"""What a function marked by `torch.compiler.nested_compile_region` is called by. 2.11, 2.13."""

call_of_cond, call_of_while_loop, call_of_map = (
    type(getattr(torch.ops.higher_order, name)).__call__ for name in ("cond", "while_loop", "map_impl")
)
"""The operators behind control flow, of flat arguments: eager's functions have them compiled by `torch.compile`, whoever that is.
2.11, 2.13."""

call_of_wrap = type(torch._higher_order_ops.wrap.wrap).__call__
"""A function called as one operator: torch's means to test such operators. 2.11, 2.13: `Wrap.__call__`."""

infer_parameters = torch.nn.modules.lazy.LazyModuleMixin._infer_parameters
"""What the first call of a lazy module does: its parameters get their shapes and values. 2.11, 2.13."""

WITHHELD = torch._disable_dynamo(lambda: None).__code__
"""The code of the wrapper that torch puts around functions which its own compiler is not to enter. 2.11, 2.13."""


def python_meta_kernel(operator: Any) -> Any:
    """The meta kernel of an operator where it is a Python function, or None. 2.11, 2.13: `OpOverload.py_kernels`."""
    return operator.py_kernels.get(DispatchKey.Meta)


def composite_kernel(operator: Any) -> Any:
    """The kernel of an operator that is written with others and serves every device, or None. 2.11, 2.13: `OpOverload._op_dk`."""
    key = DispatchKey.CompositeExplicitAutograd
    return functools.partial(operator._op_dk, key) if operator.has_kernel_for_dispatch_key(key) else None


def registered_fake_kernel(qualified_name: str) -> Callable[..., object] | None:
    """The function given to `torch.library.register_fake`, or None. 2.13: `torch._library.simple_registry`."""
    entry = torch._library.simple_registry.singleton._data.get(qualified_name)
    kernel = entry.fake_impl.kernel if entry is not None else None
    return None if kernel is None else kernel.func


def fake_kernel_context(get: Callable[[], object]) -> AbstractContextManager[object]:
    """What `torch.library.get_ctx()` answers inside a fake kernel. 2.13: `torch._library.fake_impl`."""
    return torch._library.fake_impl.set_ctx_getter(get)


# Asked by libraries' Python code while it is captured; capture answers without calling them. Public, but of a namespace
# that the rest of our code does not name. 2.11, 2.13.
is_scripting = torch.jit.is_scripting
is_tracing = torch.jit.is_tracing
script_annotate = torch.jit.annotate

optimizer_value = _get_value
"""Reads an optimizer's step count as a Python number; to compilers it gives the tensor, in float32. 2.13."""

optimizer_stack = _stack_if_compiling
"""To compilers, numbers of an optimizer as one tensor; as they are otherwise. 2.11, 2.13."""

group_tensors = torch._C._group_tensors_by_device_and_dtype
"""Sorts lists of tensors for kernels that work on many: what clipping of gradients calls. 2.11, 2.13."""

foreach_addcdiv_ = torch._foreach_addcdiv_
"""`addcdiv_` of each of several tensors. 2.13."""

ScriptFunction = torch.jit.ScriptFunction
SCRIPT_ORIGINAL = "_torchdynamo_inline"
"""Functions that TorchScript has compiled, and the attribute that names the Python function they were made from. 2.13."""

ScriptModule = torch.jit.ScriptModule
"""Modules that TorchScript has compiled: they are left alone. 2.13."""

# For stoker.autograd.

current_autograd_node = torch._C._current_autograd_node
"""The autograd node whose backward runs at this moment, for the sequence number of the forward operator. 2.11, 2.13."""

next_sequence_number = torch.autograd._get_sequence_nr
"""The number that the next autograd node of this thread will get. 2.11, 2.13."""

has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
"""Does an operator, by name, have a kernel of its own for a device: tells what eager runs from what it takes apart. 2.11, 2.13."""


InferenceMode = torch._C._InferenceMode
"""The scope object inside torch.inference_mode. 2.11, 2.13."""

CustomOpDef = torch._library.custom_ops.CustomOpDef
"""What torch.library.custom_op makes. 2.11, 2.13."""


def overload_of(operator: torch._library.custom_ops.CustomOpDef) -> torch._ops.OpOverload:
    """The operator behind a custom_op definition. 2.11, 2.13."""
    return operator._opoverload


def storage_identity(tensor: torch.Tensor) -> int:
    """The same number for tensors on one storage, as long as it lives. 2.11, 2.13: `UntypedStorage._cdata`."""
    return tensor.untyped_storage()._cdata


def is_leaf_so_far(tensor: torch.Tensor) -> bool:
    """Has it no history yet? 2.13: the operator `aten::is_leaf`. `Tensor.is_leaf` gives a view of what has a history one of its own
    before it answers, or raises where it must not have one."""
    with torch.inference_mode(False) if torch.is_inference_mode_enabled() else contextlib.nullcontext():
        return bool(torch.ops.aten.is_leaf.default(tensor))


class Creation(enum.Enum):
    """How a view was made, as far as autograd minds when it is written. 2.13: `CreationMeta`."""

    DEFAULT = torch._C._autograd.CreationMeta.DEFAULT
    IN_CUSTOM_FUNCTION = torch._C._autograd.CreationMeta.IN_CUSTOM_FUNCTION
    ONE_OF_SEVERAL = torch._C._autograd.CreationMeta.MULTI_OUTPUT_NODE
    WITHOUT_GRADIENTS = torch._C._autograd.CreationMeta.NO_GRAD_MODE
    IN_INFERENCE_MODE = torch._C._autograd.CreationMeta.INFERENCE_MODE


def creation_of(view: torch.Tensor) -> Creation:
    """How a tensor for which `is_view` holds was made. 2.13: `_get_creation_meta`."""
    return Creation(torch._C._autograd._get_creation_meta(view))


def is_view(tensor: torch.Tensor) -> bool:
    """Does autograd know it as a view of another tensor? 2.11, 2.13: `Tensor._is_view`."""
    return tensor._is_view()


def sequence_number(node: torch.autograd.graph.Node) -> int:
    """The number that an autograd node got when it was made. 2.11, 2.13: `Node._sequence_nr`."""
    return node._sequence_nr()


def module_call(module: torch.nn.Module) -> Callable[..., Any]:
    """What `module(...)` runs where nothing was compiled in its place: hooks and forward. 2.11, 2.13: `Module._call_impl`."""
    return module._call_impl


def is_modules_own(method: object) -> bool:
    """Is a method of a module's class as torch wrote it? `Module.__call__` itself may be another by now."""
    return isinstance(method, types.FunctionType) and method.__code__.co_filename == torch.nn.modules.module.__file__


def compiled_call(module: torch.nn.Module) -> Any:
    """What was compiled in place of the module's call, or None. 2.11, 2.13: `Module._compiled_call_impl`."""
    return module._compiled_call_impl


def set_compiled_call(module: torch.nn.Module, compiled: Callable[..., Any]) -> None:
    """Let `module(...)` run this; it is not pickled with the module. 2.11, 2.13: `Module._compiled_call_impl`."""
    module._compiled_call_impl = compiled


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Is it zeros without memory, as autograd makes them? 2.11, 2.13: `_is_zerotensor`."""
    return bool(tensor._is_zerotensor())


def mark_as_parameter(tensor: torch.Tensor) -> None:
    """Make `isinstance(tensor, torch.nn.Parameter)` true of a tensor of another class. 2.11, 2.13: `_is_param`."""
    tensor._is_param = True


def schema_of(operator: torch._ops.OpOverload) -> torch.FunctionSchema:
    """Names, types and aliasing of an operator's arguments and results. 2.11, 2.13: `OpOverload._schema`."""
    return operator._schema


def overload_name(operator: torch._ops.OpOverload) -> str:
    """`default`, `int`, `out`, ...: which form of the operator it is. 2.11, 2.13: `OpOverload._overloadname`."""
    return operator._overloadname


is_torch_function_mode_enabled = torch._C._is_torch_function_mode_enabled
"""Is a torch function mode active. 2.11, 2.13."""

SDPBackend = torch._C._SDPBackend
"""The class of the members of torch.nn.attention.SDPBackend. 2.11, 2.13."""

LazyGraphModule = torch.fx._lazy_graph_module._LazyGraphModule
"""A GraphModule that writes its Python code when first called: who only reads the graph never pays. 2.11, 2.13."""


def graph_module(root: torch.nn.Module, graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """A module of a graph, its code written. The text of the code goes with it, which torch keeps of its own modules for good."""
    return write_code(LazyGraphModule(root, graph))


def write_code(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The module with its Python code written, so that its `forward` is the code itself. 2.11, 2.13."""
    spell_out(module.graph)
    if isinstance(module, LazyGraphModule):
        module.real_recompile()
        key = module.forward.__func__.__code__.co_filename  # type: ignore[attr-defined]  # a method
        weakref.finalize(module, _forget_source, key).atexit = False
    return module


OVERLOADS_NAMED_FROM = frozenset({getattr(torch.ops.aten.random, "from"), getattr(torch.ops.aten.random_, "from")})
"""The overloads whose name is a word of Python's own: torch.fx writes calls of them that cannot be read back. 2.11, 2.13."""


def spell_out(graph: torch.fx.Graph) -> None:
    """Let the code of a graph look those overloads up by name."""
    if any(node.target in OVERLOADS_NAMED_FROM for node in graph.nodes if node.op == "call_function"):
        graph.on_generate_code(lambda _: _spelled_out)


def _spelled_out(lines: list[str]) -> list[str]:
    return [re.sub(r"(torch\.ops\.aten\.random_?)\.from\(", r'getattr(\1, "from")(', line) for line in lines]


def _forget_source(key: str) -> None:
    """Drop the text of a module's code, which torch.fx keeps for tracebacks, with the module. 2.11, 2.13."""
    torch.fx.graph_module._loader.eval_cache.pop(key, None)
    linecache.cache.pop(key, None)


PACKINGS: dict[Any, str] = {
    getattr(torch._VF, f"_{name}"): name for name in ("pack_padded_sequence", "pad_packed_sequence")
}
"""What functions of torch.nn.utils.rnn call, and those. 2.11, 2.13."""

ATTENTION_SWITCHES = {
    name.removeprefix("_set_sdp_use_"): (getattr(torch._C, f"_get_{name[13:]}_sdp_enabled"), getattr(torch._C, name))
    for name in dir(torch._C)
    if name.startswith("_set_sdp_use_")
}
"""Which attention kernels may be chosen: (getter, setter) by name; what torch.nn.attention.sdpa_kernel uses. 2.11, 2.13."""

top_saved_tensors_hooks = torch._C._autograd._top_saved_tensors_default_hooks
"""The innermost hooks that torch.autograd.graph.saved_tensors_hooks has set, or None. 2.11, 2.13."""

push_saved_tensors_hooks = torch._C._autograd._push_saved_tensors_default_hooks
pop_saved_tensors_hooks = torch._C._autograd._pop_saved_tensors_default_hooks
"""What torch.autograd.graph.saved_tensors_hooks calls where it is entered, and left. 2.11, 2.13."""

saved_tensors_hooks_refusal = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message
"""What entering saved_tensors_hooks raises while they are turned off; None while they are not. 2.11, 2.13."""


def refuse_saved_tensors_hooks(words: str | None) -> None:
    """Turn saved_tensors_hooks off, with the words of the error, or on. 2.11, 2.13: `torch._C._autograd`."""
    if words is None:
        torch._C._autograd._saved_tensors_hooks_enable()
    else:
        torch._C._autograd._saved_tensors_hooks_disable(words)


DeviceContext = _DeviceContext
"""The torch function mode behind `with torch.device(...)` and torch.set_default_device. 2.11, 2.13."""

function_modes = torch.overrides._get_current_function_mode_stack
"""The torch function modes that are active, outermost first. 2.11, 2.13."""


def function_transform_active() -> bool:
    """Is a transform of torch.func (vmap, grad, ...) running. 2.11, 2.13: `torch._C._functorch`."""
    return torch._C._functorch.peek_interpreter_stack() is not None


@contextlib.contextmanager
def above_autograd() -> Iterator[None]:
    """Inside a kernel, which is called below autograd: operators are differentiable again. 2.11, 2.13."""
    with contextlib.ExitStack() as stack:
        for key in (DispatchKey.ADInplaceOrView, DispatchKey.AutogradCPU, DispatchKey.AutogradOther):
            stack.enter_context(torch._C._SetExcludeDispatchKeyGuard(key, False))
        yield


def script_tracer_active() -> bool:
    """Is torch.jit.trace recording on this thread. 2.11, 2.13: `torch._C._get_tracing_state`."""
    return torch._C._get_tracing_state() is not None


def set_version(tensor: torch.Tensor, version: int) -> None:
    """Say how often a tensor was written: a write that is taken back was none. 2.13."""
    torch._C._autograd._unsafe_set_version_counter((tensor,), (version,))


@contextlib.contextmanager
def outside_vmap() -> Iterator[None]:
    """Operators in here see no vmap around them, neither torch.func's nor the older one behind `is_grads_batched`. 2.13."""
    level = torch._C._vmapmode_increment_nesting() - 1
    for _ in range(level + 1):
        torch._C._vmapmode_decrement_nesting()
    try:
        if torch._C._functorch.peek_interpreter_stack() is None:
            yield
        else:
            with torch._functorch.pyfunctorch.temporarily_clear_interpreter_stack():
                yield
    finally:
        for _ in range(level):
            torch._C._vmapmode_increment_nesting()


def forward_mode_active() -> bool:
    """Is a level of torch.autograd.forward_ad entered: tensors may carry tangents. 2.11, 2.13."""
    return torch.autograd.forward_ad._current_level >= 0


# For stoker.capture: operators as objects, and functions that captured Python code calls.

OpOverload = torch._ops.OpOverload
OpOverloadPacket = torch._ops.OpOverloadPacket
"""Operators of `torch.ops`. 2.11, 2.13."""

operator_namespaces = tuple(
    getattr(torch._C, name)
    for name in ("_VariableFunctions", "_nn", "_special", "_linalg", "_fft", "_nested", "_sparse")
    if hasattr(torch._C, name)
)
"""Where torch's Python layer finds the operators that are written in C. 2.11, 2.13."""

operator_owners = (torch._C._VariableFunctions, getattr(torch._C, "_VariableFunctionsClass", None))
"""`__self__` of functions such as torch.add. 2.11, 2.13."""

TensorBase = torch._C.TensorBase
"""The class under torch.Tensor that holds the methods written in C. 2.11, 2.13."""

set_grad_enabled = torch._C._set_grad_enabled
"""What `no_grad`, `enable_grad` and `set_grad_enabled` end in. 2.11, 2.13."""

check = torch._check
check_is_size = torch._check_is_size
assert_ = torch._assert
"""Conditions that libraries write for compilers. 2.11, 2.13."""

is_compiling = torch._utils.is_compiling
"""An older name of torch.compiler.is_compiling. 2.11, 2.13."""

UNOBSERVED = {
    torch._C._get_tracing_state: None,
    torch._C._log_api_usage_once: None,
    torch._C._len_torch_dispatch_stack: 0,
    torch.fx._symbolic_trace.is_fx_tracing: False,
}
"""Questions that library code asks about who runs it, and what captured code hears: code that runs under a dispatch mode is
not captured. 2.11, 2.13."""

profiler_enabled = torch._C._autograd._profiler_enabled
"""Does a profiler look at this thread? 2.11, 2.13."""

mode_queries = (
    torch._C._is_any_autocast_enabled,
    torch._C._is_autocast_available,
    torch._C._get_privateuse1_backend_name,
    torch._C._get_default_device,
    torch._C._autograd._profiler_enabled,
    torch._C._get_deterministic_algorithms,
    torch._C._get_deterministic_algorithms_warn_only,
    torch._C._get_deterministic_fill_uninitialized_memory,
    torch._C._get_cublas_allow_tf32,
    torch._C._get_cudnn_allow_tf32,
    torch._C._get_cudnn_benchmark,
    torch._C._get_cudnn_deterministic,
    torch._C._get_cudnn_enabled,
    torch._C._get_mkldnn_enabled,
    torch._C._get_cpu_capability,
    torch._C._get_flash_sdp_enabled,
    torch._C._get_math_sdp_enabled,
    torch._C._get_mem_efficient_sdp_enabled,
    torch._C._get_cudnn_sdp_enabled,
)
"""Read-only questions about torch's modes and settings. 2.11, 2.13."""


def long_tail_decompositions() -> Any:
    """The table behind `torch._decomp`; importing it is slow, so it is asked for when first needed. 2.11, 2.13."""
    import torch._decomp

    return torch._decomp.decomposition_table


DisableTorchFunction = torch._C.DisableTorchFunction
"""No torch function mode or subclass is asked inside. 2.11, 2.13."""


PACK_CONVOLUTION = torch.ops.mkldnn._reorder_convolution_weight.default
"""A convolution's weight in the order that oneDNN wants for an input of given sizes. 2.11, 2.13."""

PACKED_CONVOLUTION = torch.ops.mkldnn._convolution_pointwise.default
"""A convolution with such a weight, and an elementwise function of its result. 2.11, 2.13."""

PACKED_CONVOLUTION_ADD = torch.ops.mkldnn._convolution_pointwise.binary
"""The same, with another tensor added before the function. 2.11, 2.13."""


def _operator(library: str, name: str) -> Any:
    packet = getattr(getattr(torch.ops, library), name, None)
    return None if packet is None else packet.default


PACK_FOR_MKL = _operator("mkl", "_mkl_reorder_linear_weight")
"""A linear layer's weight in the order that MKL wants for a number of rows; None in builds without MKL. 2.11, 2.13."""

LINEAR_BY_MKL = _operator("mkl", "_mkl_linear")
"""A linear layer with such a weight. 2.11, 2.13."""

PACK_FOR_ONEDNN = torch.ops.mkldnn._reorder_linear_weight.default
"""A linear layer's weight in the order that oneDNN wants for a number of rows. 2.11, 2.13."""

LINEAR_BY_ONEDNN = torch.ops.mkldnn._linear_pointwise.default
"""A linear layer with such a weight, and an elementwise function of its result. 2.11, 2.13."""

# For stoker.capture.overrides: who takes over calls of torch's functions.

DisableTorchFunctionSubclass = torch._C.DisableTorchFunctionSubclass
"""No subclass is asked inside; modes are. 2.13."""

torch_function_enabled = torch._C._is_torch_function_enabled
"""Are subclasses asked. 2.13."""

torch_function_all_disabled = torch._C._is_torch_function_all_disabled
"""Are neither subclasses nor modes asked. 2.13."""

push_function_mode = torch._C._push_on_torch_function_stack
pop_function_mode = torch._C._pop_torch_function_stack
function_mode_count = torch._C._len_torch_function_stack
function_mode_at = torch._C._get_function_stack_at
"""The stack of torch function modes, which Python code of torch.overrides works on. 2.13."""

has_torch_function = (torch._C._has_torch_function,)
has_torch_function_each = (torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic)
"""Is one of the arguments to be asked: arguments as one tuple, or one by one. 2.13."""

make_subclass = torch.Tensor._make_subclass
"""A detached tensor of a subclass. 2.13."""

unwrapped_functions = torch.overrides.get_default_nowrap_functions
"""Functions whose results `Tensor.__torch_function__` leaves as they are. 2.13."""

enable_torch_function = torch.overrides._enable_torch_function
"""A context in which subclasses and modes are asked again. 2.13."""

UninitializedTensorMixin = torch.nn.parameter.UninitializedTensorMixin  # type: ignore[attr-defined]  # torch's stubs leave it out
"""The base of parameters and buffers of lazy modules, which have no shape yet. 2.13."""

DisableAutocast = torch._C._DisableAutocast
"""Inside, no operator casts its arguments. 2.11, 2.13."""

current_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)
"""The address of the stream that operators on a CUDA device (by number) use; builds for the CPU lack it. 2.11, 2.13."""


def upsampling() -> dict[Any, Any]:
    """The functions that `torch.nn.functional.interpolate` ends in, and the operators behind them, which take a size and then a
    scale for each dimension. 2.11, 2.13: `torch._C._nn`."""
    names = "nearest1d _nearest_exact1d linear1d nearest2d _nearest_exact2d bilinear2d bicubic2d _bilinear2d_aa _bicubic2d_aa"
    names += " nearest3d _nearest_exact3d trilinear3d"
    found = [f"_upsample{name}" if name.startswith("_") else f"upsample_{name}" for name in names.split()]
    return {getattr(torch._C._nn, name): getattr(torch.ops.aten, name).default for name in found}


def convolution_kernel(*arguments: Any) -> str:
    """Which of its kernels eager convolves with: input, weight, bias, stride, padding, dilation, transposed, output padding, groups.
    2.11, 2.13: `torch._C`."""
    return str(torch._C._select_conv_backend(*arguments)).rpartition(".")[2]
