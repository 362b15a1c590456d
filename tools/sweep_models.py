"""Every architecture of transformers and timm that can be built small: captured in one graph, equal to eager?

    python tools/sweep_models.py [--only NAME ...] [--family transformers|timm] [--backend eager] [--train] [--jobs N]

Writes docs/coverage/models.md and docs/coverage/models.json: a section for each family, back end, and inference or training.
A model that cannot be built or run small in eager is not counted. Nothing is downloaded: models come from configs, with
random weights.
"""

from __future__ import annotations

import argparse
import copy
import functools
import json
import multiprocessing
import os
import signal
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from bench.torchvision_stub import stub_torchvision

os.environ.setdefault("HF_HUB_OFFLINE", "1")
ROOT = Path(__file__).parent.parent
PAGE, DATA = ROOT / "docs/coverage/models.md", ROOT / "docs/coverage/models.json"

SMALL = {
    "vocab_size": 200, "hidden_size": 32, "d_model": 32, "n_embd": 32, "embed_dim": 32, "dim": 32, "emb_dim": 32,
    "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "num_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "num_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "d_kv": 8, "intermediate_size": 64,
    "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "ffn_dim": 64, "d_ff": 64, "n_inner": 64, "hidden_dim": 64,
    "max_position_embeddings": 64, "n_positions": 64, "image_size": 32, "patch_size": 8, "num_experts": 4,
    "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
    "embedding_size": 16, "word_embed_proj_dim": 32, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "type_vocab_size": 2, "rotary_dim": 4, "kv_lora_rank": 8, "q_lora_rank": 8,
    "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "num_decoder_layers": 2, "num_encoder_layers": 2,
}  # fmt: skip


class TookTooLong(Exception):
    """A model did not finish in its time."""


def too_long(*_: object) -> None:
    raise TookTooLong


def transformers_model(kind: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    from transformers import AutoConfig, AutoModel

    config = AutoConfig.for_model(kind)
    settings = {
        name: value for name, value in SMALL.items() if hasattr(config, name) and isinstance(getattr(config, name), int)
    }
    if hasattr(config, "layer_types"):
        settings["layer_types"] = None
    config = AutoConfig.for_model(kind, **settings)
    with torch.device("meta"):
        refuse_large(AutoModel.from_config(config))
    model = AutoModel.from_config(config)
    return model, inputs_of(model, config)


def refuse_large(model: torch.nn.Module, limit: int = 25_000_000) -> None:
    size = sum(p.numel() for p in model.parameters())
    if size > limit:
        raise ValueError(f"{size:,} parameters: it does not get small")


def inputs_of(model: torch.nn.Module, config: Any) -> dict[str, Any]:
    main = model.main_input_name
    made: dict[str, Any] = {}
    if main == "pixel_values":
        size = getattr(config, "image_size", 64)
        size = size if isinstance(size, int) else 64
        made[main] = torch.randn(2, getattr(config, "num_channels", 3), size, size)
    elif main in ("input_values", "input_features"):
        made[main] = torch.randn(2, 16000 // 10) if main == "input_values" else torch.randn(2, 80, 3000)
    else:
        made[main] = torch.randint(5, 190, (2, 16))
    if getattr(config, "is_encoder_decoder", False):
        made["decoder_input_ids"] = torch.randint(5, 190, (2, 8))
    return made


def timm_model(name: str) -> tuple[torch.nn.Module, dict[str, Any]]:
    import timm

    with torch.device("meta"):
        refuse_large(timm.create_model(name, pretrained=False))
    model = timm.create_model(name, pretrained=False)
    channels, height, width = model.default_cfg["input_size"]
    return model, {"x": torch.randn(2, channels, min(height, 224), min(width, 224))}


def flat(value: Any, found: list[torch.Tensor]) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        found.append(value)
    elif isinstance(value, dict):
        for part in value.values():
            flat(part, found)
    elif isinstance(value, (list, tuple)):
        for part in value:
            flat(part, found)
    return found


def results_of(model: torch.nn.Module, inputs: dict[str, Any], train: bool) -> tuple[Any, list[torch.Tensor]]:
    """What a call returns, and, in training, the gradients of its parameters."""
    torch.manual_seed(1)
    if not train:
        with torch.no_grad():
            return model(**inputs), []
    out = model(**inputs)
    sum(_mixed(t) for t in flat(out, []) if t.requires_grad).backward()  # type: ignore[union-attr]
    return out, [p.grad for p in model.parameters() if p.grad is not None]


def _mixed(result: torch.Tensor) -> torch.Tensor:
    """A number that depends on each element in another way, so that no gradient vanishes by symmetry."""
    weights = torch.linspace(0, 3, result.numel(), dtype=torch.float64).cos().to(result.dtype).view(result.shape)
    return (result * weights).mean()


def close(expected: torch.Tensor, found: torch.Tensor, reach: float) -> bool:
    """Equal but for rounding, which is measured by the largest element: sums of many terms may cancel."""
    if expected.shape != found.shape or expected.dtype != found.dtype:
        return False
    if not expected.is_floating_point() or not expected.numel():
        return torch.equal(expected, found)
    largest = float(expected.detach().nan_to_num(0, 0, 0).abs().amax())
    return torch.allclose(expected, found, rtol=10 * reach, atol=reach * max(largest, 1.0), equal_nan=True)


def judge(model: torch.nn.Module, inputs: dict[str, Any], backend: str, train: bool) -> dict[str, Any]:
    """What becomes of a model. Where single precision differs, double precision tells an error from a model that
    magnifies rounding, as batch norms of two samples do."""
    found = compared(copy.deepcopy(model), inputs, backend, train, reach=1e-5)
    if found["equal"]:
        return found
    wide = {k: v.double() if isinstance(v, torch.Tensor) and v.is_floating_point() else v for k, v in inputs.items()}
    again = compared(model.double(), wide, backend, train, reach=1e-10)
    return found | {"equal": again["equal"], "in_double": True}


def compared(model: torch.nn.Module, inputs: dict[str, Any], backend: str, train: bool, reach: float) -> dict[str, Any]:
    """Capture once, compare what comes out and its gradients."""
    import stoker
    from stoker import log
    from stoker.backends import look_up

    model.train(train)
    compiled = copy.deepcopy(model)
    expected, expected_gradients = results_of(model, inputs, train)
    graphs: list[Any] = []
    run = look_up(backend)[1]

    def recording(graph_module: Any, example_inputs: list[Any]) -> Any:
        graphs.append(graph_module)
        return run(graph_module, example_inputs)

    stoker.reset()
    log.clear()
    compiled = stoker.compile(compiled, backend=recording)
    started = time.perf_counter()
    found, gradients = results_of(compiled, inputs, train)
    seconds = time.perf_counter() - started
    pairs = list(zip(flat(expected, []), flat(found, []), strict=True))
    equal = type(expected) is type(found) and all(close(a, b, reach) for a, b in pairs)
    equal = equal and all(close(a, b, 10 * reach) for a, b in zip(expected_gradients, gradients, strict=True))
    return {
        "graphs": len(graphs),
        "equal": equal,
        "seconds": round(seconds, 2),
        "reasons": list(dict.fromkeys(e.reason for kind in ("break", "skip", "backend") for e in log.events(kind)))[:3],
    }


def one(name: str, *, build: Any, backend: str, train: bool, limit_seconds: int) -> dict[str, Any]:
    """The result of one model."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(limit_seconds)
    try:
        model, inputs = build(name)
        model.train(train)
        results_of(copy.deepcopy(model), inputs, train)
    except Exception as error:
        return {"unbuilt": f"{type(error).__name__}: {str(error)[:100]}"}
    finally:
        signal.alarm(0)
    signal.alarm(limit_seconds)
    try:
        return judge(model, inputs, backend, train)
    except Exception as error:
        return {"graphs": 0, "equal": False, "reasons": [f"{type(error).__name__}: {str(error)[:300]}"]}
    finally:
        signal.alarm(0)


def sweep(names: list[str], judged: Any, jobs: int) -> dict[str, Any]:
    """The results of many models, some at once, each in a process of its own."""
    with multiprocessing.get_context("fork").Pool(jobs, maxtasksperchild=1) as pool:
        results = {}
        waiting = [(name, pool.apply_async(judged, (name,))) for name in names]
        for name, answer in track(waiting, "models", console=Console(stderr=True)):
            results[name] = answer.get()
            print(name, json.dumps(results[name])[:300], flush=True)
    return results


OWN_REASONS = {
    "fastspeech2_conformer": "`if duration_labels.sum() == 0:` decides by what was predicted whether labels are changed.",
    "led": "`if is_global_attn:` in each layer's attention is a branch on what the mask holds.",
    "longformer": "`if is_global_attn:` in each layer's attention is a branch on what the mask holds.",
    "openai_privacy_filter": "`for expert_idx in expert_hit:` goes over the experts that tokens chose, and asks `if expert_idx == self.num_experts:`.",
    "vits": 'Each call makes the text `f"Discriminant has negative values {discriminant}"`, of a tensor, before it checks whether it is needed.',
}
"""What in a program keeps it from being one graph."""


def render(data: dict[str, dict[str, Any]]) -> str:
    lines = [
        "# Models",
        "",
        "Written by `python tools/sweep_models.py`. Small configurations, random weights. A model is equal if what it returns,",
        "and in training its gradients, are eager's but for rounding; where a model magnifies rounding, in double precision.",
        "",
        "The back end `stoker` was swept on 16 cores with torch 2.11, transformers 5.17 and Python 3.12, and models that failed then",
        "were run again where the defects were fixed (torch 2.13, transformers 5.22). In transformers 5.17, doge, umt5, minicpm3 and",
        "mistral4 compute something else, or raise, when `is_compiling()`; longt5 and switch_transformers in both.",
        "",
    ]
    for family, results in data.items():
        run = {name: r for name, r in results.items() if "unbuilt" not in r}
        kinds = Counter(_kind(r) for r in run.values())
        lines += [
            f"## {family}",
            "",
            f"{len(run)} models: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()) + ".",
            "",
        ]
        lines += ["| model | result | graphs | seconds | first reason |", "|---|---|---|---|---|"]
        for name, r in sorted(run.items(), key=lambda item: (_kind(item[1]) == "one graph", item[0])):
            reason = (r["reasons"] or [""])[0].replace("|", "\\|").replace("\n", " ")[:160]
            lines.append(f"| {name} | {_kind(r)} | {r['graphs']} | {r.get('seconds', '')} | {reason} |")
        lines.append("")
    lines += ["## Reasons of the program's own", "", "| model | reason |", "|---|---|"]
    lines += [f"| {name} | {reason} |" for name, reason in OWN_REASONS.items()]
    return "\n".join([*lines, ""])


def _kind(result: dict[str, Any]) -> str:
    if not result["equal"]:
        return "wrong or failed"
    kind = "one graph" if result["graphs"] <= 1 and not result["reasons"] else "breaks"
    return kind + (", equal in double" if result.get("in_double") else "")


def names_of(family: str, every: int) -> tuple[list[str], Any]:
    """The models of a family, and what builds one."""
    if family == "transformers":
        import transformers
        from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

        transformers.logging.set_verbosity_error()
        return sorted(MODEL_MAPPING_NAMES), transformers_model
    stub_torchvision()
    import timm

    return timm.list_models()[::every], timm_model


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--family", choices=["transformers", "timm"])
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--train", action="store_true", help="gradients, too")
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--every", type=int, default=1, help="take every n-th timm model")
    arguments = parser.parse_args()
    data: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    for family in [arguments.family] if arguments.family else ["transformers", "timm"]:
        names, build = names_of(family, arguments.every)
        section = f"{family}, {'training' if arguments.train else 'inference'}, back end {arguments.backend}"
        judged = functools.partial(
            one, build=build, backend=arguments.backend, train=arguments.train, limit_seconds=arguments.limit
        )
        found = sweep(arguments.only or names, judged, arguments.jobs)
        data[section] = {**data.get(section, {}), **found}
    DATA.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
    PAGE.write_text(render(data))


if __name__ == "__main__":
    main()
