"""The lock of a data directory: one `serve` at a time, and none beside orphans of a killed one.

`flock` on `<data>/serve.lock`. The children inherit the descriptor, so the lock is free only when
the supervisor and all of its children are gone, however they ended.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

FILE_NAME = "serve.lock"
ORPHAN_GRACE_SECONDS = 6.0  # children get SIGTERM when their supervisor dies; then we end them
POLL_SECONDS = 0.1


@dataclass
class Holder:
    """What the lock file tells about the `serve` that wrote it."""

    pid: int = 0
    url: str = ""
    children: dict[str, int] = field(default_factory=dict)  # name → pid


class AlreadyServing(Exception):
    """Another live `serve` has this data directory. `holder` is that one."""

    def __init__(self, data_dir: Path, holder: Holder) -> None:
        where = f" at {holder.url}" if holder.url else ""
        who = f"pid {holder.pid}" if holder.pid else "pid unknown"
        super().__init__(
            f"Souveraine is already running on {data_dir} ({who}){where}. Use that one, stop it "
            f"with `kill {holder.pid or '<pid>'}`, or set SOUVERAINE_DATA_DIR to another folder."
        )
        self.holder = holder


class DataDirLock:
    """The held lock. `fd` is to be inherited by children; `close` releases this process's share."""

    def __init__(self, fd: int, previous: Holder) -> None:
        self.fd = fd
        self.previous = previous  # what an unclean end left in the file; pid 0 after a clean one
        self.holder = Holder(pid=os.getpid())

    def announce(self, url: str, children: dict[str, int]) -> None:
        """Write pid, URL and the children's pids for whoever finds the lock taken."""
        self.holder.url, self.holder.children = url, dict(children)
        _write(self.fd, json.dumps(asdict(self.holder)).encode())

    def close(self) -> None:
        """Empty the file and drop the lock; safe to call twice."""
        if self.fd >= 0:
            _write(self.fd, b"")
            os.close(self.fd)
            self.fd = -1


def acquire(
    data_dir: Path, url: str = "", grace_seconds: float = ORPHAN_GRACE_SECONDS
) -> DataDirLock:
    """Take the lock of `data_dir`, waiting for the orphans of a killed supervisor to go.

    Raises AlreadyServing while another supervisor lives. Orphans that are still there after
    `grace_seconds` are killed, but only those that hold this very file open.
    """
    path = data_dir / FILE_NAME
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline, killed = time.monotonic() + grace_seconds, False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            pass
        holder = _read(fd)
        expired = time.monotonic() > deadline
        if (holder.pid and _has_open(holder.pid, path)) or (killed and expired):
            os.close(fd)
            raise AlreadyServing(data_dir, holder)
        if expired:
            _kill_orphans(path, holder)
            deadline, killed = time.monotonic() + 2.0, True
        time.sleep(POLL_SECONDS)
    lock = DataDirLock(fd, _read(fd))
    lock.announce(url, {})
    return lock


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _kill_orphans(path: Path, holder: Holder) -> None:
    for pid in holder.children.values():
        if _has_open(pid, path):
            try:
                os.kill(pid, signal.SIGKILL)
            except (ProcessLookupError, PermissionError):
                pass


def _has_open(pid: int, path: Path) -> bool:
    """Tell whether the process has `path` open: a recorded id may long belong to somebody else.

    Without /proc (macOS) it falls back to whether the process lives.
    """
    if not Path("/proc/self/fd").is_dir():
        return _is_alive(pid)
    wanted = path.stat()
    try:
        entries = list(Path(f"/proc/{pid}/fd").iterdir())
    except (FileNotFoundError, ProcessLookupError):
        return False
    except PermissionError:
        return True  # somebody else's: never ours to kill, and then the message names it
    for entry in entries:
        try:
            found = entry.stat()
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == (wanted.st_dev, wanted.st_ino):
            return True
    return False


def _read(fd: int) -> Holder:
    try:
        document = json.loads(os.pread(fd, 65536, 0))
        return Holder(int(document["pid"]), str(document["url"]), dict(document["children"]))
    except (ValueError, KeyError, TypeError):
        return Holder()  # empty, or another process is just writing it


def _write(fd: int, data: bytes) -> None:
    os.pwrite(fd, data, 0)
    os.ftruncate(fd, len(data))
