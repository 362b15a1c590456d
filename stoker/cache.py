"""The directory where built kernels and reports are kept, and which files in it may be believed.

In:  what STOKER_CACHE, or XDG_CACHE_HOME, or the home directory says.
Out: a directory that belongs to this user and that nobody else can write to. Where there is none, one for this process alone, and
     one line that says why.

Libraries run as this user. So they are loaded only from such a directory, from files of which the same holds, and with the
checksum they were written with. Held by tests/unit/runtime/test_surroundings.py.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import stat
import tempfile
from pathlib import Path

from stoker import log

_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_directory() -> Path:
    """Where to keep things between processes, if that can be; otherwise `private_directory`."""
    given = os.environ.get("STOKER_CACHE")
    return _usable(given or os.environ.get("XDG_CACHE_HOME", ""), bool(given))


@functools.cache
def _usable(given: str, ours: bool) -> Path:
    try:
        path = Path(given) if ours else (Path(given) if given else Path.home() / ".cache") / "stoker"
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        reason = why_not_trusted(path)
        if reason is None and not os.access(path, os.W_OK | os.X_OK):
            reason = "it cannot be written"
    except (OSError, RuntimeError) as error:  # RuntimeError: there is no home directory
        path, reason = Path(given or "~/.cache/stoker"), str(error)
    if reason is None:
        return path
    log.tell_once(f"the cache {path} is not used: {reason}. Kernels are built again in each process.")
    return private_directory()


@functools.cache
def private_directory() -> Path:
    """A directory that goes with this process."""
    directory = tempfile.TemporaryDirectory(prefix="stoker-", ignore_cleanup_errors=True)
    _held.append(directory)
    return Path(directory.name)


_held: list[tempfile.TemporaryDirectory[str]] = []


def why_not_trusted(path: Path) -> str | None:
    """Why a file or directory may be somebody else's work; None if it is not."""
    found = path.stat()
    if hasattr(os, "getuid") and found.st_uid != os.getuid():
        return f"it belongs to user {found.st_uid}"
    if found.st_mode & _OTHERS_WRITE and not path.is_symlink():
        return f"others can write to it (chmod go-w {path})"
    return None


_MARK = b"stoker"
_DIGEST_BYTES = 32


def is_whole(path: Path) -> bool:
    """Is this the entry as it was sealed, and nobody else's?"""
    try:
        if not path.is_file():
            return False
        reason = why_not_trusted(path) or why_not_trusted(path.parent)
        content = path.read_bytes()
    except OSError as error:
        reason, content = str(error), b""
    body, mark, digest = (
        content[: -_DIGEST_BYTES - len(_MARK)],
        content[-_DIGEST_BYTES - len(_MARK) : -_DIGEST_BYTES],
        content[-_DIGEST_BYTES:],
    )
    if reason is None and (mark != _MARK or hashlib.sha256(body).digest() != digest):
        reason = "it is damaged"
    if reason is not None:
        log.tell_once(f"the entry {path} of the cache is not used: {reason}. It is built again.")
        with contextlib.suppress(OSError):
            path.unlink()
    return reason is None


def seal(path: Path) -> None:
    """Give a finished file its checksum, behind its end, where loaders do not look; and keep others from writing to it."""
    with path.open("ab") as file:
        file.write(_MARK + hashlib.sha256(path.read_bytes()).digest())
    path.chmod(0o700)
