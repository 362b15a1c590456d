"""From Triton sources to binaries of a CUDA device, by way of the cache.

In:  jobs: a source, and how it is to be compiled.
Out: binaries, with what a launch needs to know.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import json
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path

from stoker.cache import cache_directory, why_not_trusted
from stoker.runtime.pool import WORKER, Pool


class TritonFailed(RuntimeError):
    """Triton refused a kernel: shows its source and its words."""

    def __init__(self, source: Path, words: str) -> None:
        super().__init__(f"Triton failed on {source}.\n{words}\nThis is a defect of Stoker's.")


@dataclass(frozen=True, slots=True)
class Job:
    """One source to compile."""

    name: str
    source: str
    signature: tuple[tuple[str, str], ...]
    aligned: tuple[int, ...]
    warps: int
    architecture: int
    stages: int = 3
    """How many turns of a loop have their memory on the way."""
    fuse_multiply_add: bool = False
    """May a product and a sum be rounded once? Eager, which runs them one after the other, rounds twice."""

    @property
    def key(self) -> str:
        return hashlib.sha256(json.dumps([_versions(), *astuple(self)]).encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class Binary:
    """A compiled source."""

    content: bytes
    name: str
    shared_bytes: int
    warps: int


@functools.cache
def _versions() -> str:
    """What a binary depends on besides its job."""
    return importlib.metadata.version("triton") + hashlib.sha256(WORKER.read_bytes()).hexdigest()


@functools.cache
def pool() -> Pool:
    return Pool()


_known: dict[str, Binary] = {}


def compile_all(jobs: Sequence[Job]) -> list[Binary]:
    """The binaries of jobs; equal jobs are done once, and all at the same time."""
    missing = {job.key: job for job in jobs if job.key not in _known}
    paths = {key: cache_directory() / key[:2] / key for key in missing}
    found = {key: binary for key, path in paths.items() if (binary := _kept(path)) is not None}
    absent = [key for key in missing if key not in found]
    if absent:
        answers = pool().run([_request(missing[key], paths[key]) for key in absent])
        for key, answer in zip(absent, answers):
            if "error" in answer:
                raise TritonFailed(paths[key].with_suffix(".py"), answer["error"])
    _known.update(found | {key: _read(paths[key])[0] for key in absent})
    return [_known[job.key] for job in jobs]


def _kept(path: Path) -> Binary | None:
    """A binary of the cache; None if there is none, or it is damaged or somebody else's."""
    try:
        if any(why_not_trusted(p) for p in (path.parent, path.with_suffix(".cubin"), path.with_suffix(".json"))):
            return None
        binary, digest = _read(path)
    except (OSError, ValueError, KeyError):
        return None
    return binary if digest == hashlib.sha256(binary.content).hexdigest() else None


def _read(path: Path) -> tuple[Binary, str]:
    """A binary, and the digest that it was written with."""
    facts = json.loads(path.with_suffix(".json").read_text())
    digest = facts.pop("digest")
    return Binary(path.with_suffix(".cubin").read_bytes(), **facts), digest


def _request(job: Job, path: Path) -> dict[str, object]:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    source = path.with_suffix(".py")
    source.write_text(job.source)
    return {
        "name": job.name,
        "source": str(source),
        "signature": job.signature,
        "aligned": job.aligned,
        "warps": job.warps,
        "options": {"enable_fp_fusion": job.fuse_multiply_add, "num_stages": job.stages},
        "architecture": job.architecture,
        "output": str(path),
    }
