"""Convolutions inside generated Triton, under its interpreter, equal eager; so does the oracle; and they compile for sm_90."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import aot
from stoker.lower.driver import lower_graph
from stoker.pipeline import decompositions
from stoker.runtime.cubin import Job, compile_all
from stoker.schedule.plan import make_plan
from stoker.schedule.product import Windows
from tests.stages.interpreted import Interpreted, compile_interpreted
from tests.stages.kernel_oracle import run_kernel
from tests.stages.test_products import compiled
from tests.stages.test_triton import single_graph

Sizes = tuple[tuple[int, int, int, int], tuple[int, int, int, int], dict[str, Any]]
"""An image's and a weight's sizes, and how they are convolved."""
FORMS: dict[str, Sizes] = {
    "points": ((2, 24, 5, 7), (40, 24, 1, 1), {}),
    "points apart": ((2, 24, 6, 7), (16, 24, 1, 1), {"stride": 2}),
    "points in a frame": ((1, 16, 4, 4), (16, 16, 1, 1), {"padding": 1}),
    "three by three": ((2, 16, 9, 8), (32, 16, 3, 3), {"padding": 1}),
    "no frame": ((1, 20, 7, 8), (18, 20, 3, 2), {}),
    "steps": ((2, 16, 11, 9), (16, 16, 3, 3), {"stride": (2, 3), "padding": (1, 0)}),
    "holes": ((1, 16, 12, 11), (16, 16, 3, 3), {"dilation": (2, 3), "padding": (2, 1)}),
    "few channels": ((1, 3, 17, 19), (24, 3, 7, 7), {"stride": 2, "padding": 3}),
    "many channels": ((1, 150, 4, 5), (33, 150, 3, 3), {"padding": 1}),
    "a row": ((2, 17, 1, 30), (20, 17, 1, 3), {"padding": (0, 1)}),
    "groups": ((2, 72, 6, 7), (54, 24, 3, 3), {"padding": 1, "groups": 3}),
    "groups of points": ((2, 48, 5, 4), (40, 24, 1, 1), {"groups": 2}),
    "groups, steps and holes": ((1, 40, 12, 11), (80, 20, 3, 3), {"stride": (2, 1), "dilation": (1, 2), "groups": 2}),
    "groups in a row": ((2, 72, 1, 30), (72, 18, 1, 32), {"padding": (0, 16), "groups": 4}),
    "small groups": ((1, 8, 6, 6), (8, 2, 3, 3), {"padding": 1, "groups": 4}),
}
EPILOGUES: dict[str, Callable[..., torch.Tensor]] = {
    "relu": lambda y, b: y.relu(),
    "bias": lambda y, b: F.silu(y + b[:, None, None]),
    "residual": lambda y, b: (y * b[:, None, None] + y.shape[1]).relu() * 2,
}


def given(form: str, *, weights_last: bool = False) -> tuple[list[torch.Tensor], dict[str, Any]]:
    image, weight, how = FORMS[form]
    torch.manual_seed(0)
    inputs = [(torch.randn(s) / 4).half() for s in (image, weight, weight[:1])]
    inputs[0] = inputs[0].contiguous(memory_format=torch.channels_last)
    if weights_last:
        inputs[1] = inputs[1].contiguous(memory_format=torch.channels_last)
    return inputs, how


def near(found: torch.Tensor, wanted: torch.Tensor) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("weights_last", [False, True])
@pytest.mark.parametrize("form", FORMS)
def test_forms(form: str, weights_last: bool) -> None:
    inputs, how = given(form, weights_last=weights_last)
    backend = Interpreted(products=True)
    program = lambda x, w, b: EPILOGUES["bias"](F.conv2d(x, w, **how), b)  # noqa: E731
    (found,) = compiled(program, inputs, backend)
    near(found, program(*inputs))
    assert found.stride() == program(*inputs).stride()
    assert any("tl.dot" in u.source for u in backend.units), "no convolution was taken in"


@pytest.mark.parametrize("epilogue", EPILOGUES)
@pytest.mark.parametrize("form", ["points", "steps"])
def test_readers(form: str, epilogue: str) -> None:
    inputs, how = given(form)
    backend = Interpreted(products=True)
    program = lambda x, w, b: EPILOGUES[epilogue](F.conv2d(x, w, b, **how), b)  # noqa: E731
    (found,) = compiled(program, inputs, backend)
    near(found, program(*inputs))
    assert any("tl.dot" in u.source for u in backend.units)


def test_of_images_that_are_parts_of_others() -> None:
    inputs, how = given("three by three")
    program = lambda x, w, b: F.conv2d(x[1:, :, 1:, 2:], w, **how).relu()  # noqa: E731
    (found,) = compiled(program, inputs, Interpreted(products=True))
    near(found, program(*inputs))


def test_what_stays_a_call() -> None:
    (x, w, b), how = given("three by three")
    others: list[Callable[..., Any]] = [
        lambda x, w, b: F.conv2d(x, w[:, :1], groups=16, **how).relu(),
        lambda x, w, b: F.conv_transpose2d(x, w.transpose(0, 1).contiguous(), **how).relu(),
        lambda x, w, b: ((y := F.conv2d(x, w, **how)), y.relu()),
        lambda x, w, b: F.conv2d(x, w, **how).sum((2, 3)),
        lambda x, w, b: F.conv2d(x.float(), w.float(), **how).relu(),
    ]
    for program in others:
        backend = Interpreted(products=True)
        wanted = program(x, w, b)
        for mine, eager in zip(
            compiled(program, [x, w, b], backend), wanted if isinstance(wanted, tuple) else (wanted,)
        ):
            near(mine, eager)
        assert not any("tl.dot" in u.source for u in backend.units)


@pytest.mark.parametrize("form", [f for f in FORMS if f.startswith("groups")])
@pytest.mark.parametrize("measured", [False, True])
def test_groups_are_convolved_alone(form: str, measured: bool) -> None:
    """Whoever reads the result, and without being measured."""
    inputs, how = given(form)
    for program in (
        lambda x, w, b: F.conv2d(x, w, b, **how),
        lambda x, w, b: F.conv2d(x, w, **how).sum((2, 3)),
    ):
        backend = Interpreted(products=True)

        def compile_graph(module: Any, fakes: Any) -> Any:
            return compile_interpreted(module, fakes, backend, measured=measured)  # noqa: B023

        made = aot(
            single_graph(program, inputs)[0],
            inputs,
            forward_compiler=compile_graph,
            decompositions=decompositions(),
        )
        (found,) = made(*inputs)
        near(found, program(*inputs))
        assert found.stride() == program(*inputs).stride()
        assert any("tl.dot" in u.source for u in backend.units)


@pytest.mark.parametrize("form", FORMS)
def test_the_oracle_agrees(form: str) -> None:
    """A kernel with a convolution, run by torch, does what the call and the kernel did."""
    inputs, how = given(form)
    seen: list[Any] = []

    def compile_graph(module: Any, fakes: Any) -> Any:
        targets = {"cpu": Interpreted().target}
        lowered = lower_graph(module, targets)
        make_plan(lowered, targets, choose=lambda c: bool(seen.append((c, lowered.layouts))))
        return compile_interpreted(module, fakes)

    program = lambda x, w, b: F.conv2d(x, w, **how).relu() + b[:, None, None]  # noqa: E731
    aot(single_graph(program, inputs)[0], inputs, forward_compiler=compile_graph, decompositions=decompositions())
    (candidate, layouts), *_ = seen
    assert isinstance(candidate.kernel.product.left, Windows) is (form != "points")
    sizes = {n: [s.value for s in layouts[n].sizes] for n in candidate.run.buffers}
    strides = {n: [s.value for s in layouts[n].strides] for n in sizes}
    memory = {n: torch.empty_strided(sizes[n], strides[n], dtype=layouts[n].dtype) for n in sizes}
    for tensor in memory.values():
        own = next((i for i in inputs if i.shape == tensor.shape), None)
        tensor.copy_(torch.zeros_like(tensor) if own is None else own)
    run_kernel(candidate.kernel, [memory[b] for b in candidate.run.buffers], [])
    (place,) = candidate.kernel.written
    near(memory[candidate.run.buffers[place]], program(*inputs))


def test_compiles_for_a_gpu(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOKER_CACHE", str(tmp_path))
    backend = Interpreted(products=True)
    for form in ("points", "steps", "few channels", "no frame"):
        inputs, how = given(form)
        compiled(lambda x, w, b: F.conv2d(x, w, **how).relu(), inputs, backend)  # noqa: B023  (called here)
    jobs = [Job(u.name, u.source, u.signature, u.aligned, u.warps, 90, u.stages) for u in backend.units]
    assert all(b.content.startswith(b"\x7fELF") for b in compile_all(jobs))
