"""A program is run eagerly and compiled; everything a user can see must agree.

    @program("list methods")
    def test_list_methods(x): ...

Each parameter receives a tensor of shape (3, 4), or what `inputs` makes. Compared, for three calls (the second with equal
inputs must hit the cache, the third has other values): the result, the arguments and the named globals afterwards, as one
structure with its sharing; printed output; exception type, text and the lines of its traceback; gradients; random state; grad mode.

`expect` is what capture is to achieve: ONE graph (fullgraph=True succeeds), a BREAK, or SKIP (the frame is left to CPython).
`docs/coverage/python.md` is the list of these declarations.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
import io
import random
import traceback
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch

import stoker
import stoker.errors
from stoker import log

ONE, BREAK, SKIP = "one graph", "break", "unsupported"


@dataclass(frozen=True)
class Program:
    """One row of the coverage table."""

    construct: str
    function: Callable[..., Any]
    expect: str
    inputs: Callable[[], tuple] | None
    factory: bool
    globals: tuple[str, ...]
    steady: bool
    default: bool


@dataclass
class Outcome:
    """What one call showed."""

    structure: Any = None
    printed: str = ""
    error: tuple | None = None
    gradients: list[Any] = field(default_factory=list)
    modes: tuple = ()


def program(
    construct: str,
    expect: str = ONE,
    *,
    inputs: Callable[[], tuple] | None = None,
    factory: bool = False,
    globals: tuple[str, ...] = (),
    steady: bool = True,
    default: bool = False,
) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Make a test of a function. `factory`: the function makes the program anew for each run. `steady=False`: equal inputs
    may compile again (each call really differs: a fresh object's identity, a time). `default`: it also runs with the default
    back end."""

    def decorate(function: Callable[..., Any]) -> Callable[[], None]:
        made = Program(construct, function, expect, inputs, factory, globals, steady, default)

        def test() -> None:
            check(made)
            if default:
                check_default(made)

        test.__name__, test.__module__, test.__doc__ = function.__name__, function.__module__, construct
        test.program = made  # type: ignore[attr-defined]
        return test

    return decorate


def check(p: Program) -> None:
    """Eager and compiled agree, and capture does what the program declares."""
    log.clear()
    graphs: list[Any] = []

    def record(graph_module: Any, example_inputs: list[Any]) -> Any:
        graphs.append(graph_module)
        return graph_module.forward

    eager = Runner(p, lambda f: f)
    compiled = Runner(p, lambda f: stoker.compile(f, backend=record, fullgraph=p.expect == ONE))
    for call, seed in enumerate((0, 0, 1)):
        before = len(log.events("captured"))
        wanted, found = eager(seed), compiled(seed)
        compare(wanted, found, f"call {call + 1}")
        if call == 1 and p.steady:
            again = [event.reason for event in log.events("recompile")]
            assert len(log.events("captured")) == before, f"the second call compiled again: {again}"
    assert_expectation(p, graphs)


def check_default(p: Program) -> None:
    """The default back end agrees with eager, too."""
    eager, compiled = Runner(p, lambda f: f), Runner(p, lambda f: stoker.compile(f, fullgraph=p.expect == ONE))
    for call, seed in enumerate((0, 1)):
        compare(eager(seed), compiled(seed), f"call {call + 1} with the default back end")


def assert_expectation(p: Program, graphs: list[Any]) -> None:
    name = p.function.__qualname__
    skips = [e for e in log.events("skip") if e.subject == name]
    breaks = log.events("break")
    match p.expect:
        case "one graph":
            assert not breaks and not skips, (breaks, skips)
        case "break":
            assert breaks, "expected a break, but it is one graph"
            assert not skips, f"expected a break, but the frame was skipped: {skips}"
            assert all(event.reason for event in breaks)
        case "unsupported":
            assert skips, "expected the frame to be left to CPython"


class Runner:
    """Calls a program, eagerly or compiled, on fresh inputs."""

    def __init__(self, p: Program, wrap: Callable[[Any], Any]) -> None:
        self.program, self.wrap = p, wrap
        self.call = None if p.factory else wrap(p.function)

    def __call__(self, seed: int) -> Outcome:
        p = self.program
        torch.manual_seed(seed)
        random.seed(seed)
        torch.utils.hooks.RemovableHandle.next_id = 0
        args = p.inputs() if p.inputs is not None else tuple(default_inputs(p))
        if p.factory:
            function = p.function()
            call = self.call = self.call or self.wrap(function)
        else:
            function, call = p.function, self.call
        namespace = function.__globals__ if hasattr(function, "__globals__") else {}
        saved = {name: copy.deepcopy(namespace[name]) for name in p.globals if name in namespace}
        try:
            return observe(call, args, namespace, p.globals, function)
        finally:
            for name in p.globals:
                namespace.pop(name, None)
            namespace.update(saved)


def default_inputs(p: Program) -> list[torch.Tensor]:
    return [torch.randn(3, 4) for _ in inspect.signature(p.function).parameters]


def observe(call: Any, args: tuple, namespace: dict, names: tuple[str, ...], function: Any) -> Outcome:
    """Call, and write down all that can be seen afterwards."""
    outcome, result = Outcome(), None
    buffer = io.StringIO()
    with contextlib.redirect_stdout(buffer):
        try:
            result = call(*args)
        except stoker.errors.StokerError:
            raise
        except Exception as error:  # noqa: BLE001
            outcome.error = described_error(error, function)
    outcome.printed = buffer.getvalue()
    outcome.modes = (
        torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
        torch.get_default_dtype(), torch.get_rng_state().sum().item(), hash(random.getstate()),
    )  # fmt: skip
    changed = {name: namespace.get(name, "deleted") for name in names}
    with torch._C.DisableTorchFunctionSubclass():
        outcome.structure = Describe().of([result, list(args), changed])
        outcome.gradients = gradients(result, args)
    return outcome


def described_error(error: BaseException, function: Any) -> tuple:
    file = inspect.getsourcefile(inspect.unwrap(function) if callable(function) else type(function))
    lines = [
        (frame.name, frame.lineno) for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file
    ]
    links = tuple(type(link).__name__ for link in (error.__cause__, error.__context__))
    return type(error).__name__, str(error), lines, links, error.__suppress_context__


def gradients(result: Any, args: tuple) -> list[Any]:
    """Gradients of the sum of all differentiable results, for every leaf among the arguments."""
    outputs = [t for t in tensors_in(result) if t.requires_grad and t.dtype.is_floating_point and not t.is_inference()]
    if not outputs:
        return []
    leaves = [t for t in tensors_in(list(args)) if t.requires_grad and t.is_leaf]
    total = sum(t.double().sum() for t in outputs)
    found = torch.autograd.grad(total, leaves, allow_unused=True) if leaves and total.requires_grad else []
    return [None if g is None else g.tolist() for g in found]


def tensors_in(value: Any, seen: set[int] | None = None) -> list[torch.Tensor]:
    seen = set() if seen is None else seen
    if id(value) in seen:
        return []
    seen.add(id(value))
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        parts: Any = list(value.values())
    elif isinstance(value, (list, tuple, set, frozenset)):
        parts = list(value)
    elif isinstance(value, (type, types.FunctionType, types.ModuleType, types.GeneratorType)):
        parts = []
    else:
        parts = list(getattr(value, "__dict__", {}).values())
    return [t for part in parts for t in tensors_in(part, seen)]


def compare(wanted: Outcome, found: Outcome, when: str) -> None:
    for name in ("error", "printed", "structure", "gradients", "modes"):
        a, b = getattr(wanted, name), getattr(found, name)
        assert repr(a) == repr(b), f"{when}: {name} differs\n  eager:    {a}\n  compiled: {b}"


ATOMS = (int, float, complex, bool, str, bytes, type(None), type(Ellipsis), range, slice, torch.dtype, torch.device)


class Describe:
    """A structure as text-like data: values, types, order, and a number for each object that is met again."""

    def __init__(self) -> None:
        self.numbers: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.alive: list[Any] = []

    def of(self, value: Any) -> Any:
        if isinstance(value, ATOMS) and type(value) in ATOMS:
            return value
        if isinstance(value, type):
            return f"<class {value.__qualname__}>"
        if id(value) in self.numbers:
            return f"<again {self.numbers[id(value)]}>"
        if not (type(value) is tuple or isinstance(value, (frozenset, types.BuiltinFunctionType))):
            self.numbers[id(value)] = len(self.numbers)
            self.alive.append(value)
        return (type(value).__name__, self.content(value))

    def content(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.tensor(value)
        if isinstance(value, numpy.ndarray):
            return (str(value.dtype), value.shape, value.strides, value.tolist())
        if isinstance(value, dict):
            own = [(self.of(k), self.of(v)) for k, v in value.items()]
            return [own, self.of(getattr(value, "default_factory", None)), *self.state(value)]
        if isinstance(value, (list, tuple)) or type(value).__name__ == "deque":
            return [[self.of(element) for element in value], getattr(value, "maxlen", None), *self.state(value)]
        if isinstance(value, (set, frozenset)):
            return [sorted(repr(self.of(element)) for element in value), *self.state(value)]
        if isinstance(value, types.FunctionType):
            cells = [self.cell(cell) for cell in value.__closure__ or ()]
            return [
                value.__qualname__,
                cells,
                self.of(value.__defaults__),
                self.of(value.__kwdefaults__),
                self.of(value.__dict__),
            ]
        if isinstance(value, types.MethodType):
            return [self.of(value.__self__), self.of(value.__func__)]
        if isinstance(value, (types.BuiltinFunctionType, types.ModuleType)):
            return value.__name__
        if isinstance(value, weakref.ref):
            return self.of(value())
        if hasattr(value, "__next__"):
            return [self.of(element) for _, element in zip(range(20), value)]
        if isinstance(value, BaseException):
            return [self.of(value.args), self.of(value.__cause__), self.of(value.__context__), *self.state(value)]
        if type(value).__repr__ is not object.__repr__ and not hasattr(value, "__dict__"):
            return [repr(value), *self.state(value)]
        return [*self.state(value)]

    def state(self, value: Any) -> list[Any]:
        found = [self.of(dict(value.__dict__))] if getattr(value, "__dict__", None) else []
        for cls in type(value).__mro__:
            for name in (
                getattr(cls, "__slots__", ()) if isinstance(getattr(cls, "__slots__", ()), (tuple, list)) else ()
            ):
                if hasattr(value, name) and not name.startswith("__"):
                    found.append((name, self.of(getattr(value, name))))
        return found

    def cell(self, cell: Any) -> Any:
        if id(cell) in self.numbers:
            return f"<again {self.numbers[id(cell)]}>"
        self.numbers[id(cell)] = len(self.numbers)
        self.alive.append(cell)
        try:
            return self.of(cell.cell_contents)
        except ValueError:
            return "<empty>"

    def tensor(self, value: torch.Tensor) -> Any:
        if torch.nn.parameter.is_lazy(value):
            return "lazy"
        if type(value).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            return (value.dtype, tuple(value.shape), self.of(dict(vars(value))))
        if value.layout is not torch.strided:
            return (str(value.layout), value.dtype, tuple(value.shape))
        with contextlib.nullcontext() if value.is_inference() else torch.no_grad():
            storage = self.storages.setdefault(value.untyped_storage().data_ptr(), len(self.storages))
            plain = value.detach().as_subclass(torch.Tensor)
            extra = {k: v for k, v in getattr(value, "__dict__", {}).items() if not k.startswith("_dynamo")}
            return (
                plain.tolist(), value.dtype, value.device, tuple(value.shape), value.stride(), value.storage_offset(),
                value.requires_grad, value.is_leaf, value.is_inference(), storage if value.numel() else None,
                self.of(value.grad) if value.is_leaf else None, self.of(extra) if extra else None,
            )  # fmt: skip
