"""A compiled module is a twin of the module: it shares all state, and the module itself stays eager."""

from __future__ import annotations

import abc
import copy
import gc
import inspect
import io
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log
from stoker.errors import BadArgument

X = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))


class Net(nn.Module):
    built = 0

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) + self.scale if hasattr(self, "scale") else self.inner(x)

    def generate(self, x: torch.Tensor, steps: int) -> torch.Tensor:
        for _ in range(steps):
            x = self(x)
        return x

    def count(self) -> int:
        type(self).built += 1
        self.__class__.built += 1
        return Net.built

    def another(self) -> Any:
        return type(self)(), self.__class__()


def graphs_of(model: Any, **settings: Any) -> tuple[Any, list[Any]]:
    graphs: list[Any] = []

    def backend(graph_module: Any, example_inputs: Any) -> Any:
        graphs.append(graph_module)
        return graph_module.forward

    return stoker.compile(model, backend=backend, **settings), graphs


def test_class_and_state() -> None:
    model = Net().eval()
    twin, graphs = graphs_of(model)
    assert twin is not model and type(twin) is not Net
    assert isinstance(twin, Net) and twin.__class__ is Net
    names = ("__name__", "__qualname__", "__module__", "__doc__")
    assert [getattr(type(twin), n) for n in names] == [getattr(Net, n) for n in names]
    assert vars(twin) is vars(model) and repr(twin) == repr(model)
    assert list(twin.state_dict()) == list(model.state_dict())
    expected = model(X)
    assert not graphs, "the module itself stays eager"
    assert torch.equal(twin(X), expected)
    assert len(graphs) == 1


def test_what_tools_ask() -> None:
    model = Net()
    twin, _ = graphs_of(model)
    for ask in (
        inspect.signature,
        lambda m: inspect.signature(m.forward),
        dir,
        str,
        lambda m: inspect.signature(type(m)),
    ):
        assert ask(twin) == ask(model)
    assert callable(twin) and inspect.getmodule(type(twin)) is inspect.getmodule(Net)


def test_writes_act_on_both() -> None:
    model = Net()
    twin, _ = graphs_of(model)
    twin.eval()
    assert not model.training and not model.inner.training
    plain = twin(X)
    model.scale = 3.0
    assert torch.equal(twin(X), plain + 3.0)
    del twin.scale
    assert torch.equal(model(X), plain) and torch.equal(twin(X), plain)
    twin.load_state_dict({name: torch.zeros_like(value) for name, value in model.state_dict().items()})
    assert not model(X).any() and not twin(X).any()
    model.inner[0].weight = nn.Parameter(torch.eye(4))
    assert torch.equal(twin(X), X)
    twin.inner[0] = nn.Identity()
    assert torch.equal(model(X), X) and torch.equal(twin(X), X)
    twin.add_module("more", nn.Linear(2, 2))
    assert model.double().more.weight.dtype is torch.float64 is twin(X.double()).dtype


def test_train_and_eval_are_two_versions() -> None:
    twin, graphs = graphs_of(Net())
    torch.manual_seed(0)
    trained = twin(X)
    assert not torch.equal(trained, twin.eval()(X))
    twin.train()
    torch.manual_seed(0)
    assert torch.equal(trained, twin(X))
    assert len(graphs) == 2


def test_hooks_of_either_run_with_both() -> None:
    model = Net().eval()
    twin, _ = graphs_of(model)
    plain = twin(X)
    seen: list[str] = []
    handle = twin.register_forward_hook(lambda module, args, output: seen.append(type(module).__name__) or output * 2)
    inner = model.inner[0].register_forward_pre_hook(lambda module, args: seen.append("inner"))
    assert torch.equal(twin(X), plain * 2) and torch.equal(model(X), plain * 2)
    assert seen == ["inner", "Net"] * 2
    handle.remove()
    inner.remove()
    assert torch.equal(twin(X), plain)


def test_methods_that_call_the_module_run_compiled() -> None:
    model = Net().eval()
    twin, graphs = graphs_of(model)
    with torch.no_grad():
        assert torch.equal(twin.generate(X, 3), model.generate(X, 3))
    assert len(graphs) == 1


def test_two_compilations_side_by_side() -> None:
    model = Net().eval()
    first, ones = graphs_of(model, dynamic=False)
    second, twos = graphs_of(first, dynamic=True)
    for size in (2, 3, 4):
        x = torch.randn(size, 4)
        assert torch.equal(first(x), model(x)) and torch.equal(second(x), model(x))
    assert (len(ones), len(twos)) == (3, 1)


def test_the_class_stands_for_the_modules() -> None:
    model = Net()
    twin, _ = graphs_of(model)
    before = Net.built
    assert twin.count() == before + 2 and model.count() == before + 4
    assert [type(other) for other in twin.another()] == [Net, Net]
    assert isinstance(model, type(twin)) and issubclass(Net, type(twin))

    class Derived(type(twin)):  # type: ignore[misc]
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) + 1

    assert Derived.__mro__[1] is Net
    derived = Derived().eval()
    assert torch.equal(stoker.compile(derived, backend="eager")(X), derived(X))


def backend_of_a_module(graph_module: Any, example_inputs: Any) -> Any:
    return graph_module.forward


@pytest.mark.parametrize("copied", [copy.deepcopy, copy.copy, lambda m: pickle.loads(pickle.dumps(m)), "save"])
@pytest.mark.parametrize("settings", [{}, {"backend": backend_of_a_module}, {"options": stoker.Options(packing=False)}])
def test_copies_are_twins(copied: Any, settings: dict[str, Any]) -> None:
    model = Net().eval()
    twin = stoker.compile(model, dynamic=True, **settings)
    expected = twin(X)
    if copied == "save":
        torch.save(twin, buffer := io.BytesIO())
        buffer.seek(0)
        other = torch.load(buffer, weights_only=False)
    else:
        other = copied(twin)
    log.clear()
    assert other.__class__ is Net and type(other) is type(twin) and other is not twin
    torch.testing.assert_close(other(X), expected)
    assert log.events("captured"), "it compiles again"
    log.clear()
    assert vars(other) is not vars(model)
    other(torch.randn(7, 4))
    assert not log.events("captured"), "its settings went with it"


def test_a_module_and_its_twin_are_copied_together() -> None:
    model = Net()
    first, second = copy.deepcopy([model, stoker.compile(model, backend="eager")])
    assert vars(first) is vars(second) is not vars(model)


@pytest.mark.parametrize("gone", ["sys.modules['stoker'] = None", "sys.path[:] = [p for p in sys.path if p != ROOT]"])
def test_what_is_pickled_loads_without_stoker(tmp_path: Any, gone: str) -> None:
    (tmp_path / "model").write_bytes(pickle.dumps(stoker.compile(nn.Linear(2, 2))))
    program = (
        f"import sys, pickle; ROOT = {str(Path(stoker.__file__).parent.parent)!r}; {gone}\n"
        f"model = pickle.load(open({str(tmp_path / 'model')!r}, 'rb'))\n"
        "import torch; assert type(model) is torch.nn.Linear; print(model)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "Linear(in_features=2" in done.stdout, done.stderr


class Slotted(nn.Module):
    __slots__ = ("factor",)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.factor


def test_slots_are_shared() -> None:
    model = Slotted()
    model.factor = 2
    twin, _ = graphs_of(model)
    assert torch.equal(twin(X), X * 2)
    twin.factor = 3
    assert model.factor == 3 and torch.equal(twin(X), X * 3)
    del model.factor
    assert not hasattr(twin, "factor")


class Registering(type):
    known: list[str] = []

    def __init__(cls, name: str, bases: Any, namespace: Any, **keywords: Any) -> None:
        super().__init__(name, bases, namespace)
        Registering.known.append(name)

    def __new__(metacls, name: str, bases: Any, namespace: Any, *, tag: str) -> Any:
        return super().__new__(metacls, name, bases, {**namespace, "tag": tag})


class Registered(nn.Module, metaclass=Registering, tag="a"):
    subclasses: list[Any] = []

    def __init_subclass__(cls, *, must: int) -> None:
        Registered.subclasses.append(cls)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + len(self.tag)


class Abstract(nn.Module, abc.ABC):
    @abc.abstractmethod
    def step(self, x: torch.Tensor) -> torch.Tensor: ...

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(x)


class Concrete(Abstract):
    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1


def test_registries_do_not_hear_of_it() -> None:
    twin, graphs = graphs_of(Registered())
    assert torch.equal(twin(X), X + 1) and len(graphs) == 1
    assert Registering.known == ["Registered"] and not Registered.subclasses
    other, graphs = graphs_of(Concrete())
    assert torch.equal(other(X), X + 1) and len(graphs) == 1
    assert isinstance(other, Abstract) and not isinstance(Net(), type(other)) and isinstance(Concrete(), type(other))


class OwnCall(nn.Module):
    def __call__(self, x: torch.Tensor, *, twice: bool = False) -> torch.Tensor:
        y = self.forward(x)
        return y * 2 if twice else super().__call__(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)


class OwnAccess(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = {"gain": 3.0}
        self.linear = nn.Linear(4, 4)

    def __getattr__(self, name: str) -> Any:
        table = self.__dict__.get("table", {})
        return table[name] if name in table else super().__getattr__(name)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name.removeprefix("the_"), value)

    @property
    def doubled(self) -> float:
        return self.gain * 2

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.doubled


@pytest.mark.parametrize("model", [OwnCall(), OwnAccess(), nn.Linear(4, 2), nn.Sequential(nn.Linear(4, 2), nn.ReLU())])
def test_modules_with_ways_of_their_own(model: nn.Module) -> None:
    twin, graphs = graphs_of(model)
    torch.testing.assert_close(twin(X), model(X))
    assert len(graphs) == 1
    if isinstance(model, OwnCall):
        torch.testing.assert_close(twin(X, twice=True), model(X, twice=True))
        assert len(graphs) == 2
    if isinstance(model, OwnAccess):
        twin.the_new = 5
        assert model.new == 5 and twin.doubled == 6.0


def test_a_class_that_changes_is_followed() -> None:
    model = nn.Linear(4, 4)
    twin, _ = graphs_of(model)
    twin(X)
    nn.utils.parametrizations.orthogonal(twin)
    assert type(model).__name__ == "ParametrizedLinear" and twin.__class__ is type(model)
    torch.testing.assert_close(twin(X), model(X))
    torch.testing.assert_close(twin.weight @ twin.weight.T, torch.eye(4), atol=1e-5, rtol=0)
    nn.utils.parametrize.remove_parametrizations(model, "weight")
    assert twin.__class__ is nn.Linear
    torch.testing.assert_close(twin(X), model(X))


def test_lazy_modules() -> None:
    model = nn.LazyLinear(3)
    twin, _ = graphs_of(model)
    found = twin(X)
    assert type(model) is nn.Linear is twin.__class__
    torch.testing.assert_close(found, model(X))
    torch.testing.assert_close(twin(X), model(X))


class Parent(nn.Module):
    def __init__(self, child: nn.Module) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.child(x) + 1


def test_a_twin_inside_another_module() -> None:
    child = nn.Linear(4, 4)
    twin, inner = graphs_of(child)
    parent = Parent(twin)
    assert list(parent.state_dict()) == ["child.weight", "child.bias"]
    assert torch.equal(parent(X), child(X) + 1) and len(inner) == 1
    outer, graphs = graphs_of(parent)
    assert torch.equal(outer(X), child(X) + 1)
    assert len(graphs) == 1 and len(inner) == 1, "one graph of both"
    twin.bias.data.zero_()
    assert torch.equal(outer(X), child(X) + 1)
    function, graphs = graphs_of(lambda x: twin(x) * 2)
    assert torch.equal(function(X), child(X) * 2) and len(graphs) == 1


def test_torch_script_is_left_alone() -> None:
    script = torch.jit.trace(nn.Linear(4, 4), X)
    assert stoker.compile(script) is script


class ListOfModules(nn.Module, list):  # type: ignore[type-arg]
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + len(self)


def test_state_outside_of_the_dictionary_is_refused() -> None:
    with pytest.raises(BadArgument, match="compile_in_place"):
        stoker.compile(ListOfModules())
    model = ListOfModules()
    assert stoker.compile_in_place(model, backend="eager") is model
    assert torch.equal(model(X), X)


def test_in_place() -> None:
    graphs: list[Any] = []
    model = Net().eval()
    found = stoker.compile_in_place(model, backend=lambda g, e: graphs.append(g) or g.forward)
    assert found is model and type(model) is Net
    assert torch.equal(model(X), copy.deepcopy(model)(X)) and len(graphs) == 1
    assert stoker.compile_in_place(copy.deepcopy(model), disable=True)(X) is not None and len(graphs) == 1
    with pytest.raises(BadArgument, match="__call__ of its own"):
        stoker.compile_in_place(OwnCall())


def test_compiled_class() -> None:
    Made = stoker.compile(Net, backend="eager")
    assert isinstance(Made(), Net) and type(Made()) is not Net


def test_wrappers_of_modules() -> None:
    model = Net().eval()
    twin, graphs = graphs_of(model)
    swapped = torch.func.functional_call(twin, {"inner.0.weight": torch.eye(4), "inner.0.bias": torch.zeros(4)}, X)
    assert torch.equal(swapped, X) and len(graphs) == 1
    averaged = torch.optim.swa_utils.AveragedModel(twin)
    assert torch.equal(averaged(X), model(X))
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    twin(X).sum().backward()
    optimizer.step()
    assert torch.equal(twin(X), model(X))
    assert {twin: 1}[twin] == 1 and twin != model and weakref.ref(twin)() is twin
    assert sum(module is twin for module in twin.modules()) == 1


def test_dropping_frees_without_the_collector() -> None:
    model = Net()
    twin = stoker.compile(model, backend="eager")
    watched = [weakref.ref(model), weakref.ref(twin), weakref.ref(model.inner[0].weight)]
    gc.collect()
    gc.disable()
    try:
        del model, twin
        assert [ref() for ref in watched] == [None] * 3
    finally:
        gc.enable()


def _another_call(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.forward(x) * 10


def _with_a_hook(self: Any, *args: Any) -> Any:
    return nn.Module._call_impl(self, *args) + 100


PATCHES = {
    "forward": lambda self, x: x + 2,
    "__call__": _another_call,
    "_call_impl": _with_a_hook,
    "__getattr__": lambda self, name: 7,
}


@pytest.mark.parametrize("stance", ["compiled", "eager"])
@pytest.mark.parametrize("where", ["class", "base", "twin's class"])
@pytest.mark.parametrize("name", PATCHES)
def test_a_class_that_is_patched_later(name: str, where: str, stance: str) -> None:
    """The twin sees it as the module does; and when it is taken back."""

    class Base(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * getattr(self, "missing", 1)

    class Derived(Base):
        pass

    model = Derived()
    twin = stoker.compile(model)
    before = twin(X)
    target = {"class": Derived, "base": Base, "twin's class": type(twin)}[where]
    usual = Base.forward
    setattr(target, name, PATCHES[name])
    with stoker.stance(stance):
        for _ in range(2):
            assert torch.equal(twin(X), model(X)) and not torch.equal(twin(X), before)
    delattr(target, name)
    if "forward" not in vars(Base):
        Base.forward = usual  # type: ignore[method-assign]
    assert torch.equal(twin(X), before)


def test_every_module_s_call_is_patched() -> None:
    model = Net().eval()
    twin = stoker.compile(model)
    before, usual = twin(X), nn.Module.__call__
    nn.Module.__call__ = lambda self, *args: usual(self, *args) * 2  # type: ignore[method-assign]
    try:
        assert torch.equal(twin(X), model(X)) and not torch.equal(twin(X), before)
    finally:
        nn.Module.__call__ = usual  # type: ignore[method-assign]
    assert torch.equal(twin(X), before)


def test_what_is_patched_is_compiled() -> None:
    class Patched(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    twin, graphs = graphs_of(Patched())
    twin(X)
    Patched.__call__ = _another_call  # type: ignore[method-assign, assignment]
    for _ in range(2):
        assert torch.equal(twin(X), (X + 1) * 10)
    assert len(graphs) == 2
    assert [n.target.__name__ for n in graphs[-1].graph.nodes if n.op == "call_function"] == ["add", "mul"]


@pytest.mark.parametrize("name", ["__call__", "_call_impl"])
def test_a_class_inside_is_patched(name: str) -> None:
    class Inside(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    model = nn.Sequential(Inside(), Inside())
    twin, graphs = graphs_of(model)
    twin(X)
    setattr(Inside, name, PATCHES[name])
    assert torch.equal(twin(X), model(X)) and not torch.equal(twin(X), X + 2) and len(graphs) == 2
