"""Compiled kernels on disk: one file for each content hash.

A file is a checksum and a body, put in place in one step, so that any number of processes may read and write
at once. Whatever goes wrong, the kernel is compiled again: an unreadable, cut off, changed or foreign file
counts as absent.

The bodies are pickles, which can run code when loaded. So only files are read that belong to this user and
that nobody else can write, in a folder of which the same is true.
"""

import hashlib
import os
import re
import secrets
import stat
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

# About 20,000 kernels; beyond it the files that were unused for longest go.
LIMIT_BYTES = 512 * 2**20
_DAY = 86400.0
_FILE_NAME = re.compile(r"[0-9a-f]{64}\.kernel(\.\w+)?")
_DIGEST_BYTES = hashlib.sha256().digest_size

_warned = False


# ----- For users -----


def folder() -> Path:
    """Where compiled kernels are kept: NUMBAGRAD_CACHE_DIR, else a folder in the user's cache.

    Returns
    -------
    pathlib.Path
        The folder, which need not exist.

    Examples
    --------
    >>> folder().name  # doctest: +SKIP
    'numbagrad'
    """
    chosen = os.environ.get("NUMBAGRAD_CACHE_DIR")
    return Path(chosen).expanduser() if chosen else _user_caches() / "numbagrad"


def size() -> tuple[int, int]:
    """How many kernels the folder holds, and their bytes.

    Returns
    -------
    tuple[int, int]
        Files and bytes.

    Examples
    --------
    >>> files, total = size()
    >>> files <= total
    True
    """
    lengths = [status.st_size for _, status in _files()]
    return len(lengths), sum(lengths)


def clear() -> None:
    """Delete the kernels in the folder; other files stay.

    Examples
    --------
    >>> clear()  # doctest: +SKIP
    """
    for path, _ in _files():
        _remove(path)


# ----- For the compiler -----


def load(key: str) -> bytes | None:
    """The bytes saved under `key`, or None."""
    if _is_off():
        return None
    try:
        body = _read(key)
    except FileNotFoundError:
        body = None
    except (OSError, RuntimeError, ValueError) as error:
        say("cache", f"{key[:12]} not read: {error}")
        return None
    say("cache", f"{key[:12]} {'missing' if body is None else 'found'} in {folder()}")
    return body


def save(key: str, body: bytes) -> None:
    """Keep `body` under `key`, if that can be done."""
    if _is_off():
        return
    try:
        place = folder()
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not _is_private(place):
            return
        _write(place / f"{key}.kernel", _digest(key, body) + body)
    except (OSError, RuntimeError) as error:
        _warn(f"kernels are not kept on disk: {error}; set NUMBAGRAD_CACHE_DIR to a folder you can write to")
        return
    say("cache", f"{key[:12]} saved in {place}")
    # One key in sixteen, so that looking through the folder costs next to nothing.
    if key[0] == "0":
        _prune()


def say(word: str, text: str) -> None:
    """Print `text` to stderr if NUMBAGRAD_DEBUG holds `word`."""
    if word in os.environ.get("NUMBAGRAD_DEBUG", "").replace(" ", "").split(","):
        print(f"numbagrad {word}: {text}", file=sys.stderr)


# ----- Files -----


def _read(key: str) -> bytes | None:
    place = folder()
    if not _is_private(place):
        return None
    path = place / f"{key}.kernel"
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
        problem = _problem(status) or (None if stat.S_ISREG(status.st_mode) else "is no plain file")
        if problem:
            raise ValueError(f"{path} {problem}")
        content = file.read()
    digest, body = content[:_DIGEST_BYTES], content[_DIGEST_BYTES:]
    if digest != _digest(key, body):
        raise ValueError(f"{path} is damaged")
    _mark_used(path, status.st_mtime)
    return body


def _write(path: Path, content: bytes) -> None:
    """Put a whole file in place in one step."""
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
        with open(descriptor, "wb") as file:
            file.write(content)
        os.replace(draft, path)
    except OSError:
        _remove(draft)
        raise


def _digest(key: str, body: bytes) -> bytes:
    """The checksum; it covers the key, so that a file under another's name is found out."""
    return hashlib.sha256(key.encode() + body).digest()


def _mark_used(path: Path, modified: float) -> None:
    if time.time() - modified > _DAY:
        with suppress(OSError):
            os.utime(path)


def _prune() -> None:
    """Delete what was unused for longest until a quarter of the limit is free."""
    files = sorted(_files(), key=lambda item: item[1].st_mtime)
    total = sum(status.st_size for _, status in files)
    if total <= LIMIT_BYTES:
        return
    for path, status in files:
        if total <= LIMIT_BYTES * 3 // 4:
            break
        _remove(path)
        total -= status.st_size


def _files() -> Iterator[tuple[Path, os.stat_result]]:
    """The kernels in the folder, drafts that a crash left behind among them."""
    with suppress(OSError, RuntimeError), os.scandir(folder()) as entries:
        for entry in entries:
            if _FILE_NAME.fullmatch(entry.name):
                with suppress(OSError):
                    yield Path(entry.path), entry.stat(follow_symlinks=False)


def _remove(path: Path) -> None:
    with suppress(OSError):
        path.unlink()


# ----- Where, and whether it may be used -----


def _user_caches() -> Path:
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")


def _is_off() -> bool:
    return os.environ.get("NUMBAGRAD_DISK_CACHE", "on").lower() in {"off", "no", "false", "0"}


def _is_private(place: Path) -> bool:
    """Whether nobody but this user can put files there; if not, say so once."""
    status = place.stat()
    problem = _problem(status) or (None if stat.S_ISDIR(status.st_mode) else "is not a folder")
    if problem:
        _warn(
            f"kernels are not kept on disk: {place} {problem}; make it a folder of yours with `chmod 700`, "
            "or set NUMBAGRAD_CACHE_DIR to another, or NUMBAGRAD_DISK_CACHE=off"
        )
    return problem is None


def _problem(status: os.stat_result) -> str | None:
    """Why something on disk cannot be trusted, or None."""
    if sys.platform == "win32":  # st_mode and st_uid say nothing there
        return None
    if status.st_uid != os.geteuid():
        return f"belongs to user {status.st_uid}, not to you ({os.geteuid()})"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"can be written by others (mode {stat.S_IMODE(status.st_mode):o})"
    return None


def _warn(text: str) -> None:
    global _warned
    say("cache", text)
    if not _warned:
        _warned = True
        warnings.warn(text, RuntimeWarning, stacklevel=2)
