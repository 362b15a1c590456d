"""`stoker.compile`'s signature, `stance`, and `explain` of what is compiled already."""

from __future__ import annotations

import functools
import inspect
import re
import threading
from typing import Any

import pytest
import torch
from torch import nn

import stoker
from stoker import log
from stoker.errors import BadArgument, RecompileForbidden, UnknownOption
from stoker.options import INSTEAD, SAME_AS, Options, resolve

X = torch.arange(4.0)


def counting() -> tuple[Any, list[Any]]:
    graphs: list[Any] = []
    return lambda graph_module, inputs: graphs.append(graph_module) or graph_module.forward, graphs


def test_the_signature_is_torch_compiles() -> None:
    ours, theirs = (inspect.signature(f).parameters for f in (stoker.compile, torch.compile))
    assert set(theirs) <= set(ours)
    assert all(ours[name].kind is theirs[name].kind for name in theirs)


def test_disable_gives_back_what_was_given() -> None:
    model = nn.Linear(2, 2)

    @stoker.compile(disable=True)
    def function(x: Any) -> Any:
        return x

    assert stoker.compile(model, disable=True) is model
    assert inspect.isfunction(function)
    with pytest.raises(BadArgument):
        stoker.compile(model, disable=True, mode="nonsense")


def test_names_and_limits() -> None:
    backend, graphs = counting()
    compiled = stoker.compile(lambda x, s: x + len(s), backend=backend, name="mine", recompile_limit=2)
    for n in range(4):
        assert torch.equal(compiled(X, "a" * n), X + n)
    assert len(graphs) == 2
    assert log.events("limit")[-1].subject == "mine"
    with pytest.raises(BadArgument, match="mark_dynamic"):
        stoker.compile(lambda x: x, shapes_spec=object())


@pytest.mark.parametrize(
    ("given", "ours"),
    [
        ({"max_autotune": True}, Options(autotune=True)),
        ({"triton.cudagraphs": True}, Options(cudagraphs=True)),
        ({"emulate_precision_casts": False}, Options(precision="fused")),
        ({"activation-memory-budget": 0.5, "freezing": True}, Options(memory_budget=0.5, freezing=True)),
    ],
)
def test_torch_compiles_options(given: dict[str, Any], ours: Options) -> None:
    assert resolve(None, given) == ours


@pytest.mark.parametrize("name", INSTEAD)
def test_options_without_a_counterpart(name: str) -> None:
    assert name not in SAME_AS
    with pytest.raises(UnknownOption, match=re.escape(INSTEAD[name])):
        stoker.compile(lambda x: x, options={name: True})


def test_stance_eager() -> None:
    backend, graphs = counting()
    model = nn.Linear(4, 4)
    twin, function = stoker.compile(model, backend=backend), stoker.compile(lambda x: x + 1, backend=backend)
    with stoker.stance("eager"):
        assert torch.equal(twin(X), model(X)) and torch.equal(function(X), X + 1)
        assert not graphs
        with stoker.stance("compiled"):
            function(X)
        assert len(graphs) == 1
        twin(X)
        other = threading.Thread(target=twin, args=(X,))
        other.start()
        other.join()
        assert len(graphs) == 2, "a stance is the thread's"
    with pytest.raises(BadArgument, match="eager"):
        stoker.stance("lazy")


def test_stance_of_a_function() -> None:
    backend, graphs = counting()
    inner = stoker.compile(lambda x: x + 1, backend=backend)

    @stoker.stance("eager")
    def eager(x: Any, depth: int = 0) -> Any:
        return eager(x, depth - 1) if depth else inner(x)

    assert torch.equal(eager(X, 2), X + 1) and not graphs
    assert torch.equal(stoker.compile(lambda x: eager(x * 2) * 3, backend=backend)(X), (X * 2 + 1) * 3)
    assert len(graphs) == 2, "before the function and after it"
    inner(X)
    assert len(graphs) == 3


def test_stance_is_restored_by_errors() -> None:
    with pytest.raises(KeyError), stoker.stance("eager"):
        raise KeyError
    backend, graphs = counting()
    stoker.compile(lambda x: x + 1, backend=backend)(X)
    assert len(graphs) == 1


def test_stance_fail_on_recompile() -> None:
    compiled = stoker.compile(lambda x: x + 1, backend="eager", dynamic=False)
    with stoker.stance("fail_on_recompile"), pytest.raises(RecompileForbidden, match="not been compiled before"):
        compiled(X)
    compiled(X)
    with stoker.stance("fail_on_recompile"):
        assert torch.equal(compiled(X), X + 1)
        with pytest.raises(RecompileForbidden, match="size"):
            compiled(torch.ones(7))
    assert torch.equal(compiled(torch.ones(7)), torch.full((7,), 2.0))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear = nn.Linear(width, width + 1)

    def forward(self, x: torch.Tensor, s: str = "") -> torch.Tensor:
        x = torch.relu(self.linear(x)) + len(s)
        print(end="")
        return x * 2


def test_versions_are_counted_for_each_module() -> None:
    log.clear()
    blocks = nn.Sequential(*[Block(8 + i) for i in range(12)])
    x = torch.randn(2, 8)
    assert torch.equal(stoker.compile(blocks, backend="eager")(x), blocks(x))
    assert not log.events("limit")


def test_one_module_at_its_limit_leaves_others_alone() -> None:
    log.clear()
    backend, graphs = counting()
    blocks = nn.ModuleList([Block(4), Block(5)])
    compiled = stoker.compile(lambda n, x, s: blocks[n](x, s), backend=backend, options={"version_limit": 3})
    for n in range(6):
        assert torch.equal(compiled(0, X, "a" * n), blocks[0](X, "a" * n))
    made = len(graphs)
    assert log.events("limit")
    y = torch.ones(5)
    assert torch.equal(compiled(1, y, "a"), blocks[1](y, "a"))
    assert len(graphs) > made


def test_explain_takes_settings() -> None:
    def f(x: Any) -> Any:
        return torch.relu(x @ x) + 1

    x = torch.randn(6, 6)
    assert stoker.explain(f, x, backend="eager").compiled == []
    static, dynamic = (str(stoker.explain(f, x, dynamic=d).guards) for d in (False, True))
    assert "x.shape[0] >= 2" not in static and "x.shape[0] >= 2" in dynamic
    assert stoker.explain(f, x, mode="max-autotune", options={"precision": "fused"}).kernel_count == 1


@pytest.mark.parametrize("model", [nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Softmax(-1)), lambda x: x.sin() + 1])
def test_explain_what_is_compiled_already(model: Any) -> None:
    compiled = stoker.compile(model)
    compiled(X)
    made = log.events("captured")
    first, second = stoker.explain(compiled, X), stoker.explain(compiled)
    assert log.events("captured") == made, "nothing is compiled again"
    assert first.graph_count == second.graph_count == 1
    assert first.kernel_count == second.kernel_count > 0
    assert str(first) == str(second)
    wider = stoker.explain(compiled, torch.ones(8, 4))
    assert wider.graph_count == 2


def test_explain_of_methods_and_partials() -> None:
    class Thing:
        @stoker.compile(backend="eager")
        def scaled(self, x: Any, factor: Any = 2) -> Any:
            return x * factor

    assert stoker.explain(Thing().scaled, X).graph_count == 1
    assert stoker.explain(functools.partial(lambda x, y: x + y, X), X).graph_count == 1


class Adds:
    """A callable object."""

    by = 1

    def __call__(self, x: Any) -> Any:
        return x + self.by


def test_a_callable_object_runs_what_its_class_says_now(monkeypatch: pytest.MonkeyPatch) -> None:
    backend, graphs = counting()
    adds = Adds()
    compiled = stoker.compile(adds, backend=backend)
    assert torch.equal(compiled(X), X + 1)
    monkeypatch.setattr(Adds, "__call__", lambda self, x: x * 7 + self.by)
    assert torch.equal(compiled(X), X * 7 + 1) and len(graphs) == 2
    compiled.by = 5
    assert adds.by == 5 and torch.equal(compiled(X), X * 7 + 5)


@pytest.mark.parametrize("recursive", [True, False])
def test_a_disabled_function_says_why(recursive: bool) -> None:
    @functools.partial(stoker.disable, recursive=recursive, reason="it asks a socket")
    def asked(x: Any) -> Any:
        return x + 1

    def program(x: Any) -> Any:
        return asked(x * 2) * 3

    explained = stoker.explain(stoker.compile(program, backend="eager"), X)
    (told,) = explained.breaks
    assert "asked" in told.construct
    assert told.reason == "it is marked as not to be compiled: it asks a socket"
    assert inspect.signature(stoker.disable).parameters["recursive"].kind is inspect.Parameter.POSITIONAL_OR_KEYWORD


def test_a_marked_range_is_known_and_guarded() -> None:
    backend, graphs = counting()

    @stoker.compile(backend=backend, fullgraph=True)
    def program(x: Any) -> Any:
        return x - 1 if x.shape[0] > 8 else x * 2

    marked = torch.ones(5, 3)
    stoker.mark_dynamic(marked, 0, min=2, max=8)
    for rows, wanted in ((5, 2.0), (7, 2.0), (8, 2.0)):
        x = marked if rows == 5 else torch.ones(rows, 3)
        assert torch.equal(program(x), torch.full((rows, 3), wanted)) and len(graphs) == 1
    assert torch.equal(program(torch.ones(9, 3)), torch.zeros(9, 3)) and len(graphs) == 2
    with pytest.raises(BadArgument, match="a size of 5 is marked as one from 6 to 8"):
        stoker.mark_dynamic(torch.ones(5), 0, min=6, max=8)
