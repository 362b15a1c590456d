"""Models of transformers and timm at real sizes on a CUDA device: is what is compiled as near to the truth as eager is?

    python tools/sweep_gpu.py [--ways half,train,amp,dynamic,recorded] [--jobs N] [--seconds N] [--device D] [--to FILE] [name ...]

The truth is eager in float32. `half` is inference in float16, `train` a forward and a backward in bfloat16, `amp` the same of float32 weights
under autocast: results and gradients may be twice as far from the truth as eager's are. `dynamic` is inference in float32 at three
batches in one compilation, `recorded` in float16 with `mode="reduce-overhead"` on inputs that take turns: as eager's. Models come from configs, of
two layers where a config says how many, with random weights and without dropout. One that eager cannot run is skipped. What fails inside
Stoker fails here: run it with STOKER_STRICT=1.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import multiprocessing
import os
import queue
import signal
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

import stoker
from bench.torchvision_stub import stub_torchvision

os.environ.setdefault("HF_HUB_OFFLINE", "1")

_TRANSFORMERS = """bert roberta distilbert electra albert deberta deberta-v2 mpnet roformer big_bird mobilebert squeezebert canine gpt2 gpt_neo gptj opt bloom
codegen llama mistral qwen2 qwen3 gemma gemma2 gemma3_text phi phi3 olmo olmo2 falcon mpt stablelm starcoder2 granite mamba mamba2 t5 mt5 bart mbart
pegasus marian m2m_100 led xlm ibert vit deit beit swin swinv2 convnext convnextv2 resnet regnet mobilenet_v2 efficientnet segformer dinov2 poolformer cvt
focalnet data2vec-vision mobilevit dpt whisper speech_to_text clip siglip"""
_TIMM = """resnet18 resnet50 resnext50_32x4d efficientnet_b0 efficientnetv2_rw_s mobilenetv3_large_100 densenet121 convnext_tiny convnextv2_tiny
vit_base_patch16_224 deit_small_patch16_224 swin_tiny_patch4_window7_224 swinv2_tiny_window8_256 maxvit_tiny_tf_224 coatnet_0_rw_224 mixer_b16_224
resmlp_12_224 gmlp_s16_224 regnety_016 dpn68 vgg16_bn inception_v4 xception41 nfnet_l0 botnet26t_256 halonet26t lambda_resnet26t cait_xxs24_224
xcit_tiny_12_p16_224 pit_s_224 tnt_s_patch16_224 twins_svt_small crossvit_9_240 beit_base_patch16_224 eva02_tiny_patch14_224 volo_d1_224
poolformer_s12 edgenext_small mobilevit_s mobilevitv2_100 fastvit_t8 ghostnet_100 hrnet_w18 repvgg_a2 rexnet_100 sequencer2d_s visformer_small davit_tiny
gcvit_tiny tinynet_a selecsls42 res2net50_26w_4s skresnet34 seresnet50 cspresnet50 darknet53 ese_vovnet19b_dw mnasnet_100 coat_tiny caformer_s18
inception_next_tiny starnet_s1 hgnet_tiny rdnet_tiny mambaout_tiny resnetv2_50 convmixer_768_32 ecaresnet26t gernet_s"""
TRANSFORMERS, TIMM = _TRANSFORMERS.split(), _TIMM.split()
WAYS = ("half", "train", "amp", "dynamic", "recorded")
LAYERS = (
    "num_hidden_layers",
    "n_layer",
    "n_layers",
    "num_layers",
    "encoder_layers",
    "decoder_layers",
    "num_decoder_layers",
)
LARGEST = 1_200_000_000
"""Parameters of a model that is tried."""
LIMIT_S = 100
"""Of one model in one way."""
NEAR = {"dynamic": 2e-3, "recorded": 1e-2}

Task = tuple[str, str]
Made = tuple[torch.nn.Module, dict[str, torch.Tensor]]
Found = list[torch.Tensor | None]


def calm(config: Any) -> None:
    """Two layers, no dropout, no cache, a vocabulary that is not enormous; in configs inside it, too."""
    for name, value in list(vars(config).items()):
        if "drop" in name and isinstance(value, float):
            setattr(config, name, 0.0)
        elif name == "vocab_size" and (value or 0) > 60_000:
            config.vocab_size = 50257
        elif name == "use_cache":
            config.use_cache = False
        elif hasattr(value, "to_dict"):
            calm(value)
    for name in LAYERS:
        if isinstance(vars(config).get(name), int):
            setattr(config, name, min(2, vars(config)[name]))
    for name in ("layer_types", "attention_layers"):
        if vars(config).get(name):
            setattr(config, name, vars(config)[name][:2])


def transformers_model(kind: str, device: str) -> Made:
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(kind)
    calm(config)
    with torch.device("meta"):
        if sum(p.numel() for p in AutoModel.from_config(config).parameters()) > LARGEST:
            raise ValueError("it is too large")
    with torch.device(device):
        model = AutoModel.from_config(config)
    image = getattr(getattr(config, "vision_config", config), "image_size", None) or 224
    side = image if isinstance(image, int) else image[0]
    words = functools.partial(torch.randint, 5, 200, device=device)
    length = 1024 if kind in ("big_bird", "led") else 250
    noise = functools.partial(torch.randn, device=device)
    made: dict[str, dict[str, torch.Tensor]] = {
        "clip": {"input_ids": words((4, 60)), "pixel_values": noise(4, 3, side, side)},
        "whisper": {"input_features": noise(4, 80, 3000), "decoder_input_ids": words((4, 60))},
        "speech_to_text": {"input_features": noise(4, 400, 80), "decoder_input_ids": words((4, 60))},
    }
    made["siglip"] = made["clip"]
    if kind in made:
        return model, made[kind]
    if model.main_input_name == "pixel_values":
        return model, {"pixel_values": noise(8, 3, side, side)}
    inputs = {"input_ids": words((4, length))}
    return model, inputs | ({"decoder_input_ids": words((4, 100))} if config.is_encoder_decoder else {})


def timm_model(name: str, device: str) -> Made:
    import timm

    with torch.device(device):
        model = timm.create_model(name)
    return model, {"x": torch.randn(8, *model.default_cfg["input_size"], device=device)}


def made(name: str, device: str, train: bool) -> Made:
    torch.manual_seed(0)
    model, inputs = (transformers_model if name in TRANSFORMERS else timm_model)(name, device)
    for module in model.modules():
        for rate in ("p", "drop_prob"):
            if "Drop" in type(module).__name__ and hasattr(module, rate):
                setattr(module, rate, 0.0)
    return model.train(train), inputs


def tensors(value: Any) -> Iterator[torch.Tensor]:
    """Those of floating point in a result."""
    if isinstance(value, torch.Tensor):
        yield from [value] if value.is_floating_point() else []
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from tensors(part)


def results(model: Any, inputs: dict[str, torch.Tensor], *, train: bool, amp: bool = False) -> Found:
    """What a call gives, and in training the gradients of parameters."""
    call = functools.partial(model, inputs["x"]) if "x" in inputs else functools.partial(model, **inputs)
    device = next(iter(inputs.values())).device.type
    with torch.set_grad_enabled(train), torch.autocast(device, torch.bfloat16, enabled=amp):
        found = list(tensors(call()))
    if train:
        torch.stack([f.float().square().mean() for f in found if f.requires_grad]).sum().backward()
    gradients: Found = [p.grad for p in model.parameters()] if train else []
    for parameter in model.parameters():
        parameter.grad = None
    return [None if f is None else f.detach().float() for f in [*found, *gradients]]


def distance(found: Found, wanted: Found) -> float:
    """The largest of the distances, each as a share of what is wanted; infinite where one is missing or not finite."""
    worst = 0.0
    for mine, right in zip(found, wanted, strict=True):
        if mine is None or right is None:
            worst = worst if mine is right else float("inf")
        else:
            share = float((mine - right).norm() / (right.norm() + 1e-6 * right.numel() ** 0.5))
            worst = max(worst, share if share == share else float("inf"))
    return worst


def halved(inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> dict[str, torch.Tensor]:
    return {name: v.to(dtype) if v.is_floating_point() else v for name, v in inputs.items()}


def near_the_truth(way: str, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], dict[str, Any]]:
    """Run eager; what is returned compiles and compares."""
    train, amp = way != "half", way == "amp"
    run = functools.partial(results, train=train, amp=amp)
    truth = results(copy.deepcopy(model), inputs, train=train)
    dtype = torch.bfloat16 if train else torch.float16
    if not amp:
        model, inputs = copy.deepcopy(model).to(dtype), halved(inputs, dtype)
    eager = distance(run(copy.deepcopy(model), inputs), truth)

    def compare() -> dict[str, Any]:
        mine = distance(run(stoker.compile(model), inputs), truth)
        return {"verdict": "near" if mine <= 2 * eager + 2e-3 else "far", "eager": eager, "compiled": mine}

    return compare


def as_eager(way: str, model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Callable[[], dict[str, Any]]:
    """The same, at several batches or places."""
    sets = [{name: v[:count] for name, v in inputs.items()} for count in (8, 3, 2)]
    if way == "recorded":
        model, inputs = model.half(), halved(inputs, torch.float16)
        sets = [{name: v.roll(turn, 0).clone() for name, v in inputs.items()} for turn in (0, 1, 2, 0, 1)]
    wanted = [results(model, one, train=False) for one in sets]
    if not all(bool(w.isfinite().all()) for found in wanted for w in found if w is not None):
        raise ValueError("what eager gives is not finite")

    def compare() -> dict[str, Any]:
        how: Any = {"dynamic": True} if way == "dynamic" else {"mode": "reduce-overhead"}
        compiled = stoker.compile(model, **how)
        worst = max(distance(results(compiled, one, train=False), right) for one, right in zip(sets, wanted))
        return {"verdict": "near" if worst <= NEAR[way] else "far", "compiled": worst}

    return compare


def judged(task: Task, device: str) -> dict[str, Any]:
    name, way = task
    stoker.reset()
    try:
        model, inputs = made(name, device, train=way in ("train", "amp"))
        compare = (as_eager if way in NEAR else near_the_truth)(way, model, inputs)
    except Exception as error:  # noqa: BLE001  (eager's own: there is nothing to compare with)
        if "device-side" in str(error):
            raise
        return {"verdict": "skipped", "why": f"{type(error).__name__}: {error}"[:200]}
    started = time.perf_counter()
    return compare() | {"seconds": round(time.perf_counter() - started, 2)}


def _too_long(*_: object) -> None:
    raise TimeoutError(f"{LIMIT_S} s")


def work(tasks: Any, found: Any, device: str) -> None:
    """One process: a model after the other, until none is left, or until the device is of no use any more."""
    warnings.filterwarnings("ignore")
    import transformers  # noqa: F401  (it looks for torchvision, and is not to find the stub)

    stub_torchvision()
    signal.signal(signal.SIGALRM, _too_long)
    while True:
        try:
            task = tasks.get(timeout=2)
        except queue.Empty:
            return
        signal.alarm(LIMIT_S)
        try:
            row = judged(task, device)
        except Exception as error:  # noqa: BLE001  (it is the finding)
            row = {"verdict": "failed", "why": "".join(traceback.format_exception(error))[-2000:]}
        signal.alarm(0)
        found.put((task, row))
        if "CUDA error" in row.get("why", ""):
            found.close()
            found.join_thread()
            os._exit(1)
        if device == "cuda":
            torch.cuda.empty_cache()


def swept(wanted: list[Task], chosen: argparse.Namespace) -> Iterator[tuple[Task, dict[str, Any]]]:
    """Every task's row, as they come; a process that died is followed by another."""
    context = multiprocessing.get_context("spawn")
    tasks, found = context.Queue(), context.Queue()
    for task in wanted:
        tasks.put(task)
    begin: Any = functools.partial(context.Process, target=work, args=(tasks, found, chosen.device))
    pool = [begin() for _ in range(chosen.jobs)]
    for process in pool:
        process.start()
    left, end = len(wanted), time.monotonic() + chosen.seconds
    while left and time.monotonic() < end and any(p.is_alive() for p in pool):
        try:
            yield found.get(timeout=1)
            left -= 1
        except queue.Empty:
            for place, process in enumerate(pool):
                if process.exitcode:
                    pool[place] = begin()
                    pool[place].start()
    for process in pool:
        process.kill()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=TRANSFORMERS + TIMM)
    parser.add_argument("--ways", default="half,train")
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--to", help="a file for the rows")
    chosen = parser.parse_args()
    wanted = [(name, way) for name in chosen.names for way in WAYS if way in chosen.ways.split(",")]
    rows: dict[str, dict[str, Any]] = {}
    for (name, way), row in swept(wanted, chosen):
        rows[f"{name}, {way}"] = row
        if row["verdict"] in ("far", "failed"):
            print(f"{name}, {way}: {row['verdict']} {row.get('compiled', '')} {row.get('why', '')}", flush=True)
        if chosen.to:
            Path(chosen.to).write_text(json.dumps(rows, indent=1) + "\n")
    print(f"{len(rows)} of {len(wanted)}:", dict(Counter(row["verdict"] for row in rows.values())))


if __name__ == "__main__":
    main()
