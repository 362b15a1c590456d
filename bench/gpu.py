"""Whole models on a CUDA device at published sizes: eager, stoker and torch.compile, interleaved, one process per model.

    python -m bench.gpu [--train] [--mode M] [--rival-mode M] [--no-rival] [--cold] [--together N] [--rounds N]
                        [--write FILE] [name ...]

Inference is in float16 under no_grad, training a forward and a backward in bfloat16. A round is a few calls between two
synchronizations; figures are first quartiles of rounds. Cold is a first call with empty caches, in a process of its own. Several models
(`--together`) compile beside each other and are then measured one at a time. Besides the names of this file's models, `timm:NAME` is a model of
timm, and other names are kinds of transformers' models at the sizes that their configurations have by default.
"""

from __future__ import annotations

import argparse
import copy
import datetime
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from bench import turns
from bench.models import step
from bench.torchvision_stub import stub_torchvision
from bench.turns import wait_for_turn

Made = tuple[torch.nn.Module, dict[str, torch.Tensor]]
CALLS = 4
"""Calls between two synchronizations."""


def _tokens(batch: int, length: int, words: int = 30000) -> torch.Tensor:
    return torch.randint(5, words, (batch, length))


def bert() -> Made:
    from transformers import BertConfig, BertForMaskedLM

    return BertForMaskedLM(BertConfig()), {"input_ids": _tokens(16, 512)}


def gpt2() -> Made:
    from transformers import GPT2Config, GPT2LMHeadModel

    return GPT2LMHeadModel(GPT2Config(use_cache=False)), {"input_ids": _tokens(8, 512)}


def llama() -> Made:
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, max_position_embeddings=4096, use_cache=False, tie_word_embeddings=True,
    )  # fmt: skip
    return LlamaForCausalLM(config), {"input_ids": _tokens(1, 1024)}


def t5() -> Made:
    from transformers import T5Config, T5ForConditionalGeneration

    config = T5Config(use_cache=False)
    return T5ForConditionalGeneration(config), {"input_ids": _tokens(8, 512), "decoder_input_ids": _tokens(8, 512)}


def vit() -> Made:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(ViTConfig(num_labels=1000)), {"pixel_values": torch.randn(32, 3, 224, 224)}


def convnext() -> Made:
    from transformers import ConvNextConfig, ConvNextForImageClassification

    return ConvNextForImageClassification(ConvNextConfig(num_labels=1000)), {
        "pixel_values": torch.randn(32, 3, 224, 224)
    }


def resnet50() -> Made:
    from transformers import ResNetConfig, ResNetForImageClassification

    return ResNetForImageClassification(ResNetConfig(num_labels=1000)), {"pixel_values": torch.randn(64, 3, 224, 224)}


def qwen3() -> Made:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, use_cache=False, tie_word_embeddings=True,
    )  # fmt: skip
    return Qwen3ForCausalLM(config), {"input_ids": _tokens(4, 512)}


def gemma2() -> Made:
    """Eight layers of the 2B's."""
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=256000, hidden_size=2304, intermediate_size=9216, num_hidden_layers=8, num_attention_heads=8,
        num_key_value_heads=4, head_dim=256, use_cache=False,
    )  # fmt: skip
    return Gemma2ForCausalLM(config), {"input_ids": _tokens(2, 512)}


def deberta() -> Made:
    from transformers import DebertaV2Config, DebertaV2Model

    config = DebertaV2Config(
        vocab_size=128100, hidden_size=768, num_hidden_layers=12, num_attention_heads=12, intermediate_size=3072,
        relative_attention=True, position_buckets=256, pos_att_type=["p2c", "c2p"], norm_rel_ebd="layer_norm",
        share_att_key=True,
    )  # fmt: skip
    return DebertaV2Model(config), {"input_ids": _tokens(8, 512)}


def swin() -> Made:
    from transformers import SwinConfig, SwinForImageClassification

    return SwinForImageClassification(SwinConfig(num_labels=1000)), {"pixel_values": torch.randn(32, 3, 224, 224)}


def whisper() -> Made:
    from transformers import WhisperConfig, WhisperForConditionalGeneration

    config = WhisperConfig(
        d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8,
        encoder_ffn_dim=2048, decoder_ffn_dim=2048, use_cache=False,
    )  # fmt: skip
    inputs = {"input_features": torch.randn(8, 80, 3000), "decoder_input_ids": _tokens(8, 128)}
    return WhisperForConditionalGeneration(config), inputs


MODELS: dict[str, Callable[[], Made]] = {
    f.__name__: f for f in (bert, gpt2, llama, t5, vit, convnext, resnet50, qwen3, gemma2, deberta, swin, whisper)
}


def of_timm(name: str) -> Made:
    """A model by timm's name for it."""
    stub_torchvision()
    import timm

    model = timm.create_model(name)
    return model, {"x": torch.randn(32, *model.default_cfg["input_size"])}


def of_transformers(kind: str) -> Made:
    """A model by transformers' name for its kind, of the size that its configuration has by default."""
    from transformers import AutoConfig, AutoModel

    model = AutoModel.from_config(AutoConfig.for_model(kind))
    if hasattr(model.config, "use_cache"):
        model.config.use_cache = False
    if model.main_input_name == "pixel_values":
        side = getattr(model.config, "image_size", None) or 224
        return model, {"pixel_values": torch.randn(32, 3, side, side)}
    inputs = {model.main_input_name: _tokens(8, 504, 20000)}
    if model.main_input_name == "input_values":
        inputs = {"input_values": torch.randn(8, 80_000)}
    return model, inputs | ({"decoder_input_ids": _tokens(8, 128)} if model.config.is_encoder_decoder else {})


def _named(name: str) -> Made:
    if name in MODELS:
        return MODELS[name]()
    return of_timm(name.removeprefix("timm:")) if name.startswith("timm:") else of_transformers(name)


def made(name: str, train: bool) -> Made:
    torch.manual_seed(0)
    dtype = torch.bfloat16 if train else torch.float16
    with torch.device("cuda"):
        model, inputs = _named(name)
    for module in model.modules():
        for rate in ("p", "drop_prob"):
            if "Drop" in type(module).__name__ and hasattr(module, rate):
                setattr(module, rate, 0.0)
    moved = {key: v.to("cuda", dtype if v.is_floating_point() else None) for key, v in inputs.items()}
    return model.to("cuda", dtype).train(train), moved


def compiled(who: str, model: torch.nn.Module, mode: str | None) -> Any:
    if who == "stoker":
        import stoker

        return stoker.compile(model, mode=mode or "default")
    return torch.compile(model, mode=mode) if who == "torch.compile" else model


def distance(model: torch.nn.Module, contestant: Any, inputs: dict[str, torch.Tensor]) -> float:
    """How far a contestant's first result is from eager's, as a share of its size."""
    with torch.no_grad():
        a, b = ((m(**inputs)[0]).double() for m in (contestant, model))
    return float((a - b).norm() / b.norm())


def first(name: str, who: str, train: bool, mode: str | None) -> dict[str, float]:
    """Seconds of a first call in this process."""
    model, inputs = made(name, train)
    step(copy.deepcopy(model), inputs, train)
    torch.cuda.synchronize()
    contestant = compiled(who, model, mode)
    start = time.perf_counter()
    step(contestant, inputs, train)
    torch.cuda.synchronize()
    return {"first": time.perf_counter() - start}


def steady(name: str, chosen: argparse.Namespace) -> dict[str, float]:
    """Milliseconds of a call of each contestant, and peaks of memory in megabytes."""
    model, inputs = made(name, chosen.train)
    modes = {"eager": None, "stoker": chosen.mode, "torch.compile": chosen.rival_mode}
    if chosen.no_rival:
        del modes["torch.compile"]
    contestants = {who: compiled(who, copy.deepcopy(model), mode) for who, mode in modes.items()}
    row: dict[str, float] = {}
    for who, contestant in contestants.items():
        for _ in range(4):
            step(contestant, inputs, chosen.train)
        torch.cuda.reset_peak_memory_stats()
        held = torch.cuda.memory_allocated()
        step(contestant, inputs, chosen.train)
        row[f"{who} peak"] = (torch.cuda.max_memory_allocated() - held) / 2**20
    wait_for_turn()
    if not chosen.train:
        row["distance"] = distance(model, contestants["stoker"], inputs)
    times: dict[str, list[float]] = {who: [] for who in contestants}
    for _ in range(chosen.rounds):
        for who, contestant in contestants.items():
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(CALLS):
                step(contestant, inputs, chosen.train)
            torch.cuda.synchronize()
            times[who].append((time.perf_counter() - start) * 1e3 / CALLS)
    return row | {who: sorted(t)[len(t) // 4] for who, t in times.items()}


_ATTENTION = ("flash", "fmha", "attention", "sdpa", "cudnn_generated_fort")
_PRODUCTS = ("gemm", "cutlass", "cublas", "xmma", "nvjet", "sm90_", "sm80_", "conv", "implicit", "winograd", "cudnn")
PROFILED = 3
"""Calls under the profiler."""


def _kind(name: str) -> str:
    name = name.lower()
    if any(k in name for k in _ATTENTION):
        return "attention"
    if any(k in name for k in _PRODUCTS) and "elementwise" not in name:
        return "products"
    return "copies" if "memcpy" in name or "memset" in name else "loops"


def profile(name: str, chosen: argparse.Namespace) -> None:
    """Where a step of each contestant goes: host and wall time, and the device's time by kind and by kernel."""
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    model, inputs = made(name, chosen.train)
    for who, mode in (("eager", None), ("stoker", chosen.mode)):
        contestant = compiled(who, copy.deepcopy(model), mode)
        for _ in range(4):
            step(contestant, inputs, chosen.train)
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            step(contestant, inputs, chosen.train)
        host = (time.perf_counter() - start) * 1e3 / CALLS
        torch.cuda.synchronize()
        wall = (time.perf_counter() - start) * 1e3 / CALLS
        with profiler(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
            for _ in range(PROFILED):
                step(contestant, inputs, chosen.train)
            torch.cuda.synchronize()
        kinds: dict[str, float] = {}
        kernels: dict[str, list[float]] = {}
        for event in found.events():
            if event.device_type.name == "CUDA" and event.device_time_total > 0 and not event.is_user_annotation:
                kinds[_kind(event.name)] = kinds.get(_kind(event.name), 0) + event.device_time_total / PROFILED / 1e3
                kernels.setdefault(event.name, []).append(event.device_time_total / PROFILED / 1e3)
        words = "  ".join(f"{kind} {ms:.2f}" for kind, ms in kinds.items())
        print(f"{name} {who}: wall {wall:.2f}  host {host:.2f}  device {sum(kinds.values()):.2f}  {words}")
        called = sorted(found.key_averages(), key=lambda e: -e.self_cpu_time_total)[:9]
        print(
            "    host: "
            + "  ".join(
                f"{e.key[:40]} {e.self_cpu_time_total / PROFILED / 1e3:.2f} ({e.count // PROFILED})" for e in called
            )
        )
        for kernel, times in sorted(kernels.items(), key=lambda e: -sum(e[1]))[:14]:
            print(f"    {sum(times):8.3f} ms {len(times) / PROFILED:6.0f}x  {kernel[:110]}")


def cold(name: str, chosen: argparse.Namespace, flags: list[str]) -> dict[str, float]:
    """Seconds of first calls with empty caches, and with what those left, each in a process of its own."""
    row = {}
    folders = {"STOKER_CACHE": "stoker", "TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
    for who in ("stoker", "torch.compile")[: 1 if chosen.no_rival else 2]:
        with tempfile.TemporaryDirectory() as cache:
            for when in ("cold", "first"):
                run = subprocess.run(
                    [sys.executable, "-m", "bench.gpu", name, f"--first={who}", *flags],
                    stdout=subprocess.PIPE,
                    text=True,
                    check=True,
                    env=os.environ | {key: f"{cache}/{folder}" for key, folder in folders.items()},
                )
                row[f"{who} {when}"] = json.loads(run.stdout.strip().splitlines()[-1])["first"]
    return row


def mean(values: list[float]) -> float:
    return math.exp(sum(map(math.log, values)) / len(values))


def facts(chosen: argparse.Namespace) -> dict[str, str]:
    """What a table needs to say of how it was made."""
    import triton

    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return {
        "date": datetime.date.today().isoformat(),
        "commit": os.environ.get("STOKER_COMMIT") or commit.stdout.strip(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "mode": chosen.mode,
        "rival mode": chosen.rival_mode,
    }


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", default=list(MODELS))
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--mode", default="default")
    parser.add_argument("--rival-mode", default="default")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-rival", action="store_true", help="without torch.compile")
    parser.add_argument("--cold", action="store_true", help="first calls too")
    parser.add_argument("--together", type=int, default=1, help="models that compile beside each other")
    parser.add_argument("--write", help="a file for the results")
    parser.add_argument("--profile", action="store_true", help="where the time of a step goes")
    parser.add_argument("--first", help=argparse.SUPPRESS)
    parser.add_argument("--steady", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    chosen = parsed()
    if chosen.first:
        print(json.dumps(first(chosen.names[0], chosen.first, chosen.train, chosen.mode)))
        return
    if chosen.profile:
        for name in chosen.names:
            profile(name, chosen)
        return
    if chosen.steady:
        print(json.dumps(steady(chosen.names[0], chosen)))
        return
    rows = {}
    flags = [f"--rounds={chosen.rounds}", f"--mode={chosen.mode}", f"--rival-mode={chosen.rival_mode}"]
    flags += ["--train"] * chosen.train + ["--no-rival"] * chosen.no_rival
    commands = {name: ["-m", "bench.gpu", name, "--steady", *flags] for name in chosen.names}
    for name, row in turns.rows(commands, chosen.together):
        if isinstance(row, str):
            print(f"{name:9} failed: {row}", flush=True)
            continue
        rows[name] = row | (cold(name, chosen, flags) if chosen.cold else {})
        words = "  ".join(f"{key} {value:.4g}" for key, value in rows[name].items())
        words += "".join(f"  x{row[r] / row['stoker']:.2f} of {r}" for r in ("eager", "torch.compile") if r in row)
        print(f"{name:9} {words}", flush=True)
        if chosen.write:
            Path(chosen.write).write_text(json.dumps({"facts": facts(chosen), "models": rows}, indent=1) + "\n")
    for rival in ("eager", "torch.compile"):
        ratios = [row[rival] / row["stoker"] for row in rows.values() if rival in row]
        if ratios:
            print(f"geometric mean: x{mean(ratios):.3f} of {rival}")


if __name__ == "__main__":
    main()
