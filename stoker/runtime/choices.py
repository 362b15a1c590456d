"""What measuring has found, kept in the cache: another process that asks the same does not measure again.

In:  a question: everything that the answer depends on, as plain data; the device and the versions of what runs there among it.
Out: the answer that was kept, plain data as well, or None. An entry that is damaged, or somebody else's, is as none.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path
from typing import Any

from stoker.cache import cache_directory, why_not_trusted


def known(question: Any) -> Any:
    """The answer to a question, if somebody kept one."""
    path = _path(question)
    try:
        if why_not_trusted(path) or why_not_trusted(path.parent):
            return None
        entry = json.loads(path.read_text())
    except (OSError, ValueError):  # there is none, or it is damaged
        return None
    return entry["answer"] if isinstance(entry, dict) and entry.get("question") == _plain(question) else None


def keep(question: Any, answer: Any) -> None:
    """For other processes; where the cache cannot be written, they measure again."""
    path = _path(question)
    part = path.with_name(f"{path.name}.{os.getpid()}")
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.write_text(json.dumps({"question": _plain(question), "answer": answer}))
        part.chmod(0o600)
        part.replace(path)


def _plain(question: Any) -> Any:
    """As it is when it was written and read."""
    return json.loads(json.dumps(question))


def _path(question: Any) -> Path:
    key = hashlib.sha256(json.dumps(question).encode()).hexdigest()[:32]
    return cache_directory() / key[:2] / f"{key}.choice"
