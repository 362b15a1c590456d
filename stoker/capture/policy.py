"""What is entered, what is a graph node, what is left to CPython: tables of modules, each with its reason.

In:  a function or a file name.
Out: a reason to refuse, or None. Nothing here looks at arguments.
"""

from __future__ import annotations

import functools
import inspect
import sysconfig
import types
from pathlib import Path
from typing import Any

import numpy
import torch

from stoker import torch_private
from stoker.marks import ALLOWED_IN_GRAPH, why_disabled

TORCH = str(Path(torch.__file__).parent)
STOKER = str(Path(__file__).parent.parent)
NUMPY = str(Path(numpy.__file__).parent)
OWN_CODE = "Stoker's own code is not compiled"
GENERATED = "<eval_with_key>"
"""The file name of code that torch.fx generates."""
POLYFILL = f"{STOKER}/capture/polyfill"
STANDARD_LIBRARY = sysconfig.get_paths()["stdlib"]

# Python functions of these modules are operators to a graph: one node each.
GRAPH_MODULES = frozenset(
    {"torch.functional", "torch.nn.functional", "torch._C._nn", "torch.special", "torch.linalg", "torch.fft"}
)
# Functions of GRAPH_MODULES that are ordinary Python after all: they look at types, take functions, or raise for what data holds.
ENTERED = frozenset(
    {
        "torch.nn.functional.has_torch_function",
        "torch.functional.broadcast_shapes",
        "torch.nn.functional.gaussian_nll_loss",
    }
)

# Operators that say they write a tensor, and give its memory back or take other: what a graph knows of memory would be wrong.
CHANGES_STORAGE = frozenset({"inductor.resize_storage_bytes_"})

# Frames of these files are run by CPython: there is nothing for a graph in them, or they must not be entered.
SKIPPED_FILES: tuple[tuple[str, str], ...] = (
    (STOKER, OWN_CODE),
    (f"{TORCH}/_dynamo", "PyTorch's own compiler is not compiled"),
    (f"{TORCH}/_inductor", "PyTorch's own compiler is not compiled"),
    (f"{TORCH}/_functorch", "transforms of torch.func run as they are"),
    (f"{TORCH}/fx", "the tools of torch.fx run as they are"),
    (f"{TORCH}/autograd", "autograd's Python side runs as it is"),
    (f"{TORCH}/utils/data", "data loading runs as it is"),
    (f"{TORCH}/_", "torch's internals run as they are"),
    ("<frozen importlib", "the import system runs as it is"),
    ("<__array_function__", "numpy runs as it is"),
    (NUMPY, "numpy runs as it is"),
    (f"{STANDARD_LIBRARY}/random.py", "what it draws depends on the state of a generator, which only the run knows"),
)
# As root frames (called from CPython) library code is not worth a graph; inlined from user code it may be entered.
ROOT_SKIPPED: tuple[tuple[str, str], ...] = (
    (STANDARD_LIBRARY + "/", "the standard library runs as it is"),
    ("<frozen ", "the standard library runs as it is"),
    (TORCH + "/", "torch's own Python code runs as it is when called from Python"),
)
# Control flow that is not captured asks `torch.compile` to compile its operator, which may be Stoker's.
CONTROL_FLOW = tuple(
    f"{TORCH}/_higher_order_ops/{name}.py" for name in ("cond", "while_loop", "map", "invoke_subgraph")
)
ROOT_ALLOWED = (
    *CONTROL_FLOW,
    f"{TORCH}/nn/modules",
    f"{TORCH}/optim",
    STANDARD_LIBRARY + "/site-packages",
    STANDARD_LIBRARY + "/dist-packages",
)

ROOT_ALONE = (f"{TORCH}/nn/modules/_functions.py",)
"""Called by autograd, which must see them."""

# Packages of Stoker's that compile, or run what is compiled. Graphs are also made while a program runs: a backward for the
# gradients that came, a gradient of a gradient. The others call users' functions: `twin`, `stance`, `capture/polyfill`.
COMPILING = (
    "autograd",
    "cudagraph",
    "codegen",
    "decompose",
    "fake",
    "graph",
    "guard",
    "loop",
    "lower",
    "passes",
    "pipeline.py",
    "runtime",
    "schedule",
    "shape",
)
# What these call from Python is not captured either: modules being imported, a compiler at work.
ALONE = (
    "<frozen importlib",
    f"{TORCH}/_dynamo",
    f"{TORCH}/_inductor",
    *(f"{STOKER}/{package}" for package in COMPILING),
)
GENERATED_METHODS = "<string>"
"""The file name of methods that dataclasses and the like write."""


class Policy:
    """The decisions, with what the user added to them."""

    @staticmethod
    @functools.cache
    def tensor_functions() -> frozenset[Any]:
        """Methods of torch.Tensor written in Python that are graph operators all the same."""
        names = [
            "split",
            "stft",
            "istft",
            "unique",
            "norm",
            "unflatten",
            "rename",
            "refine_names",
            "__rsub__",
            "__rdiv__",
            "__rpow__",
            "__rmatmul__",
            "__rfloordiv__",
            "__rmod__",
            "__rlshift__",
            "__rrshift__",
            "__contains__",
            "lu",
            "align_to",
            "unique_consecutive",
            "__pow__",
            "__ipow__",
        ]
        found = {vars(torch.Tensor).get(name) for name in names} | {
            vars(torch_private.TensorBase).get(name) for name in names
        }
        return frozenset(f for f in found if isinstance(f, types.FunctionType))

    def is_graph_function(self, real: Any) -> bool:
        """Is a call of this function one node of the graph?"""
        if isinstance(real, (torch_private.OpOverload, torch_private.OpOverloadPacket)):
            return str(real).removesuffix(".default") not in CHANGES_STORAGE
        return id(real) in ALLOWED_IN_GRAPH or _is_graph_function(real)

    def refuse_inline(self, real: types.FunctionType) -> str | None:
        """Why a Python function is not entered from captured code; None if it may be."""
        if getattr(real, "_stoker_disabled", False) or getattr(real, "_torchdynamo_disable", False):
            return why_disabled(real)
        if real.__code__.co_qualname.startswith(ENTERED_CLASSES) and real.__module__ == "torch.autograd.graph":
            return None
        return self.refuse_file(real.__code__.co_filename)

    def enters_withheld(self, real: types.FunctionType) -> bool:
        """Is a function entered that torch keeps from its own compiler?"""
        return real.__code__.co_filename.startswith((f"{TORCH}/optim/", f"{TORCH}/_refs", f"{TORCH}/_prims_common"))

    def beneath(self, real: types.FunctionType) -> types.FunctionType | None:
        """The function of torch's that torch's own compiler, at work in the same process, has put one of its own in front of: it
        counts modules there, for itself, and withholds parts of optimizers from itself."""
        if not real.__code__.co_filename.startswith(f"{TORCH}/_dynamo"):
            return None
        found = [cell.cell_contents for cell in real.__closure__ or ()]
        functions = [f for f in found if isinstance(f, types.FunctionType)]
        own = [f for f in functions if f.__qualname__.startswith("Module.") or self.enters_withheld(inspect.unwrap(f))]
        return own[0] if len(own) == 1 else None

    def refuse_file(self, filename: str) -> str | None:
        if filename.startswith(ENTERED_FILES):
            return None
        return next((reason for prefix, reason in SKIPPED_FILES if filename.startswith(prefix)), None)

    def refuse_root(self, code: types.CodeType, function: types.FunctionType) -> str | None:
        """Why a frame called from CPython is not captured; None if it is. Generated methods belong to their class's module."""
        filename = code.co_filename
        if filename == GENERATED_METHODS:
            filename = function.__globals__.get("__file__") or filename
        refused = self.refuse_file(filename)
        if refused is not None or (filename.startswith(ROOT_ALLOWED) and filename not in ROOT_ALONE):
            return refused
        return next((reason for prefix, reason in ROOT_SKIPPED if filename.startswith(prefix)), None)

    def refuses_callees(self, code: types.CodeType) -> bool:
        """Does what a refused frame calls run as it is, too?"""
        return code.co_filename.startswith(ALONE)

    def refuse_now(self) -> str | None:
        """Why nothing is captured at this moment, whatever the function; None if it may be."""
        if any(not isinstance(mode, torch_private.DeviceContext) for mode in torch_private.function_modes()):
            return "a torch function mode of the user's is active: it must see every call"
        if torch_private.function_transform_active():
            return "a transform of torch.func is active: its tensors are wrapped"
        if torch_private.script_tracer_active():
            return "torch.jit.trace is recording: it must see every operator"
        return None

    def is_library(self, filename: str) -> bool:
        """Does the user not care about lines of this file?"""
        return filename.startswith((STANDARD_LIBRARY, TORCH, STOKER, GENERATED)) or "site-packages" in filename


ENTERED_CLASSES = ("saved_tensors_hooks.", "save_on_cpu.")
"""Of a file whose functions are not entered but for these."""
ENTERED_FILES = (
    POLYFILL,
    f"{TORCH}/__init__.py",
    f"{TORCH}/__future__.py",
    f"{TORCH}/fx/graph_module.py",
    *CONTROL_FLOW,
    f"{TORCH}/_jit_internal.py",
    f"{TORCH}/_tensor.py",
    f"{TORCH}/_utils.py",
    f"{TORCH}/_lobpcg.py",
    f"{TORCH}/_linalg_utils.py",
    f"{TORCH}/_lowrank.py",
    f"{TORCH}/autograd/grad_mode.py",
    f"{TORCH}/autograd/functional.py",
    f"{TORCH}/_VF.py",
    f"{TORCH}/_vendor/packaging/",
    f"{TORCH}/_functorch/functional_call.py",
    f"{TORCH}/_refs",
    f"{TORCH}/_prims_common",
    f"{TORCH}/fx/experimental/symbolic_shapes.py",
)


@functools.cache
def _graph_builtins() -> frozenset[int]:
    """Identities of torch's operators that are written in C."""
    spaces = torch_private.operator_namespaces
    members = (getattr(space, name) for space in spaces for name in dir(space) if not name.startswith("__"))
    return frozenset(id(member) for member in members if isinstance(member, types.BuiltinFunctionType))


def _is_graph_function(real: Any) -> bool:
    if isinstance(real, (types.BuiltinFunctionType, types.BuiltinMethodType)):
        owner = getattr(real, "__self__", None)
        if owner is not None and any(owner is known for known in torch_private.operator_owners):
            return True
        module = getattr(owner, "__name__", "") if isinstance(owner, types.ModuleType) else ""
        return id(real) in _graph_builtins() or module.startswith(
            ("torch._C._nn", "torch._C._linalg", "torch._C._fft", "torch._C._special")
        )
    if isinstance(real, types.FunctionType):
        name = f"{real.__module__}.{real.__qualname__}"
        return real.__module__ in GRAPH_MODULES and name not in ENTERED and not real.__qualname__.startswith("_")
    return False
