"""Whole models: eager, stoker and torch.compile, interleaved in one process per model.

python -m bench.models [--train] [--threads N] [name ...]          runs each model in a process of its own
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import torch

Made = tuple[torch.nn.Module, dict[str, torch.Tensor]]
BATCH, LENGTH = 4, 128


def _tokens(vocabulary: int = 5000) -> torch.Tensor:
    return torch.randint(5, vocabulary - 10, (BATCH, LENGTH))


def bert() -> Made:
    from transformers import BertConfig, BertModel

    return BertModel(BertConfig(vocab_size=5000, num_hidden_layers=6)), {"input_ids": _tokens()}


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    config = GPT2Config(vocab_size=5000, n_layer=6, bos_token_id=1, eos_token_id=2)
    return GPT2LMHeadModel(config), {"input_ids": _tokens()}


def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=5000, hidden_size=768, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=12,
        num_key_value_heads=4,
    )  # fmt: skip
    return LlamaForCausalLM(config), {"input_ids": _tokens()}


def t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(vocab_size=5000, d_model=512, num_layers=4, num_heads=8)
    return T5ForConditionalGeneration(config), {"input_ids": _tokens(), "decoder_input_ids": _tokens()[:, :64]}


def vit() -> Made:
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(num_hidden_layers=6, hidden_size=384, num_attention_heads=6, intermediate_size=1536)
    return ViTModel(config), {"pixel_values": torch.randn(BATCH, 3, 224, 224)}


def resnet() -> Made:
    from transformers import ResNetConfig, ResNetModel

    return ResNetModel(ResNetConfig(depths=[2, 2, 2, 2])), {"pixel_values": torch.randn(BATCH, 3, 160, 160)}


def convnext() -> Made:
    from transformers import ConvNextConfig, ConvNextModel

    return ConvNextModel(ConvNextConfig(depths=[2, 2, 4, 2])), {"pixel_values": torch.randn(BATCH, 3, 160, 160)}


def mobilenet_v2() -> Made:
    from transformers import MobileNetV2Config, MobileNetV2Model

    return MobileNetV2Model(MobileNetV2Config()), {"pixel_values": torch.randn(BATCH, 3, 160, 160)}


MODELS: dict[str, Callable[[], Made]] = {
    f.__name__: f for f in (bert, gpt2, llama, t5, vit, resnet, convnext, mobilenet_v2)
}


def step(model: torch.nn.Module, inputs: dict[str, torch.Tensor], train: bool) -> Any:
    """One call, with gradients when training."""
    if not train:
        with torch.no_grad():
            return model(**inputs)
    out = model(**inputs)
    loss = sum(v.float().square().mean() for v in out.values() if isinstance(v, torch.Tensor) and v.is_floating_point())
    loss.backward()
    for parameter in model.parameters():
        parameter.grad = None
    return None


def measure(name: str, train: bool, threads: int, rounds: int, rival: bool) -> dict[str, float]:
    """Milliseconds of each contestant, and seconds of its first call."""
    import stoker
    from stoker.pipeline import compile_captured

    torch.manual_seed(0)
    torch.set_num_threads(threads)
    model, inputs = MODELS[name]()
    model.train(train)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    contestants: dict[str, torch.nn.Module] = {"eager": model, "stoker": copy.deepcopy(model)}
    stoker.compile(contestants["stoker"], backend=compile_captured)
    if rival:
        contestants["torch.compile"] = torch.compile(copy.deepcopy(model))  # type: ignore[assignment]
    result: dict[str, float] = {}
    for who, contestant in contestants.items():
        start = time.perf_counter()
        step(contestant, inputs, train)
        result[f"{who} first"] = time.perf_counter() - start
    times: dict[str, list[float]] = {who: [] for who in contestants}
    for _ in range(rounds):
        for who, contestant in contestants.items():
            start = time.perf_counter()
            step(contestant, inputs, train)
            times[who].append((time.perf_counter() - start) * 1e3)
    return result | {who: sorted(t)[len(t) // 4] for who, t in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-rival", action="store_true")
    parser.add_argument("--one", action="store_true")
    chosen = parser.parse_args()
    if chosen.one:
        found = measure(chosen.names[0], chosen.train, chosen.threads, chosen.rounds, not chosen.no_rival)
        print(json.dumps(found))
        return
    speedups: dict[str, list[float]] = {"eager": [], "torch.compile": []}
    for name in chosen.names:
        flags = [f"--threads={chosen.threads}", f"--rounds={chosen.rounds}"]
        flags += ["--train"] * chosen.train + ["--no-rival"] * chosen.no_rival
        command = [sys.executable, "-m", "bench.models", name, "--one", *flags]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        if run.returncode:
            print(f"{name:14} failed: {run.stderr.strip().splitlines()[-1][:300]}", flush=True)
            continue
        found = json.loads(run.stdout.strip().splitlines()[-1])
        words = "  ".join(f"{who} {value:.2f}" for who, value in found.items())
        for rival in speedups:
            if rival in found:
                speedups[rival].append(found[rival] / found["stoker"])
                words += f"  x{found[rival] / found['stoker']:.2f} of {rival}"
        print(f"{name:14} {words}", flush=True)
    for rival, values in speedups.items():
        if values:
            print(f"geometric mean: x{math.exp(sum(map(math.log, values)) / len(values)):.3f} of {rival}")


if __name__ == "__main__":
    main()
