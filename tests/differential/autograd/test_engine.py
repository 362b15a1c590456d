"""The autograd node: how the engine may use it, and what users may do around it."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from stoker.autograd import aot, aot_eager, keep_all, run_eagerly

from .programs import capture


def compiled(function: Any, *args: Any, **options: Any) -> Any:
    graph, lifted, _ = capture(function, *args)
    call = aot(graph, lifted, forward_compiler=run_eagerly, **options)
    extra = lifted[len(args) :]
    return lambda *given: (lambda out: out[0] if len(out) == 1 else out)(call(*given, *extra))


def two(x: torch.Tensor, w: torch.Tensor) -> Any:
    return torch.tanh(x @ w), (x * 2).sum()


def leaf(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(*shape, dtype=dtype, requires_grad=True)


def test_unused_output_gives_none() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    call = compiled(two, x, w)
    call(x, w)[1].backward()
    assert w.grad is None
    assert torch.equal(x.grad, torch.full_like(x, 2))


def test_retain_graph_and_accumulate() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    out = compiled(two, x, w)(x, w)[0].sum()
    out.backward(retain_graph=True)
    once = x.grad.clone()
    out.backward()
    assert torch.equal(x.grad, once * 2)
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_odd_gradients() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    call = compiled(two, x, w)
    seed = torch.randn(5, 3, dtype=torch.float64).t()
    ours = torch.autograd.grad(call(x, w)[0], [x, w], seed)
    theirs = torch.autograd.grad(two(x, w)[0], [x, w], seed)
    assert all(torch.allclose(a, b) for a, b in zip(ours, theirs))
    ours = torch.autograd.grad(call(x, w)[0].sum(), [x, w])
    theirs = torch.autograd.grad(two(x, w)[0].sum(), [x, w])
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


def test_hooks_on_saved_tensors() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    call = compiled(two, x, w)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t) or t, lambda t: t):
        out = call(x, w)[0]
    out.sum().backward()
    assert packed and torch.equal(x.grad, torch.autograd.grad(two(x, w)[0].sum(), x)[0])


def test_modified_saved_tensor_is_an_error() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    out = compiled(two, x, w)(x, w)[0]
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


GRADCHECK = {
    "matmul": (lambda a, b: torch.tanh(a @ b), [(3, 4), (4, 2)]),
    "softmax": (lambda a: torch.softmax(a, -1), [(3, 4)]),
    "layer_norm": (lambda a, w, b: F.layer_norm(a, (4,), w, b), [(3, 4), (4,), (4,)]),
    "exp": (lambda a: torch.exp(a) * a.sigmoid(), [(3, 4)]),
    "conv": (lambda a, w: F.conv2d(a, w, padding=1), [(1, 2, 4, 4), (3, 2, 3, 3)]),
    "view write": (lambda a, b: _written(a, b), [(3, 4), (4,)]),
    "logsumexp": (lambda a: torch.logsumexp(a, 1) + a.std(1), [(3, 4)]),
}


def _written(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    c = a * 2
    c[1].mul_(b)
    return c.sin()


@pytest.mark.parametrize("name", GRADCHECK)
def test_gradcheck(name: str) -> None:
    function, shapes = GRADCHECK[name]
    inputs = [leaf(*shape) for shape in shapes]
    call = compiled(function, *inputs)
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


def test_double_backward_with_dropout() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.pow(F.dropout(x, 0.5), 3)

    x = leaf(64)
    call = compiled(program, x)
    answers = []
    for function in (program, call):
        torch.manual_seed(1)
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        answers.append((first, second))
    assert all(torch.equal(a, b) for a, b in zip(*answers))


def test_write_to_leaf_is_eagers_error() -> None:
    x = leaf(3)
    graph = torch.fx.symbolic_trace(lambda x: (x.add_(1),))
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad is being used in an in-place operation"):
        aot_eager(graph, [x])(x)


def test_inputs_that_share_memory_later() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> Any:
        x.add_(1)
        return (x + y,)

    graph = torch.fx.symbolic_trace(program)
    call = aot_eager(graph, [torch.zeros(3), torch.zeros(3)])
    for pick in (lambda b: (b, b), lambda b: (b[:2], b[1:]), lambda b: (b[:1], b[1:2])):
        ours, theirs = torch.arange(3.0), torch.arange(3.0)
        assert torch.equal(call(*pick(ours))[0], program(*pick(theirs))[0])
        assert torch.equal(ours, theirs)


def test_backward_that_eager_refuses_is_refused_there() -> None:
    x = leaf(3)

    def program(x: torch.Tensor) -> Any:
        y = x.exp()
        y.add_(1)
        return (y,)

    out = aot_eager(torch.fx.symbolic_trace(program), [x])(x)[0]
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.sum().backward()


def test_autocast() -> None:
    x, w = leaf(3, 4, dtype=torch.float32), leaf(4, 5, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours, theirs = compiled(two, x, w)(x, w)[0], two(x, w)[0]
    assert ours.dtype is torch.bfloat16 and torch.equal(ours, theirs)
    for a, b in zip(torch.autograd.grad(ours.sum(), [x, w]), torch.autograd.grad(theirs.sum(), [x, w])):
        assert torch.equal(a, b)


def test_under_functorch() -> None:
    call = aot_eager(torch.fx.symbolic_trace(lambda x: (x.sin(),)), [leaf(3)])
    x = torch.randn(2, 3)
    assert torch.equal(torch.func.vmap(lambda row: call(row)[0])(x), x.sin())


def test_checkpoint_marks_are_honoured() -> None:
    from stoker.autograd.inputs import make_inputs
    from stoker.autograd.joint import trace_joint
    from stoker.autograd.keep import min_cut

    graph = torch.fx.symbolic_trace(lambda x, w: (torch.softmax(x @ w, -1) @ w,))
    for node in graph.graph.nodes:
        node.meta["recompute"] = node.op.startswith("call")
    inputs = [leaf(3, 4), leaf(4, 4)]
    joint = trace_joint(graph, make_inputs(graph, inputs), None, grad=True)
    assert all(n.op == "placeholder" for n in min_cut()(joint))


def test_shape_error_is_eagers() -> None:
    graph = torch.fx.symbolic_trace(lambda x, y: (x @ y,))
    given = [torch.randn(2, 3), torch.randn(4, 5)]
    compiled = aot_eager(graph, given)
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        compiled(*given)


def test_inference_mode() -> None:
    x = torch.randn(3)
    with torch.inference_mode():
        graph = torch.fx.symbolic_trace(lambda x: (F.linear(x, x.view(1, 3)).add_(1),))
        out = aot_eager(graph, [x])(x)[0]
    assert out.is_inference() and torch.equal(out, (x @ x).view(1) + 1)


@pytest.mark.parametrize("budget", [1.0, 0.5, 0.0])
def test_budget(budget: float) -> None:
    x, w = leaf(30, 4), leaf(4, 4)

    def deep(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        for _ in range(6):
            x = torch.softmax(x @ w, -1) * x.sin()
        return x

    ours = torch.autograd.grad(compiled(deep, x, w, memory_budget=budget)(x, w).sum(), [x, w])
    theirs = torch.autograd.grad(deep(x, w).sum(), [x, w])
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


def test_keep_all() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    call = compiled(two, x, w, partition=keep_all)
    ours = torch.autograd.grad(call(x, w)[0].sum(), [x, w])
    theirs = torch.autograd.grad(two(x, w)[0].sum(), [x, w])
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs))


def test_backward_frees_what_it_has_read() -> None:
    from stoker.autograd.compile import run_boxed

    alive: list[int] = []
    saved: list[Any] = []

    def backward(module: Any, inputs: list[Any]) -> Any:
        run = run_boxed(module, inputs)

        def watched(arguments: list[Any]) -> Any:
            saved.extend(weakref.ref(a) for a in arguments[:-1])
            found = run(arguments)
            alive.append(sum(r() is not None for r in saved))
            return found

        watched._boxed_call = True  # type: ignore[attr-defined]
        return watched

    x = leaf(3)
    graph = torch.fx.symbolic_trace(lambda x: (torch.softmax(x, 0),))
    call = aot(graph, [x], forward_compiler=run_eagerly, backward_compiler=backward, partition=keep_all)
    call(x)[0].square().sum().backward()
    assert saved and alive == [0]


def test_overwritten_input_refuses_second_gradient() -> None:
    def program(x: torch.Tensor, w: torch.Tensor) -> Any:
        return ((x * w).sin(),)

    x, w = leaf(3), leaf(3)
    out = aot_eager(torch.fx.symbolic_trace(program), [x, w])(x, w)[0]
    with torch.no_grad():
        w.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(out.sum(), x, create_graph=True)


def test_inputs_that_gradients_do_not_read_are_not_held() -> None:
    graph = torch.fx.symbolic_trace(lambda x, w: ((x + 1) * 2 + w,))
    w = leaf(3)
    x = w * 3
    call = aot_eager(graph, [x, w])
    out, gone = call(x, w)[0], weakref.ref(x)
    del x
    assert gone() is None
    (first,) = torch.autograd.grad((out**2).sum(), w, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), w)
    assert torch.equal(second, torch.full_like(w, 98))


def test_other_random_numbers_refuse_second_gradient() -> None:
    from stoker.errors import NoSecondGradient

    x = leaf(8)
    graph = torch.fx.symbolic_trace(lambda x: (F.dropout(x, 0.5) ** 3,))
    out = aot(graph, [x], forward_compiler=run_eagerly, draws_as_eager=False)(x)[0]
    with pytest.raises(NoSecondGradient, match="random numbers"):
        torch.autograd.grad(out.sum(), x, create_graph=True)
    torch.autograd.grad(aot(graph, [x], forward_compiler=run_eagerly, draws_as_eager=False)(x)[0].sum(), x)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_double_backward_with_dropout_on_a_gpu() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.pow(F.dropout(x, 0.5), 3)

    x = torch.randn(64, device="cuda", requires_grad=True)
    call = compiled(program, x)
    answers = []
    for function in (program, call):
        torch.cuda.manual_seed(1)
        (first,) = torch.autograd.grad(function(x).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        answers.append((first, second, torch.rand(1, device="cuda")))
    assert all(torch.equal(a, b) for a, b in zip(*answers))


def test_graph_without_kept_tensors_runs_backward_twice_as_eager_does() -> None:
    x = leaf(3)
    out = aot_eager(torch.fx.symbolic_trace(lambda x: (x + 1,)), [x])(x)[0]
    out.backward(torch.ones_like(x))
    out.backward(torch.ones_like(x))
    assert torch.equal(x.grad, torch.full_like(x, 2))


def test_no_node_without_gradients() -> None:
    x = leaf(3)
    call = aot_eager(torch.fx.symbolic_trace(lambda x: (x.sin(),)), [x])
    with torch.no_grad():
        assert call(x)[0].grad_fn is None
    assert call(x.detach())[0].grad_fn is None
    assert call(x)[0].grad_fn.name() == "CompiledGraphBackward"


def test_backward_on_another_thread() -> None:
    x, w = leaf(3, 4), leaf(4, 5)
    call = compiled(two, x, w)
    out = call(x, w)[0].sum()
    thread = threading.Thread(target=out.backward)
    thread.start()
    thread.join()
    assert torch.equal(x.grad, torch.autograd.grad(two(x, w)[0].sum(), x)[0])


def test_error_in_backward_is_raised() -> None:
    def failing(module: Any, inputs: list[Any]) -> Any:
        def fail(*arguments: Any) -> Any:
            raise ZeroDivisionError("here")

        return fail

    x = leaf(3)
    graph = torch.fx.symbolic_trace(lambda x: (x.sin(),))
    out = aot(graph, [x], forward_compiler=run_eagerly, backward_compiler=failing)(x)[0]
    with pytest.raises(ZeroDivisionError, match="here"):
        out.sum().backward()


PROGRAM = """
import sys, torch
import torch.nn.functional as F
from stoker.autograd import aot_eager
def f(x, w, b):
    h = F.layer_norm(F.gelu(F.linear(x, w, b)), (8,))
    h = F.dropout(h, 0.5)
    a = torch.softmax(h @ h.t(), -1) @ h
    return (F.mse_loss(a.reshape(-1), x.reshape(-1)),)
graph = torch.fx.symbolic_trace(f)
args = [torch.randn(4, 8, requires_grad=True), torch.randn(8, 8, requires_grad=True), torch.randn(8, requires_grad=True)]
aot_eager(graph, args)(*args)[0].backward()
bad = [m for m in ("torch._dynamo", "torch._inductor", "sympy") if m in sys.modules]
assert not bad, bad
"""


def test_common_operators_load_no_other_compiler() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM], check=True)
