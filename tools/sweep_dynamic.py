"""Every text architecture of transformers at 8 batches and 20 lengths, inference and training: equal to eager, and how often compiled?

    python tools/sweep_dynamic.py [--only NAME ...] [--limit SECONDS] [--more]

Writes docs/coverage/dynamic.md and docs/coverage/dynamic.json; with --more, only models that are not in there are run. Models are
those of tools/sweep_models.py, with random weights.
"""

from __future__ import annotations

import argparse
import copy
import json
import multiprocessing
import re
import signal
import subprocess
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from tools.sweep_models import close, flat, names_of, results_of, too_long, transformers_model

ROOT = Path(__file__).parent.parent
PAGE, DATA = ROOT / "docs/coverage/dynamic.md", ROOT / "docs/coverage/dynamic.json"

LENGTHS = (16, 9, 33, 12, 20, 25, 7, 40, 5, 31, 18, 28, 45, 11, 37, 6, 50, 22, 14, 3)
SIZES = [(2 + place % 7, length) for place, length in enumerate(LENGTHS)]
SINGLE = [(1, 16), (1, 31), (5, 24), (1, 7), (8, 40)]
"""Batches of one, and others between them: one more compilation may serve them."""


OWN_REASONS = {
    "cpmant": "`torch.tensor(list(range(seqlen - self.prompt_length))[::-1])` is made of a Python list that is as long as the text.",
    "led": "`if is_global_attn:` in each layer's attention: a branch on what the mask holds. A logger hears of each length that is padded.",
    "longformer": "`if is_global_attn:` in each layer's attention: a branch on what the mask holds.",
    "m2m_100": "Training skips layers: `if dropout_probability < self.layerdrop:` asks a tensor that was drawn just then.",
    "olmo_hybrid": "`if not self.record_past and full_conv_states.shape[-1] < self.conv_kernel_size[state_idx]:` in the cache: texts shorter than the convolution are padded, so that those of up to three words are a version of their own.",
    "openai_privacy_filter": "`for expert_idx in expert_hit:` goes over what `nonzero` finds, with `if expert_idx == self.num_experts:` in it: a loop and a branch on data. In training `next_states` requires no gradient in the first round and requires one in the others: a round is compiled twice for each.",
    "recurrent_gemma": "`for t in range(hidden_states.shape[1]):` is a Python loop over time, whose body is a graph: one for the first step, whose state requires no gradient, and one for the others.",
    "rwkv": "`for current_index in range(seq_length):` is a Python loop over time, whose body is a graph: one for the first step, whose state is a slice and requires no gradient, and one for the others.",
}
"""What in a program keeps it from being one graph, or from being compiled twice at most."""


def inputs_at(inputs: dict[str, Any], batch: int, length: int) -> dict[str, Any]:
    """Tokens of another size in the place of given ones."""
    lengths = {name: length if name == "input_ids" else length // 2 + 1 for name in inputs}
    return {name: torch.randint(5, 190, (batch, lengths[name])) for name in inputs}


def compilations() -> int:
    """How often the graph was compiled that was compiled most often. A graph is of one function and, as layers share their code, of the
    modules that it runs on."""
    from stoker import log

    return max(Counter(e.data for e in log.events("captured") if e.data is not None).values(), default=0)


def judge(model: torch.nn.Module, inputs: dict[str, Any], train: bool) -> dict[str, Any]:
    import stoker
    from stoker import log

    stoker.reset()
    log.clear()
    model.train(train)
    compiled = stoker.compile(copy.deepcopy(model))
    counts, wrong = [], []
    for sizes in (SIZES, SINGLE):
        for size in sizes:
            given = inputs_at(inputs, *size)
            model.zero_grad()
            compiled.zero_grad()
            expected, found = (results_of(run, given, train) for run in (model, compiled))
            pairs = list(zip(flat(expected, []), flat(found, []), strict=True))
            if not all(close(a, b, 1e-4) for a, b in pairs):
                wrong.append(size)
        counts.append(compilations())
    reasons = dict.fromkeys(e.reason for kind in ("break", "as captured", "backend") for e in log.events(kind))
    why = [e.reason for e in log.events("recompile")]
    words = {"reasons": list(map(portable, reasons))[:3], "recompiled": list(map(portable, why))[1:4]}
    return {"compilations": counts, "wrong": wrong, **words}


def portable(words: str) -> str:
    """Words without the place where packages are installed."""
    return re.sub(r"\S*/site-packages/", "", words)


def one(name: str, limit_seconds: int) -> dict[str, Any]:
    """What becomes of one model in inference and in training; None if it cannot be run small."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(limit_seconds)
    try:
        torch.manual_seed(0)
        model, inputs = transformers_model(name)
        if not {"input_ids"} <= inputs.keys() <= {"input_ids", "decoder_input_ids"}:
            return {"unbuilt": "its input is no text"}
        for size in (*SIZES, *SINGLE):
            results_of(model, inputs_at(inputs, *size), False)
    except Exception as error:
        return {"unbuilt": f"{type(error).__name__}: {str(error)[:100]}"}
    found: dict[str, Any] = {}
    for train in (False, True):
        signal.alarm(limit_seconds)
        try:
            found["training" if train else "inference"] = judge(copy.deepcopy(model), inputs, train)
        except Exception as error:
            found["training" if train else "inference"] = {
                "failed": portable(f"{type(error).__name__}: {str(error)[:300]}")
            }
        finally:
            signal.alarm(0)
    return found


def verdict(found: dict[str, Any]) -> str:
    if "failed" in found:
        return "failed"
    if found["wrong"]:
        return "differs"
    most, with_one = found["compilations"]
    return "as wanted" if most <= 2 and with_one <= 3 else "compiled more often"


def render(data: dict[str, Any]) -> str:
    run = {name: r for name, r in data.items() if "unbuilt" not in r}
    lines = [
        "# Models at changing sizes",
        "",
        "Written by `python tools/sweep_dynamic.py`: text models of transformers, small, with random weights, compiled by the back end",
        f"`stoker` at {len(SIZES)} lengths and batches 2 to 8, then with batches of one among them. As wanted: equal to eager at each size,",
        "at most 2 compilations of any graph, 3 with batches of one. A graph is of one function and of the modules that it runs on: layers",
        "share their code, and not their graphs. *compilations*: before and after batches of one.",
        "",
        f"Run at commit {', '.join(sorted({r['commit'] for r in run.values()}))}.",
        "",
    ]
    for how in ("inference", "training"):
        kinds = Counter(verdict(r[how]) for r in run.values())
        lines += [
            f"## {how}",
            "",
            f"{len(run)} models: " + ", ".join(f"{c} {k}" for k, c in kinds.most_common()) + ".",
            "",
        ]
        lines += ["| model | result | compilations | breaks | why again |", "|---|---|---|---|---|"]
        for name, r in sorted(run.items(), key=lambda item: (verdict(item[1][how]) == "as wanted", item[0])):
            part = r[how]
            words = [part.get("failed", ""), *part.get("reasons", [])] if "failed" in part else part["reasons"]
            again = part.get("recompiled", []) if verdict(part) == "compiled more often" else []
            shown = [" ".join("; ".join(w).split()).replace("|", "\\|")[:200] for w in (words, again)]
            counts = ", ".join(map(str, part.get("compilations", [])))
            lines.append(f"| {name} | {verdict(part)} | {counts} | {shown[0]} | {shown[1]} |")
        lines.append("")
    lines += ["## Reasons of the program's own", "", "| model | reason |", "|---|---|"]
    lines += [f"| {name} | {reason} |" for name, reason in OWN_REASONS.items()]
    return "\n".join([*lines, ""])


def commit() -> str:
    shown = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return shown.stdout.strip()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--limit", type=int, default=150)
    parser.add_argument("--more", action="store_true")
    arguments = parser.parse_args()
    data: dict[str, Any] = json.loads(DATA.read_text()) if DATA.exists() else {}
    names = arguments.only or names_of("transformers", 1)[0]
    for name in names:
        if arguments.more and name in data:
            continue
        with multiprocessing.get_context("fork").Pool(1) as pool:
            data[name] = pool.apply(one, (name, arguments.limit)) | {"commit": commit()}
        print(name, json.dumps(data[name])[:600], flush=True)
        DATA.write_text(json.dumps(data, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(render(data))


if __name__ == "__main__":
    main()
