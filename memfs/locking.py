"""Who may write a repository now: one lock per git directory, and left-over locks of git itself.

The lock is a file lock (other processes) behind a thread lock (this process). It dies with its
holder. Lock files that git or libgit2 left behind when they were killed are removed only when
no living process can own them.
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from souveraine.errors import Unavailable

logger = logging.getLogger(__name__)

LOCK_TIMEOUT_SECONDS = 30.0  # a commit takes milliseconds; a push lease at most 10 s
_POLL_SECONDS = (0.001, 0.02)  # first and longest pause between tries on another process's lock
FRESH_SECONDS = 0.5  # a lock file this young may belong to a process that we cannot see yet
BLIND_STALE_SECONDS = (
    600.0  # without /proc only age speaks; longer than any editor-less git command
)
_PROC = Path("/proc")


class _ThreadLock:
    """A lock of this process, with its owner and depth, so that the owner may enter again."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.owner: int | None = None
        self.depth = 0


_thread_locks: weakref.WeakValueDictionary[str, _ThreadLock] = weakref.WeakValueDictionary()
_registry = threading.Lock()


class RepositoryLock:
    """The write lock of one repository; the same thread may take it again inside."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with _registry:
            key = os.path.realpath(path)
            self._thread_lock = _thread_locks.setdefault(key, _ThreadLock())

    @contextmanager
    def held(self, timeout_seconds: float = LOCK_TIMEOUT_SECONDS) -> Iterator[None]:
        """Hold the lock for the block.

        Raises Unavailable when it stays taken for `timeout_seconds`. `FileNotFoundError` means
        that there is no repository.
        """
        mine = self._thread_lock
        if mine.owner == threading.get_ident():
            mine.depth += 1
            try:
                yield
            finally:
                mine.depth -= 1
            return
        deadline = time.monotonic() + timeout_seconds
        if not mine.lock.acquire(timeout=timeout_seconds):
            raise _busy(timeout_seconds)
        try:
            handle = self._take_file(deadline, timeout_seconds)
            try:
                mine.owner = threading.get_ident()
                yield
            finally:
                mine.owner = None
                os.close(handle)
        finally:
            mine.lock.release()

    def _take_file(self, deadline: float, timeout_seconds: float) -> int:
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        pause, longest = _POLL_SECONDS
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return handle
            except BlockingIOError:
                if time.monotonic() > deadline:
                    os.close(handle)
                    raise _busy(timeout_seconds) from None
            except BaseException:
                os.close(handle)
                raise
            time.sleep(pause)
            pause = min(pause * 2, longest)


def remove_if_stale(lock: Path, places: tuple[Path, ...]) -> bool:
    """Delete git's lock file `lock` if its owner is gone; return whether it is free now.

    `places` are the folders in which a git command on this repository works. Call it while
    holding the repository lock, so that none of our own processes can be the owner.
    """
    try:
        before = lock.stat()
    except FileNotFoundError:
        return True
    age_seconds = time.time() - before.st_mtime
    if age_seconds < FRESH_SECONDS or _may_have_owner(lock, places, age_seconds):
        return False
    try:
        after = lock.stat()
        if (after.st_ino, after.st_mtime_ns) != (before.st_ino, before.st_mtime_ns):
            return False
        lock.unlink()
    except FileNotFoundError:
        return True
    logger.warning("Removed %s, left behind by a process that died", lock)
    return True


def _may_have_owner(lock: Path, places: tuple[Path, ...], age_seconds: float) -> bool:
    if not (_PROC / "self" / "fd").exists():
        return age_seconds < BLIND_STALE_SECONDS
    roots = tuple(os.path.realpath(place) for place in places)
    target = os.path.realpath(lock)
    return any(_may_own(entry, target, roots) for entry in _PROC.iterdir() if entry.name.isdigit())


def _may_own(process: Path, target: str, roots: tuple[str, ...]) -> bool:
    """A process owns a lock if it has it open, or is a git that works in the repository."""
    try:
        is_git = (process / "comm").read_text(errors="replace").startswith("git")
        if is_git and _stands_in(process, roots):
            return True
        return any(_link(handle) == target for handle in (process / "fd").iterdir())
    except PermissionError:
        # another user's process: only a git could be meant, and what it does is unknown
        return is_git
    except (FileNotFoundError, ProcessLookupError):
        return False


def _stands_in(process: Path, roots: tuple[str, ...]) -> bool:
    folder = os.readlink(process / "cwd")
    if any(folder == root or folder.startswith(f"{root}/") for root in roots):
        return True
    command = (process / "cmdline").read_bytes() + (process / "environ").read_bytes()
    return any(root.encode() in command for root in roots)


def _link(handle: Path) -> str:
    try:
        return os.readlink(handle)
    except OSError:
        return ""


def _busy(timeout_seconds: float) -> Unavailable:
    return Unavailable(
        f"The agent's memory has been locked by another writer for {timeout_seconds:g} s. "
        "Try again; if it stays so, look for a hanging push or server process."
    )
