"""Bytes kept between forward and backward, and the peak of a training step: stoker beside torch.compile and eager.

    python bench/memory.py             measures, prints, writes bench/results/memory.json and the table in docs/benchmarks.md

Kept: the storages that autograd holds when the forward is done, each once, without parameters, buffers and the batch.
For eager and stoker they are seen by saved-tensor hooks; for torch.compile by `saved_tensors` of its autograd node, with
the back end aot_eager_decomp_partition (its min-cut partitioner, without code generation).
Peak: the sum of torch's CPU allocations less frees since the step began, at its highest, as the profiler reports each.
The arena of compiled plans, which is kept between calls, is let go before, so that the step allocates it and it counts.
Rows without "compiled" run the functional graphs operator by operator (aot_eager): what fusion saves is not in them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import stoker
from stoker import _C
from stoker.autograd import aot, run_eagerly
from stoker.autograd.compile import run_boxed
from stoker.decompose import table

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results" / "memory.json"
PAGE = ROOT / "docs" / "benchmarks.md"
BEGIN, END = "<!-- memory -->", "<!-- /memory -->"

Step = tuple[torch.nn.Module, Callable[..., torch.Tensor], torch.Tensor]


def gpt2() -> tuple[torch.nn.Module, torch.Tensor]:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(n_layer=4, n_head=4, n_embd=256, vocab_size=5000, n_positions=256, use_cache=False)
    return GPT2LMHeadModel(config), torch.randint(0, 5000, (4, 128))


def resnet50() -> tuple[torch.nn.Module, torch.Tensor]:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000)), torch.randn(2, 3, 224, 224)


MODELS: dict[str, Callable[[], tuple[torch.nn.Module, torch.Tensor]]] = {"GPT-2": gpt2, "ResNet-50": resnet50}


def program(model: torch.nn.Module) -> Callable[[torch.Tensor], torch.Tensor]:
    def loss(x: torch.Tensor) -> torch.Tensor:
        if x.is_floating_point():
            labels = torch.zeros(x.shape[0], dtype=torch.int64)
            return torch.nn.functional.cross_entropy(model(x).logits, labels)
        return model(x, labels=x).loss

    return loss


def budgeted(memory_budget: float, decompositions: Any = None) -> Any:
    def backend(graph: Any, inputs: list[Any]) -> Any:
        options: dict[str, Any] = {"memory_budget": memory_budget, "decompositions": decompositions}
        return aot(graph, inputs, forward_compiler=run_eagerly, backward_compiler=run_boxed, **options)

    return backend


def budgeted_call(memory_budget: float, function: Any) -> Any:
    return stoker.compile(function, backend=budgeted(memory_budget))


COMPILERS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "torch.compile": lambda f: torch.compile(f, backend="aot_eager_decomp_partition"),
    "stoker, compiled": lambda f: stoker.compile(f),
    "stoker": lambda f: stoker.compile(f, backend=budgeted(1.0)),
    "stoker, operators taken apart": lambda f: stoker.compile(f, backend=budgeted(1.0, table())),
    **{f"stoker, memory_budget={b}": functools.partial(budgeted_call, b) for b in (0.75, 0.5, 0.25, 0.0)},
}


def kept_bytes(model: torch.nn.Module, loss: Any, x: torch.Tensor) -> int:
    """Bytes that autograd holds after the forward, beside what lives anyway."""
    outside = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers(), x)}
    held: dict[int, int] = {}

    def see(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in outside:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(see, lambda t: t):
        result = loss(x)
    if not held:
        for tensor in _node_with_saved(result.grad_fn):
            see(tensor)
    return sum(held.values())


def _node_with_saved(node: Any) -> tuple[torch.Tensor, ...]:
    while not hasattr(node, "saved_tensors"):
        node = node.next_functions[0][0]
    return tuple(node.saved_tensors)


def peak_bytes(model: torch.nn.Module, loss: Any, x: torch.Tensor) -> int:
    """The most that is allocated at once during a step, beside what was before it."""
    model.zero_grad(set_to_none=True)
    _C.release_arenas()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        loss(x).backward()
    events = [e for e in profile.profiler.kineto_results.events() if e.name() == "[memory]"]
    present = highest = 0
    for event in sorted(events, key=lambda e: e.start_ns()):
        present += event.nbytes()
        highest = max(highest, present)
    return highest


def measure(make: Callable[[], Any], compiler: Callable[[Any], Any]) -> dict[str, int]:
    torch.manual_seed(0)
    model, x = make()
    loss = compiler(program(model.train()))
    for _ in range(2):
        loss(x).backward()
    return {"peak": peak_bytes(model, loss, x), "kept": kept_bytes(model, loss, x)}


def main() -> None:
    found: dict[str, Any] = {}
    for name, make in MODELS.items():
        for which, compiler in COMPILERS.items():
            found.setdefault(name, {})[which] = measure(make, compiler)
            print(name, which, found[name][which], flush=True)
            torch._dynamo.reset()
            stoker.reset()
    RESULTS.write_text(json.dumps(found, indent=1) + "\n")
    page = PAGE.read_text()
    before, rest = page.split(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}\n{render(found)}\n{END}{rest.split(END)[1]}")


def render(found: dict[str, Any]) -> str:
    names = list(found)
    lines = [
        "MB of tensors. Kept: between forward and backward. Peak: of a whole step, above what is held before it.",
        "",
        "| | " + " | ".join(f"{n}, kept | {n}, peak" for n in names) + " |",
        "|---" * (1 + 2 * len(names)) + "|",
    ]
    for which in found[names[0]]:
        cells = [f"{found[n][which][kind] / 1e6:.1f}" for n in names for kind in ("kept", "peak")]
        lines.append(f"| {which} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
