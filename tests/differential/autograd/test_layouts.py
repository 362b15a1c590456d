"""Gradients that lie in memory otherwise than the result: bit for bit as eager, without a copy."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stoker
from stoker.autograd.compile import run_boxed, run_eagerly
from stoker.autograd.relayout import ByLayout

transformers = pytest.importorskip("transformers")


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The strides that backwards were traced again for."""
    seen: list[Any] = []
    original = ByLayout._traced_for

    def spy(self: ByLayout, strides: Any) -> Any:
        made = original(self, strides)
        seen.append(strides if made is not None else None)
        return made

    monkeypatch.setattr(ByLayout, "_traced_for", spy)
    return seen


def convolved(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.conv2d(x, w).permute(0, 2, 3, 1), (4,)).permute(0, 3, 1, 2)


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randn(2, 3, 8, 8, requires_grad=True), torch.randn(4, 3, 3, 3, requires_grad=True)


LAYOUTS = {
    "as the result": lambda g: g.contiguous(memory_format=torch.channels_last),
    "contiguous": lambda g: g.contiguous(),
    "transposed": lambda g: g.transpose(2, 3).contiguous().transpose(2, 3),
    "with gaps": lambda g: torch.cat([g, g], 1)[:, :4],
    "expanded": lambda g: g[:1, :1, :1, :1].expand_as(g),
}


def test_each_layout(traced: list[Any]) -> None:
    compiled = stoker.compile(convolved, backend="aot_eager")
    for _ in range(2):
        for name, lay in LAYOUTS.items():
            gradients = []
            for call in (convolved, compiled):
                given = inputs()
                result = call(*given)
                torch.manual_seed(1)
                gradients.append(torch.autograd.grad(result, given, lay(torch.randn(result.shape))))
            for ours, theirs in zip(gradients[1], gradients[0], strict=True):
                assert torch.equal(ours, theirs) or name == "expanded" and torch.allclose(ours, theirs), name
    assert len(traced) == 3 and None not in traced


def test_no_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []

    def backward_compiler(module: Any, fakes: list[Any]) -> Any:
        run = run_boxed(module, fakes)

        def boxed(arguments: list[Any]) -> Any:
            given.append(arguments[-1].data_ptr())
            return run(arguments)

        boxed._boxed_call = True  # type: ignore[attr-defined]
        return boxed

    def backend(graph: Any, examples: list[Any]) -> Any:
        return stoker.autograd.aot(
            graph,
            examples,
            forward_compiler=run_eagerly,
            backward_compiler=backward_compiler,
            gradients_as_given=True,
        )

    x, w = inputs()
    result = stoker.compile(convolved, backend=backend)(x, w)
    gradient = torch.randn(result.shape)
    assert gradient.stride() != result.stride()
    result.backward(gradient)
    assert given == [gradient.data_ptr()]


def test_autocast_that_has_ended(traced: list[Any]) -> None:
    """Traced again outside, the program is another: the gradient is copied."""

    def program(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return x.t() @ w

    gradients = []
    for call in (program, stoker.compile(program, backend="aot_eager")):
        torch.manual_seed(0)
        x, w = torch.randn(8, 4, requires_grad=True), torch.randn(8, 6, requires_grad=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = call(x, w)
        gradients.append(torch.autograd.grad(result, (x, w), torch.randn(6, 4, dtype=result.dtype).t()))
    assert traced == [None]
    torch.testing.assert_close(gradients[1], gradients[0])


@pytest.mark.parametrize("backend", ["aot_eager", "stoker"])
@pytest.mark.parametrize("lay", LAYOUTS.values(), ids=LAYOUTS)
def test_one_gradient_of_two(lay: Any, backend: str) -> None:
    """A backward for the gradients that came was traced for one layout, and takes no other."""

    def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made = F.conv2d(x, w).permute(0, 2, 3, 1).contiguous()
        rows = (made.view(-1, 4) @ w[:, 0, 0, :1].expand(4, 4)).view(made.shape)
        return rows.permute(0, 3, 1, 2), made.mean()

    compiled, gradients = stoker.compile(program, backend=backend), []
    for call in (program, compiled):
        given = inputs()
        result = call(*given)[0]
        torch.manual_seed(1)
        gradients.append(torch.autograd.grad(result, given, lay(torch.randn(result.shape))))
    for ours, theirs in zip(gradients[1], gradients[0], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_convnext_with_the_loss_outside() -> None:
    config = transformers.ConvNextConfig(depths=[1, 1, 1, 1], hidden_sizes=[8, 16, 16, 32])
    torch.manual_seed(0)
    model = transformers.ConvNextModel(config)
    x = torch.randn(2, 3, 32, 32)
    start = copy.deepcopy(model.state_dict())
    seen = []
    for call in (model.forward, stoker.compile(model.forward, backend="aot_eager")):
        model.load_state_dict(start)
        model.zero_grad()
        torch.manual_seed(3)
        call(x).last_hidden_state.square().mean().backward()
        seen.append([p.grad for p in model.parameters() if p.grad is not None])
    assert seen[0] and all(torch.equal(a, b) for a, b in zip(*seen, strict=True))
